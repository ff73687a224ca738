"""`heedful translate`"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    SearchOption,
    WithOption,
    check_output,
    override_search,
    write_output,
)
from heedful.cli.documents import (
    check_document_output,
    copy_document,
    is_document,
    read_document_beginning,
    read_document_file,
    refuse_line_options,
    refuse_markup,
    refuse_unsupported_file,
    require_catalogue,
    translate_document,
)
from heedful.cli.loaded_model import LoadedModel, load_model
from heedful.cli.low_confidence import LowConfidenceWarnings
from heedful.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from heedful.data.stream import TextStream
    from heedful.metrics.alignment import Link
    from heedful.text.constraints import Constraints
    from heedful.translation.result import Alternative, Translation

_DETECTION_LINES = 50  # lines of a file to detect its language by
_LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [TEXT]...",
        help="A run folder or a built-in model (default: chosen by the language of the text), "
        "and texts to translate (default: --input or standard input).",
    ),
]
FromOption = Annotated[str, typer.Option("--from", help="Language of the text, such as en, if you name no model.")]
ToOption = Annotated[str, typer.Option("--to", help="Language to translate into, such as de, if you name no model.")]
InputOption = Annotated[
    Path | None,
    typer.Option("--input", help="File to translate: text, or a document such as .docx; - is stdin."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", help="File to write to (default: standard output).")]
NBestOption = Annotated[int, typer.Option(min=1, help="Number of translations of each text.")]
MethodOption = Annotated[
    str, typer.Option(help="beam, sample, or mbr (draw samples, and take the one that agrees most with the others).")
]
SeedOption = Annotated[int | None, typer.Option(help="Seed for sampling.")]
PrefixOption = Annotated[str, typer.Option(help="Text that every translation must begin with.")]
GlossaryOption = Annotated[
    Path | None, typer.Option(help="File of required terms: on each line a source term, a tab and its translation.")
]
KeepOption = Annotated[list[str] | None, typer.Option(help="Term to keep as it is in the source. Repeatable.")]
AlignmentsOption = Annotated[
    bool, typer.Option("--alignments", help="Add the source word that each word comes from: text ||| 0-0 1-2.")
]
ConfidenceOption = Annotated[
    bool, typer.Option("--confidence", help="With --json: add the model's confidence in each word.")
]
NoSplitOption = Annotated[
    bool,
    typer.Option("--no-split", help="Translate each line as one unit, as for test sets, and not sentence by sentence."),
]
FinalOption = Annotated[
    bool, typer.Option("--final", help="For .po and .pot files: do not mark new translations as fuzzy.")
]
DrawOption = Annotated[Path | None, typer.Option(help="For a parsing model: draw the tree to this file (.svg).")]


def translate(
    arguments: Arguments = None,
    source_language: FromOption = "",
    target_language: ToOption = "",
    source: InputOption = None,
    target: OutputOption = None,
    others: WithOption = None,
    beam: BeamOption = None,
    n_best: NBestOption = 1,
    method: MethodOption = "",
    seed: SeedOption = None,
    settings: SearchOption = None,
    prefix: PrefixOption = "",
    glossary: GlossaryOption = None,
    keep: KeepOption = None,
    alignments: AlignmentsOption = False,
    confidence: ConfidenceOption = False,
    no_split: NoSplitOption = False,
    final: FinalOption = False,
    draw: DrawOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
) -> None:
    """Translate arguments, a text file, a document, or standard input, sentence by sentence.

    Line breaks and white space are kept. Low-confidence translations are flagged on standard error.
    """
    choice, texts = _split_arguments(arguments or [], source_language, target_language)
    if glossary:
        choice.require_pair(glossary)
    if texts and source:
        raise ConfigError("give either texts or --input, not both")
    options = [*(settings or []), *_list_settings(method, seed)]
    if source and is_document(source):
        lines_only: dict[str, object] = {
            "--n-best": n_best > 1,
            "--alignments": alignments,
            "--draw": draw,
            "--json": as_json,
        }
        lines_only |= {"--confidence": confidence, "--prefix": prefix, "--no-split": no_split}
        refuse_line_options(source, lines_only)
        constraints = _make_constraints(glossary, keep, "")
        path = check_document_output(source, target)
        if final:
            require_catalogue(source)
        document = read_document_file(source, final=final)
        folders = choice.find_folders(lambda: read_document_beginning(document))
        if not folders:
            copy_document(source, path)
            return
        model = load_model(folders, device, engine, others)
        translate_document(document, model, override_search(model.search, beam, options), constraints, path)
        return
    if final:
        require_catalogue(source)
    _check_outputs(target, draw, source, numbers=confidence, as_json=as_json)
    lines = texts or _read_lines(source)
    if draw:
        lines = _require_one(lines)
    constraints = _make_constraints(glossary, keep, prefix)
    folders = choice.find_folders(lambda: _read_beginning(lines, source))
    if not folders:
        same = _repeat(lines)
        write_output(target, (line for n, t in enumerate(same) for line in _format(n, t, n_best, alignments, as_json)))
        return
    model = load_model(folders, device, engine, others)
    if draw:
        _check_writes_trees(model)
    search = override_search(model.search, beam, options)
    total = _count(texts, source)
    with console.display(bars=not texts) as display:
        translations = model.translate_with(display, align=alignments)(
            lines,
            search=search,
            n_best=n_best,
            constraints=constraints,
            confidence=confidence,
            split_sentences=not no_split,
            done=lambda count: display.progress("translating", count, total),
        )
        if draw:
            translations = _draw_trees(translations, draw)
        if not as_json:
            one_by_one = bool(texts) or (not source and sys.stdin.isatty())
            translations = LowConfidenceWarnings(display, one_by_one=one_by_one).watch(translations)
        write_output(
            target,
            (line for n, t in enumerate(translations) for line in _format(n, t, n_best, alignments, as_json)),
        )


@dataclass(frozen=True, slots=True)
class _ModelChoice:
    """A model by its name or folder; or, if there is none, the requested languages."""

    name: str
    source: str
    target: str

    def require_pair(self, glossary: Path) -> None:
        """Refuse a glossary if the languages are still to be chosen: terms belong to a pair of languages."""
        if not self.name and not (self.source and self.target):
            raise ConfigError(
                f"--glossary {glossary}: its terms belong to a pair of languages; name the pair with --from and --to, "
                "or name a model"
            )

    def find_folders(self, beginning: Callable[[], Iterable[str]]) -> list[Path]:
        """The folder of the model, or of two models; none if the text is in the target language already.

        `beginning` is called only if the language must be detected.
        """
        from heedful.storage.model_names import built_in_models, find_model

        if self.name:
            return [find_model(self.name)]
        from heedful.translation.direction import choose_direction

        known = built_in_models()
        texts = () if self.source and self.target else beginning()
        found = choose_direction(known, texts, self.source, self.target, _read_locale())
        if found.reason:
            console.say(found.reason)
        return [known[name] for name in found.models]


def _split_arguments(arguments: Sequence[str], source: str, target: str) -> tuple[_ModelChoice, list[str]]:
    """The model and the texts: the first argument is a model if it is a folder or the name of a built-in model.

    If it only looks like one, it is a mistake and not a text: nobody wants to translate the name of a folder. A single
    word before other arguments is a mistake, too: a misspelt name, or a sentence without quotes.
    """
    from heedful.storage.model_names import built_in_models, find_model, is_model, looks_like_model
    from heedful.text.languages import language_code

    first, *texts = arguments or [""]
    if not is_model(first) and not looks_like_model(first):
        if texts and len(first.split()) == 1:
            near = did_you_mean(first, built_in_models()) or "; heedful models lists the models"
            raise ConfigError(f"{first} is neither a run folder nor a built-in model; put a sentence in quotes{near}")
        return _ModelChoice("", language_code(source), language_code(target)), list(arguments)
    for option, given in (("--from", source), ("--to", target)):
        if given:
            raise ConfigError(
                f"{option} {given} chooses a built-in model, but you named {first}; leave out one of them"
            )
    find_model(first)  # fail before waiting for standard input
    return _ModelChoice(first, "", ""), texts


def _read_locale() -> str:
    """The user's language, in two letters."""
    return next((value for name in _LOCALE_VARIABLES if (value := os.environ.get(name))), "")[:2]


def _check_outputs(
    target: Path | None, draw: Path | None, source: Path | None, *, numbers: bool, as_json: bool
) -> None:
    if numbers and not as_json:
        raise ConfigError("--confidence adds numbers to every word, which only --json can show; add --json")
    check_output(target, read=[source])
    check_output(draw, "--draw", read=[source])
    if draw and draw.suffix.lower() != ".svg":
        raise ConfigError(f"--draw {draw}: the picture is an SVG; give the file a name that ends in .svg")


def _check_writes_trees(model: LoadedModel) -> None:
    from heedful.tasks import find_task

    task = find_task(model.runs[0].experiment().task)
    if not task.writes_trees:
        raise ConfigError(f"--draw draws parse trees, but {model.runs[0].path} is a model for {task.name}")


def _list_settings(method: str, seed: int | None) -> list[str]:
    """The options that are short for keys of [search]."""
    given = {"method": method, "seed": "" if seed is None else seed}
    return [f"search.{key}={value}" for key, value in given.items() if value != ""]


def _make_constraints(glossary: Path | None, keep: list[str] | None, prefix: str) -> "Constraints":
    from heedful.data.pairs import read_lines
    from heedful.text.constraints import Constraints, read_glossary

    kept = {term.strip(): term.strip() for term in keep or []}
    if "" in kept:
        raise ConfigError("--keep is empty; give the term to keep")
    listed = read_glossary(read_lines(glossary), str(glossary)) if glossary else {}
    return Constraints(listed | kept, prefix)


def _read_beginning(lines: "Iterable[str] | TextStream", source: Path | None) -> list[str]:
    """Enough to detect the language by; from a pipe, which may stay open, only the first text."""
    from heedful.data.pairs import read_lines
    from heedful.data.stream import TextStream

    if isinstance(lines, TextStream):
        return lines.peek()
    return list(islice(lines if isinstance(lines, list) or not source else read_lines(source), _DETECTION_LINES))


def _count(texts: list[str] | None, source: Path | None) -> int:
    """The number of texts to translate; 0 if it is unknown until the end."""
    from heedful.data.pairs import read_lines

    if texts:
        return len(texts)
    return sum(1 for _ in read_lines(source)) if source and source.is_file() else 0


def _read_lines(source: Path | None) -> "Iterable[str] | TextStream":
    from heedful.data.pairs import read_lines
    from heedful.data.stream import TextStream

    if source and str(source) != "-":
        refuse_unsupported_file(source)
    if source is None and sys.stdin.isatty():
        console.say("reading from the keyboard, one text a line; end with Ctrl-D")
    lines = read_lines(source or Path("-"))
    return lines if source and source.is_file() else TextStream(refuse_markup(lines, "standard input"))


def _require_one(lines: "Iterable[str] | TextStream") -> list[str]:
    """The only text, whose tree is drawn; an error if there are more or none."""
    from heedful.data.stream import read_windows

    texts = list(chain.from_iterable(read_windows(lines)))
    if len(texts) != 1:
        raise ConfigError(f"--draw draws the tree of one text, but there are {len(texts)}; give one")
    if not texts[0].strip():
        raise ConfigError("--draw draws the tree of a text, but the text is empty; give a sentence")
    return texts


def _repeat(lines: "Iterable[str] | TextStream") -> "Iterator[Translation]":
    """Texts that are in the target language already, as translations of themselves."""
    from heedful.data.stream import read_windows
    from heedful.translation.result import Alternative, Translation

    for text in chain.from_iterable(read_windows(lines)):
        links = tuple((number, number) for number in range(len(text.split())))
        alternatives = (Alternative(text, 0.0, 0.0, (), alignment=links),) if text.strip() else ()
        yield Translation(text, text, 0.0, (), alternatives)


def _draw_trees(found: "Iterable[Translation]", path: Path) -> "Iterator[Translation]":
    """Draw each tree, then pass on the translation."""
    from heedful.storage.files import write_atomically
    from heedful.text.tree_svg import tree_svg
    from heedful.text.trees import read_tree

    for translation in found:
        write_atomically(path, tree_svg(read_tree(translation.text)))
        yield translation


def _format(number: int, translation: "Translation", n_best: int, aligned: bool, as_json: bool) -> Iterator[str]:
    if as_json:
        yield json.dumps({"index": number, **_fields(translation, aligned)}, ensure_ascii=False)
    elif n_best == 1:
        # Only an argument can have line breaks, and keeps them; a line stays a line.
        text = translation.text if "\n" in translation.source and not aligned else one_line(translation.text)
        yield text + _links(translation.alignment if aligned else None)
    else:
        for alternative in translation.alternatives:
            line = f"{number} ||| {one_line(alternative.text)} ||| {alternative.score:.4f}"
            yield line + _links(alternative.alignment)
        if not translation.alternatives:  # an empty line keeps its place in the list
            yield f"{number} |||  ||| 0.0000" + _links(() if aligned else None)


def _fields(translation: "Translation", aligned: bool) -> dict[str, object]:
    """All fields of a translation; alignments and confidence only if they were requested."""
    fields = {field.name: getattr(translation, field.name) for field in dataclasses.fields(translation)}
    fields["alternatives"] = [_alternative_fields(alternative) for alternative in translation.alternatives]
    fields["sentences"] = [_fields(sentence, aligned) for sentence in translation.sentences]
    fields["unsure"] = translation.unsure
    return fields | {"alignment": translation.alignment} if aligned else fields


def _alternative_fields(alternative: "Alternative") -> dict[str, object]:
    """All fields that were requested, and those of the text that it went through."""
    fields = dataclasses.asdict(alternative) | {"pivot": alternative.pivot and _alternative_fields(alternative.pivot)}
    return {key: value for key, value in fields.items() if value is not None}


def _links(alignment: "Iterable[Link] | None") -> str:
    from heedful.metrics.alignment import format_pharaoh

    return "" if alignment is None else f" ||| {format_pharaoh(alignment)}"


def one_line(text: str) -> str:
    """The text on one line: line breaks that a model produced become spaces."""
    return text.replace("\r", " ").replace("\n", " ")

"""`heedful translate`"""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator
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
    load_translator,
    override_search,
    write_output,
)
from heedful.cli.documents import (
    DocumentJob,
    is_document,
    refuse_other_files,
    refuse_with_documents,
    translate_document,
)
from heedful.cli.low_confidence import Doubts
from heedful.cli.model_choice import split_arguments
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.attention.aligner import Aligner
    from heedful.data.stream import Arriving
    from heedful.metrics.alignment import Link
    from heedful.text.constraints import Constraints
    from heedful.translation.result import Translation
    from heedful.translation.translator import Translator

_LINES = 50  # of a file that its language is told by

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [TEXT]...",
        help="A run folder or the name of a built-in model, else one is chosen by the language of the text; "
        "and what to translate, else --input or standard input.",
    ),
]
FromOption = Annotated[str, typer.Option("--from", help="Where no model is named: the language of the text, say en.")]
ToOption = Annotated[str, typer.Option("--to", help="Where no model is named: the language to translate into, say de.")]
InputOption = Annotated[
    Path | None,
    typer.Option("--input", help="A file, one text a line, or a document such as .docx; - is standard input."),
]
OutputOption = Annotated[Path | None, typer.Option("--output", help="Where to write; else standard output.")]
NBestOption = Annotated[int, typer.Option(min=1, help="Translations of each text.")]
MethodOption = Annotated[str, typer.Option(help="beam, sample, or mbr: of samples the one that the others agree with.")]
SeedOption = Annotated[int | None, typer.Option(help="Of sampling.")]
PrefixOption = Annotated[str, typer.Option(help="What every translation begins with.")]
GlossaryOption = Annotated[
    Path | None, typer.Option(help="Terms to hold to: a file of lines with a source term, a tab and a target term.")
]
KeepOption = Annotated[list[str] | None, typer.Option(help="A term that is kept as it is in the source. Repeatable.")]
AlignmentsOption = Annotated[
    bool, typer.Option("--alignments", help="Tell which source word each word comes from: text ||| 0-0 1-2.")
]
ConfidenceOption = Annotated[
    bool, typer.Option("--confidence", help="With --json: how sure the model is of each word.")
]
DrawOption = Annotated[Path | None, typer.Option(help="Of a parsing model: draw the tree into this file (.svg).")]


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
    draw: DrawOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
) -> None:
    """Translate arguments, a file of lines, a document, or standard input; what is not sure is told beside it."""
    which, texts = split_arguments(arguments or [], source_language, target_language)
    if texts and source:
        raise ConfigError("give either texts or --input, not both")
    options = [*(settings or []), *_drawing(method, seed)]
    if source and is_document(source):
        lines_only = {"--n-best": n_best > 1, "--alignments": alignments, "--draw": draw, "--json": as_json}
        refuse_with_documents(source, {**lines_only, "--confidence": confidence, "--prefix": prefix})
        constraints = _make_constraints(glossary, keep, "")
        job = DocumentJob(which.model, source, target, constraints, lambda own: override_search(own, beam, options))
        translate_document(job, lambda run: load_translator(run, device, engine, others))
        return
    _check_outputs(target, draw, source, numbers=confidence, as_json=as_json)
    given = texts or _lines(source)
    lines = _only_one(given) if draw else given
    constraints = _make_constraints(glossary, keep, prefix)
    run = which.model(lambda: _beginning(lines, source))
    translator = load_translator(run, device, engine, others)
    if draw:
        _check_writes_trees(run, translator)
    search = override_search(translator.search, beam, options)
    total = _count(texts, source)
    with console.display(bars=not texts) as shown:
        aligner = _aligner(run, translator, shown) if alignments else None
        found = translator.translate_lines(
            lines,
            search=search,
            n_best=n_best,
            aligner=aligner,
            constraints=constraints,
            confidence=confidence,
            done=lambda count: shown.progress("translating", count, total),
        )
        if draw:
            found = _drawn(found, draw)
        if not as_json:
            found = Doubts(shown, one_by_one=bool(texts) or (not source and sys.stdin.isatty())).heard(found)
        write_output(target, (line for n, t in enumerate(found) for line in _format(n, t, n_best, alignments, as_json)))


def _check_outputs(
    target: Path | None, draw: Path | None, source: Path | None, *, numbers: bool, as_json: bool
) -> None:
    if numbers and not as_json:
        raise ConfigError("--confidence has numbers for every word, which only --json can show; give both")
    check_output(target, read=[source])
    check_output(draw, "--draw", read=[source])
    if draw and draw.suffix.lower() != ".svg":
        raise ConfigError(f"--draw {draw}: the picture is an SVG; give the file a name that ends in .svg")


def _check_writes_trees(run: Path, translator: "Translator") -> None:
    if not translator.task.writes_trees:
        raise ConfigError(f"--draw draws parse trees, but {run} is a model for {translator.task.name}")


def _aligner(run: Path, translator: "Translator", report: console.Display) -> "Aligner":
    from heedful.storage.run_folder import RunFolder
    from heedful.translation.word_alignment import find_aligner

    return find_aligner(RunFolder.open(run), translator, report)


def _drawing(method: str, seed: int | None) -> list[str]:
    """The options that stand for keys."""
    given = {"method": method, "seed": "" if seed is None else seed}
    return [f"search.{key}={value}" for key, value in given.items() if value != ""]


def _make_constraints(glossary: Path | None, keep: list[str] | None, prefix: str) -> "Constraints":
    from heedful.data.pairs import read_lines
    from heedful.text.constraints import Constraints, read_glossary

    kept = {term.strip(): term.strip() for term in keep or []}
    if "" in kept:
        raise ConfigError("--keep is empty; name a term that is to be kept as it is")
    listed = read_glossary(read_lines(glossary), str(glossary)) if glossary else {}
    return Constraints(listed | kept, prefix)


def _beginning(lines: "Iterable[str] | Arriving", source: Path | None) -> list[str]:
    """Enough to tell the language by; of a pipe, which may stay open, the first text."""
    from heedful.data.pairs import read_lines
    from heedful.data.stream import Arriving

    if isinstance(lines, Arriving):
        return lines.begun()
    return list(islice(lines if isinstance(lines, list) or not source else read_lines(source), _LINES))


def _count(texts: list[str] | None, source: Path | None) -> int:
    """How many lines there are to translate; 0 if only the end will tell."""
    from heedful.data.pairs import read_lines

    if texts:
        return len(texts)
    return sum(1 for _ in read_lines(source)) if source and source.is_file() else 0


def _lines(source: Path | None) -> "Iterable[str] | Arriving":
    from heedful.data.pairs import read_lines
    from heedful.data.stream import Arriving

    refuse_other_files(source)
    if source is None and sys.stdin.isatty():
        console.say("reading from the keyboard, one text a line; end with Ctrl-D")
    lines = read_lines(source or Path("-"))
    return lines if source and source.is_file() else Arriving(lines)


def _only_one(lines: "Iterable[str] | Arriving") -> list[str]:
    """The text whose tree is drawn."""
    from heedful.data.stream import windows

    texts = list(chain.from_iterable(windows(lines)))
    if len(texts) != 1:
        raise ConfigError(f"--draw draws the tree of one text, but there are {len(texts)}; give one")
    if not texts[0].strip():
        raise ConfigError("--draw draws the tree of a text, but the text is empty; give a sentence")
    return texts


def _drawn(found: "Iterable[Translation]", path: Path) -> "Iterator[Translation]":
    """The same, with the tree in a picture before it is passed on."""
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
        yield one_line(translation.text) + _links(translation.alignment if aligned else None)
    else:
        for alternative in translation.alternatives:
            line = f"{number} ||| {one_line(alternative.text)} ||| {alternative.score:.4f}"
            yield line + _links(alternative.alignment)
        if not translation.alternatives:  # an empty line has its place in the list, too
            yield f"{number} |||  ||| 0.0000" + _links(() if aligned else None)


def _fields(translation: "Translation", aligned: bool) -> dict[str, object]:
    """All that is known of a translation; alignments and confidence only where they were asked for."""
    fields = dataclasses.asdict(translation) | {"unsure": translation.unsure}
    for alternative in fields["alternatives"]:
        for key in ("alignment", "confidence"):
            if alternative[key] is None:  # not asked for
                del alternative[key]
    return fields | {"alignment": translation.alignment} if aligned else fields


def _links(alignment: "Iterable[Link] | None") -> str:
    from heedful.metrics.alignment import format_pharaoh

    return "" if alignment is None else f" ||| {format_pharaoh(alignment)}"


def one_line(text: str) -> str:
    """Line in, line out: a line break that a model produced becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")

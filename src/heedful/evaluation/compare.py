"""Several systems on one test set: runs, which translate it now, and translations that were made elsewhere."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from heedful.config import BleuTokens, SearchConfig
from heedful.data.pairs import STANDARD_INPUT, read_lines
from heedful.errors import ConfigError, DataError
from heedful.metrics.bleu import split_words
from heedful.metrics.comparison import Comparison, EvaluationSet, System, compare_outputs
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.translation.translator import Translator

_LINES_AT_A_TIME = 8192


@dataclass(frozen=True, slots=True)
class Competitor:
    """A run with what translates and how, or the lines of a file."""

    name: str
    lines: tuple[str, ...] = ()
    run: RunFolder | None = None
    translator: Translator | None = None
    search: SearchConfig | None = None


def short_names(paths: Sequence[Path]) -> list[str]:
    """What to call them: by the last part of the path, unless two would be called the same."""
    names = [path.name or str(path) for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def read_texts(
    source: Path | None, references: Sequence[Path], outputs: Sequence[Path]
) -> tuple[EvaluationSet, dict[Path, tuple[str, ...]]]:
    """The test set, and the translations in files; all must have as many lines."""
    paths = [*references, *([source] if source else []), *outputs]
    if sum(str(path) == STANDARD_INPUT for path in paths) > 1:
        raise DataError("standard input (-) can be read only once; give files for the others")
    contents = {path: tuple(read_lines(path)) for path in paths}
    first = contents[paths[0]]
    for path, lines in contents.items():
        if len(lines) != len(first):
            raise DataError(
                f"{paths[0]} has {len(first)} lines but {path} has {len(lines)}; all files must pair up line by line"
            )
    return EvaluationSet(tuple(contents[path] for path in references), contents[source] if source else None), contents


def open_run(path: Path) -> RunFolder:
    """A run folder whose outputs can be compared."""
    run = RunFolder.open(path)
    if not (task := find_task(run.experiment().task)).translates:
        raise ConfigError(
            f"{path} is a model for {task.name}, but only translations are compared; "
            f"score it with: heedful evaluate {path}"
        )
    return run


def common_tokens(runs: Sequence[RunFolder]) -> BleuTokens:
    """How the words of BLEU are told apart: as the experiments say, which must agree; else as sacreBLEU does."""
    wanted = {run.experiment().evaluate.tokenize: run for run in reversed(runs)}
    if len(wanted) > 1:
        told = ", ".join(f"{run.path} '{tokens}'" for tokens, run in reversed(wanted.items()))
        raise ConfigError(f"the runs have different evaluate.tokenize: {told}; choose one by --tokenize")
    return next(iter(wanted), "13a")


def compare_all(
    competitors: Sequence[Competitor], texts: EvaluationSet, tokenize: BleuTokens, report: Reporter
) -> Comparison:
    """Translate where that is still to be done, then compare.

    How frequent words are is counted in the training text of the first run that still has it, else in the references.
    """
    systems = [System(one.name, _translated(one, texts, report)) for one in competitors]
    trained = next((one for one in competitors if one.run and (one.run.data / "train-0/corpus.json").exists()), None)
    if trained is None or trained.run is None:
        return compare_outputs(systems, texts, tokenize)
    said = split_words(chain.from_iterable([*texts.references, *(system.outputs for system in systems)]), tokenize)
    frequency = _training_frequency(trained.run, set(chain.from_iterable(said)), tokenize, report)
    return compare_outputs(systems, texts, tokenize, frequency, f"the training text of {trained.name}")


def _translated(one: Competitor, texts: EvaluationSet, report: Reporter) -> tuple[str, ...]:
    if one.translator is None:
        return one.lines
    sources = texts.sources or ()
    found = one.translator.translate_lines(
        sources,
        search=one.search,
        done=lambda count: report.progress(f"translating with {one.name}", count, len(sources)),
    )
    return tuple(translation.text for translation in found)


def _training_frequency(run: RunFolder, wanted: set[str], tokenize: BleuTokens, report: Reporter) -> Counter[str]:
    """How often each of these words is in the target side of the training corpus."""
    found: Counter[str] = Counter()
    for words in split_words(_training_text(run, report), tokenize):
        found.update(word for word in words if word in wanted)
    return found


def _training_text(run: RunFolder, report: Reporter) -> Iterator[str]:
    from heedful.data.corpus import Corpus

    corpus, tokenizer = Corpus(run.data / "train-0"), run.tokenizers().target
    for start in range(0, len(corpus), _LINES_AT_A_TIME):
        places = range(start, min(start + _LINES_AT_A_TIME, len(corpus)))
        yield from tokenizer.decode_all([corpus.sentence("target", place).tolist() for place in places])
        report.progress("counting words of the training text", places.stop, len(corpus))

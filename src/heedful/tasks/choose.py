"""The one place that knows which task does what.

A `Pair` and all that people see is in the task's own form: a word and its phonemes, a sentence and its tree. A model
sees symbols with spaces between them: `source_symbols`, `target_symbols` and, back again, `finish`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import assert_never

from heedful.config.experiment import BleuTokens, DataConfig, Task, TokenizerKind
from heedful.data.pairs import Pair, check_readable, read_parallel
from heedful.data.pairs import read_pairs as read_translations
from heedful.errors import ConfigError, DataError
from heedful.metrics.bleu import bleu, translation_scores
from heedful.metrics.score import Score
from heedful.tasks import characters, copying, parsing, pronunciation

TREES: tuple[Task, ...] = ("parsing", "tagged-parsing", "lexical-parsing")


@dataclass(frozen=True, slots=True)
class Question:
    """One source of a test, and all right answers."""

    source: str
    references: tuple[str, ...]


def read_pairs(task: Task, data: DataConfig) -> Iterator[Pair]:
    """All training pairs. Besides translation, a file that has no target beside it holds both sides."""
    if task == "translation":
        return read_translations(data)
    if not data.source and not data.tsv:
        raise DataError("there is nothing to read; give data.source")
    return read_files(task, data.source, data.target, data.tsv)


def read_validation(task: Task, data: DataConfig) -> Iterator[Pair]:
    """The pairs of `data.valid_source`, in the same way."""
    if task == "translation":
        return read_parallel(data.valid_source, data.valid_target)
    return read_files(task, data.valid_source, data.valid_target)


def read_questions(task: Task, sources: Sequence[str], references: Sequence[Sequence[str]]) -> list[Question]:
    """A test set: sources beside one or more sets of references, or files of the task that hold both sides."""
    if not references:
        return questions(task, read_files(task, sources, ()))
    first, *others = [list(read_files(task, sources, files)) for files in references]
    if not others:
        return questions(task, first)
    several = zip(first, *others, strict=True)  # each has as many lines as the sources
    return [Question(pairs[0].source, tuple(pair.target for pair in pairs)) for pairs in several]


def questions(task: Task, pairs: Iterable[Pair]) -> list[Question]:
    """A test out of pairs. A word that stands in a dictionary more than once is one question with several answers."""
    if task != "pronunciation":
        return [Question(pair.source, (pair.target,)) for pair in pairs]
    answers: dict[str, list[str]] = {}
    for pair in pairs:
        answers.setdefault(pair.source, []).append(pair.target)
    return [Question(source, tuple(right)) for source, right in answers.items()]


def symbols(task: Task, pair: Pair) -> Pair:
    """A pair as a model learns it."""
    return Pair(source_symbols(task, pair.source), target_symbols(task, pair.target))


def source_symbols(task: Task, text: str) -> str:
    """What people write as the model reads it."""
    match task:
        case "translation" | "parsing" | "tagged-parsing" | "lexical-parsing" | "copy" | "reverse":
            return text
        case "pronunciation":
            return characters.spell(text)
        case "characters":
            return characters.source_symbols(text)
    assert_never(task)


def target_symbols(task: Task, text: str) -> str:
    """A right answer as the model writes it."""
    match task:
        case "translation" | "pronunciation" | "copy" | "reverse":
            return text
        case "parsing" | "tagged-parsing":
            return parsing.target_symbols(text, tags=task == "tagged-parsing")
        case "lexical-parsing":
            return parsing.target_symbols(text, words=True)
        case "characters":
            return characters.spell(text)
    assert_never(task)


def finish(task: Task, source: str, output: str) -> str:
    """What the model wrote, in the form of the task; `source` is what people wrote."""
    match task:
        case "translation":
            return output
        case "parsing" | "tagged-parsing" | "lexical-parsing":
            return parsing.finish(source, output, words=task == "lexical-parsing")
        case "pronunciation" | "copy" | "reverse":
            return " ".join(output.split())
        case "characters":
            return characters.unspell(output)
    assert_never(task)


def writes_trees(task: Task) -> bool:
    """Whether outputs are trees."""
    return task in TREES


def text_kinds(task: Task, wanted: TokenizerKind) -> tuple[TokenizerKind, TokenizerKind]:
    """How source and target become pieces. Symbols are whole: to cut one up would make longer what is long already."""
    match task:
        case "translation" | "lexical-parsing":
            return wanted, wanted
        case "parsing" | "tagged-parsing":
            return wanted, "symbols"
        case "pronunciation" | "characters" | "copy" | "reverse":
            return "symbols", "symbols"
    assert_never(task)


def score_name(task: Task) -> str:
    """What `quick_score` is called."""
    match task:
        case "translation":
            return "BLEU"
        case "parsing" | "tagged-parsing" | "lexical-parsing":
            return "F1"
        case "pronunciation" | "characters" | "copy" | "reverse":
            return "accuracy"
    assert_never(task)


def scores(
    task: Task,
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    language: str,
    resamples: int = 1000,
) -> list[Score]:
    """How good finished outputs are, by what the task is judged by. `references[i]` are the answers to question i."""
    match task:
        case "translation":
            return translation_scores(outputs, _sets(references), tokenize, language, resamples)
        case "parsing" | "tagged-parsing" | "lexical-parsing":
            return parsing.scores(outputs, references, resamples)
        case "pronunciation":
            return pronunciation.scores(outputs, references, resamples)
        case "characters":
            return characters.scores(outputs, references, resamples)
        case "copy" | "reverse":
            return copying.scores(outputs, references, resamples)
    assert_never(task)


def quick_score(task: Task, outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    """One number for a look while training, of which more is better and 100 is perfect: BLEU, F1 or accuracy."""
    match task:
        case "translation":
            return bleu(outputs, _sets(references), tokenize)
        case "pronunciation":
            return 100.0 - pronunciation.scores(outputs, references, resamples=1)[0].value
        case "parsing" | "tagged-parsing" | "lexical-parsing" | "characters" | "copy" | "reverse":
            return scores(task, outputs, references, tokenize, "", resamples=1)[0].value
    assert_never(task)


def read_files(
    task: Task, sources: Sequence[str], targets: Sequence[str], tables: Sequence[str] = ()
) -> Iterator[Pair]:
    """The pairs of these files. Missing ones are named before the first pair is read."""
    if targets and writes_trees(task):
        raise ConfigError(f"a file of trees holds words and brackets; leave the other file ({targets[0]}) out")
    if sources and not targets and task == "translation":
        raise ConfigError(f"there is no translation beside {sources[0]}; give the file of its other side, too")
    both_sides = tables if targets else (*sources, *tables)
    for name in both_sides:
        check_readable(Path(name))
    parallel = read_parallel(sources, targets) if targets else iter(())
    return chain(parallel, *(_file(task, Path(name)) for name in both_sides))


def _file(task: Task, path: Path) -> Iterator[Pair]:
    match task:
        case "parsing" | "tagged-parsing" | "lexical-parsing":
            return parsing.read(path)
        case "pronunciation":
            return pronunciation.read(path)
        case "translation" | "characters":
            return characters.read(path)
        case "copy":
            return copying.read_copy(path)
        case "reverse":
            return copying.read_reverse(path)
    assert_never(task)


def _sets(references: Sequence[Sequence[str]]) -> list[list[str]]:
    """As sacreBLEU wants them: the first answers of all questions, then the second ones."""
    if len({len(several) for several in references}) > 1:
        raise DataError("some sentences have more references than others; give each the same number")
    return [list(several) for several in zip(*references, strict=True)]

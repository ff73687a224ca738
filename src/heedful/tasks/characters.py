"""Inflection, transliteration and the like: characters in, characters out."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task

_SPACE = "␣"  # stands for a space of the text, because spaces separate symbols


def read_inflections(path: Path) -> Iterator[Pair]:
    """Read lines of source, tab, target; or of lemma, tab, form, tab, features, as in SIGMORPHON.

    The source of an inflection is the lemma, a tab, and the features.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        match line.split("\t"):
            case [source, target]:
                yield Pair(source, target)
            case [lemma, form, features]:
                yield Pair(f"{lemma}\t{features}", form)
            case columns:
                raise DataError(f"{path}, line {number}: a line must have 2 or 3 columns, but has {len(columns)}")


def spell(text: str) -> str:
    """Write the characters with spaces between them."""
    return " ".join(_SPACE if character.isspace() else character for character in text)


def unspell(symbols: str) -> str:
    """Undo `spell`."""
    return "".join(symbols.split()).replace(_SPACE, " ")


def _source_symbols(text: str) -> str:
    """Spell out a text; each feature after a tab becomes one symbol in angle brackets."""
    plain, _, features = text.partition("\t")
    return " ".join([spell(plain), *(f"<{feature}>" for feature in features.replace(";", " ").split())])


def _finish(source: str, output: str) -> str:
    return unspell(output)


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """Accuracy of whole outputs, and the character error rate."""
    from heedful.metrics.edit_distance import score_characters  # imports NumPy, which translating does not need

    return score_characters(outputs, references, options.resamples)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions(resamples=1))[0]


CHARACTERS = Task(
    name="characters",
    read_file=read_inflections,
    source_symbols=_source_symbols,
    target_symbols=spell,
    finish=_finish,
    source_tokenizer="symbols",
    target_tokenizer="symbols",
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
)

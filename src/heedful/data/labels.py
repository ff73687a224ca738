"""Files of labelled texts: `label<TAB>text` on each line, or words with a tag each, as CoNLL-U or in two columns.

A tagged sentence is a pair of its words and its tags, each with tabs between them, because a word may hold a space.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from heedful.config.experiment import Head
from heedful.data.pairs import Pair, read_lines
from heedful.errors import DataError, counted

LabelKind = Literal["classification", "tagging"]  # the names of the tasks

_EXAMINED_LINES = 2000
_CONLLU_COLUMNS = 10
_FORM, _UPOS, _XPOS = 1, 3, 4  # columns of CoNLL-U
_NO_TAG = "_"
_MOST_LABELS = 1000


@dataclass(frozen=True, slots=True)
class LabelStatistics:
    """The size of labelled texts, measured in one pass."""

    texts: int
    characters: int
    words: int
    distinct_words: int
    labels: tuple[tuple[str, int], ...]  # each label and how often it occurs, the most frequent first

    @property
    def names(self) -> tuple[str, ...]:
        """The labels in alphabetical order, which is that of a model's outputs."""
        return tuple(sorted(name for name, _ in self.labels))


def find_label_kind(files: Sequence[str]) -> LabelKind:
    """Whether these files hold a label for each text or a tag for each word; all must be of the same kind."""
    kinds = {name: "tagging" if _is_tagged(Path(name)) else "classification" for name in files}
    by_kind = {kind: name for name, kind in kinds.items()}
    if len(by_kind) > 1:
        raise DataError(
            f"{by_kind['classification']} holds a label for each text but {by_kind['tagging']} a tag for each word; "
            "train two models"
        )
    return "tagging" if "tagging" in by_kind else "classification"


def _is_tagged(path: Path) -> bool:
    """Whether the first lines are those of CoNLL-U, or words with tags and empty lines between sentences."""
    lines = list(islice(read_lines(path), _EXAMINED_LINES))
    while lines and not lines[-1].strip():
        lines.pop()
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    if rows and all(len(row) == _CONLLU_COLUMNS and row[0][:1].isdigit() for row in rows):
        return True
    has_gaps = any(not line.strip() for line in lines)
    return has_gaps and all(len(row) == 2 and " " not in row[1].strip() for row in rows)


def read_labels(path: Path) -> Iterator[Pair]:
    """The texts of a file with their labels: lines of label, tab, text."""
    for number, line in enumerate(read_lines(path), 1):
        label, tab, text = line.partition("\t")
        if not line.strip():
            continue
        if not tab:
            raise DataError(f"{path}, line {number}: no tab; a line must be label, tab, text")
        if not label.strip():
            raise DataError(f"{path}, line {number}: the label is empty; a line must be label, tab, text")
        yield Pair(text.replace("\t", " ").strip(), label.strip())


def read_tags(path: Path) -> Iterator[Pair]:
    """The sentences of a file with the tag of each word, from CoNLL-U or from lines of word, tab, tag."""
    words, tags = list[str](), list[str]()
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            if words:
                yield Pair("\t".join(words), "\t".join(tags))
            words, tags = [], []
            continue
        row = line.split("\t")
        if len(row) == _CONLLU_COLUMNS:
            if not row[0].isdecimal():  # several words written as one, or a word that is left out
                continue
            word, tag = row[_FORM], row[_UPOS] if row[_UPOS] != _NO_TAG else row[_XPOS]
        elif line.startswith("#") and len(row) == 1:
            continue
        elif len(row) == 2:
            word, tag = row
        else:
            raise DataError(
                f"{path}, line {number}: {counted(len(row), 'column')}; a line must be word, tab, tag, or the ten "
                "columns of CoNLL-U"
            )
        if not word.strip() or not tag.strip() or tag == _NO_TAG:
            raise DataError(f"{path}, line {number}: {'the word' if not word.strip() else 'the tag'} is empty")
        words.append(word.strip())
        tags.append(tag.strip())
    if words:
        yield Pair("\t".join(words), "\t".join(tags))


def measure_labels(pairs: Iterable[Pair], kind: LabelKind) -> LabelStatistics:
    """Count texts, words and labels; refuses data that has nothing to tell apart."""
    labels, distinct = Counter[str](), set[str]()
    texts = characters = words = 0
    for pair in pairs:
        texts += 1
        characters += len(pair.source)
        found = pair.source.split("\t" if kind == "tagging" else None)
        words += len(found)
        distinct.update(found)
        labels.update(pair.target.split("\t") if kind == "tagging" else [pair.target])
    what, wanted = ("tag", "word") if kind == "tagging" else ("label", "text")
    if not labels:
        raise DataError(f"the files hold no {wanted}s; give {wanted}s with at least two {what}s")
    if len(labels) == 1:
        raise DataError(
            f"every {wanted} has the {what} {next(iter(labels))!r}, so there is nothing to tell apart; "
            f"give {wanted}s with at least two {what}s"
        )
    if len(labels) > _MOST_LABELS or (kind == "classification" and 2 * len(labels) > max(10, texts)):
        raise DataError(
            f"there are {len(labels):,} different labels for {counted(texts, 'text', ',')}; a line must be label, tab, "
            "text, in this order, and each label needs many texts"
        )
    by_count = tuple(sorted(labels.items(), key=lambda item: (-item[1], item[0])))
    return LabelStatistics(texts, characters, words, len(distinct), by_count)


def find_encoder_kind(head: Head | None) -> LabelKind:
    """What a model with this head answers."""
    return "tagging" if head == "tokens" else "classification"

"""Labelled texts as ids in memory-mapped files: a corpus whose targets are labels, and the places that they belong to.

::

    folder/places.ids      the place in its source of each target: 0 for a whole text, or the first piece of a word
    (the other files are those of `heedful.data.corpus`; target.ids holds the numbers of labels)
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.batch import Batch
from heedful.data.corpus import FILES, Corpus, DroppedPairs, Encode, SideWriter, describe_corpus, map_ids
from heedful.data.labels import LabelKind
from heedful.data.pairs import Pair
from heedful.errors import FolderError
from heedful.text import Tokenizer

LABELLED_FILES = (*FILES, "places.ids")

_TEXTS_AT_A_TIME = 4096
_ADDED = 2  # [CLS] and EOS


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text as pieces, and the places in it that a model is asked about."""

    ids: list[int]
    places: list[int]


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """Texts as questions of at most `longest` pieces: long texts are cut, and long sentences of words are divided."""

    tokenizer: Tokenizer
    kind: LabelKind
    longest: int

    def with_encoding(self, encode: Encode) -> Callable[[Sequence[str]], Iterator[list[AskedText]]]:
        """The questions of each text, whose pieces are found by another function, such as BPE dropout."""
        return lambda texts: self._questions(texts, encode)

    def __call__(self, texts: Sequence[str]) -> Iterator[list[AskedText]]:
        """The questions of each text: one, or several for a long sentence of words."""
        return self._questions(texts, self.tokenizer.encode_all)

    def _questions(self, texts: Sequence[str], encode: Encode) -> Iterator[list[AskedText]]:
        begin, end, most = [self.tokenizer.cls_id], [self.tokenizer.eos_id], self.longest - _ADDED
        if self.kind == "classification":
            yield from ([AskedText([*begin, *ids[:-1][:most], *end], [0])] for ids in encode(texts))
            return
        # In a vocabulary of characters, a space shows where a word begins; others have it in their pieces.
        space = " " if self.tokenizer.kind in ("characters", "bytes") else ""
        sentences = [text.split("\t") for text in texts]
        found = iter(encode([space + word for words in sentences for word in words]))
        for words in sentences:
            ids, places, questions = list(begin), list[int](), list[AskedText]()
            for _ in words:
                pieces = next(found)[:-1][:most] or [self.tokenizer.mask_id]
                if len(ids) + len(pieces) > most + 1:
                    questions.append(AskedText([*ids, *end], places))
                    ids, places = list(begin), []
                places.append(len(ids))
                ids += pieces
            yield [*questions, AskedText([*ids, *end], places)]


class LabelledCorpus(Corpus):
    """Labelled texts as ids, on disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._places = map_ids(folder / "places.ids", self._ids["target"].dtype)
        if len(self._places) != len(self._ids["target"]):
            raise FolderError(f"{folder} is damaged: not every label has a place; delete it and train again")

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The texts at these places; the places that are asked about stand where a decoder reads its tokens."""
        ends = self._ends["target"]
        places = [self._places[ends[i - 1] if i else 0 : ends[i]].astype(np.int64) for i in map(int, indices)]
        return replace(super().batch(indices, start_id), target_in=torch.from_numpy(np.concatenate(places)))


def write_labelled_corpus(
    folder: Path,
    pairs: Iterable[Pair],
    encode: Callable[[Sequence[str]], Iterator[list[AskedText]]],
    labels: Sequence[str],
    vocabulary_size: int,
) -> LabelledCorpus:
    """Encode labelled texts into a new corpus; empty texts are left out and counted."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.json").unlink(missing_ok=True)
    dtype = np.dtype(np.uint16 if max(vocabulary_size, len(labels)) <= 1 << 16 else np.uint32)
    numbers, empty = {label: number for number, label in enumerate(labels)}, 0
    with (
        SideWriter(folder, "source", dtype) as source,
        SideWriter(folder, "target", dtype) as target,
        (folder / "places.ids").open("wb") as places,
    ):
        iterator = iter(pairs)
        while some := list(islice(iterator, _TEXTS_AT_A_TIME)):
            full = [pair for pair in some if pair.source.strip()]
            empty += len(some) - len(full)
            for pair, questions in zip(full, encode([pair.source for pair in full]), strict=True):
                answers = iter(pair.target.split("\t"))
                for question in questions:
                    source.add(question.ids)
                    target.add([numbers[answer] for answer in islice(answers, len(question.places))])
                    places.write(np.array(question.places, dtype=dtype).tobytes())
        places.flush()
        os.fsync(places.fileno())  # training never reads the text again, so the places must survive a power cut
    describe_corpus(folder, source.count, dtype, DroppedPairs(empty=empty))
    return LabelledCorpus(folder)

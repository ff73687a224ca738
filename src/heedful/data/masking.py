"""Hidden tokens: windows of plain text in which BERT is asked about 15 % of the tokens (Devlin et al., 2019).

Of these, 80 % are replaced by [MASK], 10 % by a random token, and 10 % stay. Which ones follows from the number of the
window and of the epoch alone, so each epoch hides others, and a resumed training hides the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray

from heedful.data.batch import Batch, pack
from heedful.data.text import TextCorpus
from heedful.text import Tokenizer

_SHARE = 0.15
_MASKED, _RANDOM = 0.8, 0.1
_ADDED = 2  # [CLS] and EOS around each window
_EPOCHS = 1 << 20  # after these the same tokens are hidden again


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that frame a window and hide its tokens, and the range that a random token is drawn from."""

    cls_id: int
    eos_id: int
    mask_id: int
    drawn: range

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "SpecialIds":
        """Those of a tokenizer. In our own, special ids stand at both ends of the vocabulary."""
        size, ends = tokenizer.vocabulary_size, 2
        drawn = range(size) if tokenizer.kind == "foreign" else range(ends, size - ends)
        return cls(tokenizer.cls_id, tokenizer.eos_id, tokenizer.mask_id, drawn)


class MaskedWindows:
    """A text in windows of at most `context` pieces with their frame, some of which are hidden in this epoch."""

    def __init__(self, text: TextCorpus, context: int, special: SpecialIds, epoch: int) -> None:
        width = max(1, context - _ADDED)
        first = epoch * (width // 2 + 1) % width  # windows begin elsewhere each time
        self._starts = np.unique(np.concatenate([[0], np.arange(first, len(text), width)]))
        self._ends = np.append(self._starts[1:], len(text))
        self._ids, self._special, self._epoch = text.ids, special, epoch

    def __len__(self) -> int:
        return len(self._starts)

    def lengths(self) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
        """The numbers of pieces with their frame, and of hidden ones."""
        pieces = self._ends - self._starts
        return (pieces + _ADDED).astype(np.int32), np.maximum(1, np.round(_SHARE * pieces)).astype(np.int32)

    def batch(self, indices: Sequence[int] | NDArray[np.int64], start_id: int) -> Batch:
        """The windows at these places; the places of hidden tokens stand where a decoder reads its tokens."""
        hidden = [self._hide(int(index)) for index in indices]
        source, source_lengths = pack([ids for ids, _, _ in hidden])
        places, target_lengths = pack([places for _, places, _ in hidden])
        answers, _ = pack([answers for _, _, answers in hidden])
        where = torch.as_tensor(np.asarray(indices, dtype=np.int64))
        return Batch(source, source_lengths, places, answers, target_lengths, where)

    def _hide(self, index: int) -> tuple[list[int], list[int], list[int]]:
        """A window with its frame, the places of hidden tokens in it, and what was there."""
        special, pieces = self._special, self._ids[self._starts[index] : self._ends[index]].astype(np.int64)
        random = np.random.Generator(np.random.Philox(key=[self._epoch, index]))
        count = max(1, round(_SHARE * len(pieces)))
        places = np.sort(random.permutation(len(pieces))[:count])
        kinds, others = random.random(count), random.integers(special.drawn.start, special.drawn.stop, count)
        shown = np.where(kinds < _MASKED, special.mask_id, np.where(kinds < _MASKED + _RANDOM, others, pieces[places]))
        window = pieces.copy()
        window[places] = shown
        ids = [special.cls_id, *window.tolist(), special.eos_id]
        return ids, (places + 1).tolist(), pieces[places].tolist()


class MaskedEpochs(Sequence[MaskedWindows]):
    """The windows of each epoch, which hide other tokens each time."""

    def __init__(self, text: TextCorpus, context: int, special: SpecialIds) -> None:
        self._text, self._context, self._special = text, context, special

    def __len__(self) -> int:
        return _EPOCHS

    @overload
    def __getitem__(self, epoch: int) -> MaskedWindows: ...

    @overload
    def __getitem__(self, epoch: slice) -> Sequence[MaskedWindows]: ...

    def __getitem__(self, epoch: int | slice) -> MaskedWindows | Sequence[MaskedWindows]:
        if isinstance(epoch, slice):
            return [self[one] for one in range(*epoch.indices(len(self)))]
        return MaskedWindows(self._text, self._context, self._special, epoch + 1)  # validation has 0

"""Token ids as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """Sentence pairs end to end, without padding, and their lengths.

    `target_in` is the target shifted right: it starts with PAD, the decoder's start symbol, and `target_out` ends with
    EOS. Code that needs a padded grid makes it from the lengths.
    """

    source: Int[Tensor, " source_rows"]
    source_lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, " target_rows"]
    target_out: Int[Tensor, " target_rows"]
    target_lengths: Int[Tensor, " batch"]
    indices: Int[Tensor, " batch"]  # the places of these pairs in the corpus

    @property
    def tokens(self) -> int:
        """Source and target tokens together."""
        return len(self.source) + len(self.target_out)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(
            self.source.to(device),
            self.source_lengths.to(device),
            self.target_in.to(device),
            self.target_out.to(device),
            self.target_lengths.to(device),
            self.indices.to(device),
        )


def pack(sentences: Sequence[Sequence[int]]) -> tuple[Int[Tensor, " rows"], Int[Tensor, " batch"]]:
    """Put sentences end to end; return all ids and the lengths."""
    ids = [token for sentence in sentences for token in sentence]
    return torch.tensor(ids, dtype=torch.int64), torch.tensor([len(s) for s in sentences], dtype=torch.int64)

"""Token embeddings (section 3.4)."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Embedding(nn.Module):
    """Looks up rows of a matrix and scales them, by sqrt(d_model) in the paper; the matrix can be the output layer too.

    The row of PAD is zero and stays zero. PAD is also the decoder's start symbol: the shifted target begins with a
    zero vector, as in the paper's code. T5 learns that row too.
    """

    def __init__(self, vocabulary: int, d_model: int, pad_id: int, scale: float) -> None:
        super().__init__()
        self.zero_row: int | None = pad_id  # gets no gradient; None: all rows do
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocabulary, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].zero_()

    def forward(self, ids: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        return F.embedding(ids, self.weight, padding_idx=self.zero_row) * self.scale

    @property
    def as_output(self) -> Float[Tensor, "vocabulary d_model"]:
        """The matrix as an output layer; here too the row of PAD gets no gradient."""
        if self.zero_row is None or not torch.is_grad_enabled():
            return self.weight
        return _FreezeRow.apply(self.weight, self.zero_row)

    if TYPE_CHECKING:
        __call__ = forward


class _FreezeRow(torch.autograd.Function):
    """The same matrix, with no gradient for one of its rows."""

    @staticmethod
    def forward(ctx, weight: Tensor, row: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.row = row
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        gradient = gradient.clone()
        gradient[ctx.row] = 0.0
        return gradient, None

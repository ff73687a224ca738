"""Token embeddings (section 3.4)."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Embedding(nn.Module):
    """Look-up times a scale, sqrt(d_model) in the paper; the same matrix can be the output layer.

    The row of PAD is zero and stays so. It is also the decoder's start symbol: the target shifted right begins with
    a zero vector, as in the paper's code.
    """

    def __init__(self, vocabulary: int, d_model: int, pad_id: int, scale: float) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocabulary, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].zero_()

    def forward(self, ids: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        return F.embedding(ids, self.weight, padding_idx=self.pad_id) * self.scale

    @property
    def as_output(self) -> Float[Tensor, "vocabulary d_model"]:
        """The matrix as an output layer, which teaches the row of PAD nothing either."""
        return _WithoutRow.apply(self.weight, self.pad_id) if torch.is_grad_enabled() else self.weight

    if TYPE_CHECKING:
        __call__ = forward


class _WithoutRow(torch.autograd.Function):
    """The same matrix; one of its rows gets no gradient."""

    @staticmethod
    def forward(ctx, weight: Tensor, row: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.row = row
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        gradient = gradient.clone()
        gradient[ctx.row] = 0.0
        return gradient, None

"""Token embeddings (section 3.4)."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Embedding(nn.Module):
    """Look-up times sqrt(d_model); the same matrix can be the output layer, which has no bias.

    The row of PAD is zero and stays so. It is also the decoder's start symbol: the target shifted right begins with
    a zero vector, as in the paper's code.
    """

    def __init__(self, vocabulary: int, d_model: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.scale = d_model**0.5
        self.weight = nn.Parameter(torch.empty(vocabulary, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].zero_()
        self.weight.register_post_accumulate_grad_hook(self._keep_pad_zero)

    def forward(self, ids: Int[Tensor, " rows"]) -> Float[Tensor, "rows d_model"]:
        return F.embedding(ids, self.weight) * self.scale

    def _keep_pad_zero(self, weight: Tensor) -> None:
        if weight.grad is not None:
            weight.grad[self.pad_id].zero_()

    if TYPE_CHECKING:
        __call__ = forward

"""Label-smoothed cross entropy (section 5.4), as sums over tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Elements of the logits that are worked on at a time. A few megabytes stay in the cache, where the many passes of a
# softmax cost little, and the logits of a whole batch never exist.
_CHUNK_ELEMENTS = 2_500_000


@dataclass(frozen=True, slots=True)
class Loss:
    """Sums over the target tokens of a batch."""

    smoothed: Float[Tensor, ""]  # what training minimises
    plain: Float[Tensor, ""]  # negative log-likelihood, for perplexity
    tokens: int


def smoothed_loss(
    features: Float[Tensor, "rows d_model"],
    output_weight: Float[Tensor, "vocabulary d_model"],
    gold: Int[Tensor, " rows"],
    smoothing: float,
) -> Loss:
    """The gold type should get 1 - smoothing, each of the other V - 1 types smoothing / (V - 1)."""
    if torch.is_grad_enabled():
        smoothed, plain = _FusedLoss.apply(features, output_weight, gold, smoothing)
    else:
        smoothed, plain, *_ = _chunked(features, output_weight, gold, smoothing, gradients=False)
    return Loss(smoothed, plain, len(gold))


class _FusedLoss(torch.autograd.Function):
    """Output layer and loss in one: while a chunk's logits are there, their gradient is taken at once."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, features: Tensor, output_weight: Tensor, gold: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        smoothed, plain, d_features, d_weight = _chunked(features, output_weight, gold, smoothing, gradients=True)
        ctx.save_for_backward(d_features, d_weight)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[no-untyped-def]
        d_features, d_weight = ctx.saved_tensors
        return d_features * gradient, d_weight * gradient, None, None


def _chunked(
    features: Tensor, weight: Tensor, gold: Tensor, smoothing: float, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Smoothed and plain sums and, if asked for, the gradients of the first."""
    vocabulary = len(weight)
    other = smoothing / (vocabulary - 1)
    excess = 1.0 - smoothing - other  # what gold gets more than any other type
    smoothed, plain = features.new_zeros((), dtype=torch.float64), features.new_zeros((), dtype=torch.float64)
    d_features = torch.empty_like(features) if gradients else features
    d_weight = torch.zeros_like(weight) if gradients else weight
    size = max(1, _CHUNK_ELEMENTS // vocabulary)
    for start in range(0, len(features), size):
        rows, answers = features[start : start + size], gold[start : start + size, None]
        log_p = torch.log_softmax(rows @ weight.T, dim=-1)
        nll = -log_p.gather(1, answers).sum(dtype=torch.float64)
        plain += nll
        smoothed += excess * nll - other * log_p.sum(-1).sum(dtype=torch.float64)
        if gradients:
            d_logits = log_p.exp_().sub_(other)
            d_logits.scatter_add_(1, answers, torch.full_like(answers, -excess, dtype=d_logits.dtype))
            torch.mm(d_logits, weight, out=d_features[start : start + size])
            d_weight.addmm_(d_logits.T, rows)
    return smoothed.to(features.dtype), plain.to(features.dtype), d_features, d_weight

"""Label-smoothed cross entropy (section 5.4), as sums over tokens."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.kernels.matmul import matmul

# Elements of the logits that are worked on at a time. A few megabytes stay in the cache, where the many passes of a
# softmax cost little, and the logits of a whole batch never exist.
_CHUNK_ELEMENTS = 2_500_000
# A GPU has no such cache, and needs larger products to be busy: 256 MiB of logits.
_CHUNK_ELEMENTS_ELSEWHERE = 1 << 26
# float16 has few digits below 6e-5, where most of the gradient of the logits is. It is multiplied by this, divided by
# the number of rows, so that their sum cannot overflow.
_FLOAT16_FACTOR = 4096.0


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
    output_bias: Float[Tensor, " vocabulary"] | None = None,
) -> Loss:
    """The gold type should get 1 - smoothing, each of the other V - 1 types smoothing / (V - 1).

    Under autocast the products are in its type; logits, softmax and sums stay in float32.
    """
    if features.dtype in (torch.bfloat16, torch.float16):
        features = features.float()
    if torch.is_grad_enabled():
        smoothed, plain = _FusedLoss.apply(features, output_weight, output_bias, gold, smoothing)
    else:
        smoothed, plain, *_ = _chunked(features, output_weight, output_bias, gold, smoothing, gradients=False)
    return Loss(smoothed, plain, len(gold))


class _FusedLoss(torch.autograd.Function):
    """Output layer and loss in one: while a chunk's logits are there, their gradient is taken at once."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, features: Tensor, output_weight: Tensor, output_bias: Tensor | None, gold: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        smoothed, plain, *d_inputs = _chunked(features, output_weight, output_bias, gold, smoothing, gradients=True)
        ctx.save_for_backward(*d_inputs)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        d_features, d_weight, d_bias = ctx.saved_tensors
        return d_features * gradient, d_weight * gradient, None if d_bias is None else d_bias * gradient, None, None


def _chunked(
    features: Tensor, weight: Tensor, bias: Tensor | None, gold: Tensor, smoothing: float, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Smoothed and plain sums and, if asked for, the gradients of the first by features, weight and bias."""
    vocabulary, device = len(weight), features.device.type
    other = smoothing / (vocabulary - 1)
    excess = 1.0 - smoothing - other  # what gold gets more than any other type
    sums = _sum_type(device)
    smoothed, plain = features.new_zeros((), dtype=sums), features.new_zeros((), dtype=sums)
    d_features = torch.empty_like(features) if gradients else features
    d_weight = torch.zeros_like(weight) if gradients else weight
    d_bias = torch.zeros_like(bias) if gradients and bias is not None else None
    products = weight.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else weight
    size = max(1, (_CHUNK_ELEMENTS if device == "cpu" else _CHUNK_ELEMENTS_ELSEWHERE) // vocabulary)
    with torch.autocast(device, enabled=False):
        for start in range(0, len(features), size):
            rows, answers = features[start : start + size], gold[start : start + size]
            nll: Tensor | float
            everything: Tensor | float
            logits = _product(rows.to(products.dtype), products.T).to(features.dtype)
            if bias is not None:
                logits += bias
            if not gradients:
                nll, everything = _sums(torch.log_softmax(logits, dim=-1), answers)
            elif device == "cpu" and logits.dtype == torch.float32:
                nll, everything = _compiled_gradient(logits, answers, other, excess)
            else:
                nll, everything = _plain_gradient(logits, answers, other, excess)
            plain += nll
            smoothed += excess * nll - other * everything
            if d_bias is not None:
                d_bias += logits.sum(0)
            if gradients:
                _gradient_products(logits, rows, products, d_features[start : start + size], d_weight)
    return smoothed.to(features.dtype), plain.to(features.dtype), d_features, d_weight, d_bias


def _gradient_products(d_logits: Tensor, rows: Tensor, weight: Tensor, d_rows: Tensor, d_weight: Tensor) -> None:
    """Write what the rows get, add what the weight gets; the products are in the type of `weight`."""
    if weight.dtype == d_logits.dtype:
        d_rows.copy_(_product(d_logits, weight))
        d_weight.add_(_product(d_logits.T, rows))
        return
    factor = _FLOAT16_FACTOR / len(rows) if weight.dtype == torch.float16 else 1.0
    narrow = d_logits.mul_(factor).to(weight.dtype)
    d_rows.copy_(narrow @ weight).div_(factor)
    d_weight.add_(narrow.T @ rows.to(weight.dtype), alpha=1.0 / factor)


def _product(left: Tensor, right: Tensor) -> Tensor:
    return matmul(left, right) if left.device.type == "cpu" and left.dtype == torch.float32 else left @ right


def _sum_type(device: str) -> torch.dtype:
    """MPS has no float64."""
    return torch.float32 if device == "mps" else torch.float64


def _sums(log_p: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the log-probability of gold, and the log-probabilities of all types, summed."""
    sums = _sum_type(log_p.device.type)
    return -log_p.gather(1, gold[:, None]).sum(dtype=sums), log_p.sum(-1).sum(dtype=sums)


def _plain_gradient(logits: Tensor, gold: Tensor, other: float, excess: float) -> tuple[Tensor, Tensor]:
    """Put the gradient of the smoothed loss in the place of the logits; give the sums."""
    log_p = torch.log_softmax(logits, dim=-1)
    sums = _sums(log_p, gold)
    torch.exp(log_p, out=logits).sub_(other)
    logits.scatter_add_(1, gold[:, None], torch.full_like(gold[:, None], -excess, dtype=logits.dtype))
    return sums


def _compiled_gradient(logits: Tensor, gold: Tensor, other: float, excess: float) -> tuple[float, float]:
    """The same in one pass."""
    from heedful.kernels.label_smoothing import smoothed_gradient

    array = logits.detach().numpy()
    return smoothed_gradient(array, array.view(np.int32), gold.numpy(), np.float32(other), np.float32(excess))

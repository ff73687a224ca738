"""Label-smoothed cross entropy (section 5.4), as sums over tokens."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.kernels.matmul import matmul, pad_rows, product_type

# Logits that are computed at a time. A few megabytes stay in the cache, where the many passes of a softmax cost little,
# and the logits of a whole batch never exist.
_CHUNK_ELEMENTS = 2_500_000
# A GPU has no such cache and needs larger products to be busy: 256 MiB of logits.
_GPU_CHUNK_ELEMENTS = 1 << 26
# float16 has few digits below 6e-5, where most of the gradient of the logits is, so it is multiplied by this over the
# number of rows. The absolute values in a row of that gradient add up to 2 at most. The other factor of each product is
# scaled down to 1 at most, so no sum exceeds 8192, far below 65504, the largest float16.
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
    r_drop: float = 0.0,
) -> Loss:
    """The cross entropy with a target of 1 - smoothing for the gold token and smoothing / (V - 1) for each other one.

    With `r_drop`, the second half of the rows is a second pass over the same tokens. The smoothed loss then includes
    the divergence between the two passes with this weight (R-Drop, Liang et al., 2021).

    Under autocast or `narrow_products`, products are computed in that type; softmax and sums stay in float32.
    """
    if features.dtype in (torch.bfloat16, torch.float16):
        features = features.float()
    if torch.is_grad_enabled():
        smoothed, plain = _FusedLoss.apply(features, output_weight, output_bias, gold, smoothing, r_drop)
    else:
        smoothed, plain, *_ = _loss_in_chunks(
            features, output_weight, output_bias, gold, smoothing, r_drop, gradients=False
        )
    return Loss(smoothed, plain, len(gold))


class _FusedLoss(torch.autograd.Function):
    """Output layer and loss in one: the gradient of each chunk of logits is computed while they are in memory."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        features: Tensor,
        output_weight: Tensor,
        output_bias: Tensor | None,
        gold: Tensor,
        smoothing: float,
        r_drop: float,
    ) -> tuple[Tensor, Tensor]:
        smoothed, plain, *d_inputs = _loss_in_chunks(
            features, output_weight, output_bias, gold, smoothing, r_drop, gradients=True
        )
        ctx.save_for_backward(*d_inputs)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        d_features, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else d_bias * gradient
        return d_features * gradient, d_weight * gradient, d_bias, None, None, None


def _loss_in_chunks(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gold: Tensor,
    smoothing: float,
    r_drop: float,
    gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """The smoothed and the plain loss; with `gradients`, also those of the former for features, weight and bias."""
    vocabulary, device = len(weight), features.device.type
    other = smoothing / (vocabulary - 1)
    excess = 1.0 - smoothing - other  # of the gold token's target over that of the others
    sums = _sum_type(device)
    smoothed, plain = features.new_zeros((), dtype=sums), features.new_zeros((), dtype=sums)
    d_features = torch.empty_like(features) if gradients else features
    d_weight = torch.zeros_like(weight, dtype=features.dtype) if gradients else weight
    d_bias = torch.zeros_like(bias) if gradients and bias is not None else None
    products, padded = weight, False
    if torch.is_autocast_enabled(device):
        products = weight.to(torch.get_autocast_dtype(device))
    elif device == "cpu" and features.dtype == torch.float32:
        products = weight.to(product_type(len(features) * weight.numel()))
        padded = gradients
    size = max(1, (_CHUNK_ELEMENTS if device == "cpu" else _GPU_CHUNK_ELEMENTS) // vocabulary)
    with torch.autocast(device, enabled=False):
        for places in _split_rows(len(features), size, twice=r_drop > 0.0):
            rows, gold_rows = _take(features, places), _take(gold, places)
            count = len(rows)
            if padded:
                rows = pad_rows(rows, products.dtype, rows.numel() * vocabulary)
            nll: Tensor | float
            everything: Tensor | float
            divergence: Tensor | float = 0.0
            grid = _product(rows.to(products.dtype), products.T).to(features.dtype)
            logits = grid[:count]
            if bias is not None:
                logits += bias
            compiled = gradients and device == "cpu" and logits.dtype == torch.float32
            if r_drop:
                gradient = _compiled_consistent_gradient if compiled else _plain_consistent_gradient
                nll, everything, divergence = gradient(logits, gold_rows, other, excess, r_drop)
            elif not gradients:
                nll, everything = _sums(torch.log_softmax(logits, dim=-1), gold_rows)
            else:
                nll, everything = (_compiled_gradient if compiled else _plain_gradient)(
                    logits, gold_rows, other, excess
                )
            plain += nll
            smoothed += excess * nll - other * everything + r_drop * divergence
            if d_bias is not None:
                d_bias += logits.sum(0)
            if gradients:
                grid[count:] = 0.0
                d_rows = features.new_empty(rows.shape)
                _add_gradients(grid, rows, products, d_rows, d_weight)
                for place, part in zip(places, d_rows[:count].chunk(len(places)), strict=True):
                    d_features[place] = part
    return smoothed.to(features.dtype), plain.to(features.dtype), d_features, d_weight, d_bias


def _split_rows(count: int, size: int, twice: bool) -> Iterator[tuple[slice, ...]]:
    """The places of at most `size` rows at a time; with `twice`, each row with its twin in the second half."""
    if not twice:
        yield from ((slice(start, min(start + size, count)),) for start in range(0, count, size))
        return
    half, size = count // 2, max(1, size // 2)
    for start in range(0, half, size):
        stop = min(start + size, half)
        yield slice(start, stop), slice(half + start, half + stop)


def _take(rows: Tensor, places: tuple[slice, ...]) -> Tensor:
    return rows[places[0]] if len(places) == 1 else torch.cat([rows[place] for place in places])


def _add_gradients(d_logits: Tensor, rows: Tensor, weight: Tensor, d_rows: Tensor, d_weight: Tensor) -> None:
    """Write the gradient of the rows and add that of the weight; products are computed in the type of `weight`."""
    if weight.dtype == d_logits.dtype:
        d_rows.copy_(_product(d_logits, weight))
        d_weight.add_(_product(d_logits.T, rows))
        return
    if weight.dtype != torch.float16:
        narrow = d_logits.to(weight.dtype)
        d_rows.copy_(narrow @ weight)
        d_weight.add_(narrow.T @ rows.to(weight.dtype))
        return
    factor, row_scale, weight_scale = _FLOAT16_FACTOR / len(rows), _power_of_two(rows), _power_of_two(weight.float())
    narrow = d_logits.mul_(factor).to(weight.dtype)
    d_rows.copy_(narrow @ (weight / weight_scale.to(weight.dtype))).mul_(weight_scale / factor)
    product = narrow.T @ (rows / row_scale).to(weight.dtype)
    d_weight.add_(product.to(d_weight.dtype).mul_(row_scale / factor))


def _power_of_two(x: Tensor) -> Tensor:
    """The smallest power of two, from 1 on, that no absolute value exceeds; dividing by it rounds nothing."""
    return x.abs().amax().clamp(min=1.0).log2().ceil().exp2()


def _product(left: Tensor, right: Tensor) -> Tensor:
    return matmul(left, right) if left.device.type == "cpu" and left.dtype == torch.float32 else left @ right


def _sum_type(device: str) -> torch.dtype:
    """MPS has no float64."""
    return torch.float32 if device == "mps" else torch.float64


def _sums(log_p: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of -log p(gold) and of all log p."""
    sums = _sum_type(log_p.device.type)
    return -log_p.gather(1, gold[:, None]).sum(dtype=sums), log_p.sum(-1).sum(dtype=sums)


def _plain_gradient(logits: Tensor, gold: Tensor, other: float, excess: float) -> tuple[Tensor, Tensor]:
    """Replace the logits by the gradient of the smoothed loss; return the sums of -log p(gold) and of all log p."""
    log_p = torch.log_softmax(logits, dim=-1)
    sums = _sums(log_p, gold)
    torch.exp(log_p, out=logits).sub_(other)
    logits.scatter_add_(1, gold[:, None], torch.full_like(gold[:, None], -excess, dtype=logits.dtype))
    return sums


def _compiled_gradient(logits: Tensor, gold: Tensor, other: float, excess: float) -> tuple[float, float]:
    """`_plain_gradient` in one pass."""
    from heedful.kernels.logits import smoothed_gradient

    array = logits.detach().numpy()
    return smoothed_gradient(array, array.view(np.int32), gold.numpy(), np.float32(other), np.float32(excess))


def _plain_consistent_gradient(
    logits: Tensor, gold: Tensor, other: float, excess: float, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_plain_gradient` for two passes over the same tokens, one below the other; also returns their divergence."""
    log_p, log_q = torch.log_softmax(logits, dim=-1).chunk(2)
    p, q, ratio = log_p.exp(), log_q.exp(), log_p - log_q
    kl_p, kl_q = (p * ratio).sum(-1, keepdim=True), -(q * ratio).sum(-1, keepdim=True)
    d_divergence = torch.cat([p * (ratio - kl_p) + p - q, q * (-ratio - kl_q) + q - p]) / 2.0
    nll, everything = _plain_gradient(logits, gold, other, excess)
    logits.add_(d_divergence, alpha=weight)
    return nll, everything, (kl_p + kl_q).sum(dtype=_sum_type(logits.device.type)) / 2.0


def _compiled_consistent_gradient(
    logits: Tensor, gold: Tensor, other: float, excess: float, weight: float
) -> tuple[float, float, float]:
    """`_plain_consistent_gradient` in three passes."""
    from heedful.kernels.logits import consistent_gradient

    array, constants = logits.detach().numpy(), (np.float32(value) for value in (other, excess, weight))
    return consistent_gradient(array, array.view(np.int32), gold.numpy(), *constants)

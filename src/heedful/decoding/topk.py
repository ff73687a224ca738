"""The k largest values of each row, with ties in a fixed order, which `torch.topk` does not promise."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.device import exact_device

_MIN_LOGITS = 500_000  # a hundred hypotheses over a small vocabulary
BLOCK = 64  # 32 and 128 are slower for 200 rows of 10 000 or 37 000 types


def top_log_probs(
    log_probs: Float[Tensor, "rows vocabulary"], k: int
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """The k most probable tokens of each row, best first, ties by id; NaN counts as impossible."""
    vocabulary = log_probs.shape[1]
    k = min(k, vocabulary)
    if vocabulary // BLOCK > 2 * k:
        ids = _preselect_ids(log_probs, k)
        log_probs = log_probs.gather(1, ids)
        chosen = _first_columns(log_probs, k)
        ids = ids.gather(1, chosen)
    else:
        ids = chosen = _first_columns(log_probs, k)
    values = log_probs.gather(1, chosen)
    # Rounding may leave a certain token a hair above 0, but a longer output must never be more probable.
    return values.nan_to_num(nan=-torch.inf, neginf=-torch.inf).clamp(max=0.0), ids


def worth_compiling(logits: Float[Tensor, "rows vocabulary"]) -> bool:
    """Whether the compiled loop can process these logits, and there are enough of them to be worth loading it."""
    return logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.numel() >= _MIN_LOGITS


def best_log_probs(
    logits: Float[Tensor, "rows vocabulary"], banned: Int[Tensor, " banned"], k: int
) -> tuple[Float[Tensor, "rows k"], Int[Tensor, "rows k"]]:
    """`top_log_probs` of the log-softmax without the banned tokens, in one pass over memory."""
    from heedful.kernels.logits import find_top_tokens

    rows, vocabulary = logits.shape
    forbidden = torch.zeros(vocabulary, dtype=torch.bool).index_fill_(0, banned, True)
    values = logits.new_empty(rows, min(k, vocabulary))
    ids = torch.empty(values.shape, dtype=torch.long)
    given = logits.detach().contiguous().numpy()
    find_top_tokens(given, given.view(np.int32), forbidden.numpy(), values.numpy(), ids.numpy())
    return values, ids


def _preselect_ids(log_probs: Float[Tensor, "rows vocabulary"], k: int) -> Int[Tensor, "rows fewer"]:
    """In ascending order, the ids of the k blocks with the largest maxima and of the remainder after the last block.

    At least k tokens beat any token outside of these. Finding a block's maximum is vectorised and sorting is not, so
    this takes half the time of `topk` over 10 000 types and a quarter of it over 37 000.
    """
    rows, vocabulary = log_probs.shape
    count = vocabulary // BLOCK
    whole = count * BLOCK
    maxima = log_probs[:, :whole].unflatten(1, (count, BLOCK)).amax(dim=2)
    blocks = _first_columns(maxima, k).sort(dim=1).values
    everything = torch.arange(vocabulary, device=log_probs.device)
    inside = blocks.unsqueeze(2) * BLOCK + everything[:BLOCK]
    return torch.cat([inside.flatten(1), everything[whole:].expand(rows, -1)], dim=1)


def _first_columns(log_probs: Float[Tensor, "rows columns"], k: int) -> Int[Tensor, "rows k"]:
    """The columns of the k largest values, largest first, ties from left to right.

    The bits of a non-negative float sort as those of an integer do. The column fills the lower bits, so no two keys are
    equal.
    """
    exact = log_probs.to(exact_device(log_probs.device))
    badness = exact.abs().view(torch.int32).long()  # NaN ranks below even -inf
    columns = torch.arange(exact.shape[1], device=exact.device)
    return ((badness << 32) + columns).topk(k, dim=1, largest=False).indices.to(log_probs.device)

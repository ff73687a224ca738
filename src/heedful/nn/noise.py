"""Random numbers that depend only on their purpose, not on which thread draws them or when.

Whether dropout keeps a number is a hash of the seed, the update, the sentence pair, the position, the place in the
network and the column. So the same numbers are dropped however a batch is split over threads and processes or ordered
in memory, the backward pass can recompute the masks instead of storing them, and a resumed training needs no random
state.
"""

from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

GOLDEN = 0x9E3779B9
LEVELS = 1 << 32
MASK = LEVELS - 1
HEAD_STRIDE = 65_536  # columns of one head's row of attention weights; a longer row shares numbers with the next head


def mix(x: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Hash 32 bits to 32 bits so that every output bit depends on every input bit (Wellons' lowbias32)."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def sentence_keys(seed: int, step: int, pairs: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
    """A 32-bit key for each of these sentence pairs of the corpus in this update."""
    base = int.from_bytes(blake2b(f"{seed} {step}".encode(), digest_size=4).digest(), "little")
    return mix((pairs * GOLDEN + base) & MASK)


def row_keys(keys: Int[Tensor, " rows"], positions: Int[Tensor, " rows"]) -> Int[Tensor, " rows"]:
    """A 32-bit key for each position, from the key of its sentence."""
    return mix((keys + (positions + 1) * GOLDEN) & MASK)


def threshold(p: float) -> int:
    """Dropout with probability p drops the numbers whose hash is below this."""
    return min(round(p * LEVELS), LEVELS - 1)


def keep_scale(p: float) -> float:
    """The factor on the numbers that are kept, which preserves the mean."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def keep_mask(
    keys: Int[Tensor, "*rows"], columns: Int[Tensor, "*#rows columns"], site: int, p: float
) -> Float[Tensor, "*rows columns"]:
    """Zeros with probability p, `keep_scale(p)` elsewhere."""
    hashed = mix((mix(keys ^ site)[..., None] + columns * GOLDEN) & MASK)
    return torch.where(hashed >= threshold(p), keep_scale(p), 0.0)

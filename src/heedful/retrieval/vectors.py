"""Pictures and texts as vectors of CLIP's space, many at a time, and how well they find each other."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.batch import pack
from heedful.metrics.recall import Ranks, find_ranks
from heedful.models.clip import CLIP

_PICTURES_AT_A_TIME = 64
_TEXTS_AT_A_TIME = 256
_QUERIES_AT_A_TIME = 512

Vectors = Float[Tensor, "several space"]


@torch.inference_mode()
def encode_pictures(model: CLIP, pixels: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> Vectors:
    """The vectors of pictures of the model's size, on the CPU."""
    device, rows = next(model.parameters()).device, list[Tensor]()
    for first in range(0, len(pixels), _PICTURES_AT_A_TIME):
        some = np.stack(list(pixels[first : first + _PICTURES_AT_A_TIME]))
        source = torch.from_numpy(some.reshape(-1).astype(np.int64)).to(device)
        rows.append(model.encode(source, torch.full((len(some),), some[0].size, device=device)).float().cpu())
    return torch.cat(rows) if rows else torch.empty(0, model.projection.out_features)


@torch.inference_mode()
def encode_texts(model: CLIP, texts: Sequence[Sequence[int]]) -> Vectors:
    """The vectors of captions, given as ids with start and end; on the CPU."""
    device, rows = next(model.parameters()).device, list[Tensor]()
    for first in range(0, len(texts), _TEXTS_AT_A_TIME):
        ids, lengths = (tensor.to(device) for tensor in pack(texts[first : first + _TEXTS_AT_A_TIME]))
        rows.append(model.encode_texts(ids, lengths).float().cpu())
    return torch.cat(rows) if rows else torch.empty(0, model.projection.out_features)


def rank_both_ways(
    model: CLIP,
    pixels: Sequence[NDArray[np.uint8]] | NDArray[np.uint8],
    captions: Sequence[Sequence[Sequence[int]]],
) -> tuple[Ranks, Ranks]:
    """The ranks of pictures for each caption, and of captions for each picture; `captions` has those of each picture.

    Equal captions are one query, for which all their pictures are right.
    """
    numbers: dict[tuple[int, ...], int] = {}
    of_picture = [[numbers.setdefault(tuple(text), len(numbers)) for text in several] for several in captions]
    pictures = encode_pictures(model, pixels)
    texts = encode_texts(model, list(numbers))
    right = np.zeros((len(pictures), len(numbers)), dtype=np.bool_)
    for picture, several in enumerate(of_picture):
        right[picture, several] = True
    return _rank(texts, pictures, right.T), _rank(pictures, texts, right)


def _rank(queries: Vectors, candidates: Vectors, right: NDArray[np.bool_]) -> Ranks:
    found = [
        find_ranks(
            (queries[first : first + _QUERIES_AT_A_TIME] @ candidates.T).numpy(),
            right[first : first + _QUERIES_AT_A_TIME],
        )
        for first in range(0, len(queries), _QUERIES_AT_A_TIME)
    ]
    return Ranks(np.concatenate(found), right.sum(1), len(candidates))

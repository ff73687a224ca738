"""Heads made by hand, which do one thing alone."""

from collections.abc import Sequence

import numpy as np

from heedful.attention.head_names import Head
from heedful.attention.measures import HeadMeasures, HeadStatistics, PieceMarks
from heedful.attention.record import Attention, HeadWeights
from heedful.nn.multi_head import Kind

PUNCTUATION, RARE = {2}, {1, 4}  # places in every sentence


def looking_at(keys: Sequence[int], width: int) -> HeadWeights:
    """One head, whose rows look at these keys."""
    return np.eye(width, dtype=np.float32)[list(keys)][None]


def uniform(kind: Kind, queries: int, keys: int) -> HeadWeights:
    """One head that looks at all it can see."""
    seen = np.tri(queries, keys, dtype=np.float32) if kind == "decoder" else np.ones((queries, keys), np.float32)
    return (seen / seen.sum(-1, keepdims=True))[None]


def dirichlet(kind: Kind, heads: int, queries: int, keys: int, seed: int) -> HeadWeights:
    """Heads that look here and there."""
    weights = np.random.default_rng(seed).gamma(0.5, size=(heads, queries, keys)) + 1e-6
    if kind == "decoder":
        weights = np.tril(weights)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def only(kind: Kind, *layers: HeadWeights) -> Attention:
    """Attention of one kind."""
    return Attention(
        layers if kind == "encoder" else (), layers if kind == "decoder" else (), layers if kind == "cross" else ()
    )


def marked(length: int) -> PieceMarks:
    """A sentence with punctuation and rare pieces at fixed places, and EOS."""
    places = range(length)
    end = np.array([place == length - 1 for place in places])
    return PieceMarks(
        np.array([place in PUNCTUATION for place in places]) & ~end,
        end,
        np.array([place in RARE for place in places]) & ~end,
    )


def measured(kind: Kind, *sentences: HeadWeights) -> HeadMeasures:
    """What is measured of one head over sentences, whose marks are those of `marked`."""
    tally = HeadStatistics()
    for weights in sentences:
        _, queries, keys = weights.shape
        tally.add(only(kind, weights), marked(queries if kind == "decoder" else keys), marked(queries))
    return tally.measures()[Head(kind, 0, 0)]

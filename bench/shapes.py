"""What is raced: sizes of a model and of its batches, and how many operations that takes."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model, its regularisation and its batches: the same for every contender."""

    d_model: int
    d_ff: int
    num_heads: int
    layers: int  # of the encoder, and as many of the decoder
    batch_tokens: int  # source tokens, and as many target tokens, an update
    vocabulary: int = 10_000
    dropout: float = 0.1
    label_smoothing: float = 0.1
    pairs: int = 6000
    length: int = 0  # of every sentence, EOS included; 0: as long as image captions are

    def write(self, path: Path) -> None:
        """As JSON, for the other processes."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Shape":
        """What `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


TINY = Shape(d_model=128, d_ff=256, num_heads=4, layers=4, batch_tokens=4096)
BASE = replace(TINY, d_model=512, d_ff=2048, num_heads=8, layers=6, batch_tokens=2048)
SHAPES = {"tiny": TINY, "base": BASE}


def forward_flops(shape: Shape, lengths: Iterable[tuple[int, int]]) -> int:
    """Operations of all matrix products of one pass over pairs of these lengths; a multiply-add is two.

    Only what the mathematics needs: no padding, and a position of the decoder looks at itself and what is before it.
    Look-ups, norms, softmax and biases are not counted.
    """
    source = target = looks_at_source = looks_back = looks_across = 0
    for n, m in lengths:
        source, target = source + n, target + m
        looks_at_source += n * n
        looks_back += m * (m + 1) // 2
        looks_across += n * m
    d, feed_forward = shape.d_model, 2 * shape.d_model * shape.d_ff
    # In multiply-adds. One projection of a row takes d * d; a look is a product with a key and one with a value.
    encoder = source * (4 * d * d + feed_forward) + looks_at_source * 2 * d
    self_attention = target * 4 * d * d + looks_back * 2 * d
    cross_attention = (2 * target + 2 * source) * d * d + looks_across * 2 * d
    decoder = self_attention + cross_attention + target * feed_forward
    output = target * d * shape.vocabulary
    return 2 * (shape.layers * (encoder + decoder) + output)


def training_flops(shape: Shape, lengths: Iterable[tuple[int, int]]) -> int:
    """Forward x 3: the backward pass has two products for each one of the forward pass."""
    return 3 * forward_flops(shape, lengths)

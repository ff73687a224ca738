"""How large a model is, counted exactly and without building it."""

from dataclasses import dataclass

from heedful.config import ModelConfig

_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of trained values, by part."""

    embeddings: int
    encoder: int
    decoder: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embeddings + self.encoder + self.decoder

    @property
    def training_bytes(self) -> int:
        """Weights, gradients and Adam's two moments; activations come on top."""
        return 4 * _BYTES * self.total


def transformer_size(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Size:
    """Parameters of a Transformer, every bias and norm included."""
    d = config.d_model
    d_k, d_v = config.d_k or d // config.num_heads, config.d_v or d // config.num_heads
    head = _linear(d, d_k) * 2 + _linear(d, d_v) + d_v * d

    def attention(layers: int, heads: tuple[int, ...]) -> int:
        # The output layer has one bias, however many heads there are.
        return head * (sum(heads) or config.num_heads * layers) + d * layers

    feed_forward = _linear(d, config.d_ff) + _linear(config.d_ff, d)
    norm = 2 * d
    last_norm = norm if config.norm == "pre" else 0
    tables = {"all": target_vocabulary, "target": source_vocabulary + target_vocabulary}
    rows = tables.get(config.sharing, source_vocabulary + 2 * target_vocabulary)
    if config.positions == "learned":
        rows += 2 * config.max_positions
    return Size(
        embeddings=rows * d,
        encoder=attention(config.encoder_layers, config.encoder_heads)
        + config.encoder_layers * (feed_forward + 2 * norm)
        + last_norm,
        decoder=attention(config.decoder_layers, config.decoder_heads)
        + attention(config.decoder_layers, config.cross_heads)
        + config.decoder_layers * (feed_forward + 3 * norm)
        + last_norm,
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs

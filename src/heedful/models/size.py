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
    d, keys = config.d_model, config.num_heads * (config.d_k or config.d_model // config.num_heads)
    values = config.num_heads * (config.d_v or config.d_model // config.num_heads)
    attention = _linear(d, keys) * 2 + _linear(d, values) + _linear(values, d)
    feed_forward = _linear(d, config.d_ff) + _linear(config.d_ff, d)
    norm = 2 * d
    last_norm = norm if config.norm == "pre" else 0
    tables = {"all": target_vocabulary, "target": source_vocabulary + target_vocabulary}
    rows = tables.get(config.sharing, source_vocabulary + 2 * target_vocabulary)
    if config.positions == "learned":
        rows += 2 * config.max_positions
    return Size(
        embeddings=rows * d,
        encoder=config.encoder_layers * (attention + feed_forward + 2 * norm) + last_norm,
        decoder=config.decoder_layers * (2 * attention + feed_forward + 3 * norm) + last_norm,
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs

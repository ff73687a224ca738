"""Check the values of an experiment; each mistake has its own message."""

from typing import assert_never

from heedful.config.experiment import Experiment, ModelConfig, SearchConfig, TextConfig, TrainConfig
from heedful.errors import ConfigError

_LEAST = {
    "model": {
        "d_model": 2,
        "d_ff": 1,
        "num_heads": 1,
        "d_k": 0,
        "d_v": 0,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_positions": 1,
        "window": 0,
        "kernel_width": 1,
    },
    "text": {"bpe_variants": 1},
    "data": {"hold_out": -1, "max_length": 1, "max_ratio": 0},
    "train": {
        "max_steps": 1,
        "max_minutes": 0,
        "batch_tokens": 1,
        "accumulate": 1,
        "warmup_steps": 0,
        "weight_decay": 0,
        "clip_norm": 0,
        "save_every": 1,
        "validate_every": 1,
        "patience": 0,
        "average_checkpoints": 1,
        "threads": 0,
    },
    "search": {
        "beam": 1,
        "alpha": 0,
        "max_extra": 0,
        "min_length": 0,
        "no_repeat_ngram": 0,
        "groups": 1,
        "diversity": 0,
        "samples": 1,
        "top_k": 0,
    },
}
_SEEDS = 1 << 63  # the limit of random generators and of TOML
_PROBABILITIES = {
    "model": ("dropout", "attention_dropout", "activation_dropout"),
    "text": ("bpe_dropout",),
    "train": ("label_smoothing", "ema_decay"),
}


def check_experiment(experiment: Experiment) -> None:
    """Raise the first mistake as a `ConfigError`."""
    if not 0 <= experiment.seed < _SEEDS:
        raise ConfigError(f"seed must be at least 0 and below {_SEEDS}, but is {experiment.seed} instead")
    for table, least in _LEAST.items():
        for key, low in least.items():
            value = getattr(getattr(experiment, table), key)
            if not value >= low:
                raise ConfigError(f"{table}.{key} must be at least {low}, but is {value} instead")
    for table, keys in _PROBABILITIES.items():
        for key in keys:
            value = getattr(getattr(experiment, table), key)
            if not 0.0 <= value < 1.0:
                raise ConfigError(f"{table}.{key} must be at least 0 and below 1, but is {value} instead")
    check_model(experiment.model)
    _check_sharing(experiment.model, experiment.text)
    _check_train(experiment.train)
    _check_search(experiment.search)


def check_model(model: ModelConfig) -> None:
    """Refuse sizes that do not fit together, and keys that the model family does not use."""
    match model.family:
        case "transformer":
            _check_transformer(model)
        case "recurrent":
            _check_recurrent(model)
        case "convolutional":
            _check_convolutional(model)
        case _:
            assert_never(model.family)


def _check_transformer(model: ModelConfig) -> None:
    if model.d_model % 2:
        raise ConfigError(f"model.d_model must be even, but is {model.d_model} instead")
    if (model.d_k == 0 or model.d_v == 0) and model.d_model % model.num_heads:
        raise ConfigError(
            f"model.d_model is {model.d_model}, which {model.num_heads} heads do not divide; "
            "change model.num_heads, or set model.d_k and model.d_v"
        )
    for key, layers in (("encoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")):
        _check_heads(f"model.{key}_heads", getattr(model, f"{key}_heads"), layers, getattr(model, f"{layers}_layers"))


# Keys that only a Transformer uses. Its sizes are not listed: presets of other families leave them at their defaults.
_OF_TRANSFORMERS = (
    "window",
    "attention_dropout",
    "activation_dropout",
    "encoder_heads",
    "decoder_heads",
    "cross_heads",
)


def _check_rival(model: ModelConfig) -> None:
    for key in _OF_TRANSFORMERS:
        if value := getattr(model, key):
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(
                f"model.{key} is {shown} but model.family is '{model.family}', which does not use it; leave it out"
            )


def _check_recurrent(model: ModelConfig) -> None:
    _check_rival(model)
    if model.attention == "none" and model.encoder_layers != model.decoder_layers:
        raise ConfigError(
            f"model.encoder_layers is {model.encoder_layers} but model.decoder_layers is {model.decoder_layers}; "
            "without attention each decoder layer starts from an encoder layer: make them equal, or set model.attention"
        )


def _check_convolutional(model: ModelConfig) -> None:
    _check_rival(model)
    if model.kernel_width % 2 == 0:
        raise ConfigError(f"model.kernel_width must be odd, but is {model.kernel_width} instead")
    if model.positions != "learned":
        raise ConfigError(
            f"model.positions is '{model.positions}' but model.family is 'convolutional', "
            "which learns its positions; set model.positions = 'learned'"
        )


def _check_heads(key: str, heads: tuple[int, ...], stack: str, layers: int) -> None:
    if heads and len(heads) != layers:
        raise ConfigError(
            f"{key} has {len(heads)} numbers, but model.{stack}_layers is {layers}; give one a layer, or an empty list"
        )
    if heads and min(heads) < 1:
        raise ConfigError(f"{key} must have at least 1 head in each layer, but is {list(heads)} instead")


def _check_sharing(model: ModelConfig, text: TextConfig) -> None:
    if text.vocabularies == "separate" and model.sharing == "all":
        raise ConfigError(
            "text.vocabularies is 'separate' but model.sharing is 'all'; "
            "two vocabularies cannot share one embedding: set model.sharing = 'target'"
        )
    if text.bpe_dropout and text.kind != "bpe":
        raise ConfigError(f"text.bpe_dropout is {text.bpe_dropout} but text.kind is '{text.kind}'; it needs 'bpe'")


def _check_train(train: TrainConfig) -> None:
    if not train.learning_rate > 0.0:
        raise ConfigError(f"train.learning_rate must be above 0, but is {train.learning_rate} instead")
    if not train.timeout_minutes > 0.0:
        raise ConfigError(f"train.timeout_minutes must be above 0, but is {train.timeout_minutes} instead")
    if train.optimizer == "muon" and train.parallel == "shards":
        raise ConfigError(
            "train.optimizer is 'muon', which needs whole matrices, but train.parallel is 'shards'; "
            "set train.parallel = 'copies' or train.optimizer = 'adam'"
        )
    if train.accumulate > train.batch_tokens:
        raise ConfigError(
            f"train.accumulate is {train.accumulate} but a batch has only {train.batch_tokens} tokens; lower it"
        )


def _check_search(search: SearchConfig) -> None:
    if search.beam % search.groups:
        raise ConfigError(
            f"search.beam is {search.beam}, which {search.groups} groups do not divide; change search.groups or --beam"
        )
    if not search.temperature > 0.0:
        raise ConfigError(f"search.temperature must be above 0, but is {search.temperature} instead")
    if not 0.0 < search.top_p <= 1.0:
        raise ConfigError(f"search.top_p must be above 0 and at most 1, but is {search.top_p} instead")
    if not 0 <= search.seed < _SEEDS:
        raise ConfigError(f"search.seed must be at least 0 and below {_SEEDS}, but is {search.seed} instead")

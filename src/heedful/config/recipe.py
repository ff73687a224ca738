"""Recipes: read TOML as an `Experiment`, check its values, and write it. Each mistake has its own message."""

import dataclasses
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, assert_never, get_args, get_origin

from heedful.config.experiment import Experiment, ModelConfig, SearchConfig, TextConfig, TrainConfig
from heedful.config.presets import preset
from heedful.errors import ConfigError, did_you_mean

Tables = dict[str, Any]

_MOST_BYTES = 1 << 20
_MOST_PARTS = 16
# `tomllib` needs memory that grows with the square of the number of parts of a key.
_SEGMENT = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
_LONG_KEY = re.compile(rf"(?m)(?:^|[\[{{,])\s*+{_SEGMENT}(?:\s*+\.\s*+{_SEGMENT}){{{_MOST_PARTS},}}+\s*+[\]=]")

# Options of version 0.1 that nobody set. Run folders name every option, so the former default is still accepted.
_REMOVED: Mapping[str, tuple[object, str]] = {
    "text.sample_lines": (2_000_000, "a vocabulary is learned from at most 2 million lines"),
    "train.beta1": (0.9, "Adam has the constants of the paper"),
    "train.beta2": (0.98, "Adam has the constants of the paper"),
    "train.epsilon": (1e-9, "Adam has the constants of the paper"),
}


def load_recipe(path: Path) -> Tables:
    """Read a recipe. `make_experiment` checks its keys."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path} has more than {_MOST_BYTES:,} bytes; a recipe is a small TOML file")
        text = content.decode()
        if _LONG_KEY.search(text):
            raise ConfigError(f"{path} has a key of more than {_MOST_PARTS} parts; a key of a recipe has two")
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply; a recipe has tables of values and lists") from None
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise ConfigError(f"no recipe {path}{did_you_mean(path.name, near)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, not a recipe; to resume a run, use --resume {path}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); a recipe is a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def parse_setting(setting: str) -> Tables:
    """Parse a setting such as `train.max_steps=200`. A value that is not TOML is a string."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {setting}: write it as key=value, such as --set train.max_steps=200")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return typing.cast(Tables, value)


def merge(*layers: Mapping[str, Any]) -> Tables:
    """Put layers of tables on top of each other; the last one wins."""
    merged: Tables = {}
    for layer in layers:
        for key, value in layer.items():
            below = merged.get(key)
            merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def parse_experiment(tables: Mapping[str, Any], under: Mapping[str, Any]) -> Experiment:
    """Parse and check tables. Missing keys come from `under`, then from the preset, then from the paper.

    Callers use `heedful.tasks.make_experiment`, which adds the defaults of the task.
    """
    named = merge(under, tables)
    model = named.get("model", {})
    name = model.get("preset", "paper") if isinstance(model, Mapping) else "paper"
    lower = merge(preset(str(name)), under)
    experiment: Experiment = _parse_table(Experiment, merge(lower, tables), "")
    if "schedule" in (train := tables.get("train", {})) and "learning_rate" not in train:
        experiment = _keep_peak_rate(experiment, lower.get("train", {}).get("schedule", TrainConfig().schedule))
    _check_experiment(experiment)
    return experiment


def change_search(search: SearchConfig, changes: Mapping[str, object]) -> SearchConfig:
    """The search with some keys of `[search]` changed, and checked."""
    return parse_experiment({"search": {**dataclasses.asdict(search), **changes}}, {}).search


def _keep_peak_rate(experiment: Experiment, before: str) -> Experiment:
    """Convert the learning rate between the paper's factor and the peak of other schedules, so that the peak stays."""
    train = experiment.train
    if (train.schedule == "paper") == (before == "paper"):
        return experiment
    peak = (experiment.model.d_model * max(1, train.warmup_steps)) ** -0.5  # the maximum of equation 3
    rate = train.learning_rate / peak if train.schedule == "paper" else train.learning_rate * peak
    return dataclasses.replace(experiment, train=dataclasses.replace(train, learning_rate=float(f"{rate:.3g}")))


def differences(experiment: Experiment, other: Experiment) -> list[tuple[str, object, object]]:
    """The keys whose values differ, with both values."""
    ours, theirs = flat(experiment), flat(other)
    return [(key, ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]]


def flat(experiment: Experiment) -> dict[str, object]:
    """All keys with dots, such as `train.max_steps`."""
    values: dict[str, object] = {}
    for key, value in dataclasses.asdict(experiment).items():
        if isinstance(value, dict):
            values |= {f"{key}.{inner}": entry for inner, entry in value.items()}
        else:
            values[key] = value
    return values


def dump_experiment(experiment: Experiment) -> str:
    """The complete experiment as TOML, from which `make_experiment` makes an equal one."""
    import tomlkit

    return tomlkit.dumps(_plain(dataclasses.asdict(experiment)))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _parse_table(kind: type[Any], table: Mapping[str, Any], prefix: str) -> Any:
    hints = typing.get_type_hints(kind)
    table = {key: value for key, value in table.items() if not _was_removed(f"{prefix}{key}", value)}
    for key in table:
        if key not in hints:
            raise ConfigError(f"unknown key: {prefix}{key}{_elsewhere(key) or did_you_mean(key, hints)}")
    return kind(**{key: _parse(hints[key], value, f"{prefix}{key}") for key, value in table.items()})


def _was_removed(key: str, value: object) -> bool:
    """Whether an option of version 0.1 can be dropped, because it has the value that is now fixed."""
    if key not in _REMOVED:
        return False
    default, reason = _REMOVED[key]
    if value != default:
        raise ConfigError(f"{key} is no longer an option: {reason}; leave it out")
    return True


def _elsewhere(key: str) -> str:
    """Suggest the right table for a key that is in the wrong one or in none."""
    places = [name for name in flat(Experiment()) if name.rpartition(".")[2] == key]
    return f"; did you mean '{places[0]}'?" if places else ""


def _parse(hint: Any, value: Any, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table, but is {value!r} instead")
        return _parse_table(typing.cast(type[Any], hint), value, f"{key}.")
    if get_origin(hint) is Literal:
        return _parse_choice(get_args(hint), value, key)
    if get_origin(hint) is tuple:
        return _parse_names(value, key) if str in get_args(hint) else _parse_counts(value, key)
    # A Python bool is also an int.
    if hint is float and type(value) is int:
        return float(value)
    # TOML has inf and nan, but no option accepts them.
    if type(value) is not hint or (hint is float and not math.isfinite(value)):
        raise ConfigError(f"{key} must be {_KIND_NAMES[hint]}, but is {value!r} instead")
    return value


_KIND_NAMES = types.MappingProxyType({int: "a whole number", float: "a number", bool: "true or false", str: "a string"})


def _parse_choice(choices: Sequence[str], value: Any, key: str) -> str:
    if value not in choices:
        names = ", ".join(choices)
        raise ConfigError(f"{key} must be one of {names}, but is {value!r} instead{did_you_mean(str(value), choices)}")
    return str(value)


def _parse_names(value: Any, key: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or any(not isinstance(name, str) for name in value):
        raise ConfigError(f"{key} must be a file name or a list of them, but is {value!r} instead")
    return tuple(value)


def _parse_counts(value: Any, key: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or any(type(count) is not int for count in value):
        raise ConfigError(f"{key} must be a list of whole numbers, but is {value!r} instead")
    return tuple(value)


# Checks of values

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
        "max_distance": 1,
        "image_size": 1,
        "patch_size": 1,
        "window": 0,
        "kernel_width": 1,
    },
    "text": {"bpe_variants": 1},
    "data": {"shift": 0, "hold_out": -1, "max_length": 1, "max_ratio": 0},
    "train": {
        "max_steps": 1,
        "max_minutes": 0,
        "batch_tokens": 1,
        "accumulate": 1,
        "warmup_steps": 0,
        "dropout_warmup": 0,
        "r_drop": 0,
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
T5_SINGLE_DISTANCES = 16  # to one side in the decoder, which has 32 buckets for it
_SEEDS = 1 << 63  # the limit of random generators and of TOML
_PROBABILITIES = {
    "model": ("dropout", "attention_dropout", "activation_dropout"),
    "text": ("bpe_dropout",),
    "train": ("label_smoothing", "word_dropout", "ema_decay"),
    "search": ("low_confidence",),
}


def _check_experiment(experiment: Experiment) -> None:
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
    _check_model(experiment.model)
    _check_sharing(experiment.model, experiment.text)
    _check_train(experiment.train)
    _check_search(experiment.search)


def _check_model(model: ModelConfig) -> None:
    """Refuse sizes that do not fit together, and keys that the model family does not use."""
    for key, only in (("activation", "gated-gelu-tanh"), ("sharing", "inputs")):
        if model.family != "t5" and getattr(model, key) == only:
            raise ConfigError(
                f"model.{key} is '{only}' but model.family is '{model.family}'; only 't5' has it: choose another"
            )
    match model.family:
        case "transformer":
            _check_transformer(model)
        case "recurrent":
            _check_recurrent(model)
        case "convolutional":
            _check_convolutional(model)
        case "gpt":
            _check_gpt(model)
        case "bert":
            _check_bert(model)
        case "t5":
            _check_t5(model)
        case "vit":
            _check_vit(model)
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


def _check_gpt(model: ModelConfig) -> None:
    _check_transformer(model)
    for key, wanted in (("norm", "pre"), ("sharing", "all"), ("window", 0)):
        if (value := getattr(model, key)) != wanted:
            raise ConfigError(
                f"model.{key} is {value!r} but model.family is 'gpt', which has {wanted!r}; leave the key out"
            )
    if model.positions == "sinusoidal":
        raise ConfigError(
            "model.positions is 'sinusoidal' but model.family is 'gpt'; set model.positions to 'learned' or 'relative'"
        )


def _check_bert(model: ModelConfig) -> None:
    _check_transformer(model)
    for key, wanted in (("sharing", "all"), ("output_bias", False)):
        if (value := getattr(model, key)) != wanted:
            raise ConfigError(
                f"model.{key} is {value!r} but model.family is 'bert', which has {wanted!r}; leave the key out"
            )
    if len(set(model.labels)) < len(model.labels) or "" in model.labels:
        raise ConfigError("model.labels must be different names, none of them empty; leave the key out")
    if model.head in ("masked", "none") and model.labels:
        raise ConfigError(f"model.labels are set but model.head is '{model.head}', which has none; leave them out")


def _check_t5(model: ModelConfig) -> None:
    _check_transformer(model)
    wanted = {"norm": "pre", "positions": "relative", "window": 0, "output_bias": False}
    for key, value in (wanted | dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads"), ())).items():
        if (found := getattr(model, key)) != value:
            raise ConfigError(
                f"model.{key} is {found!r} but model.family is 't5', which has {value!r}; leave the key out"
            )
    if model.max_distance <= T5_SINGLE_DISTANCES:
        raise ConfigError(
            f"model.max_distance is {model.max_distance}, but in model.family 't5' the nearest {T5_SINGLE_DISTANCES} "
            "distances have a bias each; set it higher, to 128 as in the original"
        )


def _check_vit(model: ModelConfig) -> None:
    _check_transformer(model)
    for key, wanted in (
        *(("norm", "pre"), ("sharing", "all"), ("positions", "learned"), ("window", 0), ("output_bias", False)),
    ):
        if (value := getattr(model, key)) != wanted:
            raise ConfigError(
                f"model.{key} is {value!r} but model.family is 'vit', which has {wanted!r}; leave the key out"
            )
    if model.channels not in (1, 3):
        raise ConfigError(f"model.channels must be 1 for grey or 3 for colour, but is {model.channels} instead")
    if model.image_size % model.patch_size:
        raise ConfigError(
            f"model.image_size is {model.image_size}, which patches of {model.patch_size} pixels do not divide; "
            "change model.patch_size"
        )
    if not model.norm_epsilon > 0.0:
        raise ConfigError(f"model.norm_epsilon must be above 0, but is {model.norm_epsilon} instead")
    if len(set(model.labels)) < len(model.labels) or "" in model.labels:
        raise ConfigError("model.labels must be different names, none of them empty; leave the key out")


# Keys that only a Transformer uses. Its sizes are not listed: presets of other families leave them at their defaults.
_TRANSFORMER_KEYS = (
    "window",
    "attention_dropout",
    "activation_dropout",
    "encoder_heads",
    "decoder_heads",
    "cross_heads",
)


def _check_rival(model: ModelConfig) -> None:
    for key in _TRANSFORMER_KEYS:
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
    if text.vocabularies == "separate" and model.sharing in ("all", "inputs"):
        raise ConfigError(
            f"text.vocabularies is 'separate' but model.sharing is '{model.sharing}'; "
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

"""Parse TOML into an `Experiment`; every mistake is named."""

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from heedful.config.check import check_experiment
from heedful.config.experiment import Experiment, SearchConfig, TrainConfig
from heedful.config.presets import preset
from heedful.errors import ConfigError, did_you_mean

Tables = dict[str, Any]

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
        return tomllib.loads(path.read_text(encoding="utf-8"))
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
    check_experiment(experiment)
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

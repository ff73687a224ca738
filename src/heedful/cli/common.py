"""What several commands need."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, cast, get_args

import typer

from heedful.config import Device, SearchConfig, make_experiment, merge, parse_setting
from heedful.errors import ConfigError, did_you_mean

BeamOption = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; default is the model's own.")]
SearchOption = Annotated[
    list[str] | None, typer.Option("--set", help="Any key of [search], such as search.alpha=1.0, for this time.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def search_with(own: SearchConfig, beam: int | None, settings: Sequence[str] | None) -> SearchConfig:
    """The model's own search, except for what is given."""
    given = merge(*map(parse_setting, settings or []), {"search": {"beam": beam}} if beam else {})
    if others := given.keys() - {"search"}:
        raise ConfigError(f"--set {min(others)}: here only keys of [search] can be set, such as search.alpha=1.0")
    return make_experiment(merge({"search": asdict(own)}, given)).search


def device_named(name: str) -> Device:
    """The device of this name."""
    known = get_args(Device)
    if name not in known:
        raise ConfigError(f"--device must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast(Device, name)

"""What several commands need."""

from typing import cast, get_args

from heedful.config import Device
from heedful.errors import ConfigError, did_you_mean


def device_named(name: str) -> Device:
    """The device of this name."""
    known = get_args(Device)
    if name not in known:
        raise ConfigError(f"--device must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast(Device, name)

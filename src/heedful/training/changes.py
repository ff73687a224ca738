"""What a resumed run may change."""

from dataclasses import asdict
from typing import Any

from heedful.config import Experiment, flat, merge
from heedful.errors import ConfigError
from heedful.tasks import make_experiment

# When it ends, how often it looks, where it runs, and what a diverged one is advised to.
_MAY_CHANGE = (
    *("train.max_steps", "train.max_minutes", "train.save_every", "train.validate_every", "train.patience"),
    *("train.threads", "train.device", "train.learning_rate", "train.on_non_finite"),
    *("train.parallel", "train.timeout_minutes"),
    *("train.precision", "train.compile", "train.checkpoint_activations"),
)


def apply_resume_settings(before: Experiment, settings: dict[str, Any]) -> Experiment:
    """The same experiment with these settings, if they are such that a run can go on with them."""
    after = make_experiment(merge(asdict(before), settings))
    old, new = flat(before), flat(after)
    for key in old:
        if old[key] != new[key] and key not in _MAY_CHANGE:
            raise ConfigError(f"{key} cannot change from {old[key]} to {new[key]} in a resumed run; start a new one")
    return after

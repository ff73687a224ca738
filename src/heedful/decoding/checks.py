"""What every search asks of its options, before any model is run."""

from heedful.config.experiment import SearchConfig
from heedful.errors import ConfigError

NOT_NUMBERS = "the model gives no numbers, so it cannot translate; use a checkpoint from before it diverged"


def check_search(config: SearchConfig, n_best: int) -> None:
    """Refuse what no search can do."""
    if config.beam < 1:
        raise ConfigError(f"search.beam is {config.beam} but must be at least 1; set --beam to 1 or more")
    if n_best < 1:
        raise ConfigError(f"{n_best} translations were asked for; ask for at least 1")
    if n_best > config.beam:
        raise ConfigError(
            f"search.beam is {config.beam} but {n_best} translations were asked for; set --beam to at least {n_best}"
        )
    if not config.alpha >= 0:  # longer would then score lower, and no bound would hold
        raise ConfigError(f"search.alpha is {config.alpha} but must not be negative; set --alpha to 0 or more")

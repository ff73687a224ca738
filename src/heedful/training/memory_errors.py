"""What to say when the memory does not suffice for a training."""

from collections.abc import Iterator
from contextlib import contextmanager

from heedful.config import TrainConfig
from heedful.errors import OutOfSpace, out_of_memory


@contextmanager
def explain_out_of_memory(config: TrainConfig) -> Iterator[None]:
    """Turn every way to run out of memory inside into OutOfSpace, which names the budget to lower and its value."""
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        raise OutOfSpace(
            f"out of memory with train.batch_tokens = {config.batch_tokens} and train.accumulate = {config.accumulate};"
            " free some memory and go on with --resume, or start a new run with a higher train.accumulate (the same "
            "updates in smaller parts) or a lower train.batch_tokens"
        ) from error

"""What the Rust side of `tokenizers` raises, as errors of ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from heedful.errors import DataError


@contextmanager
def rust_errors(context: str) -> Iterator[None]:
    """Turn an error or a panic of the Rust side into a DataError that starts with `context`; others pass."""
    try:
        yield
    except BaseException as error:
        if not _is_from_rust(error):
            raise
        raise DataError(f"{context}: {error}") from error


def _is_from_rust(error: BaseException) -> bool:
    # An error comes as a bare Exception; a panic as a BaseException whose class no module exports.
    return type(error) is Exception or type(error).__name__ == "PanicException"

"""What can go wrong, and with which exit code the command line says so.

::

    HeedfulError             1   the work failed
    ├── UserError            2   a value, file or folder that the user can put right
    │   ├── ConfigError          an option or a key of a recipe
    │   ├── DataError            a text file, a tokenizer, a test set
    │   └── FolderError          a run folder or checkpoint: missing, damaged, of another version
    ├── Unanswered           1   another process of the same training hangs or is gone
    ├── OutOfSpace           5   the disk or the memory is full
    └── Diverged             6   the loss is no longer a number

Every message names the thing, its value and the way out, in one sentence.
"""

import difflib
import errno
from collections.abc import Iterable


class HeedfulError(Exception):
    """Anything that heedful itself reports; never shown with a traceback."""

    exit_code = 1


class UserError(HeedfulError):
    """A mistake in what the user brought."""

    exit_code = 2


class ConfigError(UserError):
    """An option that does not exist or a value that it cannot have."""


class DataError(UserError):
    """Text that cannot be read, paired or tokenised."""


class FolderError(UserError):
    """A run folder that is missing, damaged or from another version."""


class Unanswered(HeedfulError):
    """Another process of the same training hangs or is gone; what was saved before is intact."""


class OutOfSpace(HeedfulError):
    """The disk or the memory is full; what was saved before is intact."""

    exit_code = 5


class Diverged(HeedfulError):
    """The loss is no longer a number; the weights on disk are from before."""

    exit_code = 6


# Linux, Windows, CUDA, C++, and the loader of libraries.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "failed to map segment")


def out_of_memory(error: BaseException) -> bool:
    """Whether this is Python's, PyTorch's or the operating system's way to say that there is no memory left."""
    match error:
        case MemoryError():
            return True
        case OSError() if error.errno == errno.ENOMEM:
            return True
        case OSError() | RuntimeError() | ImportError() if any(words in str(error) for words in _NO_MEMORY):
            return True
    cause = error.__cause__ or error.__context__  # a library that could not be loaded tells why only there
    return cause is not None and out_of_memory(cause)


def extra(name: str) -> str:
    """How to install what some commands need beside the rest."""
    return f"run: pip install 'heedful[{name}]', or '.[{name}]' in a copy of the repository"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Give "; did you mean 'x'?" for the nearest known word, or nothing when none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""

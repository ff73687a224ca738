"""The exceptions that heedful raises, and the exit code of each.

::

    HeedfulError             1   the work failed
    ├── UserError            2   a value, file or folder that the user can put right
    │   ├── ConfigError          an option or a key of a recipe
    │   ├── DataError            a text file, a tokenizer, a test set
    │   └── FolderError          a run folder or checkpoint: missing, damaged, from another version
    ├── Unanswered           1   another process of the same training hangs or has ended
    ├── OutOfSpace           5   the disk or the memory is full
    └── Diverged             6   the loss is no longer a number

Every message names the thing, its value and the way out, in one sentence.
"""

import difflib
import errno
from collections.abc import Iterable
from importlib.util import find_spec


class HeedfulError(Exception):
    """The base of all exceptions here; the command line prints the message without a traceback."""

    exit_code = 1


class UserError(HeedfulError):
    """A value, file or folder that the user can put right."""

    exit_code = 2


class ConfigError(UserError):
    """An option that does not exist or a value that it cannot have."""


class DataError(UserError):
    """Text that cannot be read, paired or tokenised."""


class FolderError(UserError):
    """A run folder that is missing, damaged or from another version."""


class Unanswered(HeedfulError):
    """Another process of the same training hangs or has ended; everything saved before is intact."""


class OutOfSpace(HeedfulError):
    """The disk or the memory is full; everything saved before is intact."""

    exit_code = 5


class Diverged(HeedfulError):
    """The loss is no longer a number; the weights on disk are from before."""

    exit_code = 6


# The words of Linux, Windows, CUDA, C++ and the loader of libraries.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc", "failed to map segment")


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, PyTorch or the operating system means that memory has run out."""
    match error:
        case MemoryError():
            return True
        case OSError() if error.errno == errno.ENOMEM:
            return True
        case OSError() | RuntimeError() | ImportError() if any(words in str(error) for words in _NO_MEMORY):
            return True
    cause = error.__cause__ or error.__context__  # a library that failed to load gives its reason only there
    return cause is not None and out_of_memory(cause)


def extra(name: str) -> str:
    """How to install an optional part, such as "train"."""
    return f"run: pip install 'heedful[{name}]', or '.[{name}]' in a copy of the repository"


_TRAINING = (
    *("torch", "numba", "llvmlite", "threadpoolctl", "sacrebleu", "sacremoses", "rapidfuzz", "jaxtyping"),
    "safetensors",
)


def missing_library(purpose: str, module: str | None) -> ConfigError:
    """The error for work that imports a module which is not installed: how to install it."""
    package = (module or "a library").partition(".")[0]
    known = "tokenizers" if package == "tokenizers" else "heedful"  # a model may need it where nothing is trained
    remedy = extra("train") if package in _TRAINING else f"run: pip install {known}"
    return ConfigError(f"{purpose} needs {package}, which is not installed; {remedy}")


def require_library(purpose: str, module: str) -> None:
    """Refuse this work if a library of an extra is not installed."""
    if not is_installed(module):
        raise missing_library(purpose, module)


def is_installed(module: str) -> bool:
    """Whether a library can be imported; this does not import it."""
    return find_spec(module) is not None


def counted(count: int, noun: str, form: str = "") -> str:
    """The number with its noun: "1 pair", "2 pairs"; `form` is the format of the number, such as ","."""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The suggestion "; did you mean 'x'?" with the nearest known word, or an empty string if none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""

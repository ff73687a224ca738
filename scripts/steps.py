"""Parts that scripts share: messages, running heedful's commands, and errors as one sentence."""

import errno
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from heedful.errors import HeedfulError, OutOfSpace, UserError

INTERRUPTED = 130


def say(text: str) -> None:
    """Print a line at once, so that it keeps its order with the output of child processes."""
    print(text, flush=True)


def heedful(*arguments: str) -> int:
    """Show a command and run it; return its exit code."""
    say(f"   $ heedful {' '.join(shown(argument) for argument in arguments)}\n")
    child = subprocess.Popen([sys.executable, "-m", "heedful", *arguments])
    while True:
        with suppress(KeyboardInterrupt):  # Ctrl-C reaches the child too, which saves before it ends
            return child.wait()


def shown(argument: str) -> str:
    """The argument as you would type it, in quotation marks if it has spaces."""
    return f'"{argument}"' if " " in argument else argument


def ending(name: str, work: Callable[[], int], megabytes: int) -> int:
    """Do the work and return its exit code; print an error as one sentence."""
    try:
        return work()
    except HeedfulError as error:
        return complain(name, str(error), error.exit_code)
    except OSError as error:
        return complain(name, *explain(error, megabytes))
    except KeyboardInterrupt:
        return complain(name, "stopped by Ctrl-C", INTERRUPTED)


def complain(name: str, sentence: str, code: int) -> int:
    """Print an error; return the exit code."""
    print(f"{name}: {sentence}", file=sys.stderr)
    return code


def explain(error: OSError, megabytes: int) -> tuple[str, int]:
    """A sentence for an error of the operating system, and the exit code."""
    where = error.filename or "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full while writing {where}; about {megabytes} MB are needed", OutOfSpace.exit_code
    return f"{where}: {error.strerror or error}", UserError.exit_code

"""What scripts that run whole pieces of work share: lines for a person, commands as a person types them, the ending."""

import errno
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from heedful.errors import HeedfulError, OutOfSpace, UserError

INTERRUPTED = 130


def say(text: str) -> None:
    """A line for a person, in order with what a child says."""
    print(text, flush=True)


def heedful(*arguments: str) -> int:
    """Run the command line as a person would; give its exit code."""
    say(f"   $ heedful {' '.join(shown(argument) for argument in arguments)}\n")
    child = subprocess.Popen([sys.executable, "-m", "heedful", *arguments])
    while True:
        with suppress(KeyboardInterrupt):  # Ctrl-C reaches the child too, which saves and ends in its own time
            return child.wait()


def shown(argument: str) -> str:
    """As one types it: a sentence in quotation marks."""
    return f'"{argument}"' if " " in argument else argument


def ending(name: str, work: Callable[[], int], megabytes: int) -> int:
    """Do the work and give its exit code, or say in one sentence why it could not be done."""
    try:
        return work()
    except HeedfulError as error:
        return complain(name, str(error), error.exit_code)
    except OSError as error:
        return complain(name, *explain(error, megabytes))
    except KeyboardInterrupt:
        return complain(name, "stopped by Ctrl-C", INTERRUPTED)


def complain(name: str, sentence: str, code: int) -> int:
    """Why it did not work; give the code."""
    print(f"{name}: {sentence}", file=sys.stderr)
    return code


def explain(error: OSError, megabytes: int) -> tuple[str, int]:
    """A sentence for what the operating system refused, and the exit code."""
    where = error.filename or "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full while writing {where}; about {megabytes} MB are needed", OutOfSpace.exit_code
    return f"{where}: {error.strerror or error}", UserError.exit_code

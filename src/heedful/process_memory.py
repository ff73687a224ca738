"""The memory of this process."""

import ctypes
import gc
import os
from collections.abc import Mapping
from contextlib import suppress

# The numbers of M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD in malloc.h.
_KEEP = {-3: 2**31 - 1, -1: 2**31 - 1, -2: 1 << 26}
_ARENA_MAX = -8


def keep_freed_memory() -> None:
    """Have this process keep the memory that it has been given.

    glibc hands large temporaries back to the kernel, which gives them anew, page by page and cleared. With them kept,
    small updates were up to a tenth faster, and translation a few hundredths. Where the C library knows no `mallopt`
    nothing happens.
    """
    _set(_KEEP)


def share_freed_memory() -> None:
    """Have the threads that begin from now on use what others have freed, as many at once as there are cores.

    Else each has memory of its own, and a server grows until all of them have had the largest batch.
    """
    _set({_ARENA_MAX: os.cpu_count() or 1})


def freeze_loaded_objects() -> None:
    """Have Python's search for unreachable cycles pass over all that is here now, to be called when all is loaded.

    Else it looks through every object of every library again and again, which took a tenth of a request's time.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _set(options: Mapping[int, int]) -> None:
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)

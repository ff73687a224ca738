"""Detection of outputs that say the same thing again and again."""

from collections.abc import Sequence

_MAX_PERIOD = 16  # tokens in the repeated part
_MIN_REPEATS = 4
_MIN_TOKENS = 8  # in all repeats together


def has_loop(tokens: Sequence[int]) -> bool:
    """Whether some tokens repeat many times in a row; "very very very" is not a loop yet."""
    if len(tokens) - len(set(tokens)) < _MIN_TOKENS - _MIN_TOKENS // _MIN_REPEATS:  # too few tokens occur twice
        return False
    for period in range(1, min(_MAX_PERIOD, len(tokens) // _MIN_REPEATS) + 1):
        run = period  # length of the stretch in which each token equals the one `period` before it
        for now, before in zip(tokens[period:], tokens, strict=False):
            run = run + 1 if now == before else period
            if run >= max(_MIN_REPEATS * period, _MIN_TOKENS):
                return True
    return False

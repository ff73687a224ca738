"""Outputs that say the same again and again."""

from collections.abc import Sequence

_LONGEST = 16  # tokens of what is repeated
_TIMES = 4  # in a row, at least
_TOKENS = 8  # that the repetition has as a whole, at least


def loops(tokens: Sequence[int]) -> bool:
    """Whether some tokens come many times in a row: "very very very" is no loop yet."""
    if len(tokens) - len(set(tokens)) < _TOKENS - _TOKENS // _TIMES:  # so few come twice that none can come so often
        return False
    for period in range(1, min(_LONGEST, len(tokens) // _TIMES) + 1):
        run = period  # tokens that repeat what was said `period` before them, and those that they repeat
        for now, before in zip(tokens[period:], tokens, strict=False):
            run = run + 1 if now == before else period
            if run >= max(_TIMES * period, _TOKENS):
                return True
    return False

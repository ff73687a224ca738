"""The most probable tokens out of logits."""

import numpy as np
from numba import njit

from heedful.kernels.numbers import FAST, F, exp, largest

_BLOCK = 64  # of which the largest is found eight at a time, and mostly nothing more is asked of them


@njit(nogil=True, fastmath=FAST, cache=True)
def best_log_probs(logits, bits, barred, values, ids):
    """Fill in the log-probabilities and ids of the likeliest tokens of each row, best first, equal ones by id.

    `bits` are the same logits, seen as integers. What is barred keeps its share of the probability. A row that is not
    all numbers has none but impossible tokens.
    """
    vocabulary, count = logits.shape[1], values.shape[1]
    for i in range(logits.shape[0]):
        row, top, chosen = logits[i], values[i], ids[i]
        most = largest(bits[i])
        mass, total = F(0.0), F(0.0)
        for j in range(vocabulary):
            mass += exp(row[j] - most)
            total += row[j]
        top[:] = -np.inf
        chosen[:] = 0
        found = 0
        for begin in range(0, vocabulary, _BLOCK):
            end = min(begin + _BLOCK, vocabulary)
            if found == count and largest(bits[i, begin:end]) <= top[count - 1]:
                continue
            for j in range(begin, end):
                if barred[j] or (found == count and row[j] <= top[count - 1]):
                    continue
                place = min(found, count - 1)
                while place > 0 and top[place - 1] < row[j]:
                    top[place], chosen[place] = top[place - 1], chosen[place - 1]
                    place -= 1
                top[place], chosen[place] = row[j], j
                found = min(found + 1, count)
        log_mass = np.log(mass) + most
        for c in range(count):
            value = top[c] - log_mass
            # Rounding may leave a certain token a hair above 0; no comparison holds for what is no number.
            top[c] = min(value, F(0.0)) if value > -np.inf and total == total else -np.inf  # noqa: PLR0124

"""Label-smoothed cross entropy with its gradient."""

import numpy as np
from numba import njit

from heedful.kernels.numbers import FAST, F, exp, largest


@njit(nogil=True, fastmath=FAST, cache=True)
def smoothed_rows(logits, bits, gold, other, excess):
    """Turn logits into the gradient of the smoothed loss, in place; give the sums of -log p(gold) and of all log p.

    `bits` are the same logits, seen as integers.
    """
    vocabulary = logits.shape[1]
    surprise, everything = 0.0, 0.0
    for i in range(logits.shape[0]):
        row = logits[i]
        most = largest(bits[i])
        total, mass = F(0.0), F(0.0)
        for j in range(vocabulary):
            total += row[j]
        gold_logit = row[gold[i]]
        for j in range(vocabulary):
            value = exp(row[j] - most)
            row[j] = value
            mass += value
        inverse = F(1.0) / mass
        for j in range(vocabulary):
            row[j] = row[j] * inverse - other
        row[gold[i]] -= excess
        log_mass = np.log(mass) + most
        surprise += log_mass - gold_logit
        everything += total - vocabulary * log_mass
    return surprise, everything

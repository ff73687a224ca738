"""Label-smoothed cross entropy and its gradient in one pass (section 5.4)."""

import numpy as np
from numba import njit

from heedful.kernels.scalars import FASTMATH, F, exp, largest


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def smoothed_gradient(logits, bits, gold, other, excess):
    """Replace logits by the gradient of the smoothed loss; return the sums of -log p(gold) and of all log p.

    `bits` is the same array viewed as integers.
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

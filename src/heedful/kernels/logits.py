"""Passes over logits: the gradient of the label-smoothed loss (section 5.4), and the most probable tokens."""

import numpy as np
from numba import njit

from heedful.kernels.scalars import FASTMATH, F, exp, largest

_BLOCK = 64  # logits whose largest is found eight at a time; most blocks need no second look


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


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def consistent_gradient(logits, bits, gold, other, excess, weight):
    """`smoothed_gradient` for two passes over the same tokens, one below the other, whose divergence has this weight.

    The third result is the sum over the tokens of (KL(p, q) + KL(q, p)) / 2.
    """
    count, vocabulary = logits.shape[0] // 2, logits.shape[1]
    half = F(0.5) * weight
    surprise, everything, divergence = 0.0, 0.0, 0.0
    for i in range(count):
        a, b = logits[i], logits[count + i]
        most_a, most_b = largest(bits[i]), largest(bits[count + i])
        mass_a, mass_b, total = F(0.0), F(0.0), F(0.0)
        for j in range(vocabulary):
            mass_a += exp(a[j] - most_a)
            mass_b += exp(b[j] - most_b)
            total += a[j] + b[j]
        log_a, log_b = F(np.log(mass_a)) + most_a, F(np.log(mass_b)) + most_b
        shift = log_a - log_b
        kl_a, kl_b = F(0.0), F(0.0)
        for j in range(vocabulary):
            ratio = a[j] - b[j] - shift
            kl_a += exp(a[j] - log_a) * ratio
            kl_b -= exp(b[j] - log_b) * ratio
        surprise += log_a - a[gold[i]] + log_b - b[gold[i]]
        for j in range(vocabulary):
            ratio = a[j] - b[j] - shift
            p, q = exp(a[j] - log_a), exp(b[j] - log_b)
            a[j] = p - other + half * (p * (ratio - kl_a) + p - q)
            b[j] = q - other + half * (q * (-ratio - kl_b) + q - p)
        a[gold[i]] -= excess
        b[gold[i]] -= excess
        everything += total - vocabulary * (log_a + log_b)
        divergence += 0.5 * float(kl_a + kl_b)
    return surprise, everything, divergence


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def find_top_tokens(logits, bits, barred, values, ids):
    """Fill in the log-probabilities and ids of the likeliest tokens of each row, best first; ties go to the lower id.

    `bits` is the same array of logits viewed as integers. Barred tokens keep their share of the probability. In a row
    that contains NaN or infinity, every token is impossible.
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
            # Rounding may lift a certain token slightly above 0. NaN fails every comparison, even with itself.
            top[c] = min(value, F(0.0)) if value > -np.inf and total == total else -np.inf  # noqa: PLR0124

"""Attention from one position of each hypothesis, when outputs are searched for."""

import numpy as np
from numba import njit

from heedful.kernels.numbers import FAST, F, exp


@njit(nogil=True, fastmath=FAST, cache=True)
def attend_back(queries, keys, values, slots, num_heads, scale, out):
    """From each hypothesis to its own past: row i of `slots` names the rows of keys and values that are its."""
    count, seen = slots.shape
    d_k = keys.shape[1] // num_heads
    scores = np.empty((num_heads, max(seen, 1)), dtype=F)
    for i in range(count):
        own = slots[i]
        for j in range(seen):
            _score(queries[i], keys[own[j]], j, d_k, scale, scores)
        _softmax(scores, seen)
        out[i, :] = F(0.0)
        for j in range(seen):
            _add(values[own[j]], j, scores, out[i])


@njit(nogil=True, fastmath=FAST, cache=True)
def attend_source(queries, keys, values, first, lengths, num_heads, scale, out):
    """From each hypothesis to its source: `lengths[i]` rows of keys and values, from row `first[i]` on."""
    d_k = keys.shape[1] // num_heads
    scores = np.empty((num_heads, max(1, lengths.max())), dtype=F)
    for i in range(len(queries)):
        begin, seen = first[i], lengths[i]
        for j in range(seen):
            _score(queries[i], keys[begin + j], j, d_k, scale, scores)
        _softmax(scores, seen)
        out[i, :] = F(0.0)
        for j in range(seen):
            _add(values[begin + j], j, scores, out[i])


@njit(inline="always", fastmath=FAST)
def _score(query, key, j, d_k, scale, scores):
    for h in range(scores.shape[0]):
        one, other = query[h * d_k : (h + 1) * d_k], key[h * d_k : (h + 1) * d_k]
        total = F(0.0)
        for c in range(d_k):
            total += one[c] * other[c]
        scores[h, j] = total * scale


@njit(inline="always", fastmath=FAST)
def _softmax(scores, seen):
    for h in range(scores.shape[0]):
        row = scores[h]
        most = row[0]
        for j in range(1, seen):
            most = max(most, row[j])
        mass = F(0.0)
        for j in range(seen):
            row[j] = exp(row[j] - most)
            mass += row[j]
        inverse = F(1.0) / mass
        for j in range(seen):
            row[j] *= inverse


@njit(inline="always", fastmath=FAST)
def _add(value, j, scores, out):
    num_heads = scores.shape[0]
    d_v = len(value) // num_heads
    for h in range(num_heads):
        weight, source, target = scores[h, j], value[h * d_v : (h + 1) * d_v], out[h * d_v : (h + 1) * d_v]
        for c in range(d_v):
            target[c] += weight * source[c]

"""Compiled parts of multi-head attention: for training on packed rows, and for one decoding step from a pool of rows.

`heedful.nn.attention.attend` is the plain form that all of this equals up to rounding.
"""

import numpy as np
from numba import njit

from heedful.kernels.scalars import FASTMATH, F, U, exp, keep_factor, largest, mix

_HEAD_STRIDE = 65_536  # as in `heedful.nn.noise`


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def pad_heads(rows, first, lengths, factor, grid):
    """Copy columns of packed rows, from `first` on, to grid[sentence, head, position, width], times a factor."""
    sentences, heads, _, width = grid.shape
    begin = 0
    for b in range(sentences):
        for i in range(lengths[b]):
            source = rows[begin + i]
            for h in range(heads):
                part, target = source[first + h * width : first + (h + 1) * width], grid[b, h, i]
                for j in range(width):
                    target[j] = part[j] * factor
        for h in range(heads):
            grid[b, h, lengths[b] :] = F(0.0)
        begin += lengths[b]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def pack_heads(grid, first, lengths, factor, rows):
    """The transpose of `pad_heads`: copy the grid into columns of packed rows."""
    sentences, heads, _, width = grid.shape
    begin = 0
    for b in range(sentences):
        for i in range(lengths[b]):
            target = rows[begin + i]
            for h in range(heads):
                source, part = grid[b, h, i], target[first + h * width : first + (h + 1) * width]
                for j in range(width):
                    part[j] = source[j] * factor
        begin += lengths[b]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def masked_softmax(scores, bits, queries, keys, causal):
    """Replace scores[sentence, head, query, key] by weights; padding and masked keys get zero.

    `bits` is the same array viewed as integers.
    """
    sentences, heads, longest_query, longest_key = scores.shape
    for b in range(sentences):
        for h in range(heads):
            for i in range(queries[b]):
                row = scores[b, h, i]
                seen = min(i + 1, keys[b]) if causal else keys[b]
                most, mass = largest(bits[b, h, i, :seen]), F(0.0)
                for j in range(seen):
                    value = exp(row[j] - most)
                    row[j] = value
                    mass += value
                inverse = F(1.0) / mass
                for j in range(seen):
                    row[j] *= inverse
                for j in range(seen, longest_key):
                    row[j] = F(0.0)
            for i in range(queries[b], longest_query):
                row = scores[b, h, i]
                for j in range(longest_key):
                    row[j] = F(0.0)


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def add_distance_bias(scores, bias, lengths):
    """Add bias[head, last + key - query] to the scores of self-attention, where `last` is the longest length - 1."""
    sentences, heads, longest, _ = scores.shape
    for b in range(sentences):
        for h in range(heads):
            for i in range(lengths[b]):
                row, added = scores[b, h, i], bias[h, longest - 1 - i :]
                for j in range(lengths[b]):
                    row[j] += added[j]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def distance_bias_backward(d_scores, lengths, d_bias):
    """The transpose of `add_distance_bias`: add the gradient of the scores to that of the bias."""
    sentences, heads, longest, _ = d_scores.shape
    for b in range(sentences):
        for h in range(heads):
            for i in range(lengths[b]):
                row, sums = d_scores[b, h, i], d_bias[h, longest - 1 - i :]
                for j in range(lengths[b]):
                    sums[j] += row[j]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def softmax_backward(weights, d_weights):
    """Replace the gradient of the weights by the gradient of the scores."""
    sentences, heads, longest_query, longest_key = weights.shape
    for b in range(sentences):
        for h in range(heads):
            for i in range(longest_query):
                row, slope = weights[b, h, i], d_weights[b, h, i]
                along = F(0.0)
                for j in range(longest_key):
                    along += row[j] * slope[j]
                for j in range(longest_key):
                    slope[j] = row[j] * (slope[j] - along)


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def weight_dropout(weights, queries, row_keys, site, threshold, scale, out):
    """Out = Dropout(weights); given the gradient of the result, its gradient. Rows without a query become zero."""
    sentences, heads, _, longest_key = weights.shape
    begin = 0
    for b in range(sentences):
        out[b] = F(0.0)
        for h in range(heads):
            for i in range(queries[b]):
                key = mix(U(U(row_keys[begin + i]) ^ site))
                row, result = weights[b, h, i], out[b, h, i]
                for j in range(longest_key):
                    result[j] = row[j] * keep_factor(key, h * _HEAD_STRIDE + j, threshold, scale)
        begin += queries[b]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def attend_slots(queries, keys, values, slots, bias, num_heads, scale, out):
    """Attend from query i to the rows of keys and values that `slots[i]` lists; bias[head, key] is added to scores."""
    count, seen = slots.shape
    d_k = keys.shape[1] // num_heads
    scores = np.empty((num_heads, max(seen, 1)), dtype=F)
    for i in range(count):
        own = slots[i]
        for j in range(seen):
            _score(queries[i], keys[own[j]], j, d_k, scale, scores)
        if bias.size:
            scores[:, :seen] += bias
        _softmax(scores, seen)
        out[i, :] = F(0.0)
        for j in range(seen):
            _add_value(values[own[j]], j, scores, out[i])


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def attend_spans(queries, keys, values, first, lengths, num_heads, scale, out):
    """Attend from query i to `lengths[i]` rows of keys and values, from row `first[i]` on."""
    d_k = keys.shape[1] // num_heads
    scores = np.empty((num_heads, max(1, lengths.max())), dtype=F)
    for i in range(len(queries)):
        begin, seen = first[i], lengths[i]
        for j in range(seen):
            _score(queries[i], keys[begin + j], j, d_k, scale, scores)
        _softmax(scores, seen)
        out[i, :] = F(0.0)
        for j in range(seen):
            _add_value(values[begin + j], j, scores, out[i])


@njit(inline="always", fastmath=FASTMATH)
def _score(query, key, j, d_k, scale, scores):
    for h in range(scores.shape[0]):
        one, other = query[h * d_k : (h + 1) * d_k], key[h * d_k : (h + 1) * d_k]
        total = F(0.0)
        for c in range(d_k):
            total += one[c] * other[c]
        scores[h, j] = total * scale


@njit(inline="always", fastmath=FASTMATH)
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


@njit(inline="always", fastmath=FASTMATH)
def _add_value(value, j, scores, out):
    num_heads = scores.shape[0]
    d_v = len(value) // num_heads
    for h in range(num_heads):
        weight, source, target = scores[h, j], value[h * d_v : (h + 1) * d_v], out[h * d_v : (h + 1) * d_v]
        for c in range(d_v):
            target[c] += weight * source[c]

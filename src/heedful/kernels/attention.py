"""Between packed rows and the grid of heads that attention multiplies, and the softmax there."""

from numba import njit

from heedful.kernels.numbers import FAST, F, U, exp, kept, largest, mix

_HEAD_STRIDE = 65_536  # as in `heedful.nn.noise`


@njit(nogil=True, fastmath=FAST, cache=True)
def spread(rows, first, lengths, factor, grid):
    """Columns of packed rows, from `first` on, to grid[sentence, head, position, width], times a factor."""
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


@njit(nogil=True, fastmath=FAST, cache=True)
def collect(grid, first, lengths, factor, rows):
    """The transpose of `spread`: out of the grid into columns of packed rows."""
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


@njit(nogil=True, fastmath=FAST, cache=True)
def softmax(scores, bits, queries, keys, causal):
    """Weights in place of scores[sentence, head, query, key]; zero where there is no key or it may not be seen.

    `bits` are the same scores, seen as integers.
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


@njit(nogil=True, fastmath=FAST, cache=True)
def softmax_backward(weights, d_weights):
    """Gradient of the scores in place of that of the weights."""
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


@njit(nogil=True, fastmath=FAST, cache=True)
def dropout(weights, queries, row_keys, site, threshold, scale, out):
    """Out = Dropout(weights), and with a gradient for weights its gradient; rows without a query are zero."""
    sentences, heads, _, longest_key = weights.shape
    begin = 0
    for b in range(sentences):
        out[b] = F(0.0)
        for h in range(heads):
            for i in range(queries[b]):
                key = mix(U(U(row_keys[begin + i]) ^ site))
                row, result = weights[b, h, i], out[b, h, i]
                for j in range(longest_key):
                    result[j] = row[j] * kept(key, h * _HEAD_STRIDE + j, threshold, scale)
        begin += queries[b]

"""Dropout, residual connection and layer normalisation of rows."""

import numpy as np
from numba import njit

from heedful.kernels.scalars import FASTMATH, F, U, keep_factor, mix


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def dropout_add(x, y, keys, site, threshold, scale, out):
    """Out = x + Dropout(y)."""
    for i in range(x.shape[0]):
        key = mix(U(U(keys[i]) ^ site))
        row, added, result = x[i], y[i], out[i]
        for j in range(row.size):
            result[j] = row[j] + added[j] * keep_factor(key, j, threshold, scale)


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def dropout(x, keys, site, threshold, scale, out):
    """Out = Dropout(x); given the gradient of the result, its gradient."""
    for i in range(x.shape[0]):
        key = mix(U(U(keys[i]) ^ site))
        row, result = x[i], out[i]
        for j in range(row.size):
            result[j] = row[j] * keep_factor(key, j, threshold, scale)


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def dropout_add_norm(x, y, gain, bias, epsilon, keys, site, threshold, scale, out, normal, inverse_std):
    """Out = LayerNorm(x + Dropout(y)); `normal` gets the result before gain and bias, `inverse_std` 1 / deviation."""
    width = x.shape[1]
    for i in range(x.shape[0]):
        key = mix(U(U(keys[i]) ^ site))
        row, added, result, standard = x[i], y[i], out[i], normal[i]
        total = F(0.0)
        for j in range(width):
            value = row[j] + added[j] * keep_factor(key, j, threshold, scale)
            standard[j] = value
            total += value
        mean = total / F(width)
        squares = F(0.0)
        for j in range(width):
            squares += (standard[j] - mean) * (standard[j] - mean)
        inverse = F(1.0) / np.sqrt(squares / F(width) + epsilon)
        inverse_std[i] = inverse
        for j in range(width):
            value = (standard[j] - mean) * inverse
            standard[j] = value
            result[j] = value * gain[j] + bias[j]


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def dropout_add_norm_backward(d_out, normal, inverse_std, gain, keys, site, threshold, scale, d_x, d_y, d_gain, d_bias):
    """Gradients of `dropout_add_norm`; those of gain and bias are added to what is there."""
    width = d_out.shape[1]
    for i in range(d_out.shape[0]):
        key = mix(U(U(keys[i]) ^ site))
        above, standard, below, below_y = d_out[i], normal[i], d_x[i], d_y[i]
        total, along = F(0.0), F(0.0)
        for j in range(width):
            slope = above[j] * gain[j]
            total += slope
            along += slope * standard[j]
        mean, along = total / F(width), along / F(width)
        inverse = inverse_std[i]
        for j in range(width):
            d_gain[j] += above[j] * standard[j]
            d_bias[j] += above[j]
        for j in range(width):
            slope = inverse * (above[j] * gain[j] - mean - standard[j] * along)
            below[j] = slope
            below_y[j] = slope * keep_factor(key, j, threshold, scale)

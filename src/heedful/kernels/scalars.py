"""Scalar functions that the kernels are made of, written so that the compiler vectorises them eight at a time.

Numba widens integers to 64 bits and reads literals as doubles; the casts keep everything at 32 bits.
"""

import numpy as np
from numba import njit

F = np.float32
I = np.int32  # noqa: E741
U = np.uint32

# Sums may be reordered, so that they vectorise. NaN stays NaN, because callers must be able to see it.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

GOLDEN = U(0x9E3779B9)
_LOG2_E = F(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = F(0.693359375), F(-2.12194440e-4)
_SMALLEST = F(-87.0)


@njit(inline="always")
def mix(x):
    """Hash 32 bits to 32 bits so that every output bit depends on every input bit; see `heedful.nn.noise`."""
    x = U(x ^ U(x >> U(16)))
    x = U(x * U(0x7FEB352D))
    x = U(x ^ U(x >> U(15)))
    x = U(x * U(0x846CA68B))
    return U(x ^ U(x >> U(16)))


@njit(inline="always", fastmath=FASTMATH)
def keep_factor(key, column, threshold, scale):
    """The factor that dropout applies to one number: zero or `scale`."""
    return scale if mix(U(key + U(U(column) * GOLDEN))) >= threshold else F(0.0)


@njit(inline="always", fastmath=FASTMATH)
def exp(x):
    """E to the power of x for x up to 88, with an error of at most two units in the last place.

    The result is 2^n times a polynomial (Cephes) of the remainder.
    """
    x = max(x, _SMALLEST)
    n = np.floor(x * _LOG2_E + F(0.5))
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    p = p * r * r + r + F(1.0)
    return p * I((I(n) + I(127)) << I(23)).view(F)


@njit(nogil=True)
def largest(bits):
    """The largest of some floats, given as integers of the same bits: integers are compared eight at a time."""
    most = I(-2147483648)
    for j in range(bits.size):
        # Among negative floats, the one with the larger bits is the smaller.
        most = max(most, I(bits[j] ^ I(I(bits[j] >> I(31)) & I(0x7FFFFFFF))))
    return I(most ^ I(I(most >> I(31)) & I(0x7FFFFFFF))).view(F)

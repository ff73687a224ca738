"""Scalar functions that the loops are made of, written so that the compiler turns eight at a time into one instruction.

Numba widens integers to 64 bits and takes literals as doubles; the casts keep everything at 32 bits.
"""

import numpy as np
from numba import njit

F = np.float32
I = np.int32  # noqa: E741
U = np.uint32

# Sums may be taken in any order, which is what lets them run eight at a time; but NaN stays NaN, for it must be seen.
FAST = {"reassoc", "contract", "arcp", "nsz"}

GOLDEN = U(0x9E3779B9)
_LOG2_E = F(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = F(0.693359375), F(-2.12194440e-4)
_SMALLEST = F(-87.0)


@njit(inline="always")
def mix(x):
    """A hash of 32 bits to 32 bits in which every bit depends on every other; see `heedful.nn.noise`."""
    x = U(x ^ U(x >> U(16)))
    x = U(x * U(0x7FEB352D))
    x = U(x ^ U(x >> U(15)))
    x = U(x * U(0x846CA68B))
    return U(x ^ U(x >> U(16)))


@njit(inline="always", fastmath=FAST)
def kept(key, column, threshold, scale):
    """What dropout multiplies a number with: zero or `scale`."""
    return scale if mix(U(key + U(U(column) * GOLDEN))) >= threshold else F(0.0)


@njit(inline="always", fastmath=FAST)
def exp(x):
    """E to the x for x up to 88, to the last bit but one: 2^n times a polynomial (Cephes) of what is left."""
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
    """The largest of some floats, given as the integers of the same bits: those can be compared eight at a time."""
    most = I(-2147483648)
    for j in range(bits.size):
        # Of negative floats the one with the larger bits is the smaller.
        most = max(most, I(bits[j] ^ I(I(bits[j] >> I(31)) & I(0x7FFFFFFF))))
    return I(most ^ I(I(most >> I(31)) & I(0x7FFFFFFF))).view(F)

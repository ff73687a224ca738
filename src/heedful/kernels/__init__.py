"""Loops that Numba compiles on first use: each does in one pass over memory what PyTorch does in many.

They work on NumPy arrays, on one thread and without Python's lock, so that several threads can each work on part of a
batch. No result depends on them: `heedful.nn.fused`, `heedful.nn.attention` and the loss have each of them in plain
PyTorch as well, for other devices, and tests hold both to the same numbers.
"""

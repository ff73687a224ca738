"""What PyTorch does in many passes over memory, in one: loops that Numba compiles when they are first called.

They work on NumPy arrays, on one thread and without Python's lock, so that several threads can each work on a part of
a batch. Nothing here is needed for a result: `heedful.nn.fused` and `heedful.nn.loss` have each of these in
plain PyTorch as well, for other devices, and tests hold both to the same numbers.
"""

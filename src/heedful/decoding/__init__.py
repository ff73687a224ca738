"""Search over any step function, and the engines that run it."""

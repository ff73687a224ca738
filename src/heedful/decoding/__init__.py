"""Search over any step function, and the engines that run it; import what you need from its module."""

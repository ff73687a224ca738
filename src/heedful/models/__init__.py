"""Sequence-to-sequence models under one interface; import what you need from its module (`size` needs no torch)."""

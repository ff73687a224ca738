"""Sequence-to-sequence models behind one interface. Import each name from its module; `size` does not need torch."""

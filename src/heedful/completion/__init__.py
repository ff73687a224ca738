"""The beginning of a text in, its continuation out."""

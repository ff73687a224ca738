"""A text in, its vector out."""

"""Text in, translations out."""

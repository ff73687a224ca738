"""A text in, its label out; or a sentence in, a tag for each word out."""

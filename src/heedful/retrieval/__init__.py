"""A text or a picture in, the pictures that fit it best out."""

"""Judge a model: evaluate it on a test set, compare systems, score given translations."""

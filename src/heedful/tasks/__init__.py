"""What a model is trained for: how each task's files are read, its outputs finished, and both compared."""

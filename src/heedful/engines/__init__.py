"""What runs a model: token ids in, hypotheses out."""

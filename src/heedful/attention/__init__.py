"""Attention weights of a trained model: record, measure, name, align by, and prune its heads."""

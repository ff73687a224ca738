"""The affine map that every part is made of."""

from torch import nn


def glorot_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with Glorot-uniform weights and a bias of zero.

    Projections that the paper's code draws as one matrix are one layer here too: their spread depends on it.
    """
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer

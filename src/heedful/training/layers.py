"""What a training may do with the layers of its model: keep less of them, or have them compiled."""

import torch

from heedful.config import TrainConfig
from heedful.models.seq2seq import AnySeq2Seq


def set_up_layers(model: AnySeq2Seq, config: TrainConfig, device: torch.device) -> str:
    """Do with the layers what the configuration asks for; give a sentence where it is not done."""
    model.checkpoint_activations = config.checkpoint_activations
    if not config.compile:
        return ""
    if device.type == "cpu":
        return "train.compile is true, but on a processor heedful's own loops were measured faster: it stays off"
    compile_layers(model)
    return ""


def compile_layers(model: AnySeq2Seq) -> None:
    """Have PyTorch compile each layer when it is first used; lengths may differ from batch to batch."""
    for layer in model.layers:
        layer.compile(dynamic=True)

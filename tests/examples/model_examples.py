"""Small models in all their variants, and sentences for them."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from heedful.config import Activation, ModelConfig, Norm, Positions, Sharing
from heedful.data.batch import Batch, Position, pack
from heedful.models.build import build_seq2seq
from heedful.models.predictor import AnyPredictor
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.size import Vocabulary
from heedful.models.transformer import Transformer
from heedful.training.gradients import Objective, SequentialGradients, Update

PAD, EOS = 0, 1
SOURCE_TYPES, TARGET_TYPES = 17, 23

# Every size is another one, so that no two axes can be mixed up unseen.
SMALL = ModelConfig(
    d_model=12, d_ff=22, num_heads=3, d_k=5, d_v=7, encoder_layers=1, decoder_layers=2, dropout=0.0, max_positions=9
)
VARIANTS = [
    replace(SMALL, norm=norm, activation=activation, positions=positions, sharing=sharing)
    for norm, activation, positions, sharing in itertools.product(
        *map(get_args, (Norm, Activation, Positions, Sharing))
    )
    if activation not in ("gated-gelu-tanh", "quick-gelu") and sharing != "inputs"  # which only T5 or CLIP has
]


# The rivals of the Transformer, with each kind of cell, attention and sharing, and its own restricted form.
_RECURRENT = replace(SMALL, family="recurrent", encoder_layers=2, decoder_layers=2)
_CONVOLUTIONAL = replace(SMALL, family="convolutional", positions="learned")
_T5 = replace(SMALL, family="t5", norm="pre", positions="relative", max_distance=19, encoder_layers=2)
_GPT = replace(SMALL, family="gpt", norm="pre", activation="gelu-tanh", decoder_layers=3, max_positions=29)
FAMILIES: dict[str, ModelConfig] = {
    "lstm": replace(_RECURRENT, cell="lstm", attention="none"),
    "gru": replace(_RECURRENT, cell="gru", attention="none", sharing="target"),
    "lstm-additive": replace(_RECURRENT, cell="lstm", attention="additive", encoder_layers=1, sharing="none"),
    "gru-additive": replace(_RECURRENT, cell="gru", attention="additive", decoder_layers=1),
    "lstm-multiplicative": replace(_RECURRENT, cell="lstm", attention="multiplicative", decoder_layers=3),
    "gru-multiplicative": replace(_RECURRENT, cell="gru", attention="multiplicative", sharing="none"),
    "convolutional": replace(_CONVOLUTIONAL, decoder_layers=3, kernel_width=5),
    "convolutional-narrow": replace(_CONVOLUTIONAL, sharing="none", kernel_width=1),
    "window": replace(SMALL, window=2),
    "narrow-window": replace(SMALL, window=1, norm="pre", attention_dropout=0.1),
    "relative": replace(SMALL, positions="relative", max_distance=3, norm="pre"),
    "relative-and-window": replace(SMALL, positions="relative", max_distance=4, window=2),
    "output-bias": replace(SMALL, output_bias=True, sharing="none", activation="swish"),
    "gpt": replace(_GPT, positions="learned"),
    "gpt-relative": replace(_GPT, positions="relative", max_distance=3),
    "t5": _T5,
    "t5-v1.1": replace(_T5, activation="gated-gelu-tanh", sharing="inputs"),
    "t5-separate": replace(_T5, sharing="target", encoder_layers=1),
    "transformer": SMALL,
}


def label(config: ModelConfig) -> str:
    """How pytest names a variant."""
    return f"{config.norm}-{config.activation}-{config.positions}-{config.sharing}"


def fresh(config: ModelConfig, seed: int = 5) -> Transformer:
    """A model as training begins with it."""
    torch.manual_seed(seed)
    return Transformer(config, TARGET_TYPES if config.sharing == "all" else SOURCE_TYPES, TARGET_TYPES, PAD)


def fresh_of_family(config: ModelConfig, seed: int = 5) -> AnySeq2Seq:
    """The same, of whatever family."""
    torch.manual_seed(seed)
    source = TARGET_TYPES if config.sharing in ("all", "inputs") else SOURCE_TYPES
    return build_seq2seq(config, Vocabulary(source, TARGET_TYPES, PAD, EOS))


def shaken_of_family(config: ModelConfig, seed: int = 5) -> AnySeq2Seq:
    """As `shaken`, of whatever family."""
    model = fresh_of_family(config, seed).eval()
    shake(model)
    return model


def shaken(config: ModelConfig, seed: int = 5) -> Transformer:
    """A model in evaluation whose biases and norms are no longer zeros and ones, so that each of them matters."""
    model = fresh(config, seed).eval()
    shake(model)
    return model


def shake(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def sentences(lengths: list[int], types: int, seed: int = 3) -> list[list[int]]:
    """Random ids that end in EOS."""
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(2, types, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    source, source_lengths = pack(sources)
    target_out, target_lengths = pack(targets)
    target_in, _ = pack([[PAD, *target[:-1]] for target in targets])
    return Batch(source, source_lengths, target_in, target_out, target_lengths, torch.arange(len(sources)))


def example(source_lengths: list[int], target_lengths: list[int]) -> Batch:
    return batch_of(sentences(source_lengths, SOURCE_TYPES), sentences(target_lengths, TARGET_TYPES, seed=4))


def logits_of(model: AnySeq2Seq, batch: Batch) -> Tensor:
    """All logits of a batch, sentence after sentence."""
    memory = model.encode(batch.source, batch.source_lengths)
    return model.decode(batch.target_in, batch.target_lengths, memory)


def folded(model: AnySeq2Seq, batch: Batch) -> list[Tensor]:
    """The logits of each target, one token at a time."""
    state = model.start(model.encode(batch.source, batch.source_lengths))
    targets = batch.target_in.split(batch.target_lengths.tolist())
    steps = []
    for position in range(int(batch.target_lengths.max())):
        tokens = torch.stack([target[min(position, len(target) - 1)] for target in targets])
        logits, state = model.step(tokens, state)
        steps.append(logits)
    return [torch.stack(steps)[: len(target), row] for row, target in enumerate(targets)]


def update_of(*parts: Batch, epoch: int = 0, then: Position | None = None) -> Update:
    """All the data of one update, in one process."""
    target_tokens = sum(len(part.target_out) for part in parts)
    tokens = sum(part.tokens for part in parts)
    return Update(parts, target_tokens, tokens, epoch, then or Position())


def add_gradients(model: AnyPredictor, parts: Sequence[Batch], smoothing: float = 0.1) -> float:
    """Gradients of the mean loss over the target tokens of all parts; give that loss."""
    return SequentialGradients(model, Objective(smoothing, seed=1))(update_of(*parts), step=1)

"""A plain training loop as tutorials teach it, on PyTorch's or Hugging Face's Transformer; and large matrix products.

Arguments: folder of the benchmark, threads, and "nn.Transformer", "Marian" or "gemm".
"""

import math
import sys
import time
from itertools import cycle
from pathlib import Path

import torch
from contender import Lap, Step, serve, train_for
from torch import Tensor, nn
from workload import EOS, PAD, Shape, make_batches, make_sentences

_IGNORED = -100
_MAX_POSITIONS = 1024
_GEMM_SIZE = 1536
_LONGEST_GEMM = 1.0  # seconds of a lap


def loop_step(model: nn.Module, shape: Shape) -> Step:
    """One update: a padded batch, cross entropy with label smoothing, Adam."""
    sentences = make_sentences(shape)
    batches = cycle(make_batches(sentences, shape.batch_tokens))
    criterion = nn.CrossEntropyLoss(ignore_index=_IGNORED, label_smoothing=shape.label_smoothing)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    model.train()

    def step() -> int:
        indices = next(batches)
        source = padded([torch.from_numpy(sentences.sources[index]) for index in indices], PAD)
        targets = [torch.from_numpy(sentences.targets[index]) for index in indices]
        target_in, gold = padded([target.roll(1) for target in targets], PAD), padded(targets, _IGNORED)
        target_in[:, 0] = PAD
        logits = model(source, source != PAD, target_in, gold != _IGNORED)
        loss = criterion(logits.reshape(-1, logits.shape[-1]), gold.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        return sentences.tokens(indices)

    return step


def padded(sentences: list[Tensor], value: int) -> Tensor:
    """A grid, with this value after shorter sentences."""
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=value)


class TutorialModel(nn.Module):
    """The model of PyTorch's translation tutorial, with one shared embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.d_model)
        self.scale = shape.d_model**0.5
        self.dropout = nn.Dropout(shape.dropout)
        self.register_buffer("positions", sinusoids(_MAX_POSITIONS, shape.d_model))
        self.positions: Tensor
        self.transformer = nn.Transformer(
            *(shape.d_model, shape.num_heads, shape.layers, shape.layers, shape.d_ff, shape.dropout), batch_first=True
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Embedding plus position."""
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=~source_mask,
            tgt_key_padding_mask=~target_mask,
            memory_key_padding_mask=~source_mask,
        )
        return states @ self.embedding.weight.T


def sinusoids(length: int, d_model: int) -> Tensor:
    """Positions, as the tutorial computes them."""
    place = torch.arange(length, dtype=torch.float32)[:, None]
    angles = place * 10_000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(length, d_model)


class Marian(nn.Module):
    """Hugging Face's model of the same shape, with random weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        sizes = MarianConfig(
            vocab_size=shape.vocabulary,
            d_model=shape.d_model,
            encoder_layers=shape.layers,
            decoder_layers=shape.layers,
            encoder_attention_heads=shape.num_heads,
            decoder_attention_heads=shape.num_heads,
            encoder_ffn_dim=shape.d_ff,
            decoder_ffn_dim=shape.d_ff,
            dropout=shape.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
            max_position_embeddings=_MAX_POSITIONS,
        )
        self.model = MarianMTModel(sizes)

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
        found = self.model(
            input_ids=source,
            attention_mask=source_mask.long(),
            decoder_input_ids=target,
            decoder_attention_mask=target_mask.long(),
            use_cache=False,
        )
        logits: Tensor = found.logits
        return logits


def multiply(seconds: float) -> Lap:
    """The fastest product of two large matrices, by the fastest library here: the peak of this machine."""
    from heedful.kernels.matmul import matmul

    left, right = torch.randn(_GEMM_SIZE, _GEMM_SIZE), torch.randn(_GEMM_SIZE, _GEMM_SIZE)
    best, began = math.inf, time.perf_counter()
    while math.isinf(best) or time.perf_counter() - began < min(seconds, _LONGEST_GEMM):
        start = time.perf_counter()
        matmul(left, right)
        best = min(best, time.perf_counter() - start)
    return Lap(2.0 * _GEMM_SIZE**3, best)


def main() -> None:
    folder, threads, name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    if name == "gemm":
        multiply(0.0)
        serve(multiply)
        return
    torch.manual_seed(1)
    shape = Shape.read(folder / "shape.json")
    model = Marian(shape) if name == "Marian" else TutorialModel(shape)
    serve(train_for(loop_step(model, shape)))


if __name__ == "__main__":
    main()

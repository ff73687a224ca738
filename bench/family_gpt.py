"""One training loop for GPT: heedful's own, one of the shape of nanoGPT's, or one around Hugging Face's GPT-2.

Arguments: folder of the benchmark, name of the shape, threads, and "heedful", "float32" (heedful without bfloat16),
"nanoGPT" or "transformers". heedful's modules are imported inside the functions, because PyTorch may only be imported
after GOMP_SPINCOUNT is set, as on the command line. With one thread, time is that of the processor, which a busy
machine hardly changes.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from contender import Lap, Step, serve

if TYPE_CHECKING:
    from torch import Tensor, nn

    from heedful.config import PrecisionKind

CHARACTERS = 200_000
_BETAS, _WEIGHT_DECAY, _CLIP = (0.9, 0.95), 0.1, 1.0  # nanoGPT's
_LOGGED = 10  # updates between two readings of the loss, as in nanoGPT


@dataclass(frozen=True, slots=True)
class GPTShape:
    """The sizes of a GPT and of its batches."""

    layers: int
    d_model: int
    num_heads: int
    context: int
    windows: int  # a batch
    vocabulary: int = 258  # of bytes, as heedful has them

    @property
    def tokens(self) -> int:
        """Tokens in a batch."""
        return self.windows * self.context


GPT_SHAPES = {
    "nano": GPTShape(4, 128, 4, 64, 12),  # what nanoGPT suggests for a CPU
    "small": GPTShape(4, 128, 4, 128, 16),  # what heedful chooses for a book
    "wide": GPTShape(6, 256, 4, 256, 8),
}


def main() -> None:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as on the command line
    folder, shape, threads, name = Path(sys.argv[1]), GPT_SHAPES[sys.argv[2]], int(sys.argv[3]), sys.argv[4]
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    match name:
        case "heedful":
            step = heedful_step(folder / name, shape, "auto")
        case "float32":
            step = heedful_step(folder / name, shape, "float32")
        case _:
            step = plain_step(make_model(name, shape), shape)
    serve(laps(step, time.process_time if threads == 1 else time.perf_counter))


def laps(step: Step, clock: Callable[[], float]) -> Callable[[float], Lap]:
    """Laps of so many seconds by this clock; the first updates, which include one-time costs, are not counted."""
    for _ in range(3):
        step()

    def lap(seconds: float) -> Lap:
        tokens, began = 0, clock()
        while (spent := clock() - began) < seconds:
            tokens += step()
        return Lap(tokens, spent)

    return lap


def make_text() -> "np.ndarray[Any, np.dtype[np.uint16]]":
    """Tokens of a made-up text; their values do not change the speed."""
    return np.random.Generator(np.random.Philox(key=7)).integers(2, 258, CHARACTERS).astype(np.uint16)


def heedful_step(folder: Path, shape: GPTShape, precision: "PrecisionKind") -> Step:
    """One update of heedful's loop, with windows of its own corpus, by Adam with weight decay and clipping."""
    import json

    import torch

    from heedful.data.batch import Batching, Position
    from heedful.data.text import FORMAT, TextCorpus
    from heedful.kernels.threads import count_workers
    from heedful.models.build import build_seq2seq
    from heedful.models.size import Vocabulary
    from heedful.tasks import make_experiment
    from heedful.training.gradients import Objective, make_gradients
    from heedful.training.loop import TrainingState, UpdateSplit, make_updates, training_steps
    from heedful.training.optimizer import make_optimizer
    from heedful.training.precision import Precision
    from heedful.training.process_group import ProcessGroup

    network = {"d_model": shape.d_model, "d_ff": 4 * shape.d_model, "num_heads": shape.num_heads, "dropout": 0.0}
    network |= {"decoder_layers": shape.layers, "max_positions": shape.context}
    train = {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": _WEIGHT_DECAY, "batch_tokens": shape.tokens}
    settings = make_experiment({"task": "completion", "model": network, "train": train})
    folder.mkdir(parents=True, exist_ok=True)
    make_text().tofile(folder / "text.ids")
    about = {"format": FORMAT, "tokens": CHARACTERS, "characters": CHARACTERS, "dtype": "uint16"}
    (folder / "corpus.json").write_text(json.dumps(about), encoding="utf-8")
    model = build_seq2seq(settings.model, Vocabulary(shape.vocabulary, shape.vocabulary, 0, 1))
    device = torch.device("cpu")
    chosen = Precision.of(precision, device, ProcessGroup())
    state = TrainingState(model, make_optimizer(model, settings.train), None, precision=chosen)
    workers = count_workers(device)
    gradients = make_gradients(model, Objective(0.0, settings.seed, chosen), workers)
    epochs, batching = TextCorpus(folder).epochs(shape.context), Batching(shape.tokens, settings.seed)
    updates = make_updates(epochs, Position(), batching, UpdateSplit(workers), model.pad_id, device)
    events = training_steps(state, updates, gradients, shape.d_model, settings.train)
    return lambda: next(events).tokens


def plain_step(model: "nn.Module", shape: GPTShape) -> Step:
    """One update of nanoGPT's loop: random windows, AdamW, clipped gradients."""
    import torch

    text = make_text()
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=_BETAS)
    model.train()
    count = 0

    def windows(starts: list[int]) -> "Tensor":
        return torch.stack([torch.from_numpy(text[at : at + shape.context].astype(np.int64)) for at in starts])

    def step() -> int:
        nonlocal count
        starts = torch.randint(len(text) - shape.context, (shape.windows,)).tolist()
        loss = model(windows(starts), windows([at + 1 for at in starts]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        count += 1
        if count % _LOGGED == 0:
            loss.item()
        return shape.tokens

    return step


def make_model(name: str, shape: GPTShape) -> "nn.Module":
    """A model that returns the loss of a batch: of nanoGPT's shape, or Hugging Face's GPT-2."""
    return make_transformers_model(shape) if name == "transformers" else make_nano_model(shape)


def make_transformers_model(shape: GPTShape) -> "nn.Module":
    """Hugging Face's model of the same shape, with random weights."""
    import torch.nn.functional as F
    from torch import nn
    from transformers import GPT2Config, GPT2LMHeadModel

    class HuggingFace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = GPT2LMHeadModel(
                GPT2Config(
                    vocab_size=shape.vocabulary,
                    n_positions=shape.context,
                    n_embd=shape.d_model,
                    n_layer=shape.layers,
                    n_head=shape.num_heads,
                    resid_pdrop=0.0,
                    embd_pdrop=0.0,
                    attn_pdrop=0.0,
                )
            )

        def forward(self, ids: "Tensor", gold: "Tensor") -> "Tensor":
            logits = self.model(ids, use_cache=False).logits
            return F.cross_entropy(logits.view(-1, shape.vocabulary), gold.view(-1))

    return HuggingFace()


def make_nano_model(shape: GPTShape) -> "nn.Module":
    """GPT-2 as nanoGPT writes it: no biases, GELU in its exact form, PyTorch's fused attention."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    d_model, heads = shape.d_model, shape.num_heads

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(d_model, bias=False) for _ in range(2))
            self.project = nn.Linear(d_model, 3 * d_model, bias=False)
            self.output = nn.Linear(d_model, d_model, bias=False)
            self.inner = nn.Linear(d_model, 4 * d_model, bias=False)
            self.outer = nn.Linear(4 * d_model, d_model, bias=False)

        def forward(self, x: "Tensor") -> "Tensor":
            batch, length, _ = x.shape
            parts = self.project(self.norms[0](x)).split(d_model, dim=2)
            q, k, v = (part.view(batch, length, heads, d_model // heads).transpose(1, 2) for part in parts)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.output(seen.transpose(1, 2).contiguous().view(batch, length, d_model))
            return x + self.outer(F.gelu(self.inner(self.norms[1](x))))

    class Nano(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape.vocabulary, d_model)
            self.positions = nn.Embedding(shape.context, d_model)
            self.blocks = nn.Sequential(*(Block() for _ in range(shape.layers)))
            self.norm = nn.LayerNorm(d_model, bias=False)
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids: "Tensor", gold: "Tensor") -> "Tensor":
            x = self.blocks(self.embedding(ids) + self.positions(torch.arange(ids.shape[1])))
            logits = self.norm(x) @ self.embedding.weight.T
            return F.cross_entropy(logits.view(-1, shape.vocabulary), gold.view(-1))

    return Nano()


if __name__ == "__main__":
    main()

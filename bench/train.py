"""Training speed of heedful and of plain loops on its peers, side by side: the same shapes, data, batches and options.

    .venv/bin/python bench/train.py --shape tiny --seconds 20

The contenders take turns in one process, because a machine that is shared or throttled changes its speed from minute
to minute: only the ratios mean anything. Tokens are source and target tokens that are not padding.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.config import Experiment, make_experiment, merge
from heedful.data.batch import Batch
from heedful.data.batching import Batching, Position, epoch_batches
from heedful.data.corpus import Corpus, Limits, write_corpus
from heedful.data.pairs import Pair
from heedful.device import use_threads
from heedful.models.build import Vocabulary, build_model
from heedful.models.size import transformer_size
from heedful.nn.positions import sinusoids
from heedful.train.loop import Learner, Update, training_steps
from heedful.train.optimizer import make_optimizer

VOCABULARY, PAD = 10_000, 0
PAIRS = 6000
ROUNDS = 3
BATCH_TOKENS = {"tiny": 4096, "base": 2048}

Step = Callable[[Batch], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What one contender did, in all rounds."""

    name: str
    tokens_per_second: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.tokens_per_second)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training speeds.")
    parser.add_argument("--shape", choices=tuple(BATCH_TOKENS), default="tiny")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each contender in each of the three rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    use_threads(options.threads)
    experiment = make_experiment(merge({"model": {"preset": options.shape}, "train": {"warmup_steps": 400}}))
    batches = make_batches(BATCH_TOKENS[options.shape])
    peak = gemm_peak()
    results = race(contenders(experiment), batches, options.seconds)
    facts = summary(results, experiment, peak)
    print(json.dumps(facts) if options.json else table(facts))


def make_batches(batch_tokens: int) -> list[Batch]:
    """Random sentences with the lengths of image captions, batched by length."""
    random = np.random.default_rng(1)
    lengths = np.clip(np.round(random.lognormal(2.62, 0.33, size=PAIRS)), 3, 50).astype(int)
    ratio = random.normal(1.0, 0.15, size=PAIRS)

    def sentence(length: float) -> list[int]:
        # Word-like frequencies: piece k comes about 1 / k as often as the first.
        ids = np.exp(random.uniform(0.0, math.log(VOCABULARY - 2), size=max(2, round(length)))).astype(int) + 1
        return [*ids.tolist(), 1]

    sources, targets = [sentence(n) for n in lengths], [sentence(n * r) for n, r in zip(lengths, ratio, strict=True)]
    with TemporaryDirectory() as folder:
        pairs = [Pair(str(index), str(index)) for index in range(PAIRS)]
        encoders = (lambda texts: [sources[int(t)] for t in texts], lambda texts: [targets[int(t)] for t in texts])
        corpus: Corpus = write_corpus(Path(folder), pairs, encoders, VOCABULARY, Limits(256))
        groups = epoch_batches(*corpus.lengths(), Batching(batch_tokens, 1, 1), 0)
        return [corpus.batch(indices, PAD) for indices in groups]


def contenders(experiment: Experiment) -> dict[str, Step]:
    """Each as a function that makes one update."""
    return {
        "heedful": heedful_step(experiment),
        "nn.Transformer": peer_step(TutorialModel(experiment)),
        "Hugging Face Marian": peer_step(marian(experiment)),
    }


def heedful_step(experiment: Experiment) -> Step:
    """The product's own loop."""
    torch.manual_seed(1)
    model = build_model(experiment.model, Vocabulary(VOCABULARY, VOCABULARY, PAD, 1))
    learner = Learner(model, make_optimizer(model, experiment.train), None)
    waiting: list[Batch] = []

    def updates() -> Iterator[Update]:
        while True:
            yield Update([waiting.pop()], 0, Position())

    events = training_steps(learner, updates(), experiment.model.d_model, experiment.train)

    def step(batch: Batch) -> None:
        waiting.append(batch)
        next(events)

    return step


def peer_step(model: nn.Module) -> Step:
    """A plain loop as tutorials teach it: padded batches, cross entropy with smoothing, Adam."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def step(batch: Batch) -> None:
        source = padded(batch.source, batch.source_lengths)
        target_in = padded(batch.target_in, batch.target_lengths)
        target_out = padded(batch.target_out, batch.target_lengths)
        mask = torch.arange(target_in.shape[1]) < batch.target_lengths[:, None]
        source_mask = torch.arange(source.shape[1]) < batch.source_lengths[:, None]
        logits = model(source, source_mask, target_in, mask)
        gold = target_out.masked_fill(~mask, -100)
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), gold.reshape(-1), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def padded(ids: Tensor, lengths: Tensor) -> Tensor:
    """A grid with PAD behind the shorter sentences."""
    return nn.utils.rnn.pad_sequence(list(ids.split(lengths.tolist())), batch_first=True, padding_value=PAD)


class TutorialModel(nn.Module):
    """The model of PyTorch's translation tutorial, with one shared embedding."""

    def __init__(self, experiment: Experiment) -> None:
        super().__init__()
        config = experiment.model
        self.embedding = nn.Embedding(VOCABULARY, config.d_model)
        self.scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoids(torch.arange(512), config.d_model))
        self.positions: Tensor
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )

    def embed(self, ids: Tensor) -> Tensor:
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


def marian(experiment: Experiment) -> nn.Module:
    """Hugging Face's model of the same shape, from a configuration."""
    from transformers import MarianConfig, MarianMTModel

    config = experiment.model
    sizes = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        dropout=config.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=1,
        decoder_start_token_id=PAD,
        max_position_embeddings=512,
    )
    return _Marian(MarianMTModel(sizes))


class _Marian(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

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


def race(steps: dict[str, Step], batches: Sequence[Batch], seconds: float) -> list[Result]:
    """All contenders in turn, several rounds; the first update of each is not counted."""
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    sources = {name: cycle(batches) for name in steps}
    for name, step in steps.items():
        step(next(sources[name]))
    for _ in range(ROUNDS):
        for name, step in steps.items():
            tokens, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < seconds:
                batch = next(sources[name])
                step(batch)
                tokens += batch.tokens
            speeds[name].append(tokens / spent)
    return [Result(name, tuple(found)) for name, found in speeds.items()]


def gemm_peak() -> float:
    """Operations a second of a large matrix product, the best of some."""
    size = 1536
    left, right = torch.randn(size, size), torch.randn(size, size)
    best = math.inf
    for _ in range(8):
        began = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - began)
    return 2.0 * size**3 / best


def flops_per_token(experiment: Experiment) -> float:
    """Matrix operations of forward x 3 for a source or target token, taken as equally many; attention is left out."""
    size = transformer_size(experiment.model, VOCABULARY, VOCABULARY)
    return 3.0 * 2.0 * (size.encoder + size.decoder + VOCABULARY * experiment.model.d_model) / 2.0


def summary(results: Sequence[Result], experiment: Experiment, peak: float) -> dict[str, object]:
    ours, *peers = results
    fastest = max(peers, key=lambda result: result.mean)
    return {
        "shape": experiment.model.preset,
        "threads": torch.get_num_threads(),
        "gemm_peak_gflops": round(peak / 1e9, 1),
        "tokens_per_second": {result.name: round(result.mean) for result in results},
        "rounds": {result.name: [round(speed) for speed in result.tokens_per_second] for result in results},
        "share_of_gemm_peak": {
            result.name: round(result.mean * flops_per_token(experiment) / peak, 3) for result in results
        },
        "fastest_peer": fastest.name,
        "ratio_to_fastest_peer": round(ours.mean / fastest.mean, 3),
    }


def table(facts: dict[str, object]) -> str:
    speeds, shares = facts["tokens_per_second"], facts["share_of_gemm_peak"]
    assert isinstance(speeds, dict) and isinstance(shares, dict)
    rows = [f"{name:22} {speed:>8,} tokens/s  {shares[name]:.0%} of peak" for name, speed in speeds.items()]
    return "\n".join([*rows, f"heedful / {facts['fastest_peer']}: {facts['ratio_to_fastest_peer']}"])


if __name__ == "__main__":
    main()

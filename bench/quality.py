r"""Time to quality: the processor time until a training translates the validation sentences with a given BLEU.

.venv/bin/python bench/quality.py recipes/multi30k-en-de.toml --set data.folder=PATH/TO/multi30k --bleu 38 \
    --out runs/quality

heedful trains by the recipe. The peers are plain loops on PyTorch's and on Hugging Face's Transformer, and JoeyNMT if
`bench/peers.py install joeynmt` has installed it. They train as Wu et al. (2021) published it for this text: joint BPE
of 10 000, 8192 tokens an update, Adam with an inverse square root of 0.005 and a warm-up of 2000, dropout 0.3, label
smoothing 0.1, and the mean of the last ten snapshots. Each is a process of its own with one thread. BLEU is of greedy
translations of all validation sentences; of a plain loop the better of its own weights and the mean counts. JoeyNMT,
which averages no weights while it trains, is judged by its own. Validations do not count as time.

Interrupt it and run it again: finished contenders are not repeated.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from learn import ONE_THREAD
from peers import ENVIRONMENTS, write_joeynmt_config
from workload import TINY, Sentences, Shape

LOOPS = ("nn.Transformer", "Marian")
JOEYNMT = "JoeyNMT"
_PUBLISHED = {
    "text.vocabularies": "joint",
    "text.vocabulary_size": 10_000,
    "model.sharing": "all",
    "train.max_steps": 1,
    "train.validate_bleu": False,
}
_BATCH_TOKENS = 4096  # a side
_PEAK, _WARMUP, _DROPOUT = 0.005, 2000, 0.3
_SNAPSHOTS = 10
_MORE_PIECES = 50  # than the source has, at most


class Curve:
    """The scores of a contender over its processor time, written as JSON lines."""

    def __init__(self, path: Path, bleu: float) -> None:
        path.write_text("", encoding="utf-8")
        self._path = path
        self._bleu = bleu
        self._spent, self._since = 0.0, time.process_time()

    def resume(self) -> None:
        """Count the time from now on."""
        self._since = time.process_time()

    def pause(self) -> None:
        """Count no time until `resume`."""
        self._spent += time.process_time() - self._since

    def add(self, step: int, score: float, seconds: float | None = None) -> bool:
        """Write a score, after the time counted here or after this time; True if it is high enough."""
        reached = score >= self._bleu
        spent = self._spent if seconds is None else seconds
        point = {"step": step, "seconds": spent, "score": score, "reached": reached}
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps(point), file=file)
        return reached


def train_heedful(recipe: str, settings: Mapping[str, Any], folder: Path, curve: Curve) -> None:
    """Train by the recipe until the score is reached."""
    from heedful import train
    from heedful.progress import SilentReporter
    from heedful.training.events import Event, StepDone, Validated

    reached = False

    def note(event: Event) -> None:
        nonlocal reached
        match event:
            case StepDone():
                curve.pause()
            case Validated(step=step, score=float(score)):
                reached = reached or curve.add(step, score)
            case _:
                pass
        curve.resume()

    train(
        recipe,
        out=folder,
        settings=settings,
        reporter=SilentReporter(),
        on_event=note,
        stop_requested=lambda: "SIGTERM" if reached else "",
    )


@dataclass(frozen=True, slots=True)
class Published:
    """The text as Wu et al. split it, the sizes, and the validation sentences."""

    shape: Shape
    train: Any  # a Corpus; heedful is imported by the processes that train
    valid: Any
    tokenizers: Any
    sources: Sequence[str]
    targets: Sequence[Sequence[str]]
    tokenize: Any

    def score(self, translations: Sequence[str]) -> float:
        """BLEU of the translations of all validation sentences."""
        from heedful.metrics.bleu import bleu

        return bleu(translations, self.targets, self.tokenize)


def prepare_as_published(recipe: str, settings: Mapping[str, Any], folder: Path) -> Published:
    """Let heedful split the text into the published vocabulary."""
    from heedful import train
    from heedful.progress import SilentReporter
    from heedful.storage.run_folder import RunFolder
    from heedful.training.prepare import load_prepared

    train(recipe, out=folder, settings={**settings, **_PUBLISHED}, reporter=SilentReporter())
    run = RunFolder.open(folder)
    experiment = run.experiment()
    prepared = load_prepared(run, experiment, SilentReporter())
    shape = replace(
        TINY, batch_tokens=_BATCH_TOKENS, vocabulary=prepared.tokenizers.vocabulary.target, dropout=_DROPOUT
    )
    sources = [pair.source for pair in prepared.valid_pairs]
    targets = [[pair.target for pair in prepared.valid_pairs]]
    text = prepared.train[0], prepared.valid, prepared.tokenizers
    return Published(shape, *text, sources, targets, experiment.evaluate.tokenize)


def train_loop(name: str, published: Published, curve: Curve, every: int) -> None:
    """Train PyTorch's or Hugging Face's Transformer by a plain loop, until the score is reached."""
    import torch
    from torch import nn
    from training_pytorch import Marian, TutorialModel

    torch.set_num_threads(1)
    torch.manual_seed(1)
    shape, tokenizers, sources = published.shape, published.tokenizers, published.sources
    model: nn.Module = Marian(shape) if name == "Marian" else TutorialModel(shape)
    snapshots: deque[dict[str, Any]] = deque(maxlen=_SNAPSHOTS)
    averaged = copy.deepcopy(model)
    curve.resume()
    for step in train_as_published(model, published.train, shape):
        if step % every == 0:
            curve.pause()
            snapshots.append({key: value.clone() for key, value in model.state_dict().items()})
            averaged.load_state_dict({key: mean_of([one[key] for one in snapshots]) for key in snapshots[0]})
            scores = [published.score(translate_greedily(one, tokenizers, sources)) for one in (model, averaged)]
            if curve.add(step, max(scores)):
                return
            curve.resume()


def train_joeynmt(published: Published, folder: Path, curve: Curve, every: int) -> None:
    """Let JoeyNMT train by its own program on our pieces, until the score of its own validations is reached."""
    home = folder / "joeynmt"
    home.mkdir()
    training = {
        **{"learning_rate": _PEAK, "learning_rate_warmup": _WARMUP, "validation_freq": every},
        **{"logging_freq": every, "keep_best_ckpts": 1},
    }
    train, valid = list_sentences(published.train), list_sentences(published.valid)
    config = write_joeynmt_config(home, published.shape, train, valid, training)
    notes, script = home / "validations.jsonl", Path(__file__).with_name("joeynmt_timed.py")
    command = [str(ENVIRONMENTS / "joeynmt" / "bin" / "python"), str(script), str(config), str(notes)]
    seen = 0
    with (folder / "joeynmt.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while True:
                ended = process.poll() is not None
                lines = notes.read_text(encoding="utf-8").splitlines(keepends=True) if notes.exists() else []
                for line in lines[seen:]:
                    if not line.endswith("\n"):
                        break
                    seen += 1
                    point = json.loads(line)
                    translations = read_hypotheses(
                        home / "model" / f"{point['step']}.hyps", published.tokenizers.target
                    )
                    if curve.add(point["step"], published.score(translations), point["seconds"]):
                        return
                if ended:
                    raise SystemExit(f"JoeyNMT ended before it reached the score; see {log.name}")
                time.sleep(1.0)
        finally:
            process.terminate()


def list_sentences(corpus: Any) -> Sentences:
    """All pairs of a corpus as ids."""
    return Sentences(*([corpus.sentence(side, index) for index in range(len(corpus))] for side in ("source", "target")))


def read_hypotheses(path: Path, tokenizer: Any) -> list[str]:
    """The text of JoeyNMT's translations, which are lines of ids: `w17 w301`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [tokenizer.decode([int(word[1:]) for word in line.split() if word[1:].isdecimal()]) for line in lines]


def mean_of(several: Sequence[Any]) -> Any:
    """The mean of tensors, in the type of the first."""
    import torch

    return torch.stack([one.double() for one in several]).mean(0).to(several[0].dtype)


def train_as_published(model: Any, corpus: Any, shape: Shape) -> Iterator[int]:
    """Endless updates by a plain loop; yields the number of each."""
    import numpy as np
    import torch
    from torch import nn
    from training_pytorch import padded

    from heedful.data.batch import Batching, epoch_batches

    criterion = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=shape.label_smoothing)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    source_lengths, target_lengths = corpus.lengths()
    step, epoch = 0, 0
    while True:
        for indices in epoch_batches(source_lengths, target_lengths, Batching(shape.batch_tokens, 1), epoch):
            step += 1
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = _PEAK * min(step / _WARMUP, (_WARMUP / step) ** 0.5)
            batch = corpus.batch(np.sort(indices), 0)
            sources = list(batch.source.split(batch.source_lengths.tolist()))
            starts = list(batch.target_in.split(batch.target_lengths.tolist()))
            answers = list(batch.target_out.split(batch.target_lengths.tolist()))
            source, target_in, gold = padded(sources, 0), padded(starts, 0), padded(answers, -100)
            logits = model(source, source != 0, target_in, gold != -100)
            optimizer.zero_grad()
            criterion(logits.reshape(-1, logits.shape[-1]), gold.reshape(-1)).backward()
            optimizer.step()
            yield step
        epoch += 1


def translate_greedily(model: Any, tokenizers: Any, texts: Sequence[str]) -> list[str]:
    """Translations by the likeliest piece at each position; slow, but not counted."""
    import torch
    from training_pytorch import padded

    model.eval()
    ids = tokenizers.source.encode_all(list(texts))
    order = sorted(range(len(texts)), key=lambda index: len(ids[index]))
    found = [""] * len(texts)
    pad, eos = tokenizers.target.pad_id, tokenizers.target.eos_id
    with torch.no_grad():
        for start in range(0, len(order), 64):
            group = order[start : start + 64]
            source = padded([torch.tensor(ids[index]) for index in group], pad)
            written = torch.full((len(group), 1), pad)
            ended = torch.zeros(len(group), dtype=torch.bool)
            for _ in range(source.shape[1] + _MORE_PIECES):
                mask = torch.ones_like(written, dtype=torch.bool)
                best = model(source, source != pad, written, mask)[:, -1].argmax(-1)
                best = torch.where(ended, eos, best)
                written = torch.cat([written, best[:, None]], dim=1)
                ended |= best == eos
                if bool(ended.all()):
                    break
            for index, row in zip(group, written[:, 1:].tolist(), strict=True):
                found[index] = tokenizers.target.decode(row[: row.index(eos)] if eos in row else row)
    return found


def read_result(path: Path) -> tuple[float, float] | None:
    """The seconds and the score with which a contender reached the aim; None: it did not."""
    points = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return (points[-1]["seconds"], points[-1]["score"]) if points and points[-1]["reached"] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--bleu", type=float, default=38.0)
    parser.add_argument("--seeds", type=int, default=3, help="of heedful's training; peers have one")
    parser.add_argument("--every", type=int, default=200, help="updates of a peer between two validations")
    parser.add_argument("--out", type=Path, default=Path("runs/quality"))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # what each process is asked
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.one:
        run_contender(options)
        return
    reached: dict[str, list[float]] = {}
    joeynmt = (JOEYNMT,) if (ENVIRONMENTS / "joeynmt" / "installed").exists() else ()
    for name in (*(f"heedful-{seed}" for seed in range(1, options.seeds + 1)), *LOOPS, *joeynmt):
        path = options.out / f"{name}.jsonl"
        if read_result(path) is None:
            command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
            subprocess.run(command, check=True, env=os.environ | ONE_THREAD)
        if (result := read_result(path)) is not None:
            reached.setdefault(name.partition("-")[0], []).append(result[0])
    ours = statistics.fmean(reached.get("heedful", [float("nan")]))
    print(f"| to BLEU {options.bleu:g} in validation | seconds of processor time | times heedful's |")
    print("|---|---|---|")
    for name, seconds in reached.items():
        print(f"| {name} | {', '.join(f'{one:.0f}' for one in seconds)} | {statistics.fmean(seconds) / ours:.2f} |")


def run_contender(options: argparse.Namespace) -> None:
    """Train one contender in this process."""
    import shutil

    from heedful.config.recipe import merge, parse_setting

    name, folder = options.one, options.out / options.one
    shutil.rmtree(folder, ignore_errors=True)
    curve = Curve(options.out / f"{name}.jsonl", options.bleu)
    settings = merge(*map(parse_setting, [*options.set, "train.threads=1"]))
    if name.startswith("heedful"):
        seed = int(name.partition("-")[2])
        train_heedful(options.recipe, merge(settings, {"seed": seed}), folder, curve)
        return
    published = prepare_as_published(options.recipe, settings, folder)
    if name == JOEYNMT:
        train_joeynmt(published, folder, curve, options.every)
    else:
        train_loop(name, published, curve, options.every)


if __name__ == "__main__":
    main()

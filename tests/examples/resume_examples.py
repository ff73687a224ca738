"""A training that has everything to remember, and somebody who stops it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import toy

from heedful.config import Experiment, parse_setting
from heedful.config.recipe import merge
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.tasks import make_experiment
from heedful.training.events import Event, Finished, Started, StepDone, Validated
from heedful.training.run import resume_run, start_run

STEPS = 13
# Everything that a training has to remember: several batches an update, updates that end in the middle of an epoch,
# a moving average, a mean of checkpoints, dropout, and text that is cut in two ways.
WHOLE = (
    *("seed=7", "train.threads=1", "model.d_model=16", "model.d_ff=24", "model.num_heads=2", "model.norm=pre"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.2"),
    *("text.vocabulary_size=270", "text.bpe_dropout=0.2", "text.bpe_variants=2"),
    *(f"train.max_steps={STEPS}", "train.batch_tokens=500", "train.accumulate=2", "train.ema_decay=0.9"),
    *("train.warmup_steps=3", "train.schedule=constant", "train.learning_rate=0.01"),
    *("train.save_every=4", "train.validate_every=3", "train.average_checkpoints=3", "train.validate_bleu=false"),
)


def experiment(pairs: Path, *settings: str) -> Experiment:
    names = {"source": "train.en", "target": "train.de", "valid_source": "valid.en", "valid_target": "valid.de"}
    data = {key: str(pairs / name) for key, name in names.items()}
    return make_experiment(merge({"data": data}, *map(parse_setting, (*WHOLE, *settings))))


def blind(pairs: Path) -> Experiment:
    """Without validation, so that the model is the mean of checkpoints in any case."""
    return experiment(pairs, "data.valid_source=[]", "data.valid_target=[]", "data.hold_out=0", "train.save_every=5")


class Drive:
    """Follows a training and stops it after a step: by a signal, or as if it had been killed."""

    total = 150  # pairs

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.step = 0
        self.events: list[Event] = []
        self._until = 0

    def start(self, wanted: Experiment, until: int = 0, kill: bool = False) -> "Drive":
        return self._follow(
            start_run(RunFolder.create(self.folder), wanted, self.total, SilentReporter(), self._signal), until, kill
        )

    def resume(self, until: int = 0, kill: bool = False, **settings: object) -> "Drive":
        return self._follow(resume_run(self.folder, {"train": settings}, SilentReporter(), self._signal), until, kill)

    def _follow(self, events: Iterator[Event], until: int, kill: bool) -> "Drive":
        self._until = 0 if kill else until
        for event in events:
            self.events.append(event)
            if isinstance(event, (Started, StepDone)):
                self.step = event.step
            if kill and isinstance(event, StepDone) and event.step == until:
                events.close()  # type: ignore[attr-defined]
                break
        return self

    def _signal(self) -> str:
        return "SIGTERM" if self._until and self.step >= self._until else ""

    @property
    def finished(self) -> Finished:
        assert isinstance(self.events[-1], Finished)
        return self.events[-1]

    def validated(self) -> list[int]:
        return [event.step for event in self.events if isinstance(event, Validated)]


def state(folder: Path) -> dict[str, Any]:
    """What the last checkpoint knows beside tensors, without times."""
    name = (folder / "checkpoints" / "latest").read_text().strip()
    found = json.loads((folder / "checkpoints" / name / "state.json").read_text())
    found["state"]["record"].pop("seconds")
    return found


def steps_logged(folder: Path) -> list[int]:
    return [event["step"] for event in toy.events(folder, "StepDone")]


def assert_same(folder: Path, whole: Path) -> None:
    assert toy.same_bits(toy.weights(folder), toy.weights(whole))
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert toy.same_bits(toy.last_checkpoint(folder), toy.last_checkpoint(whole))
    for kind in ("StepDone", "Validated"):
        logged, wanted = toy.events(folder, kind), toy.events(whole, kind)
        assert [event["step"] for event in logged] == [event["step"] for event in wanted]
        assert [event["loss"] for event in logged] == [event["loss"] for event in wanted]

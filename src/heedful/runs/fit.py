"""Training from beginning to end: it alone validates, saves, logs and stops."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor

from heedful.config import Experiment, flat, make_experiment, merge
from heedful.data.batching import Batching, Position, updates
from heedful.data.pairs import read_pairs
from heedful.device import choose_device, use_threads
from heedful.errors import ConfigError, Diverged, FolderError
from heedful.models.build import build_model
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.size import transformer_size
from heedful.runs.about import versions
from heedful.runs.card import model_card
from heedful.runs.curve import draw_curve
from heedful.runs.journal import Journal
from heedful.runs.prepare import Prepared, data_facts, prepare, prepared_before
from heedful.runs.report import Reporter
from heedful.runs.validate import using, validation_bleu, validation_loss
from heedful.store.checkpoint import Checkpoint, Checkpoints
from heedful.store.files import remove_temporaries, write_atomically
from heedful.store.lock import locked
from heedful.store.run_folder import RunFolder, fill_model, mean_weights
from heedful.train.events import Event, Finished, Saved, Started, Validated
from heedful.train.loop import Learner, Update, training_steps
from heedful.train.optimizer import MovingAverage, load_optimizer, make_optimizer, optimizer_tensors

Interrupted = Callable[[], str]  # the name of a signal that came, or nothing

# What a resumed run may change: when it ends, how often it looks, where it runs, and what a diverged one is advised to.
_MAY_CHANGE = (
    *("train.max_steps", "train.max_minutes", "train.save_every", "train.validate_every", "train.patience"),
    *("train.threads", "train.device", "train.learning_rate", "train.on_non_finite"),
)


@dataclass(slots=True)
class Record:
    """What the run knows of itself beside the weights; saved with them."""

    best: float | None = None  # lower is better: a loss, or minus BLEU
    best_step: int = 0
    waited: int = 0  # validations since the best
    validated: int = 0  # the last step that was validated; a signal may come before a validation that is due
    seconds: float = 0.0


def train(
    run: RunFolder, experiment: Experiment, total: int, report: Reporter, interrupted: Interrupted
) -> Iterator[Event]:
    """Prepare the folder and train in it; `total` pairs are in the data."""
    with locked(run.path):
        run.begin(experiment)
        try:
            prepared = _prepare(run, experiment, total, report)
        except Exception:
            rmtree(run.path)  # nothing is trained yet: a mistake in the data leaves no folder in the way
            raise
        yield from Fit(run, experiment, prepared, report).run(interrupted)


def resume(path: Path, settings: dict[str, Any], report: Reporter, interrupted: Interrupted) -> Iterator[Event]:
    """Go on from the newest checkpoint that is intact, or with the preparation if that was cut short."""
    run = RunFolder(path)
    if run.prepared or not (path / "experiment.toml").exists():
        run = RunFolder.open(path)
    with locked(path):
        remove_temporaries(path)
        settings = merge(run.changes(), settings)
        experiment = _changed(run.experiment(), settings)
        if run.prepared:
            use_threads(experiment.train.threads)
            prepared = prepared_before(run, experiment)
        else:
            report.say("the preparation of the data was cut short and is done again")
            prepared = _prepare(run, experiment, sum(1 for _ in read_pairs(experiment.data)), report)
        fit = Fit(run, experiment, prepared, report)
        fit.load()
        run.change(settings)
        yield from fit.run(interrupted)


def _prepare(run: RunFolder, experiment: Experiment, total: int, report: Reporter) -> Prepared:
    use_threads(experiment.train.threads)
    prepared = prepare(run, experiment, total, report)
    run.write_about({"data": data_facts(experiment, prepared), "versions": versions()})
    return prepared


def _changed(before: Experiment, settings: dict[str, Any]) -> Experiment:
    after = make_experiment(merge(asdict(before), settings))
    old, new = flat(before), flat(after)
    for key in old:
        if old[key] != new[key] and key not in _MAY_CHANGE:
            raise ConfigError(f"{key} cannot change from {old[key]} to {new[key]} in a resumed run; start a new one")
    return after


class Fit:
    """One training: model, data and folder together."""

    def __init__(self, run: RunFolder, experiment: Experiment, prepared: Prepared, report: Reporter) -> None:
        config = experiment.train
        self.folder = run
        self.experiment = experiment
        self.prepared = prepared
        self.report = report
        self.device = choose_device(config.device)
        torch.manual_seed(experiment.seed)
        model = build_model(experiment.model, prepared.tokenizers.vocabulary).to(self.device)
        average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.learner = Learner(model, make_optimizer(model, config), average)
        self.record = Record()
        self.checkpoints = Checkpoints(run.checkpoints, config.average_checkpoints, config.save_every)
        self.began = time.monotonic()

    @property
    def model(self) -> AnySeq2Seq:
        """The model that is trained."""
        return self.learner.model

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights that count: the moving average where there is one."""
        if self.learner.average:
            return self.learner.average.weights
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def run(self, interrupted: Interrupted) -> Iterator[Event]:
        """All events from here to the end."""
        with Journal(self.folder, self.learner.step) as journal:
            for event in self._events(interrupted):
                journal.write(event)
                yield event

    def _events(self, interrupted: Interrupted) -> Iterator[Event]:
        config = self.experiment.train
        yield self._started()
        if self._validation_is_due():  # a signal came between the last step and its validation
            yield self._validate()
        reason = interrupted() or self._over()
        if not reason:
            for event in training_steps(self.learner, self._updates(), self.experiment.model.d_model, config):
                yield event
                if not interrupted() and self._validation_is_due():
                    yield self._validate()
                reason = interrupted() or self._over()
                if reason or event.step % config.save_every == 0:
                    yield self._save()
                if reason:
                    break
        if reason in _SIGNALS:
            yield Finished(self.learner.step, reason, self._minutes(), "")
            return
        yield self._finish(reason)

    def _validation_is_due(self) -> bool:
        step = self.learner.step
        if not self.prepared.valid or step <= self.record.validated:
            return False
        return step % self.experiment.train.validate_every == 0 or bool(self._over())

    def _over(self) -> str:
        """Why training ends here, or nothing."""
        config = self.experiment.train
        if self.learner.step >= config.max_steps:
            return f"all {config.max_steps} steps are done"
        if config.max_minutes and self._minutes() >= config.max_minutes:
            return f"{config.max_minutes:g} minutes are over"
        if config.patience and self.record.waited >= config.patience:
            return f"no better validation in the last {config.patience}"
        return ""

    def _updates(self) -> Iterator[Update]:
        """Batches from the learner's position on, without end; each epoch takes the next segmentation."""
        config, start = self.experiment.train, self.learner.position
        batching = Batching(config.batch_tokens, config.accumulate, self.experiment.seed)
        epoch, skip = start.epoch, start.update
        while True:
            corpus = self.prepared.train[epoch % len(self.prepared.train)]
            everything = list(updates(*corpus.lengths(), batching, epoch))
            for number in range(skip, len(everything)):
                batches = [corpus.batch(b, self.model.pad_id).to(self.device) for b in everything[number]]
                end = number + 1 == len(everything)
                yield Update(batches, epoch, Position(epoch + 1) if end else Position(epoch, number + 1))
            epoch, skip = epoch + 1, 0

    def _validate(self) -> Validated:
        began = time.monotonic()
        loss, score = self._scores(self.learner.average.weights if self.learner.average else None)
        if not math.isfinite(loss) and self.experiment.train.on_non_finite == "stop":
            raise Diverged(
                f"the validation loss at step {self.learner.step} is {loss}; lower train.learning_rate "
                "and resume from the last checkpoint"
            )
        value = self._value(loss, score)
        self.record.validated = self.learner.step
        better = value < (math.inf if self.record.best is None else self.record.best)
        if better:
            self.record.best, self.record.best_step, self.record.waited = value, self.learner.step, 0
            self.folder.write_weights(self.weights, f"best validation, step {self.learner.step}")
        else:
            self.record.waited += 1
        return Validated(self.learner.step, loss, math.exp(min(loss, 700.0)), score, better, time.monotonic() - began)

    def _scores(self, weights: dict[str, Tensor] | None) -> tuple[float, float | None]:
        """Validation loss, and BLEU if it is wanted, with these weights; None: the model's own."""
        config = self.experiment.train
        with using(self.model, weights):
            loss = validation_loss(self.model, self.prepared.valid, config.batch_tokens) if self.prepared.valid else 0.0
            if not config.validate_bleu and config.best_by == "loss":
                return loss, None
            return loss, validation_bleu(self.model, self.prepared, self.experiment)

    def _value(self, loss: float, score: float | None) -> float:
        """What the best model has least of."""
        return loss if score is None or self.experiment.train.best_by == "loss" else -score

    def _finish(self, reason: str) -> Finished:
        """Choose the weights that stay: the mean of the last checkpoints if that validates better than the best one."""
        step, wanted, every = (
            self.learner.step,
            self.experiment.train.average_checkpoints,
            self.experiment.train.save_every,
        )
        steps = [s for s in self.checkpoints.steps() if s % every == 0 or s == step][-wanted:]
        note = self.folder.note()
        if wanted > 1 and len(steps) > 1:
            mean, steps = self._mean(steps)
            if len(steps) > 1 and self._better(mean):
                note = f"mean of the checkpoints of steps {', '.join(map(str, steps))}"
                self.folder.write_weights(mean, note)
        if not self.folder.has_model or (not self.prepared.valid and wanted <= 1):
            note = f"last, step {step}"
            self.folder.write_weights(self.weights, note)
        return self._close(Finished(step, reason, self._minutes(), note))

    def _mean(self, steps: list[int]) -> tuple[dict[str, Tensor], list[int]]:
        """The mean weights of these checkpoints, and which of them could be read."""
        prefix = "ema." if self.learner.average else "model."
        read: list[int] = []

        def intact() -> Iterator[dict[str, Tensor]]:
            for step in steps:
                try:
                    weights = self.checkpoints.load_model(step, prefix)
                except FolderError as error:
                    self.report.say(f"left out of the mean: {error}")
                    continue
                read.append(step)
                yield weights

        return mean_weights(intact()), read

    def _better(self, weights: dict[str, Tensor]) -> bool:
        if not self.prepared.valid or self.record.best is None:
            return True
        return self._value(*self._scores(weights)) <= self.record.best

    def _close(self, finished: Finished) -> Finished:
        self.folder.write_about({"finished": asdict(finished)})
        draw_curve(self.folder)
        write_atomically(self.folder.path / "README.md", model_card(self.folder))
        return finished

    def _save(self) -> Saved:
        learner, record = self.learner, replace(self.record, seconds=60.0 * self._minutes())
        tensors = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        if not all(weight.isfinite().all() for weight in tensors.values()):
            raise Diverged(
                f"the weights after step {learner.step} are no longer numbers and are not saved; "
                "lower train.learning_rate and resume from the last checkpoint"
            )
        tensors |= {f"optimizer.{k}": v for k, v in optimizer_tensors(self.model, learner.optimizer).items()}
        if learner.average:
            tensors |= {f"ema.{name}": weight for name, weight in learner.average.weights.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "position": asdict(learner.position),
            "skipped": learner.skipped,
            "record": asdict(record),
            "machine": {**versions(), "threads": torch.get_num_threads(), "device": self.device.type},
        }
        path = self.checkpoints.save(Checkpoint(learner.step, tensors, state))
        if not self.prepared.valid:
            self.folder.write_weights(self.weights, f"last, step {learner.step}")
        return Saved(learner.step, str(path))

    def load(self) -> None:
        """Take up the newest checkpoint; where there is none yet, begin at the beginning."""
        found = self.checkpoints.load_latest()
        if found is None:
            self.report.say("no checkpoint yet: training begins at step 0")
            return
        checkpoint, complaints = found
        for complaint in complaints:
            self.report.say(complaint)
        self._restore(checkpoint)
        self.report.say(f"resuming at step {checkpoint.step}")

    def _restore(self, checkpoint: Checkpoint) -> None:
        learner, state = self.learner, dict(checkpoint.state)
        try:
            fill_model(self.model, _under("model.", checkpoint.tensors), "the checkpoint")
            load_optimizer(self.model, learner.optimizer, _under("optimizer.", checkpoint.tensors))
            if learner.average:
                learner.average.load(_under("ema.", checkpoint.tensors))
            learner.step = checkpoint.step
            learner.position = Position(**state["position"])  # type: ignore[arg-type]
            learner.skipped = int(state["skipped"])  # type: ignore[call-overload]
            self.record = Record(**state["record"])  # type: ignore[arg-type]
            torch.set_rng_state(checkpoint.tensors["random.cpu"])
            if self.device.type == "cuda" and "random.cuda" in checkpoint.tensors:
                torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], self.device)
        except (KeyError, TypeError, ValueError) as error:
            raise FolderError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from error
        self._compare_machines(state.get("machine", {}))

    def _compare_machines(self, then: object) -> None:
        now = {**versions(), "threads": torch.get_num_threads(), "device": self.device.type}
        changed = [
            f"{key} was {then[key]} and is {value}"
            for key, value in now.items()
            if isinstance(then, dict) and then.get(key, value) != value
        ]
        if changed:
            self.report.say(f"not the same machine ({'; '.join(changed)}): it goes on, but not to the same bits")

    def _minutes(self) -> float:
        return (self.record.seconds + time.monotonic() - self.began) / 60.0

    def _started(self) -> Started:
        vocabulary = self.prepared.tokenizers.vocabulary
        size = transformer_size(self.experiment.model, vocabulary.source, vocabulary.target)
        pairs, threads = len(self.prepared.train[0]), torch.get_num_threads()
        self.report.say(
            f"model: {size.total:,} parameters; weights, gradients and Adam take "
            f"{size.training_bytes / 2**20:,.0f} MiB, one batch's activations come on top; "
            f"{threads} {'thread' if threads == 1 else 'threads'} on {self.device.type}"
        )
        config = self.experiment.train
        left = config.max_minutes - self._minutes() if config.max_minutes else None
        return Started(self.learner.step, config.max_steps, left, size.total, pairs, threads, self.device.type)


_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


def _under(prefix: str, tensors: Any) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

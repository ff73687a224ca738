"""Training from beginning to end: it alone validates, saves, logs and stops."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Experiment, flat, merge
from heedful.data.batching import Batching
from heedful.device import measure_memory, use_threads
from heedful.errors import ConfigError, Diverged, FolderError, out_of_memory
from heedful.kernels.threads import count_workers
from heedful.models.build import build_model
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.size import model_size
from heedful.progress import Reporter
from heedful.storage.checkpoint import Checkpoints
from heedful.storage.files import clear_folder, remove_temporaries, write_atomically
from heedful.storage.lock import lock_folder
from heedful.storage.model_card import make_model_card
from heedful.storage.run_folder import RunFolder, average_weights, fill_model, refuse_checkpoint, software_versions
from heedful.tasks import find_task, make_experiment
from heedful.training.checkpointing import (
    RunProgress,
    describe_differences,
    gather_tensors,
    make_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from heedful.training.distributed import make_distributed_gradients
from heedful.training.event_log import EventLog, draw_curve
from heedful.training.events import Event, Finished, Saved, Started, Validated
from heedful.training.finetune import (
    NOT_VALIDATED,
    copy_parent_model,
    describe_gain,
    load_parent_weights,
    warn_about_vocabulary,
)
from heedful.training.gradients import Objective, Update, make_gradients
from heedful.training.loop import TrainingState, explain_out_of_memory, set_up_layers, training_steps
from heedful.training.optimizer import MovingAverage, make_optimizer
from heedful.training.precision import Precision
from heedful.training.prepare import Prepared, describe_data, load_prepared, prepare
from heedful.training.process_group import ProcessGroup
from heedful.training.updates import UpdateSplit, make_updates
from heedful.training.validation import compute_validation_loss, compute_validation_score, use_weights
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import save_best_aligner

# When it ends, how often it looks, where it runs, and what a diverged one is advised to.
_MAY_CHANGE = (
    *("train.max_steps", "train.max_minutes", "train.save_every", "train.validate_every", "train.patience"),
    *("train.threads", "train.device", "train.learning_rate", "train.on_non_finite"),
    *("train.parallel", "train.timeout_minutes"),
    *("train.precision", "train.compile", "train.checkpoint_activations"),
)

Interrupted = Callable[[], str]  # the name of a signal that came, or nothing


def train(
    run: RunFolder,
    experiment: Experiment,
    total: int,
    report: Reporter,
    interrupted: Interrupted,
    group: ProcessGroup | None = None,
) -> Iterator[Event]:
    """Prepare the folder and train in it; `total` pairs are in the data. Of several processes the first calls this."""
    group = group or ProcessGroup()
    with lock_folder(run.path):
        run.begin(experiment)
        try:
            prepared = _prepare(run, experiment, total, report, group)
        except Exception:
            clear_folder(run.path)  # nothing is trained yet: a mistake in the data leaves no folder in the way
            raise
        group.run_on_first(dict)  # the others can come: see `follow`
        yield from Fit(run, experiment, prepared, report, group).run(interrupted)


def resume(
    path: Path, settings: dict[str, Any], report: Reporter, interrupted: Interrupted, group: ProcessGroup | None = None
) -> Iterator[Event]:
    """Go on from the newest checkpoint that is intact, or with the preparation if that was cut short."""
    group = group or ProcessGroup()
    refuse_checkpoint(path)
    run = RunFolder(path)
    if run.prepared or not (path / "experiment.toml").exists():
        run = RunFolder.open(path)
    with lock_folder(path):
        remove_temporaries(path)
        if "pruned" in run.about():
            raise FolderError(f"{path} holds a pruned model, which has no checkpoint to go on from; train another")
        settings = merge(run.resume_settings(), settings)
        experiment = apply_resume_settings(run.experiment(), settings)
        if run.prepared:
            use_threads(experiment.train.threads, group.local_world_size)
            prepared = load_prepared(run, experiment, report)
        else:
            report.say("the preparation of the data was cut short and is done again")
            prepared = _prepare(
                run, experiment, sum(1 for _ in find_task(experiment.task).read_pairs(experiment.data)), report, group
            )
        group.run_on_first(lambda: settings)
        fit = Fit(run, experiment, prepared, report, group)
        fit.load()
        run.write_resume_settings(settings)
        yield from fit.run(interrupted)


def follow(path: Path, report: Reporter, interrupted: Interrupted, group: ProcessGroup) -> Iterator[Event]:
    """What every process but the first does: wait until the folder is there, then train with the others."""
    settings: dict[str, Any] = group.run_on_first(dict)
    run = RunFolder.open(path)
    experiment = apply_resume_settings(run.experiment(), settings)
    use_threads(experiment.train.threads, group.local_world_size)
    fit = Fit(run, experiment, load_prepared(run, experiment, report), report, group)
    fit.load()
    yield from fit.run(interrupted)


def _prepare(run: RunFolder, experiment: Experiment, total: int, report: Reporter, group: ProcessGroup) -> Prepared:
    use_threads(experiment.train.threads, group.local_world_size)
    parent = copy_parent_model(run, experiment.train.init)
    prepared = prepare(run, experiment, total, report)
    data = describe_data(run, experiment, prepared)
    if parent and (warning := warn_about_vocabulary(run, data)):
        report.say(warning)
    if parent and not prepared.valid:
        report.say(NOT_VALIDATED)
    run.write_about({"data": data, "versions": software_versions(), **({"parent": parent} if parent else {})})
    return prepared


class Fit:
    """One training: model, data and folder together."""

    def __init__(
        self, run: RunFolder, experiment: Experiment, prepared: Prepared, report: Reporter, group: ProcessGroup
    ) -> None:
        config = experiment.train
        self.folder = run
        self.experiment = experiment
        self.prepared = prepared
        self.report = report
        self.group = group
        self.device = group.device(config.device)
        group.connect(config.timeout_minutes)
        torch.manual_seed(experiment.seed)
        self.sharded = group.world_size > 1 and config.parallel == "shards"
        model = build_model(experiment.model, prepared.tokenizers.vocabulary)
        if config.init:
            load_parent_weights(model, run)
        if not self.sharded:  # else its parts go there, one after another
            model = model.to(self.device)
        precision = Precision.of(config.precision, self.device)
        for complaint in filter(None, (precision.complaint, set_up_layers(model, config, self.device))):
            report.say(complaint)
        objective = Objective(config.label_smoothing, experiment.seed, precision)
        self.workers = count_workers(self.device) if group.world_size == 1 else 1
        if group.world_size > 1:
            self.gradients = make_distributed_gradients(
                model, objective, group, self.device, config.accumulate, config.parallel
            )
        else:
            self.gradients = make_gradients(model, objective, self.workers)
        average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState(model, make_optimizer(model, config), average, precision=precision)
        self.record = RunProgress(validated=-1 if config.init else 0)  # what it begins with is to be judged too
        self.checkpoints = Checkpoints(run.checkpoints, config.average_checkpoints, config.save_every)
        self.began = time.monotonic()

    @property
    def model(self) -> AnySeq2Seq:
        """The model that is trained."""
        return self.state.model

    def _weights(self) -> dict[str, Tensor]:
        """The weights that count, whole, for the first process: the moving average where there is one."""
        average = self.state.average
        own = average.weights if average else {name: p.detach() for name, p in self.model.named_parameters()}
        return gather_tensors(own, self.group.is_first)

    def run(self, interrupted: Interrupted) -> Iterator[Event]:
        """All events from here to the end."""
        self._check_the_same()
        known = self.state.step if self.record.validated >= 0 else -1  # what comes before the first step comes again
        log = EventLog(self.folder, known) if self.group.is_first else nullcontext()
        with explain_out_of_memory(self.experiment.train), log as journal:
            for event in self._events(interrupted):
                if journal:
                    journal.write(event)
                yield event

    def _check_the_same(self) -> None:
        """Processes on several machines go on from the same step only if they see the same folder."""
        step = self.group.run_on_first(lambda: self.state.step)
        if step != self.state.step:
            raise FolderError(
                f"here {self.folder.path} is at step {self.state.step} but the first process sees step {step}; "
                "all machines need the same folder, on a disk that they share"
            )

    def _events(self, interrupted: Interrupted) -> Iterator[Event]:
        config, agree = self.experiment.train, self.group.agree_on
        yield self._started()
        if self._validation_is_due(agree(self._over())):  # a signal came between the last step and its validation
            yield self._validate()
        reason = agree(interrupted() or self._over())
        if not reason:
            d_model = self.experiment.model.d_model
            for event in training_steps(self.state, self._updates(), self.gradients, d_model, config):
                yield event
                reason = agree(interrupted() or self._over())
                if reason not in _SIGNALS and self._validation_is_due(reason):
                    yield self._validate()
                    reason = agree(interrupted() or self._over())
                if reason or event.step % config.save_every == 0:
                    yield self._save()
                if reason:
                    break
        if reason in _SIGNALS:
            yield self._finished(reason, "")
            return
        yield self._finish(reason)

    def _validation_is_due(self, over: str) -> bool:
        step = self.state.step
        if not self.prepared.valid or step <= self.record.validated:
            return False
        return step % self.experiment.train.validate_every == 0 or bool(over)

    def _over(self) -> str:
        """Why training ends here, or nothing."""
        config = self.experiment.train
        if self.state.step >= config.max_steps:
            return f"all {config.max_steps} steps are done"
        if config.max_minutes and self._minutes() >= config.max_minutes:
            return f"{config.max_minutes:g} minutes are over"
        if config.patience and self.record.waited >= config.patience:
            return f"no better validation in the last {config.patience}"
        return ""

    def _updates(self) -> Iterator[Update]:
        config, group = self.experiment.train, self.group
        batching = Batching(config.batch_tokens, self.experiment.seed)
        split = UpdateSplit(config.accumulate * self.workers, group.rank, group.world_size)
        return make_updates(self.prepared.train, self.state.position, batching, split, self.model.pad_id, self.device)

    def _validate(self) -> Validated:
        began = time.monotonic()
        weights = self._weights()
        other = weights if self.sharded or self.state.average else None
        loss, score = self.group.run_on_first(lambda: self._scores(other))
        metric = find_task(self.experiment.task).quick_metric
        if not math.isfinite(loss) and self.experiment.train.on_non_finite == "stop":
            raise Diverged(
                f"the validation loss at step {self.state.step} is {loss}; lower train.learning_rate "
                "and resume from the last checkpoint"
            )
        value = self._value(loss, score)
        self.record.validated = self.state.step
        better = value < (math.inf if self.record.best is None else self.record.best)
        if better:
            self.record.best, self.record.best_step, self.record.waited = value, self.state.step, 0
            unchanged = "" if self.state.step else f", unchanged from {Path(self.experiment.train.init).name}"
            note = f"best validation, step {self.state.step}{unchanged}"
            self.group.run_on_first(lambda: self.folder.write_weights(weights, note))
        else:
            self.record.waited += 1
        return Validated(
            self.state.step, loss, math.exp(min(loss, 700.0)), score, metric, better, time.monotonic() - began
        )

    def _scores(self, weights: dict[str, Tensor] | None) -> tuple[float, float | None]:
        """Validation loss, and BLEU if it is wanted, with these weights; None: the model's own."""
        config = self.experiment.train
        with self._using(weights) as model:
            loss = (
                compute_validation_loss(model, self.prepared.valid, config.batch_tokens) if self.prepared.valid else 0.0
            )
            if not config.validate_bleu and config.best_by == "loss":
                return loss, None
            return loss, compute_validation_score(model, self.prepared, self.experiment)

    @contextmanager
    def _using(self, weights: dict[str, Tensor] | None) -> Iterator[AnySeq2Seq]:
        """The model with these weights, in evaluation; one of its own where this process has only parts of them."""
        if self.sharded:
            with torch.device("meta"):
                model = build_model(self.experiment.model, self.prepared.tokenizers.vocabulary)
            fill_model(model.to_empty(device=self.device), weights or {}, "the training")
            yield model.eval()
            return
        with use_weights(self.model, weights):
            yield self.model

    def _value(self, loss: float, score: float | None) -> float:
        """What the best model has least of."""
        return loss if score is None or self.experiment.train.best_by == "loss" else -score

    def _finish(self, reason: str) -> Finished:
        weights = self._weights()
        note = self.group.run_on_first(lambda: self._choose(weights))
        finished = self._finished(reason, note)
        self.group.run_on_first(lambda: self._close(finished))
        return finished

    def _finished(self, reason: str, note: str) -> Finished:
        return Finished(self.state.step, reason, self._minutes(), note, measure_memory(self.device.type).peak)

    def _choose(self, last: dict[str, Tensor]) -> str:
        """The weights that stay: the mean of the last checkpoints if that validates better than the best one."""
        step, config = self.state.step, self.experiment.train
        wanted, every = config.average_checkpoints, config.save_every
        steps = [s for s in self.checkpoints.steps() if s % every == 0 or s == step][-wanted:]
        note = self.folder.note()
        if wanted > 1 and len(steps) > 1:
            mean, steps = self._mean(steps)
            if len(steps) > 1 and self._better(mean):
                note = f"mean of the checkpoints of steps {', '.join(map(str, steps))}"
                self.folder.write_weights(mean, note)
        if not self.folder.has_model or (not self.prepared.valid and wanted <= 1):
            note = f"last, step {step}"
            self.folder.write_weights(last, note)
        return note

    def _mean(self, steps: list[int]) -> tuple[dict[str, Tensor], list[int]]:
        """The mean weights of these checkpoints, and which of them could be read."""
        prefix = "ema." if self.state.average else "model."
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

        return average_weights(intact()), read

    def _better(self, weights: dict[str, Tensor]) -> bool:
        if not self.prepared.valid or self.record.best is None:
            return True
        return self._value(*self._scores(weights)) <= self.record.best

    def _close(self, finished: Finished) -> None:
        self.folder.write_about({"finished": asdict(finished)})
        if told := describe_gain(self.folder):
            self.report.say(told)
        draw_curve(self.folder)
        write_atomically(self.folder.path / "README.md", make_model_card(self.folder))
        try:
            save_best_aligner(self.folder, Translator.on_device(self.folder, self.device), self.prepared.valid_pairs)
        except Exception as error:
            if not out_of_memory(error):
                raise
            self.report.say("no memory was left to find where the model aligns words; --alignments will do it")

    def _save(self) -> Saved:
        record = replace(self.record, seconds=60.0 * self._minutes())
        checkpoint = make_checkpoint(self.state, record, self._machine(), self.device)
        path = save_checkpoint(checkpoint, self.checkpoints, self.group, self.sharded)
        if not self.prepared.valid:
            weights, note = self._weights(), f"last, step {checkpoint.step}"
            self.group.run_on_first(lambda: self.folder.write_weights(weights, note))
        return Saved(checkpoint.step, path)

    def load(self) -> None:
        """Take up the newest checkpoint; where there is none yet, begin at the beginning."""
        found = self.checkpoints.load_latest()
        if found is None:
            self.report.say("no checkpoint yet: training begins at step 0")
            return
        checkpoint, complaints = found
        for complaint in complaints:
            self.report.say(complaint)
        self.record = restore_checkpoint(self.state, checkpoint, self.device)
        if changed := describe_differences(checkpoint.state.get("machine"), self._machine()):
            self.report.say(f"not the same machine ({changed}): it goes on, but not to the same bits")
        self.report.say(f"resuming at step {checkpoint.step}")

    def _machine(self) -> dict[str, object]:
        """What the same bits depend on."""
        threads = torch.get_num_threads()
        return {
            **software_versions(),
            "threads": threads,
            "processes": self.group.world_size,
            "device": self.device.type,
        }

    def _minutes(self) -> float:
        return (self.record.seconds + time.monotonic() - self.began) / 60.0

    def _started(self) -> Started:
        vocabulary = self.prepared.tokenizers.vocabulary
        size = model_size(self.experiment.model, vocabulary.source, vocabulary.target)
        pairs, threads = len(self.prepared.train[0]), torch.get_num_threads()
        count = self.group.world_size
        self.report.say(
            f"model: {size.total:,} parameters; weights, gradients and Adam take "
            f"{size.training_bytes / 2**20:,.0f} MiB, one batch's activations come on top; "
            f"{threads} {'thread' if threads == 1 else 'threads'} on {self.device.type}"
            + (f" in each of {count} processes" if count > 1 else "")
        )
        config = self.experiment.train
        left = config.max_minutes - self._minutes() if config.max_minutes else None
        return Started(self.state.step, config.max_steps, left, size.total, pairs, threads, self.device.type, count)


_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


def apply_resume_settings(before: Experiment, settings: dict[str, Any]) -> Experiment:
    """The same experiment with these settings, if they are such that a run can go on with them."""
    after = make_experiment(merge(asdict(before), settings))
    old, new = flat(before), flat(after)
    for key in old:
        if old[key] != new[key] and key not in _MAY_CHANGE:
            raise ConfigError(f"{key} cannot change from {old[key]} to {new[key]} in a resumed run; start a new one")
    return after

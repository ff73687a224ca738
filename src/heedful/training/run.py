"""A training run from beginning to end: prepare, build, train, validate, save, finish.

`start_run`, `resume_run` and `join_run` are generators of events. Nothing happens between two events, so whoever
iterates can stop at any of them; the run continues from its last checkpoint.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from heedful.config import Experiment, flat, merge
from heedful.data.batch import Batching
from heedful.device import measure_memory, use_threads
from heedful.errors import ConfigError, FolderError, counted, out_of_memory
from heedful.kernels.threads import count_workers
from heedful.models.build import build_model
from heedful.models.clip import CLIP
from heedful.models.size import model_size
from heedful.progress import Reporter
from heedful.storage.files import clear_folder, remove_temporaries, write_atomically
from heedful.storage.lock import lock_folder
from heedful.storage.model_card import make_model_card
from heedful.storage.run_folder import PRETRAINING, RunFolder, refuse_checkpoint, software_versions
from heedful.tasks import find_task, make_experiment
from heedful.training.checkpointing import Checkpointing, RunProgress
from heedful.training.contrast import ContrastiveGradients
from heedful.training.distributed import make_distributed_gradients
from heedful.training.events import STOP_SIGNALS, Event, EventLog, Finished, Started, StepDone, draw_curve
from heedful.training.finetune import (
    NOT_VALIDATED,
    copy_parent_model,
    describe_gain,
    load_parent_weights,
    warn_about_vocabulary,
)
from heedful.training.gradients import Gradients, Objective, make_gradients
from heedful.training.loop import (
    TrainingState,
    UpdateSplit,
    explain_out_of_memory,
    make_updates,
    set_up_layers,
    training_steps,
)
from heedful.training.model_selection import ModelSelection, Validator
from heedful.training.optimizer import MovingAverage, make_optimizer
from heedful.training.precision import Precision
from heedful.training.prepare import Prepared, count_examples, describe_data, load_prepared, prepare
from heedful.training.process_group import ProcessGroup
from heedful.training.schedule import learning_rate
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import save_best_aligner

# When it ends, how often it validates and saves, where it runs, and the advice for a training that diverged.
MAY_CHANGE = (
    *("train.max_steps", "train.max_minutes", "train.save_every", "train.validate_every", "train.patience"),
    *("train.threads", "train.device", "train.learning_rate", "train.on_non_finite"),
    *("train.parallel", "train.timeout_minutes"),
    *("train.precision", "train.compile", "train.checkpoint_activations"),
)

EventStream = Generator[Event, None, None]
StopRequested = Callable[[], str]  # the name of a signal that asks to stop, or an empty string


def start_run(
    run: RunFolder,
    experiment: Experiment,
    total: int,
    reporter: Reporter,
    stop_requested: StopRequested,
    group: ProcessGroup | None = None,
) -> EventStream:
    """Prepare an empty folder and train in it; `total` is the number of pairs, or of characters, in the data.

    Of several processes, only the first calls this; the others call `join_run`.
    """
    group = group or ProcessGroup()
    with lock_folder(run.path):
        run.begin(experiment)
        try:
            prepared = _prepare(run, experiment, total, reporter, group)
        except Exception:
            if not (run.path / PRETRAINING).exists():
                clear_folder(run.path)  # nothing is trained yet: after a mistake in the data the name is free again
            raise
        group.run_on_first(dict)  # now the others can join
        yield from _set_up(run, experiment, prepared, reporter, group).events(stop_requested)


def resume_run(
    path: Path,
    settings: dict[str, Any],
    reporter: Reporter,
    stop_requested: StopRequested,
    group: ProcessGroup | None = None,
) -> EventStream:
    """Continue from the newest intact checkpoint, or with the preparation if that was interrupted."""
    group = group or ProcessGroup()
    refuse_checkpoint(path)
    run = RunFolder(path)
    if run.prepared or not (path / "experiment.toml").exists():
        run = RunFolder.open(path)
    with lock_folder(path):
        remove_temporaries(path)
        if "pruned" in run.about():
            raise FolderError(f"{path} holds a pruned model, which has no checkpoint to resume from; train another")
        settings = merge(run.resume_settings(), settings)
        experiment = apply_resume_settings(run.experiment(), settings)
        if run.prepared:
            use_threads(experiment.train.threads, group.local_world_size)
            prepared = load_prepared(run, experiment, reporter)
        else:
            reporter.say("the preparation of the data was interrupted and is done again")
            total = count_examples(experiment)
            prepared = _prepare(run, experiment, total, reporter, group)
        group.run_on_first(lambda: settings)  # now the others can join
        before = apply_resume_settings(run.experiment(), run.resume_settings())
        training = _set_up(run, experiment, prepared, reporter, group)
        if training.state.step == 0:
            reporter.say("no checkpoint yet: training starts at step 0")
        if sentence := describe_learning_rate(before, experiment, training.state.step):
            reporter.say(sentence)
        run.write_resume_settings(settings)
        yield from training.events(stop_requested)


def join_run(path: Path, reporter: Reporter, stop_requested: StopRequested, group: ProcessGroup) -> EventStream:
    """Every process but the first: wait until the first has prepared the folder, then train with it."""
    settings: dict[str, Any] = group.run_on_first(dict)
    run = RunFolder.open(path)
    experiment = apply_resume_settings(run.experiment(), settings)
    use_threads(experiment.train.threads, group.local_world_size)
    prepared = load_prepared(run, experiment, reporter)
    yield from _set_up(run, experiment, prepared, reporter, group).events(stop_requested)


def apply_resume_settings(before: Experiment, settings: dict[str, Any]) -> Experiment:
    """The experiment with these settings, if a resumed run may change them."""
    after = make_experiment(merge(asdict(before), settings))
    old, new = flat(before), flat(after)
    for key in old:
        if old[key] != new[key] and key not in MAY_CHANGE:
            raise ConfigError(f"{key} cannot change from {old[key]} to {new[key]} in a resumed run; start a new one")
    return after


def describe_learning_rate(before: Experiment, after: Experiment, step: int) -> str:
    """What a resumed run's new settings do to the learning rate after this step; empty if they change nothing of it."""
    old, new = before.train, after.train
    if (old.max_steps, old.learning_rate) == (new.max_steps, new.learning_rate) or step >= new.max_steps:
        return ""
    width, last = after.model.d_model, new.max_steps
    then, now, end = (
        f"{learning_rate(at, width, config):.3g}" for at, config in ((step + 1, old), (step + 1, new), (last, new))
    )
    if step >= old.max_steps:
        return f"learning rate: {now} at step {step + 1} and {end} at the end, step {last} ({new.schedule} schedule)"
    changed = f"{now} at step {step + 1} instead of {then}" if now != then else f"unchanged at step {step + 1} ({now})"
    return f"learning rate: {changed}, and {end} at the end, step {last} ({new.schedule} schedule)"


def _prepare(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter, group: ProcessGroup) -> Prepared:
    use_threads(experiment.train.threads, group.local_world_size)
    parent = copy_parent_model(run, experiment.train.init)
    prepared = prepare(run, experiment, total, reporter)
    data = describe_data(run, experiment, prepared)
    if parent and (warning := warn_about_vocabulary(run, data)):
        reporter.say(warning)
    if parent and not prepared.valid:
        reporter.say(NOT_VALIDATED)
    run.write_about({"data": data, "versions": software_versions(), **({"parent": parent} if parent else {})})
    return prepared


def _set_up(
    run: RunFolder, experiment: Experiment, prepared: Prepared, reporter: Reporter, group: ProcessGroup
) -> "TrainingRun":
    with explain_out_of_memory(experiment.train):
        return TrainingRun(run, experiment, prepared, reporter, group)


class TrainingRun:
    """A training in a prepared folder: built here and restored from the newest checkpoint, if there is one."""

    def __init__(
        self, run: RunFolder, experiment: Experiment, prepared: Prepared, reporter: Reporter, group: ProcessGroup
    ) -> None:
        config = experiment.train
        self.run = run
        self.experiment = experiment
        self.prepared = prepared
        self.reporter = reporter
        self.group = group
        self.device = group.device(config.device)
        group.connect(config.timeout_minutes)

        torch.manual_seed(experiment.seed)
        model = build_model(experiment.model, prepared.tokenizers.vocabulary)
        if config.init:
            load_parent_weights(model, run)
        if group.world_size == 1 or config.parallel != "shards":  # else only its shards go there, one after another
            model = model.to(self.device)
        precision = Precision.of(config.precision, self.device, group)
        for warning in filter(None, (precision.warning, set_up_layers(model, config, self.device))):
            reporter.say(warning)

        objective = Objective(
            config.label_smoothing,
            experiment.seed,
            precision,
            config.dropout_warmup,
            config.r_drop,
            config.word_dropout,
        )
        self.workers = count_workers(self.device) if group.world_size == 1 else 1
        if isinstance(model, CLIP):
            if group.world_size > 1:
                raise ConfigError(
                    f"{group.world_size} processes train together, but CLIP compares all pairs of an update with each "
                    "other, which one process does; start heedful without torchrun"
                )
            self.gradients: Gradients = ContrastiveGradients(model, objective, self.workers)
        elif group.world_size > 1:
            self.gradients = make_distributed_gradients(
                model, objective, group, self.device, config.accumulate, config.parallel
            )
        else:
            self.gradients = make_gradients(model, objective, self.workers)
        average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.state = TrainingState(model, make_optimizer(model, config), average, precision=precision)

        self.checkpointing = Checkpointing(run, config, group, self.device)
        restored = self.checkpointing.restore_latest(self.state, reporter)
        # A fine-tuning validates before its first step too, because the model that it starts from may stay the best.
        self.progress = restored or RunProgress(validated=-1 if config.init else 0)
        validator = Validator(model, experiment, prepared, self.device)
        self.selection = ModelSelection(run, experiment, validator, self.state, self.progress, group)
        self.began = time.monotonic()

    def events(self, stop_requested: StopRequested) -> Iterator[Event]:
        """Train to the end; each event is logged, then yielded."""
        self._check_same_step()
        logged = self.state.step if self.progress.validated >= 0 else -1  # later events will happen again
        with ExitStack() as stack:
            stack.enter_context(explain_out_of_memory(self.experiment.train))
            event_log = stack.enter_context(EventLog(self.run, logged)) if self.group.is_first else None
            for event in self._train(stop_requested):
                if event_log:
                    event_log.write(event)
                yield event

    def _train(self, stop_requested: StopRequested) -> Iterator[Event]:
        config, agree_on = self.experiment.train, self.group.agree_on
        selection, checkpointing = self.selection, self.checkpointing
        yield self._started()
        if selection.is_due(agree_on(self._limit_reached())):  # a signal came between the last step and its validation
            yield selection.validate()
        reason = agree_on(stop_requested() or self._limit_reached())
        if not reason:
            for step_done in self._steps():
                yield step_done
                reason = agree_on(stop_requested() or self._limit_reached())
                if reason not in STOP_SIGNALS and selection.is_due(reason):
                    yield selection.validate()
                    reason = agree_on(stop_requested() or self._limit_reached())
                if reason or step_done.step % config.save_every == 0:
                    saved = checkpointing.save(self.state, replace(self.progress, seconds=60.0 * self._minutes()))
                    selection.keep_last()
                    yield saved
                if reason:
                    break
        if reason in STOP_SIGNALS:
            yield self._finished(reason, "")
            return
        finished = self._finished(reason, selection.finish(checkpointing.checkpoints, self.reporter))
        self.group.run_on_first(lambda: self._write_summary(finished))
        yield finished

    def _steps(self) -> Iterator[StepDone]:
        config, state, group = self.experiment.train, self.state, self.group
        batching = Batching(config.batch_tokens, self.experiment.seed)
        split = UpdateSplit(config.accumulate * self.workers, group.rank, group.world_size)
        updates = make_updates(self.prepared.train, state.position, batching, split, state.model.pad_id, self.device)
        return training_steps(state, updates, self.gradients, self.experiment.model.d_model, config)

    def _limit_reached(self) -> str:
        """Why training ends here, or an empty string."""
        config = self.experiment.train
        if self.state.step >= config.max_steps:
            return "1 step is done" if config.max_steps == 1 else f"all {config.max_steps} steps are done"
        if config.max_minutes and self._minutes() >= config.max_minutes:
            return "1 minute is over" if config.max_minutes == 1 else f"{config.max_minutes:g} minutes are over"
        if self.selection.out_of_patience:
            return f"no better validation in the last {config.patience}"
        return ""

    def _minutes(self) -> float:
        return (self.progress.seconds + time.monotonic() - self.began) / 60.0

    def _started(self) -> Started:
        config, count, threads = self.experiment.train, self.group.world_size, torch.get_num_threads()
        vocabulary = self.prepared.tokenizers.vocabulary
        size = model_size(self.experiment.model, vocabulary.source, vocabulary.target)
        self.reporter.say(
            f"model: {size.total:,} parameters; weights, gradients and Adam take "
            f"{size.training_bytes / 2**20:,.0f} MiB, plus the activations of one batch; "
            f"{counted(threads, 'thread')} on {self.device.type}"
            + (f" in each of {count} processes" if count > 1 else "")
        )
        left = config.max_minutes - self._minutes() if config.max_minutes else None
        pairs, device = len(self.prepared.train[0]), self.device.type
        twice_from = config.dropout_warmup if config.r_drop else None
        return Started(self.state.step, config.max_steps, left, size.total, pairs, threads, device, count, twice_from)

    def _finished(self, reason: str, note: str) -> Finished:
        return Finished(self.state.step, reason, self._minutes(), note, measure_memory(self.device.type).peak)

    def _write_summary(self, finished: Finished) -> None:
        """Complete the folder of a finished run: about.json, learning curve, model card, aligner."""
        self.run.write_about({"finished": asdict(finished)})
        if gain := describe_gain(self.run):
            self.reporter.say(gain)
        draw_curve(self.run)
        write_atomically(self.run.path / "README.md", make_model_card(self.run))
        task = find_task(self.experiment.task)
        if task.continues_text or not task.writes_text or task.denoises:  # no two texts have words to align
            return
        try:
            save_best_aligner(self.run, Translator.on_device(self.run, self.device), self.prepared.valid_pairs)
        except Exception as error:
            if not out_of_memory(error):
                raise
            self.reporter.say("no memory was left to find where the model aligns words; --alignments will do it")

    def _check_same_step(self) -> None:
        """Processes on several machines resume at the same step only if they see the same folder."""
        step = self.group.run_on_first(lambda: self.state.step)
        if step != self.state.step:
            raise FolderError(
                f"here {self.run.path} is at step {self.state.step} but the first process sees step {step}; "
                "all machines need the same folder, on a shared disk"
            )

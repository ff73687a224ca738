"""A row of the study trained, unless it is kept from before: the same loop as any training, without a run folder.

A model without one of its parts cannot be loaded as a model, so none is saved.
"""

import json
import math
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import torch

from heedful.config import Experiment, flat
from heedful.data.batching import Batching
from heedful.device import choose_device, use_threads
from heedful.errors import Diverged
from heedful.kernels.threads import count_workers
from heedful.models.transformer import Transformer
from heedful.studies.ablation_list import Part
from heedful.studies.ablation_measures import Material, measure
from heedful.studies.ablation_row import Row, finite, read_row, write_row
from heedful.studies.plan import Plan, Stopped
from heedful.training.events import StepDone
from heedful.training.gradients import Objective, make_gradients
from heedful.training.layers import set_up_layers
from heedful.training.loop import TrainingState, training_steps
from heedful.training.memory_errors import explain_out_of_memory
from heedful.training.optimizer import MovingAverage, make_optimizer
from heedful.training.precision import Precision
from heedful.training.prepare import Prepared
from heedful.training.updates import UpdateSplit, make_updates
from heedful.training.validation import compute_validation_loss, use_weights

_POINTS = 10  # of a learning curve
# Where the text lies, who works on it and when a run would save or look change nothing in a row.
_NO_MATTER = ("name", "data.", "train.threads", "train.device", "train.save_every", "train.validate_", "train.patience")


def make_row(part: Part, base: Experiment, material: Material, path: Path, plan: Plan) -> Row:
    """The row of this part: the one kept at `path` if all that it depends on is the same, else trained now."""
    experiment = part.experiment(base)
    fingerprint = _fingerprint(part, experiment, material)
    kept = read_row(path, fingerprint)
    if kept is not None:
        return kept
    with explain_out_of_memory(experiment.train):
        row = _trained(part, experiment, material, fingerprint, plan)
    write_row(path, row)
    return row


def _fingerprint(part: Part, experiment: Experiment, material: Material) -> str:
    options = {key: value for key, value in flat(experiment).items() if not key.startswith(_NO_MATTER)}
    depends_on = [part.name, material.digest, material.orders, material.limits, options]
    return sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


def _trained(part: Part, experiment: Experiment, material: Material, fingerprint: str, plan: Plan) -> Row:
    config, prepared, began = experiment.train, material.prepared, time.monotonic()
    learner = _learner(part, experiment, prepared)
    losses: list[float] = []
    curve: list[list[float | None]] = []
    stopped = ""
    try:
        for event in _events(learner, experiment, prepared):
            losses.append(event.loss)
            plan.report.progress(part.name, event.step, config.max_steps)
            if came := plan.interrupted():
                raise Stopped(came)
            if event.step % max(1, config.max_steps // _POINTS) == 0 or event.step == config.max_steps:
                curve.append([event.step, _validated(learner, prepared, config.batch_tokens)])
    except Diverged:
        stopped = f"the loss or its gradient was no number at step {learner.step + 1}"
    last = losses[-max(1, len(losses) // 10) :] or [math.nan]
    least = least_loss(config.label_smoothing, prepared.tokenizers.vocabulary.target)
    with use_weights(learner.model, learner.average.weights if learner.average else None):
        measured = measure(learner.model, experiment, material)
    return Row(
        fingerprint=fingerprint,
        curve=curve,
        training_loss=finite(sum(last) / len(last) - least),
        validation_loss=_validated(learner, prepared, config.batch_tokens),
        steps=learner.step,
        stopped=stopped,
        seconds=time.monotonic() - began,
        **measured,
    )


def build(part: Part, experiment: Experiment, prepared: Prepared) -> Transformer:
    """The model of a row with fresh weights: those of the whole model, wherever it has them too."""
    vocabulary = prepared.tokenizers.vocabulary
    torch.manual_seed(experiment.seed)
    model = part.kind(experiment.model, vocabulary.source, vocabulary.target, vocabulary.pad_id)
    part.change(model)
    return model


def _learner(part: Part, experiment: Experiment, prepared: Prepared) -> TrainingState:
    config = experiment.train
    device = choose_device(config.device)
    use_threads(config.threads)
    model = build(part, experiment, prepared).to(device)
    set_up_layers(model, config, device)
    average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
    return TrainingState(
        model, make_optimizer(model, config), average, precision=Precision.of(config.precision, device)
    )


def _events(learner: TrainingState, experiment: Experiment, prepared: Prepared) -> Iterator[StepDone]:
    """All updates of a row."""
    config, seed, model = experiment.train, experiment.seed, learner.model
    device = next(model.parameters()).device
    workers = count_workers(device)
    gradients = make_gradients(model, Objective(config.label_smoothing, seed, learner.precision), workers)
    split, batching = UpdateSplit(config.accumulate * workers), Batching(config.batch_tokens, seed)
    data = make_updates(prepared.train, learner.position, batching, split, model.pad_id, device)
    for event in training_steps(learner, data, gradients, experiment.model.d_model, config):
        yield event
        if event.step >= config.max_steps:
            return


def _validated(learner: TrainingState, prepared: Prepared, batch_tokens: int) -> float | None:
    """Unsmoothed loss on the validation pairs."""
    with use_weights(learner.model, learner.average.weights if learner.average else None):
        return finite(compute_validation_loss(learner.model, prepared.valid, batch_tokens)) if prepared.valid else None


def least_loss(smoothing: float, vocabulary: int) -> float:
    """The entropy of the smoothed answers: what a perfect model's training loss would be."""
    if not smoothing:
        return 0.0
    return -(1.0 - smoothing) * math.log(1.0 - smoothing) - smoothing * math.log(smoothing / (vocabulary - 1))

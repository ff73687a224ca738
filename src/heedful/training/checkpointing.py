"""Checkpoints of a training: what they hold, how they are saved by all processes, and how a run continues from one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import TrainConfig
from heedful.data.batch import Position
from heedful.errors import Diverged, FolderError
from heedful.progress import Reporter
from heedful.storage.checkpoint import Checkpoint, Checkpoints
from heedful.storage.run_folder import RunFolder, fill_model, software_versions
from heedful.storage.sharded_tensors import is_sharded, local_part, shard_like, write_shards
from heedful.training.events import Saved
from heedful.training.loop import TrainingState
from heedful.training.optimizer import MOMENTS, load_optimizer, optimizer_tensors
from heedful.training.process_group import ProcessGroup

Facts = Mapping[str, object]  # versions, processor, threads and the like, on which the exact bits depend


@dataclass(slots=True)
class RunProgress:
    """The validations and the time of a run so far; saved with the weights."""

    best: float | None = None  # lower is better: a loss, or minus the score
    best_step: int = 0
    waited: int = 0  # validations since the best
    validated: int = 0  # the last step that was validated; a signal may come before a validation that is due
    seconds: float = 0.0


class Checkpointing:
    """Saves the checkpoints of a run, and restores the newest one that is intact."""

    def __init__(self, run: RunFolder, config: TrainConfig, group: ProcessGroup, device: torch.device) -> None:
        self.checkpoints = Checkpoints(run.checkpoints, config.average_checkpoints, config.save_every)
        self._group = group
        self._device = device

    def save(self, state: TrainingState, progress: RunProgress) -> Saved:
        """Write a checkpoint: the first process does, or all of them if the weights are sharded."""
        checkpoint = make_checkpoint(state, progress, self._machine(), self._device)
        if reason := self._group.agree_on(_refuse_non_finite(checkpoint)):
            raise Diverged(reason)
        if any(map(is_sharded, checkpoint.tensors.values())):
            path = self._save_shards(checkpoint)
        else:
            path = self._group.run_on_first(lambda: str(self.checkpoints.save(checkpoint)))
        return Saved(checkpoint.step, path)

    def _save_shards(self, checkpoint: Checkpoint) -> str:
        group = self._group

        def spread(folder: Path | None = None) -> int:
            """Make all processes write their shards into the folder, which only the first process knows."""
            write_shards(Path(group.run_on_first(lambda: str(folder))), checkpoint.tensors)
            return group.world_size

        if not group.is_first:
            spread()
            return group.run_on_first(str)
        path = self.checkpoints.save(checkpoint, spread)
        return group.run_on_first(lambda: str(path))

    def restore_latest(self, state: TrainingState, reporter: Reporter) -> RunProgress | None:
        """Restore the newest intact checkpoint and return its progress; None if there is no checkpoint yet."""
        found = self.checkpoints.load_latest()
        if found is None:
            return None
        checkpoint, warnings = found
        for warning in warnings:
            reporter.say(warning)
        progress = restore_checkpoint(state, checkpoint, self._device)
        if differences := describe_differences(checkpoint.state.get("machine"), self._machine()):
            reporter.say(f"not the same machine ({differences}): training continues, but not to the same bits")
        reporter.say(f"resuming at step {checkpoint.step}")
        return progress

    def _machine(self) -> Facts:
        threads = torch.get_num_threads()
        processes, device = self._group.world_size, self._device.type
        return {**software_versions(), "threads": threads, "processes": processes, "device": device}


def make_checkpoint(state: TrainingState, progress: RunProgress, machine: Facts, device: torch.device) -> Checkpoint:
    """Everything that the training must remember; if weights are sharded, this process's shards."""
    tensors = {f"model.{name}": p.detach() for name, p in state.model.named_parameters()}
    tensors |= {f"optimizer.{k}": v for k, v in optimizer_tensors(state.model, state.optimizer).items()}
    if state.average:
        tensors |= {f"ema.{name}": weight for name, weight in state.average.weights.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    match device.type:
        case "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(device)
        case "mps":
            tensors["random.mps"] = torch.mps.get_rng_state()
    values = {
        "position": asdict(state.position),
        "skipped": state.skipped,
        "precision": state.precision.state(),
        "record": asdict(progress),
        "machine": dict(machine),
    }
    return Checkpoint(state.step, tensors, values)


def _refuse_non_finite(checkpoint: Checkpoint) -> str:
    """Why weights that are not finite are not saved, or an empty string."""
    weights = [tensor for name, tensor in checkpoint.tensors.items() if name.startswith("model.")]
    if all(local_part(weight).isfinite().all() for weight in weights):
        return ""
    return (
        f"the weights after step {checkpoint.step} are NaN or infinite and are not saved; "
        "lower train.learning_rate and resume from the last checkpoint"
    )


def restore_checkpoint(state: TrainingState, checkpoint: Checkpoint, device: torch.device) -> RunProgress:
    """Set the state to that of the checkpoint; return the progress that was saved with it."""
    values = dict(checkpoint.state)
    parameters = dict(state.model.named_parameters())

    def under(prefix: str) -> dict[str, Tensor]:
        """The tensors of this prefix, sharded if the parameters are."""
        found = checkpoint.under(prefix)
        return {name: shard_like(parameters[name], t) if name in parameters else t for name, t in found.items()}

    try:
        fill_model(state.model, under("model."), "the checkpoint")
        moments = {f"{moment}.{name}": t for moment in MOMENTS for name, t in under(f"optimizer.{moment}.").items()}
        load_optimizer(state.model, state.optimizer, moments)
        if state.average:
            state.average.load(under("ema."))
        state.step = checkpoint.step
        state.position = Position(**values["position"])  # type: ignore[arg-type]
        state.skipped = int(values["skipped"])  # type: ignore[call-overload]
        state.precision.load(values.get("precision", {}))  # type: ignore[arg-type]
        progress = RunProgress(**values["record"])  # type: ignore[arg-type]
        torch.set_rng_state(checkpoint.tensors["random.cpu"])
        match device.type, checkpoint.tensors.get(f"random.{device.type}"):
            case "cuda", Tensor() as random:
                torch.cuda.set_rng_state(random, device)
            case "mps", Tensor() as random:
                torch.mps.set_rng_state(random)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from error
    return progress


def describe_differences(then: object, now: Facts) -> str:
    """What has changed since the checkpoint was written; empty if nothing has."""
    if not isinstance(then, dict):
        return ""
    return "; ".join(f"{k} was {then[k]} and is {value}" for k, value in now.items() if then.get(k, value) != value)

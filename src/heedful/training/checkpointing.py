"""What a checkpoint holds, and how a training becomes what it was when it was written."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.data.batching import Position
from heedful.errors import Diverged, FolderError
from heedful.storage.checkpoint import Checkpoint, Checkpoints
from heedful.storage.run_folder import fill_model
from heedful.storage.sharded_tensors import gather_tensor, local_part, shard_like, write_shards
from heedful.training.loop import TrainingState
from heedful.training.optimizer import MOMENTS, load_optimizer, optimizer_tensors
from heedful.training.process_group import ProcessGroup

Facts = Mapping[str, object]  # versions, processor, threads and the like: what the same bits depend on


@dataclass(slots=True)
class RunProgress:
    """What the run knows of itself beside the weights; saved with them."""

    best: float | None = None  # lower is better: a loss, or minus BLEU
    best_step: int = 0
    waited: int = 0  # validations since the best
    validated: int = 0  # the last step that was validated; a signal may come before a validation that is due
    seconds: float = 0.0


def make_checkpoint(state: TrainingState, record: RunProgress, machine: Facts, device: torch.device) -> Checkpoint:
    """All that the training has to remember; where weights are in parts, this process's parts of it."""
    tensors = {f"model.{name}": p.detach() for name, p in state.model.named_parameters()}
    tensors |= {f"optimizer.{k}": v for k, v in optimizer_tensors(state.model, state.optimizer).items()}
    if state.average:
        tensors |= {f"ema.{name}": weight for name, weight in state.average.weights.items()}
    tensors["random.cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    values = {
        "position": asdict(state.position),
        "skipped": state.skipped,
        "precision": state.precision.state(),
        "record": asdict(record),
        "machine": dict(machine),
    }
    return Checkpoint(state.step, tensors, values)


def gather_tensors(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """Whole tensors for who is to keep them; those put together are in the processor's memory, which is the largest."""
    kept = {}
    for name, tensor in tensors.items():
        together = gather_tensor(tensor)
        if keep:
            kept[name] = together if together is tensor else together.cpu()
    return kept


def save_checkpoint(checkpoint: Checkpoint, checkpoints: Checkpoints, group: ProcessGroup, sharded: bool) -> str:
    """Write a checkpoint and give its place: by the first process, or by all where each has parts of it."""
    if reason := group.agree_on(_not_finite(checkpoint)):
        raise Diverged(reason)
    if not sharded:
        return group.run_on_first(lambda: str(checkpoints.save(checkpoint)))

    def spread(folder: Path | None = None) -> int:
        """Have all processes write their parts where the first, which alone knows the folder, says."""
        write_shards(Path(group.run_on_first(lambda: str(folder))), checkpoint.tensors)
        return group.world_size

    if not group.is_first:
        spread()
        return group.run_on_first(str)
    path = checkpoints.save(checkpoint, spread)
    return group.run_on_first(lambda: str(path))


def _not_finite(checkpoint: Checkpoint) -> str:
    """Why weights that are no numbers are not saved, or nothing."""
    if all(
        local_part(tensor).isfinite().all() for name, tensor in checkpoint.tensors.items() if name.startswith("model.")
    ):
        return ""
    return (
        f"the weights after step {checkpoint.step} are no longer numbers and are not saved; "
        "lower train.learning_rate and resume from the last checkpoint"
    )


def restore_checkpoint(state: TrainingState, checkpoint: Checkpoint, device: torch.device) -> RunProgress:
    """Make the state what it was; give the record that was saved with it."""
    values = dict(checkpoint.state)
    parameters = dict(state.model.named_parameters())

    def under(prefix: str) -> dict[str, Tensor]:
        """The tensors of this prefix as this process holds them."""
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
        record = RunProgress(**values["record"])  # type: ignore[arg-type]
        torch.set_rng_state(checkpoint.tensors["random.cpu"])
        if device.type == "cuda" and "random.cuda" in checkpoint.tensors:
            torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], device)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"the checkpoint of step {checkpoint.step} does not fit this run: {error}") from error
    return record


def describe_differences(then: object, now: Facts) -> str:
    """What is another than when the checkpoint was written, in words; nothing where all is the same."""
    if not isinstance(then, dict):
        return ""
    return "; ".join(f"{k} was {then[k]} and is {value}" for k, value in now.items() if then.get(k, value) != value)

"""One of a run's checkpoints as a model of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import FolderError
from heedful.storage.run_folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor


class RunAtCheckpoint(RunFolder):
    """A run as it was at a step whose checkpoint is kept."""

    has_model = True
    has_fresh_ctranslate2 = False
    weights_id = ""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(path)
        self.step = step
        self.weights_id = f"step {step}"

    @property
    def ctranslate2(self) -> Path:
        """Nowhere: what the run has is of its own model."""
        return self.checkpoints / f"step-{self.step:08d}" / "ctranslate2"

    def note(self) -> str:
        """Where the weights come from."""
        return f"checkpoint of step {self.step}"

    def add_scores(self, test_set: str, scores: Mapping[str, object]) -> None:
        """Beside those of the run's own model."""
        super().add_scores(f"{test_set} at step {self.step}", scores)

    def _weights(self) -> "tuple[Path, Mapping[str, Tensor]]":
        """The moving average of the weights, if there is one."""
        from heedful.storage.checkpoint import Checkpoints

        checkpoints = Checkpoints(self.checkpoints, keep=0)
        weights = checkpoints.load_model(self.step, "ema.") or checkpoints.load_model(self.step, "model.")
        return self.checkpoints / f"step-{self.step:08d}", weights


def checkpoint_step(path: Path) -> int:
    """The step of a checkpoint's folder; 0 for other folders."""
    number = path.name.removeprefix("step-")
    inside = path.absolute().parent.name == "checkpoints" and path.is_dir()
    return int(number) if inside and number != path.name and number.isdecimal() else 0


def refuse_checkpoint(path: Path) -> None:
    """Where a run is wanted, to go on with."""
    if checkpoint_step(path):
        raise FolderError(
            f"--resume {path}: that is a checkpoint, and training goes on from the newest; resume the run, "
            f"{path.parent.parent}, or begin another with this one: --init {path}"
        )

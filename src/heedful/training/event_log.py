"""The log of a run: `events.jsonl`, and TensorBoard's files where it is installed."""

import json
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from heedful.storage.files import disk_errors, write_atomically
from heedful.storage.run_folder import RunFolder
from heedful.training.events import Event, StepDone, Validated, event_to_json
from heedful.training.learning_curve import draw_curve


class EventLog:
    """Appends events. What a killed run logged after its last checkpoint is taken out: it will happen again."""

    def __init__(self, folder: RunFolder, step: int) -> None:
        self.folder = folder
        _drop_events_after(folder, step)
        with disk_errors(folder.events):
            self._file = folder.events.open("a", encoding="utf-8")
        self._board = _open_tensorboard(folder)

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._board:
            self._board.close()

    def write(self, event: Event) -> None:
        """Log one event at once."""
        with disk_errors(self.folder.events):
            self._file.write(event_to_json(event) + "\n")
            self._file.flush()
        if isinstance(event, Validated):
            draw_curve(self.folder)
        if self._board:
            _write_tensorboard(self._board, event)


def _drop_events_after(folder: RunFolder, step: int) -> None:
    if not folder.events.exists():
        return
    kept = []
    for line in folder.events.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # a line cut off when the run was killed
            continue
        match event:
            case {"event": str(kind), "step": int(past)} if past <= step and kind != "Finished":
                kept.append(line + "\n")
    write_atomically(folder.events, "".join(kept))


def _open_tensorboard(folder: RunFolder) -> Any:
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder.path / "tensorboard"))


def _write_tensorboard(board: Any, event: Event) -> None:
    match event:
        case StepDone():
            board.add_scalar("train/loss", event.loss, event.step)
            board.add_scalar("train/learning_rate", event.learning_rate, event.step)
            board.add_scalar("train/tokens_per_second", event.tokens_per_second, event.step)
        case Validated():
            board.add_scalar("valid/perplexity", event.perplexity, event.step)
            if event.score is not None:
                board.add_scalar("valid/score", event.score, event.step)
        case _:
            pass

"""The events of a training, and their log: `events.jsonl`, the learning curve and files for TensorBoard."""

import dataclasses
import json
import math
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from heedful.storage.files import disk_errors, write_atomically
from heedful.storage.run_folder import RunFolder

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")  # reasons for which a run ends early; it can be resumed


@dataclass(frozen=True, slots=True)
class Started:
    """Training starts or continues after this step."""

    step: int
    max_steps: int
    minutes_left: float | None  # until train.max_minutes; None: no limit
    parameters: int
    pairs: int
    threads: int  # per process
    device: str
    processes: int = 1
    twice_from: int | None = None  # later updates read each pair twice, for R-Drop; None: no update does


@dataclass(frozen=True, slots=True)
class StepDone:
    """An update of the weights, or a skipped update because its loss or gradient was not finite."""

    step: int
    epoch: int
    loss: float  # smoothed, per target token
    learning_rate: float
    gradient_norm: float
    tokens: int  # source and target
    tokens_per_second: float
    skipped: int = 0  # updates skipped so far


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was scored on the validation pairs."""

    step: int
    loss: float  # unsmoothed, per target token
    perplexity: float
    score: float | None  # by the task's metric; higher is better, except of bits per character
    metric: str  # BLEU, F1, accuracy, bits per character
    best: bool
    seconds: float
    brevity_penalty: float | None = None  # of BLEU; below 1 if outputs are shorter than the references


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    path: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Training is over."""

    step: int
    reason: str
    minutes: float
    model: str  # which weights the run folder keeps
    peak_memory_mib: int = 0  # of the GPU, or of the process

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it early; the run can be resumed."""
        return self.reason in STOP_SIGNALS


Event = Started | StepDone | Validated | Saved | Finished


def event_to_json(event: Event) -> str:
    """The event as a line of `events.jsonl`."""
    numbers = {key: _round(value) for key, value in dataclasses.asdict(event).items()}
    return json.dumps({"event": type(event).__name__} | numbers)


def _round(value: object) -> object:
    """Nine significant digits, all that a float32 has; NaN and infinity become null, because JSON lacks them."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None


class EventLog:
    """Appends events to the log of a run.

    Events after `step`, the last checkpoint, are removed first: they will happen again.
    """

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
        """Log an event immediately."""
        with disk_errors(self.folder.events):
            self._file.write(event_to_json(event) + "\n")
            self._file.flush()
        if isinstance(event, Validated):
            draw_curve(self.folder)
        if self._board:
            _write_tensorboard(self._board, event)


def _drop_events_after(folder: RunFolder, step: int) -> None:
    kept = []
    for line, event in folder.event_lines():
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


def draw_curve(folder: RunFolder) -> bool:
    """Draw `curve.png`, losses on the left and scores on the right; False if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps, validations = folder.read_events("StepDone"), folder.read_events("Validated")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(
        xlabel="update", ylabel="loss per target token, in nats", title=f"{folder.path.name}: learning curve"
    )
    smoothing = folder.experiment().train.label_smoothing
    smoothed = f", with label smoothing {smoothing:g}" if smoothing else ""
    axes.plot(*_smooth(steps), color="#7a9cc6", linewidth=1, label=f"training loss{smoothed}")
    places = [event["step"] for event in validations]
    axes.plot(
        places, [event["loss"] for event in validations], color="#1f4e8c", label="validation loss, without smoothing"
    )
    scored = [event for event in validations if event["score"] is not None]
    handles, labels = axes.get_legend_handles_labels()
    if scored:
        right = axes.twinx()
        metric = scored[-1]["metric"]
        right.set_ylabel(metric)
        right.set_ylim(0.0, max(1.0, 1.1 * max(event["score"] for event in scored)))
        values = [event["score"] for event in scored]
        right.plot([event["step"] for event in scored], values, color="#c2571a", label=f"validation {metric}")
        more = right.get_legend_handles_labels()
        handles, labels = handles + more[0], labels + more[1]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    axes.grid(alpha=0.3)
    temporary = folder.path / ".curve.png"
    figure.savefig(temporary, format="png", dpi=120)
    temporary.replace(folder.path / "curve.png")
    return True


def _smooth(steps: list[dict[str, Any]], points: int = 400) -> tuple[list[int], list[float]]:
    """Means over windows, so that a long run does not have more points than the plot has room for."""
    steps = [event for event in steps if event["loss"] is not None]  # a skipped update may have no loss
    width = max(1, len(steps) // points)
    windows = [steps[start : start + width] for start in range(0, len(steps), width)]
    losses = [sum(event["loss"] for event in window) / len(window) for window in windows]
    return [window[-1]["step"] for window in windows], losses

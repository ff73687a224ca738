"""The learning curve: read from the log, drawn as a picture."""

import json
from importlib.util import find_spec
from typing import Any

from heedful.storage.run_folder import RunFolder


def read_events(folder: RunFolder, kind: str) -> list[dict[str, Any]]:
    """The logged events of one kind, in order; a line that was cut off is passed over."""
    if not folder.events.exists():
        return []
    found = []
    for line in folder.events.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == kind:
            found.append(_renamed(event))
    return found


def _renamed(event: dict[str, Any]) -> dict[str, Any]:
    """An earlier version knew only BLEU."""
    return {"score": event["bleu"], "metric": "BLEU", **event} if "bleu" in event else event


def draw_curve(folder: RunFolder) -> bool:
    """Draw `curve.png`: losses on the left, scores on the right; False where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps, validations = read_events(folder, "StepDone"), read_events(folder, "Validated")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="step", ylabel="loss per token", title=f"{folder.path.name}: learning curve")
    axes.plot(*_smooth(steps), color="#7a9cc6", linewidth=1, label="training (smoothed)")
    places = [event["step"] for event in validations]
    axes.plot(places, [event["loss"] for event in validations], color="#1f4e8c", label="validation")
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
    """Means over windows, so that a long run has no more points than the picture has room for."""
    steps = [event for event in steps if event["loss"] is not None]  # a skipped update may have none
    width = max(1, len(steps) // points)
    windows = [steps[start : start + width] for start in range(0, len(steps), width)]
    losses = [sum(event["loss"] for event in window) / len(window) for window in windows]
    return [window[-1]["step"] for window in windows], losses

"""`curve.png` says what it draws."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from heedful.storage.run_folder import RunFolder
from heedful.training.events import draw_curve


def test_the_curve_names_its_axes_and_lines(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="needs matplotlib").Figure
    drawn: list[Any] = []
    save = figure.savefig

    def keep(self: Any, *args: Any, **options: Any) -> None:
        drawn.append(self)
        save(self, *args, **options)

    monkeypatch.setattr(figure, "savefig", keep)
    folder = RunFolder(Path(shutil.copytree(trained / "run", tmp_path / "run")))
    assert draw_curve(folder)
    left, *right = drawn[0].axes
    assert (left.get_xlabel(), left.get_ylabel()) == ("update", "loss per target token, in nats")
    smoothing = folder.experiment().train.label_smoothing
    labels = [text.get_text() for legend in drawn[0].legends for text in legend.get_texts()]
    assert labels[:2] == [f"training loss, with label smoothing {smoothing:g}", "validation loss, without smoothing"]
    scored = [
        event for event in map(json.loads, folder.events.read_text().splitlines()) if event.get("score") is not None
    ]
    assert [axes.get_ylabel() for axes in right] == ([scored[-1]["metric"]] if scored else [])

"""A model that is widened for a benchmark computes the same function."""

from pathlib import Path

import pytest
from widen_model import widen

from heedful import Translator
from heedful.storage.run_folder import RunFolder


def test_a_widened_model_gives_the_same_translations(trained: Path, tmp_path: Path) -> None:
    run = RunFolder.open(trained / "run")
    before = run.experiment().model
    wide = widen(run, tmp_path / "wide", 3 * before.d_ff)
    assert wide.experiment().model.d_ff == 3 * before.d_ff
    sizes = [sum(weight.numel() for weight in one.model().parameters()) for one in (run, wide)]
    layers = before.encoder_layers + before.decoder_layers
    assert sizes[1] - sizes[0] == layers * 2 * before.d_ff * (2 * before.d_model + 1)
    ours, theirs = (Translator.load(one.path, engine="torch").translate(["a b c", "d"]) for one in (wide, run))
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)

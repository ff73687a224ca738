"""Run folders of every format ever released still load, and translate as they did on the day they were made."""

from pathlib import Path

import pytest

from heedful import Translator
from heedful.storage.run_folder import RunFolder

GOLDEN = Path(__file__).parent / "golden"


def test_a_model_of_format_1_gives_the_translations_and_scores_that_it_gave() -> None:
    expected = {
        "leno leno": ("linü linü", -0.25347),
        "logo füba rofe": ("ruma gete lora", -0.33144),
        "fafu mefi rofe bage tudi": ("tüko buvo ruma mibi feki", -0.75839),
        "bügo rofe füba füba": ("gete gete ruma bülo", -0.41503),
    }
    found = Translator.load(GOLDEN / "format-1").translate(list(expected))
    assert [translation.text for translation in found] == [text for text, _ in expected.values()]
    scores = [translation.score for translation in found]
    assert scores == pytest.approx([score for _, score in expected.values()], abs=1e-4)


def test_an_option_that_is_younger_than_a_run_has_its_default_and_not_the_value_of_the_preset() -> None:
    experiment = RunFolder.open(GOLDEN / "format-1").experiment()
    assert (experiment.model.preset, experiment.model.positions) == ("modern", "sinusoidal")
    assert (experiment.train.optimizer, experiment.train.dropout_warmup) == ("adam", 0)

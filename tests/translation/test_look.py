"""What `Translator.look` returns."""

from pathlib import Path

import explained
import numpy as np
import pytest
import toy

from heedful.config import ModelConfig, SearchConfig
from heedful.errors import DataError
from heedful.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run", "cpu")


def test_the_steps_are_those_of_the_translation_that_was_given(translator: Translator, trained: Path) -> None:
    text = toy.lines_of(trained / "test.en")[0]
    look = translator.look(text)
    assert look.translation.text == translator.translate([text], split_sentences=False)[0].text
    target = translator.tokenizers.target
    assert target.decode(look.steps["target"].tolist()) == look.translation.text
    own = look.steps["log_probs"][np.arange(len(look.steps["target"])), look.steps["target"]]
    assert look.translation.alternatives[0].log_prob == pytest.approx(own.sum(), abs=1e-3)
    heads, queries, keys = look.steps["encoder.1.attention.scores"].shape
    assert (heads, queries, keys) == (2, len(look.steps["source"]), len(look.steps["source"]))


def test_so_they_are_for_a_translation_by_somebody_else(translator: Translator, trained: Path) -> None:
    text, *_ = toy.lines_of(trained / "test.en")
    other = toy.lines_of(trained / "test.de")[1]
    look = translator.look(text, translation=other)
    assert look.translation.text == other
    assert look.steps["target"].tolist() == translator.tokenizers.target.encode(other)
    assert translator.tokenizers.target.decode(look.tree.best.tokens) == translator.translate([text])[0].text


def test_a_rival_shows_the_steps_that_it_has() -> None:
    config = ModelConfig(
        family="recurrent", attention="additive", cell="gru", d_model=24, encoder_layers=1, decoder_layers=1
    )
    rival = explained.untrained(config, SearchConfig(beam=2, max_extra=3))
    look = rival.look("A dog runs.", translation="Ein Hund.")
    assert look.steps["decoder.1.cross_attention.weights"] == pytest.approx(look.inside[0].attention.cross[0], abs=1e-5)
    assert "encoder.1.attention.weights" not in look.steps
    assert look.tree.best.tokens


def test_steps_are_those_of_the_heads_that_were_on(translator: Translator, trained: Path) -> None:
    text = toy.lines_of(trained / "test.en")[0]
    given = translator.look(text).translation.text
    with translator.switch_off_heads(["cross.1.1"]):
        without = translator.look(text, translation=given)
        expected = translator.look(text, translation=given).steps["log_probs"]
    assert (without.steps["log_probs"] == expected).all()
    assert (translator.look(text, translation=given).steps["log_probs"] != expected).any()


def test_an_empty_text_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="there is nothing to look at in an empty text; give a sentence"):
        translator.look(" ")

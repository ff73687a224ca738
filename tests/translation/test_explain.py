"""What `Translator.explain` returns."""

from pathlib import Path

import numpy as np
import pytest
import toy
from model_examples import FAMILIES, shaken_of_family

from heedful.config import SearchConfig
from heedful.errors import ConfigError, DataError
from heedful.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run", "cpu")


def test_the_steps_are_those_of_the_translation_that_was_given(translator: Translator, trained: Path) -> None:
    text = toy.lines_of(trained / "test.en")[0]
    look = translator.explain(text)
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
    look = translator.explain(text, translation=other)
    assert look.translation.text == other
    assert look.steps["target"].tolist() == translator.tokenizers.target.encode(other)
    assert translator.tokenizers.target.decode(look.tree.best.tokens) == translator.translate([text])[0].text


def test_a_model_of_another_family_is_refused(translator: Translator) -> None:
    rival = shaken_of_family(FAMILIES["gru"])
    wrapped = Translator.from_model(rival, translator.tokenizers, SearchConfig())
    with pytest.raises(ConfigError, match=r"but this model is of the class Recurrent; choose a Transformer"):
        wrapped.explain("a")


def test_an_empty_text_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="there is nothing to explain in an empty text; give a sentence"):
        translator.explain(" ")

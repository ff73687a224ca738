"""How a notebook shows translations and attention."""

import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from heedful.translation.result import Alternative, Look, Translation


def nothing() -> Any:
    raise AssertionError("a notebook shows neither steps nor the tree")


def translation() -> Translation:
    pieces = ("▁ein", "<b>", "</s>")
    best, other = (Alternative(text, score, -1.0, pieces) for text, score in (("ein <b>", -0.25), ("das & die", -1.5)))
    return Translation("a <i>", best.text, best.score, ("▁a", "</s>"), (best, other))


def test_a_translation_is_a_table_whose_text_is_escaped() -> None:
    shown = translation()._repr_html_()
    assert re.findall(r"<td[^>]*>(.*?)</td>", shown) == ["a &lt;i&gt;", "ein &lt;b&gt;", "das &amp; die"]
    assert re.findall(r"<th>(.*?)</th>", shown) == ["source", "translation", "-1.50"]


def test_an_inspection_also_shows_the_mean_attention_of_the_last_layer() -> None:
    first, last = np.zeros((2, 3, 2)), np.array([[[0.2, 0.8]] * 3, [[0.4, 0.6]] * 3])
    inside = cast(Any, SimpleNamespace(attention=SimpleNamespace(cross=(first, last))))
    shown = Look(translation(), (inside,), nothing, nothing)._repr_html_()
    assert shown.startswith(translation()._repr_html_())
    rest = shown.removeprefix(translation()._repr_html_())
    assert re.findall(r"<th>(.*?)</th>", rest) == ["", "▁a", "&lt;/s&gt;", "▁ein", "&lt;b&gt;", "&lt;/s&gt;"]
    assert re.findall(r"<td[^>]*>(.*?)</td>", rest) == ["0.30", "0.70"] * 3


def test_a_model_without_cross_attention_shows_its_translation() -> None:
    inside = cast(Any, SimpleNamespace(attention=SimpleNamespace(cross=())))
    assert Look(translation(), (inside,), nothing, nothing)._repr_html_() == translation()._repr_html_()

"""The page of `heedful explain` for the Transformer's rivals."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import explained
import pytest
from browser import chromium, watched

from heedful.config import ModelConfig, SearchConfig
from heedful.inspection.explain import make_plain_document
from heedful.inspection.explain_rival import ExplainedRival, explain_rival
from heedful.inspection.explanation_page import make_explanation_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

RIVALS = {
    "none": ModelConfig(d_model=24, encoder_layers=1, decoder_layers=1, family="recurrent", attention="none"),
    "additive": ModelConfig(
        d_model=24, encoder_layers=1, decoder_layers=1, family="recurrent", cell="gru", attention="additive"
    ),
    "multiplicative": ModelConfig(
        d_model=24, encoder_layers=2, decoder_layers=2, family="recurrent", cell="lstm", attention="multiplicative"
    ),
    "convolutional": ModelConfig(
        d_model=24, encoder_layers=2, decoder_layers=3, family="convolutional", positions="learned"
    ),
}


def explained_by(kind: str) -> ExplainedRival:
    own = explained.untrained(RIVALS[kind], SearchConfig(beam=2, max_extra=3))
    return explain_rival(Path("run"), own, "A small dog runs home.", own.search, "Ein Hund läuft.")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.mark.parametrize("kind", RIVALS)
def test_every_rival_has_a_page_with_the_parts_that_it_has(kind: str, browser: "Browser", tmp_path: Path) -> None:
    found = explained_by(kind)
    html = make_explanation_page(found)
    assert "What figure 1 has and this model has not:" in html
    assert ("the whole sentence has to fit into one state" in html) == (kind == "none")
    steps = re.findall(r'<section class="step" id="([^"]+)"', html)
    attentions = {"none": 0, "additive": 1, "multiplicative": 1, "convolutional": 3}[kind]
    assert len([step for step in steps if step.endswith("cross_attention")]) == attentions
    assert ("encoder.positions" in steps) == (kind == "convolutional")
    assert len(found.ranked_heads()) == attentions
    links = set(re.findall(r'href="#([^"]+)"', html)) - {"steps", "tour.1"}
    assert links <= set(steps)
    assert ("additive attention" in html) == (kind == "additive")
    (tmp_path / "explain.html").write_text(html, encoding="utf-8")
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto((tmp_path / "explain.html").as_uri())
        for number in range(2, len(steps) + 1):
            page.click("#next")
            page.wait_for_function("(text) => document.querySelector('#progress-text').textContent === text",
                                   arg=f"{number} / {len(steps)}", polling=50)  # fmt: skip
            bare = page.eval_on_selector_all(
                ".step.current .figure", "(all) => all.filter((figure) => !figure.childElementCount).length"
            )
            assert bare == 0
            assert page.locator("#map .lit").count() == 1
        assert page.locator("#next").is_disabled()
        assert seen.misdeeds == []


def test_the_shares_of_the_page_are_those_of_the_translation() -> None:
    found = explained_by("additive")
    shown = make_plain_document(found)
    assert shown["text"] == "Ein Hund läuft."
    assert found.steps["decoder.1.cross_attention.weights"].shape == (
        1,
        len(found.target_pieces),
        len(found.source_pieces),
    )
    assert found.cost_without("decoder.1.cross_attention.head.1") != 0
    assert {"reversed", "shuffled"} <= found.orders.keys()

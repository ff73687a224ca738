"""The pages of a GPT: every head, and every step from the prompt to the draw."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import text_examples
import toy
from browser import chromium, watched

from heedful import Completer
from heedful.inspection.explain_text import ExplainedText, explain_text
from heedful.inspection.explanation_page import make_explanation_page
from heedful.inspection.text_view import TextViewer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROMPT = "the dog"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_examples.train_gpt(tmp_path_factory.mktemp("gpt"), "train.max_steps=60", "train.learning_rate=0.02")


@pytest.fixture(scope="module")
def completer(run: Path) -> Completer:
    return Completer.load(run, "cpu")


@pytest.fixture(scope="module")
def found(run: Path, completer: Completer) -> ExplainedText:
    return explain_text(run, completer, PROMPT, completer.search, length=9)


@pytest.fixture(scope="module")
def html(found: ExplainedText) -> str:
    return make_explanation_page(found)


def document_of(html: str) -> dict[str, Any]:
    inside = re.search(r'<script type="application/json" id="document">([^<>&]*)</script>', html)
    assert inside is not None
    loaded: dict[str, Any] = json.loads(inside[1])
    return loaded


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


def test_the_page_explains_what_complete_gives(found: ExplainedText, completer: Completer) -> None:
    (expected,) = completer.complete([PROMPT], length=9)
    assert found.given == expected.continuations[0].text
    assert found.log_prob == pytest.approx(expected.continuations[0].log_prob, abs=1e-3)
    assert found.input_pieces == (*"the▁dog", *found.target_pieces[6:-1])
    assert [draw.token for draw in found.drawn] == found.steps["target"][6:].tolist()
    assert len(found.unmasked) == 9
    assert found.writes_the_same


def test_a_given_continuation_is_set_beside_that_of_the_model(run: Path, completer: Completer) -> None:
    found = explain_text(run, completer, PROMPT, completer.search, "zzz", length=9)
    page = make_explanation_page(found)
    assert not found.writes_the_same
    assert "Two continuations" in page
    assert "Somebody else wrote the continuation above" in page
    assert "Two continuations" not in make_explanation_page(explain_text(run, completer, PROMPT, completer.search))


def test_every_link_leads_to_a_step_and_every_step_is_in_the_walk(html: str) -> None:
    document = document_of(html)
    steps = set(re.findall(r'<section class="step" id="([^"]+)"', html))
    stages = {
        f"{step}.{stage}"
        for step in steps
        if ".head." in step
        for stage in ("projections", "scores", "scaled", "mask", "softmax", "values")
    }
    links = set(re.findall(r'href="#([^"]+)"', html)) - {"steps", "tour.1"}
    assert links <= steps | stages
    assert {*document["path"]} <= steps | stages
    assert {stop["step"] for stop in document["tour"]} <= steps | stages
    assert not any(step.startswith("encoder") or "cross_attention" in step for step in steps)
    assert {"decoder.2.attention.head.1", "sampling", "training", "cost", "often-said"} <= steps
    assert "What figure 1 has and this model has not:" in html
    told = re.sub(r"<[^>]+>", " ", html[html.index("<body") : html.index('<script type="application')])
    assert not re.findall(r".{30}\b[Tt]ranslations?\b.{30}", told)


def test_the_draws_of_the_page_are_those_of_the_text(html: str, found: ExplainedText) -> None:
    draws = document_of(html)["draws"]
    assert [[each["piece"] for each in rows if each["won"]] for rows in draws] == [
        [piece] for piece in found.target_pieces[6:]
    ]
    for rows in draws:
        kept = [each for each in rows if each["kept"]]
        won = max(kept, key=lambda each: each["scaled"] + each["noise"])
        assert won["won"]


def test_the_page_of_heads_has_one_kind_over_prompt_and_continuation(run: Path, completer: Completer) -> None:
    viewer = TextViewer(run, completer, completer.search, 9)
    view = viewer.view(PROMPT, n_best=2)
    page = json.loads(json.dumps(view.page()))
    (first, second) = page["hypotheses"]
    assert first["text"] == completer.complete([PROMPT], length=9)[0].continuations[0].text
    assert second["text"] == completer.complete([PROMPT], n=2, length=9)[0].continuations[1].text
    assert first["read"] == [*"the▁dog", *first["pieces"][:-1]]
    layer = first["decoder"][1]
    weights = np.frombuffer(base64.b64decode(layer["weights"]), "<u2").reshape(layer["heads"], 15, 15) / 65535
    assert weights.sum(-1) == pytest.approx(1.0, abs=1e-3)
    assert (np.triu(weights, 1) == 0).all()
    assert (page["encoder"], first["cross"]) == ([], [])
    assert set(page["costs"]) == {"decoder.1.1", "decoder.1.2", "decoder.2.1", "decoder.2.2"}
    target = completer.look(PROMPT, length=9).targets[0]
    own = completer.log_probs([[*completer.encode(PROMPT), *target]])[0][6:]
    without = viewer.view(PROMPT, ["decoder.2.1"])
    assert without.baseline == view.text
    assert sum(own) == pytest.approx(first["log_prob"], abs=1e-3)


def test_the_command_line_writes_pages_pictures_and_data(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "heads.html"
    ran = toy.run("heads", run, PROMPT, "--length", "9", "--out", out)
    expected = toy.run("complete", run, PROMPT, "--length", "9", "--json")
    text = json.loads(expected.out)["continuations"][0]["text"]
    assert (ran.code, ran.out.strip()) == (0, text.replace("\n", " ").strip())
    assert "Continuation" in out.read_text(encoding="utf-8")
    ran = toy.run("heads", run, PROMPT, "--length", "9", "--out", tmp_path / "heads.npz")
    with np.load(tmp_path / "heads.npz") as arrays:
        assert arrays["decoder.2"].shape == (2, 15, 15)
        assert "cross.1" not in arrays
    ran = toy.run("explain", run, PROMPT, "--length", "9", "--out", tmp_path / "explain.html", "--json")
    printed = json.loads(ran.out)
    assert (printed["text"], printed["source_pieces"]) == (text, list("the▁dog"))
    assert {"positions", "decoder.2.attention.head.1", "decoder.1"} <= printed["without"].keys()
    for line, message in (
        (("heads", run, "--input", run / "experiment.toml"), "--input goes with a model that translates"),
        (
            ("heads", "en-de", "a", "--length", "3"),
            "--length goes with a model that continues texts",
        ),
        (("explain", "en-de", "a", "--length", "3"), "--length goes with a model that continues texts"),
        (("explain", run, "a", "--length", "30"), "this model sees at most 16 at once"),
    ):
        ran = toy.run(*line)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert message in ran.err


def test_every_step_is_drawn_in_a_browser(browser: "Browser", html: str, tmp_path: Path) -> None:
    (tmp_path / "explain.html").write_text(html, encoding="utf-8")
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto((tmp_path / "explain.html").as_uri())
        for step in document_of(html)["path"][1:]:
            page.click("#next")
            page.wait_for_function("(step) => location.hash === `#${step}`", arg=step, polling=50)
            bare = page.eval_on_selector_all(
                ".step.current .figure", "(all) => all.filter((figure) => !figure.childElementCount).length"
            )
            assert bare == 0, step
            assert page.locator("#map .lit").count() == 1, step
        page.goto(f"{(tmp_path / 'explain.html').as_uri()}#sampling")
        page.locator(".step.current input[type=range]").focus()
        page.keyboard.press("Home")
        assert page.locator(".draws .own").count() == 1
        assert page.locator(".step.current .readout").inner_text().startswith("1 of 9: after t h e ▁ d o g the draw is")
        assert seen.misdeeds == []


def test_the_page_of_heads_steps_through_the_continuation(browser: "Browser", run: Path, tmp_path: Path) -> None:
    out = tmp_path / "heads.html"
    assert toy.run("heads", run, PROMPT, "--length", "9", "--out", out).code == 0
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto(out.as_uri())
        assert page.locator("#tabs button").all_inner_texts() == ["Decoder"]
        assert page.locator("#queries li").count() == page.locator("#keys li").count() == 15
        assert page.locator("#source-label").inner_text() == "Prompt"
        page.locator("#written").focus()
        page.keyboard.press("Home")  # one token is written, from the last one of the prompt
        page.wait_for_function("document.querySelector('#queries .lit')")
        assert page.locator("#queries .lit").get_attribute("data-index") == "6"
        lines = page.locator("#faint line").evaluate_all("(all) => all.map((line) => Number(line.dataset.query))")
        assert max(lines) == 6
        assert page.locator("#ranked li").count() == 4
        assert seen.misdeeds == []

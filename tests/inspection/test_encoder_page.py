"""The pages that explain a BERT, a ViT and a T5: every step, from what is read to what is answered."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import toy
from browser import chromium, watched

from heedful import Classifier, MaskFiller, PictureClassifier
from heedful.attention.head_names import Head
from heedful.attention.pruning import switch_off_heads
from heedful.data.pictures import read_picture
from heedful.errors import DataError
from heedful.inspection.explain import ExplainedSentence, explain_sentence
from heedful.inspection.explain_encoder import ExplainedAnswer, explain_answer
from heedful.inspection.explanation_page import make_explanation_page
from heedful.storage.run_folder import RunFolder
from heedful.translation.span_filler import SpanFiller

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXT, SENTENCE, HIDDEN = "hallo was kostet das", "the cat sees New York", "the [MASK] sat on the mät and [MASK] off"
SPANS = "the cat <extra_id_0> mät <extra_id_1>"
STAGES = ("projections", "scores", "scaled", "mask", "softmax", "values")
HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \"'`&amp; @@script@@ <!--"


@pytest.fixture(scope="module")
def picture(encoder_runs: dict[str, Path]) -> Path:
    return encoder_runs["vit"].parent / "pictures" / "down" / "1.png"


@pytest.fixture(scope="module")
def found(encoder_runs: dict[str, Path], picture: Path) -> dict[str, ExplainedAnswer]:
    runs = encoder_runs
    classifier, tagger = Classifier.load(runs["sorter"], "cpu"), Classifier.load(runs["tagger"], "cpu")
    return {
        "sorter": explain_answer(Path("/secret/place/sorter"), classifier, TEXT),
        "tagger": explain_answer(runs["tagger"], tagger, SENTENCE),
        "masked": explain_answer(runs["masked"], MaskFiller.load(runs["masked"], "cpu"), HIDDEN),
        "vit": explain_answer(runs["vit"], PictureClassifier.load(runs["vit"], "cpu"), str(picture)),
    }


@pytest.fixture(scope="module")
def pages(found: dict[str, ExplainedAnswer]) -> dict[str, str]:
    return {name: make_explanation_page(one) for name, one in found.items()}


@pytest.fixture(scope="module")
def t5(encoder_runs: dict[str, Path]) -> ExplainedSentence:
    filler = SpanFiller.open(RunFolder.open(encoder_runs["t5"]), "cpu")
    search = replace(filler.search, beam=2, max_extra=3)
    return explain_sentence(encoder_runs["t5"], filler, SPANS, search, "<extra_id_0> sat on <extra_id_1>;")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


def document_of(html: str) -> dict[str, Any]:
    inside = re.search(r'<script type="application/json" id="document">([^<>&]*)</script>', html)
    assert inside is not None
    loaded: dict[str, Any] = json.loads(inside[1])
    return loaded


def unpack(packed: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    numbers: np.ndarray = values * packed["scale"]
    return numbers


def check_links(html: str) -> set[str]:
    """Every link leads to a step; returns the steps."""
    document = document_of(html)
    steps = re.findall(r'<section class="step" id="([^"]+)"', html)
    assert len(steps) == len(set(steps))
    stages = {f"{step}.{stage}" for step in steps if ".head." in step for stage in STAGES}
    links = set(re.findall(r'href="#([^"]+)"', html)) - {"steps", "tour.1"}
    assert links <= {*steps, *stages}
    assert {*document["path"]} <= {*steps, *stages}
    assert {stop["step"] for stop in document["tour"]} <= {*steps, *stages}
    assert set(steps) <= {*document["path"], *links} | {re.sub(r"\.\w+$", "", each) for each in document["path"]}
    return set(steps)


def told(html: str) -> str:
    """What the page says."""
    return re.sub(r"<[^>]+>", " ", html[html.index("<body") : html.index('<script type="application')])


@pytest.mark.parametrize("name", ["sorter", "tagger", "masked", "vit"])
def test_every_link_leads_to_a_step_and_nothing_is_said_of_a_decoder(name: str, pages: dict[str, str]) -> None:
    html = pages[name]
    steps = check_links(html)
    assert {"encoder.2.attention.head.2", "lens", "head", "logits", "training", "cost"} <= steps
    assert {"experiments.hiding", "experiments.parts", "experiments.heads", "often-said"} <= steps
    assert not any(step.startswith("decoder") or step in ("beam", "experiments.mask") for step in steps)
    assert ("patches" in steps, "pieces" in steps) == (name == "vit", name != "vit")
    assert not re.findall(r".{30}\b[Tt]ranslations?\b.{30}", told(html))
    if name == "vit":
        assert not re.findall(r".{30}\bpieces?\b.{30}", told(html))
    numbers = re.findall(r"Experiment (\d)", told(html))
    assert numbers == sorted(numbers)
    assert "/secret" not in html
    assert not re.findall(r"https?://", html)


def test_the_page_explains_what_classify_gives(
    found: dict[str, ExplainedAnswer], encoder_runs: dict[str, Path], picture: Path
) -> None:
    (label,) = Classifier.load(encoder_runs["sorter"], "cpu").classify([TEXT])
    assert found["sorter"].given == label.label
    assert exp(found["sorter"].log_prob) == pytest.approx(label.probability)
    (tagged,) = Classifier.load(encoder_runs["tagger"], "cpu").tag([SENTENCE])
    assert found["tagger"].given == str(tagged)
    (own,) = PictureClassifier.load(encoder_runs["vit"], "cpu").classify([picture])
    assert found["vit"].given == own.label
    assert exp(found["vit"].log_prob) == pytest.approx(own.probability)
    assert found["vit"].text == "1.png"


@pytest.mark.parametrize("name", ["sorter", "masked", "vit"])
def test_the_page_draws_the_recorded_numbers(
    name: str, pages: dict[str, str], found: dict[str, ExplainedAnswer]
) -> None:
    matrices, steps = document_of(pages[name])["matrices"], found[name].steps
    drawn = ["encoder.embedding", "encoder.2.attention.weights", "encoder.1.feed_forward.active", "head.output"]
    for step in [*drawn, *(["encoder.patches", "encoder.positions"] if name == "vit" else ["encoder.input"])]:
        largest = float(np.abs(steps[step]).max())
        assert unpack(matrices[step]) == pytest.approx(steps[step], abs=largest / 32767)


def test_hiding_a_piece_or_a_patch_costs_what_a_model_says_that_never_saw_it(
    found: dict[str, ExplainedAnswer], encoder_runs: dict[str, Path], picture: Path
) -> None:
    vit = PictureClassifier.load(encoder_runs["vit"], "cpu")
    pixels = read_picture(picture, 12, 1).copy()
    pixels[4:8, 8:12] = 128  # row 2, column 3
    hidden = found["vit"].hidden
    assert len(hidden) == 9
    (row,) = vit.probabilities([pixels])
    assert exp(hidden[5].log_prob) == pytest.approx(float(row[vit.labels.index(found["vit"].given)]), rel=1e-4)
    sorter = Classifier.load(encoder_runs["sorter"], "cpu")
    question = found["sorter"].question
    assert len(found["sorter"].hidden) == len(question.source) - 2
    ids = torch.tensor([*question.source[:3], sorter.encoder.tokenizer.mask_id, *question.source[4:]])
    with torch.inference_mode():
        memory = sorter.model.encode(ids, torch.tensor([len(ids)]))
        (log_probs,) = sorter.model.decode(torch.tensor([0]), torch.tensor([1]), memory).log_softmax(-1)
    own = sorter.labels.index(found["sorter"].given)
    assert found["sorter"].hidden[2].log_prob == pytest.approx(float(log_probs[own]), abs=1e-4)


@torch.inference_mode()
def test_each_experiment_is_that_of_a_model_without_the_part(
    found: dict[str, ExplainedAnswer], encoder_runs: dict[str, Path], picture: Path
) -> None:
    vit, one = PictureClassifier.load(encoder_runs["vit"], "cpu"), found["vit"]
    pixels = read_picture(picture, 12, 1)
    own = vit.labels.index(one.given)

    def answer() -> float:
        return float(vit.probabilities([pixels])[0, own].log())

    with switch_off_heads(vit.model, [Head("encoder", 1, 0)]):
        assert one.without["encoder.2.attention.head.1"].log_prob == pytest.approx(answer(), abs=1e-4)
    whole, positions = answer(), vit.model.positions.clone()
    vit.model.positions.zero_()
    assert one.without["positions"].log_prob == pytest.approx(answer(), abs=1e-4)
    vit.model.positions.copy_(positions)
    assert answer() == whole
    assert one.log_prob == pytest.approx(whole, abs=1e-5)
    vit.model.encoder[0].feed_forward.outer.weight.zero_()
    vit.model.encoder[0].feed_forward.outer.bias.zero_()
    assert one.without["encoder.1.feed_forward"].log_prob == pytest.approx(answer(), abs=1e-4)


def test_the_training_step_and_the_cost_are_those_of_the_model(found: dict[str, ExplainedAnswer]) -> None:
    for name, one in found.items():
        log_probs = one.steps["log_probs"][np.arange(len(one.target_pieces)), one.steps["target"]]
        assert one.training.plain == pytest.approx(-log_probs, abs=1e-4)
        assert sum(part.weights for part in one.costs) == one.parameters
        assert set(one.training.gradients) == {"embedding", "encoder.1", "encoder.2"}
        assert min(one.training.after.values()) < one.training.loss, name


def test_other_answers_can_be_explained(encoder_runs: dict[str, Path], tmp_path: Path) -> None:
    ran = toy.run("explain", encoder_runs["sorter"], TEXT, "--target", "weg", "--json", "--out", tmp_path / "a.html")
    printed = json.loads(ran.out)
    (label,) = Classifier.load(encoder_runs["sorter"], "cpu").classify([TEXT])
    assert printed["text"] == "weg"
    assert exp(printed["log_prob"]) == pytest.approx(label.probabilities["weg"], rel=1e-4)
    assert {"positions", "scores", "encoder.1.attention.head.2", "encoder.1"} <= printed["without"].keys()
    for run, text, more, message in (
        ("sorter", TEXT, ("--target", "wegg"), "unknown label: wegg; this model knows"),
        ("sorter", TEXT, ("--beam", "2"), "--beam goes with a model that writes text"),
        ("sorter", "a " * 150, (), "over the 100 that can be explained"),
        ("vit", "a", ("--serve",), "--serve asks for texts, but this model reads pictures"),
    ):
        ran = toy.run("explain", encoder_runs[run], text, *more)
        assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
        assert message in ran.err


def test_hostile_text_stays_text(encoder_runs: dict[str, Path]) -> None:
    html = make_explanation_page(
        explain_answer(encoder_runs["sorter"], Classifier.load(encoder_runs["sorter"], "cpu"), HOSTILE[:60])
    )
    assert "<img src=x" not in html
    assert "<script>alert" not in html


def test_a_t5_has_its_own_norms_scores_and_spans(t5: ExplainedSentence) -> None:
    html = make_explanation_page(t5)
    document = document_of(html)
    steps = check_links(html)
    assert {"decoder.1.cross_attention.head.1", "beam", "encoder.positions"} <= steps
    assert (document["score_scale"], document["norm_kind"], document["scale"]) == (1.0, "rms", 1.0)
    assert (t5.noun, t5.given) == ("answer", "<extra_id_0> sat on <extra_id_1>;")
    assert "What T5 changes in figure 1" in html
    assert not re.findall(r".{30}\b[Tt]ranslations?\b.{30}", told(html))
    assert "scale-of-scores" not in t5.without
    assert t5.without["decoder.1.cross_attention"].log_prob != pytest.approx(t5.log_prob, abs=1e-3)
    scores, bias = t5.steps["encoder.1.attention.scores"], t5.steps["encoder.1.attention.bias"]
    powers = np.exp(scores + bias)
    assert unpack(document["matrices"]["encoder.1.attention.weights"]) == pytest.approx(
        powers / powers.sum(-1, keepdims=True), abs=1e-3
    )


@pytest.mark.parametrize("name", ["sorter", "tagger", "vit"])
def test_every_step_is_drawn_in_a_browser(name: str, browser: "Browser", pages: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "explain.html").write_text(pages[name], encoding="utf-8")
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto((tmp_path / "explain.html").as_uri())
        for step in document_of(pages[name])["path"][1:]:
            page.click("#next")
            page.wait_for_function("(step) => location.hash === `#${step}`", arg=step, polling=50)
            bare = page.eval_on_selector_all(
                ".step.current .figure", "(all) => all.filter((figure) => !figure.childElementCount).length"
            )
            assert bare == 0, step
            assert page.locator("#map .lit").count() == 1, step
        assert seen.misdeeds == []


def test_a_patch_can_be_chosen(
    browser: "Browser", pages: dict[str, str], found: dict[str, ExplainedAnswer], tmp_path: Path
) -> None:
    (tmp_path / "explain.html").write_text(pages["vit"], encoding="utf-8")
    steps = found["vit"].steps
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto(f"{(tmp_path / 'explain.html').as_uri()}#patches")
        page.click(".step.current [aria-label='row 3, column 1']")
        value = float(steps["encoder.patches"][6, 0])
        said = page.locator(".step.current .readout").inner_text().replace("−", "-")
        assert said == f"pixel in row 1, column 1: {round((value + 1) * 127.5)} / 127.5 - 1 = {value:.3f}"
        page.goto(f"{(tmp_path / 'explain.html').as_uri()}#encoder.2.attention.head.1.softmax")
        page.click(".step.current .mosaic button:nth-of-type(4)")
        labels = page.locator(".step.current .mosaic button").evaluate_all("(all) => all.map((each) => each.ariaLabel)")
        shares = [float(label.rsplit(": ", maxsplit=1)[1]) for label in labels]
        assert shares == pytest.approx(steps["encoder.2.attention.weights"][0, 4, 1:], abs=2e-3)
        page.keyboard.press("ArrowRight")  # moves between patches, and not to the next step
        assert page.evaluate("location.hash") == "#encoder.2.attention.head.1.softmax"
        assert seen.misdeeds == []


def test_pictures_of_too_many_patches_are_refused(
    encoder_runs: dict[str, Path], picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.inspection.explain_encoder.MAX_EXPLAINED_PIECES", 9)
    classifier = PictureClassifier.load(encoder_runs["vit"], "cpu")
    with pytest.raises(DataError, match="cuts a picture into 9 patches, over the 8 that can be explained"):
        explain_answer(encoder_runs["vit"], classifier, str(picture))


def test_a_text_of_too_many_pieces_is_refused(encoder_runs: dict[str, Path]) -> None:
    classifier = Classifier.load(encoder_runs["sorter"], "cpu")
    with pytest.raises(DataError, match=r"the text has .* pieces, over the 100 that can be explained"):
        explain_answer(encoder_runs["sorter"], classifier, "hallo " * 90)

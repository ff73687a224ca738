"""The page of `heedful explain`, as text and in a real browser."""

import ast
import base64
import hashlib
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import explained
import numpy as np
import pytest
from browser import chromium, watched

from heedful.config import ModelConfig, SearchConfig
from heedful.errors import ConfigError, DataError
from heedful.inspection import explain
from heedful.inspection.counterfactuals import Counterfactual, CounterfactualRunner
from heedful.inspection.explain import ExplainedSentence, explain_sentence, make_plain_document
from heedful.inspection.explanation_page import make_explanation_page
from heedful.inspection.markup import mark_differences, number, power, times_less_likely
from heedful.inspection.section_writer import PLACES
from heedful.translation.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

TEXT = "The animal didn't cross the street because it was too tired."
ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(2)</script> \"'`&amp; שלום @@script@@ \u2028 <!--"
VARIANTS = {
    "paper": ModelConfig(d_model=24, d_ff=40, num_heads=3, encoder_layers=1, decoder_layers=1, dropout=0.0),
    "modern": ModelConfig(
        d_model=24, d_ff=40, num_heads=3, encoder_layers=5, decoder_layers=1, norm="pre", positions="relative"
    ),
    "learned": ModelConfig(
        d_model=24, d_ff=40, num_heads=2, encoder_layers=1, decoder_layers=1, positions="learned", activation="gelu"
    ),
}


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load("en-de", "cpu")


# In a process of its own: here every call is held to its shapes, which makes ninety searches take minutes.
_EXPLAIN = """
import pickle, sys
from pathlib import Path
from heedful.inspection.explain import explain_sentence
from heedful.translation.translator import Translator
translator = Translator.load("en-de", "cpu")
found = explain_sentence(Path("/secret/place/en-de"), translator, sys.argv[1], translator.search)
Path(sys.argv[2]).write_bytes(pickle.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ExplainedSentence:
    path = tmp_path_factory.mktemp("explained") / "found"
    subprocess.run([sys.executable, "-c", _EXPLAIN, TEXT, str(path)], check=True)
    loaded: ExplainedSentence = pickle.loads(path.read_bytes())
    return loaded


@pytest.fixture(scope="module")
def html(found: ExplainedSentence) -> str:
    return make_explanation_page(found)


def untrained(config: ModelConfig) -> Translator:
    return explained.untrained(config, SearchConfig(beam=2, max_extra=3))


def document_of(html: str) -> dict[str, Any]:
    inside = re.search(r'<script type="application/json" id="document">([^<>&\u2028\u2029]*)</script>', html)
    assert inside is not None
    loaded: dict[str, Any] = json.loads(inside[1])
    return loaded


def unpack(packed: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    numbers: np.ndarray = values * packed["scale"]
    return numbers


# The page as text


def test_the_page_is_one_file_that_loads_nothing_and_fits_into_five_megabytes(html: str) -> None:
    addresses = set(re.findall(r"(?:src|href|action)=\"([^#\"]*)\"", html))
    assert addresses <= {"data:,", ""}
    assert "url(" not in html
    assert "@import" not in html
    assert "innerHTML" not in html
    assert not re.findall(r"https?://", html)
    assert len(html.encode()) < 5_000_000
    assert "/secret" not in html


def test_the_policy_allows_only_the_pages_own_style_and_script(html: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    for tag, directive in (("style", "style-src"), ('script type="module"', "script-src")):
        text = html.split(f"<{tag}>")[1].split(f"</{tag.split()[0]}>", maxsplit=1)[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy[1]
    assert "unsafe" not in policy[1]
    assert " style=" not in html


def test_every_link_leads_to_a_step_and_every_step_is_reachable(html: str) -> None:
    document = document_of(html)
    steps = re.findall(r'<section class="step" id="([^"]+)"', html)
    assert len(steps) == len(set(steps))
    stages = {
        f"{step}.{stage}"
        for step in steps
        if ".head." in step
        for stage in ("projections", "scores", "scaled", "mask", "softmax", "values")
    }
    links = set(re.findall(r'href="#([^"]+)"', html)) - {"steps", "tour.1"}
    assert links <= {*steps, *stages}
    assert {*document["path"]} <= {*steps, *stages}
    assert {stop["step"] for stop in document["tour"]} <= {*steps, *stages}
    assert set(steps) <= {*document["path"], *links} | {re.sub(r"\.\w+$", "", each) for each in document["path"]}
    assert "encoder.2.attention.head.3" in steps


def test_the_page_draws_the_recorded_numbers(html: str, found: ExplainedSentence) -> None:
    matrices = document_of(html)["matrices"]
    steps = found.steps
    for name in ("encoder.3.attention.weights", "decoder.2.cross_attention.scores", "encoder.4.feed_forward.active"):
        drawn = unpack(matrices[name])
        assert drawn == pytest.approx(steps[name], abs=float(np.abs(steps[name]).max()) / 32767)
    q, k = (unpack(matrices[f"encoder.2.attention.{part}"]) for part in ("query", "key"))
    scores = np.einsum("hqd,hkd->hqk", q, k)
    assert unpack(matrices["encoder.2.attention.scores"]) == pytest.approx(scores, abs=0.01)
    powers = np.exp(scores / sqrt(q.shape[-1]) + steps["encoder.2.attention.bias"])
    assert unpack(matrices["encoder.2.attention.weights"]) == pytest.approx(
        powers / powers.sum(-1, keepdims=True), abs=0.003
    )


def test_the_experiments_are_in_the_page(html: str, found: ExplainedSentence) -> None:
    assert found.text_without("cross_attention") != found.given
    for name in ("positions", "cross_attention", "encoder.1.feed_forward", "decoder.1.attention.head.2"):
        text = re.sub(r"<[^>]+>", "", mark_differences(found.given, found.text_without(name)))
        assert text in re.sub(r"<[^>]+>", "", html)


def text_of(html: str, step: str) -> str:
    found = re.search(rf'<section class="step" id="{re.escape(step)}".*?</section>', html, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found[0]))


def test_the_training_step_and_the_cost_are_in_the_page(html: str, found: ExplainedSentence) -> None:
    training = text_of(html, "training")
    for loss in (*found.training.plain, *found.training.smoothed, *found.training.after.values()):
        assert f"{loss:.3f}" in training or f"{loss:.2f}" in training
    for length in found.training.gradients.values():
        assert f"{length:.3f}" in training
    cost = text_of(html, "cost")
    assert f"{found.parameters:,}" in cost
    for part in found.costs:
        assert f"{part.weights:,}" in cost


def test_every_head_is_ranked_with_its_weight_and_its_effect(html: str, found: ExplainedSentence) -> None:
    ranked = found.ranked_heads()
    links = re.findall(r'<th scope="row"><a href="#([\w.]+\.head\.\d+)">', html.split('id="experiments.heads"')[1])
    assert links[: len(ranked)] == ranked
    costs = [found.cost_without(name) for name in ranked]
    assert costs == sorted(costs, reverse=True)


def test_experiments_are_compared_with_what_the_whole_model_writes_by_the_same_search(found: ExplainedSentence) -> None:
    assert found.baseline.tokens == found.tree.best.tokens
    assert found.baseline.log_prob == pytest.approx(found.log_prob, abs=0.001)
    unchanged = next(name for name in found.ranked_heads()[::-1] if found.text_without(name) == found.baseline_text)
    own = make_explanation_page(replace(found, given=found.baseline_text))
    assert "Two translations" not in own
    assert "The translation stays the same, and the translation above is" in text_of(own, unchanged)
    other = replace(found, given="Etwas ganz anderes.", requested=True)
    page = make_explanation_page(other)
    assert "Somebody else wrote the translation above" in text_of(page, "start")
    without_it = page.split(f'id="{unchanged}"')[1].split("were switched off?")[1].split("</aside>")[0]
    assert "What the model writes stays the same, and the translation above is" in without_it
    assert "<mark>" not in without_it
    ranked = page.split('id="experiments.heads"')[1].split("</section>")[0]
    assert ranked.count(found.baseline_text) == sum(
        found.text_without(name) == found.baseline_text for name in found.ranked_heads()
    )
    by_engine = make_explanation_page(replace(other, requested=False))
    assert "faster engine rounds numbers" in text_of(by_engine, "start")
    assert "found it by a faster engine" in text_of(by_engine, "beam")


def test_the_beam_says_how_it_ends(html: str, found: ExplainedSentence) -> None:
    said = re.search(
        r"looked at (\d+) candidates, went on with (\d+), dropped (\d+), and (\d+) ended\.", text_of(html, "beam")
    )
    assert said is not None
    count, kept, dropped, ended = map(int, said.groups())
    assert count == len(found.tree.candidates) == kept + dropped + ended
    assert ended == sum(one.token == found.target.eos_id for one in found.tree.candidates)
    longest = len(found.source_pieces) + found.search.max_extra
    assert f"{ended} did. The search stops" in text_of(html, "beam")
    assert f"at the latest after {longest} pieces" in text_of(html, "beam")


def test_neighbours_that_are_bytes_are_explained(found: ExplainedSentence) -> None:
    plain = replace(found.neighbours[0], nearest=(("▁near", 0.5),))
    for near in ("▁near", "<0x9F>"):
        both = replace(found, neighbours=(plain, replace(plain, nearest=((near, 0.4),))))
        page = make_explanation_page(both)
        for step in ("encoder.embedding", "experiments.neighbours"):
            assert ("&lt;0x9F&gt; is one byte" in text_of(page, step)) == near.startswith("<0x")


def test_label_smoothing_pushes_down_what_is_too_sure(html: str, found: ExplainedSentence) -> None:
    surer = sum(np.exp(-loss) > found.training.gold for loss in found.training.plain)
    assert f"surer than that of {surer} of {len(found.training.plain)} pieces" in text_of(html, "training")


def test_other_orders_are_what_the_model_makes_of_them(found: ExplainedSentence, translator: Translator) -> None:
    source = found.text
    assert found.orders["reversed"].text.split() == source.split()[::-1]
    assert sorted(found.orders["shuffled"].text.split()) == sorted(source.split())
    swapped = found.orders["swapped"]
    differing = [(a, b) for a, b in zip(source.split(), swapped.text.split(), strict=True) if a != b]
    assert len(differing) == 2
    assert swapped.made.tokens != found.tree.best.tokens


def test_roles_are_named_if_they_were_measured(found: ExplainedSentence) -> None:
    known = replace(found, roles={"encoder.1.2": "next token", "cross.2.4": "alignment"})
    assert known.role_of("encoder.1.attention.head.2") == "next token"
    assert known.role_of("decoder.2.cross_attention.head.4") == "alignment"
    assert known.role_of("decoder.2.attention.head.4") == ""
    page = make_explanation_page(known)
    assert "this head is mostly: alignment (follows the other sentence along the diagonal)." in page
    assert "<strong>next token</strong> attends to the token after" in page
    unknown = make_explanation_page(replace(found, roles={}))
    assert "this head is mostly" not in unknown


def test_places_are_in_the_code_and_in_the_tests() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for place in PLACES.values():
        tree = ast.parse((ROOT / "src" / "heedful" / place.file).read_text(encoding="utf-8"))
        assert place.name in {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert f"def {place.test}(" in tests


def test_a_model_that_sees_only_its_neighbourhood_says_so() -> None:
    own = untrained(replace(VARIANTS["paper"], window=2))
    page = make_explanation_page(explain_sentence(Path("run"), own, "A dog runs home now.", own.search, "Ein Hund."))
    path = text_of(page, "experiments.path")
    assert "every piece sees 2 to either side" in path
    assert re.search(r"After the first layer, 3 of \d+ pieces have changed\.", path)
    assert "the path is one step long" not in path


@pytest.mark.parametrize("variant", VARIANTS)
def test_models_of_every_shape_have_a_page(variant: str) -> None:
    own = untrained(VARIANTS[variant])
    page = make_explanation_page(explain_sentence(Path("run"), own, "A dog runs.", own.search, "Ein Hund."))
    assert ("adds no positions" in page) == (variant == "modern")
    assert ("the paper normalises the sum" in page) == (variant == "modern")
    assert ('data-box="encoder.3"' in page) == (variant == "modern")  # deep stacks are folded
    assert "bias" in page or variant != "modern"
    assert ("Wavelengths: from 6.3 to" in page) == (variant != "learned")
    assert ("it adds sines to the vectors" in page) == (variant == "modern")
    assert "dot product, on average" in page
    # the map has the norm where the model has it
    assert (">Add &amp; norm<" in page) == (variant != "modern")
    assert ('data-box="decoder.1.cross_attention.norm"' in page) == (variant == "modern")
    assert ('data-box="encoder.norm"' in page) == (variant == "modern")


def test_a_page_of_a_wide_model_and_a_long_sentence_has_fewer_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    own = untrained(replace(VARIANTS["paper"], d_model=48, d_ff=90))
    given = explain_sentence(Path("run"), own, "A dog runs.", own.search, "Ein Hund.")
    whole = document_of(make_explanation_page(given))["matrices"]
    monkeypatch.setattr(explain, "MAX_DATA", sum(len(one["data"]) for one in whole.values()) * 3 // 4)
    cut = document_of(make_explanation_page(given))["matrices"]
    assert cut["encoder.1.feed_forward.active"]["shape"][1] in (16, 32, 64)
    assert cut["encoder.1.attention.query"] == whole["encoder.1.attention.query"]
    monkeypatch.setattr(explain, "MAX_DATA", 1000)
    with pytest.raises(DataError, match="give a shorter sentence or a smaller model"):
        make_explanation_page(given)


def test_too_long_a_sentence_and_another_search_are_refused(translator: Translator) -> None:
    with pytest.raises(
        DataError, match=r"the sentence has \d+ pieces, over the 100 that can be explained; give a shorter one"
    ):
        explain_sentence(Path("run"), translator, "house " * 101, translator.search, "Haus")
    sampling = replace(translator.search, method="sample")
    with pytest.raises(ConfigError, match=r"draws a plain beam search, but search\.method is 'sample'"):
        explain_sentence(Path("run"), translator, "house", sampling)


def test_the_plain_document_names_every_array(found: ExplainedSentence) -> None:
    plain = make_plain_document(found)
    json.dumps(plain)
    assert plain["text"] == found.given
    count = len(found.source_pieces)
    assert plain["steps"]["encoder.1.attention.scores"] == [6, count, count]  # type: ignore[index]


def test_likelihoods_are_told_in_words() -> None:
    assert times_less_likely(0.01) == "as likely as before"
    assert times_less_likely(1.0) == "2.7 times less likely"
    assert times_less_likely(-1.0) == "2.7 times more likely"
    assert times_less_likely(5.78) == "320 times less likely"
    assert times_less_likely(30.0) == "10<sup>13</sup> times less likely"


def test_small_numbers_have_a_power_of_ten_and_zero_has_no_sign() -> None:
    assert power(1.66e-5, 2) == "1.7 × 10<sup>−5</sup>"
    assert power(-9.6e-7) == "−1 × 10<sup>−6</sup>"
    assert power(0.0066, 2) == "0.0066"
    assert power(0.0) == "0"
    assert [number(value) for value in (-0.0004, -0.0006, -12.344)] == ["0.000", "−0.001", "−12.34"]


def test_words_that_differ_are_marked() -> None:
    assert mark_differences("a b c", "a <b> c") == "a <mark>&lt;b&gt;</mark> c"


# The page in a browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture
def show(browser: "Browser", tmp_path: Path, html: str) -> "Iterator[Callable[..., Page]]":
    """Open the page from disk. A request, an error in the console or a dialog fails the test."""
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:

        def opened(step: str = "", text: str = html) -> "Page":
            path = tmp_path / "explain.html"
            path.write_text(text, encoding="utf-8")
            seen.page.goto(f"{path.as_uri()}{step and '#'}{step}")
            return seen.page

        yield opened
        assert seen.misdeeds == []


def title(page: "Page") -> str:
    return page.locator(".step.current h2").inner_text()


def test_one_step_is_shown_and_lit_on_the_map(show: "Callable[..., Page]") -> None:
    page = show("encoder.1.attention.head.3")
    assert page.locator(".step:visible").count() == 1
    assert title(page) == "Head 3 of the encoder's layer 1"
    assert page.eval_on_selector("#map .lit", "(node) => node.dataset.box") == "encoder.1.attention"
    page.locator('#map [data-box="decoder.1.feed_forward"]').click()
    assert title(page) == "The feed-forward network"
    assert page.url.endswith("#decoder.1.feed_forward")
    page.go_back()
    assert title(page) == "Head 3 of the encoder's layer 1"


def test_next_walks_through_every_step_and_draws_it(show: "Callable[..., Page]", html: str) -> None:
    page = show()
    path = document_of(html)["path"]
    for step in path[1:]:
        page.click("#next")
        page.wait_for_function("(step) => location.hash === `#${step}`", arg=step, polling=50)
        assert page.locator(".step.current").count() == 1
        bare = page.eval_on_selector_all(
            ".step.current .figure", "(all) => all.filter((figure) => !figure.childElementCount).length"
        )
        assert bare == 0, step
    assert page.locator("#next").is_disabled()


def test_the_keyboard_walks_and_moves_in_a_matrix(show: "Callable[..., Page]") -> None:
    page = show("pieces")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**#encoder.embedding")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**#pieces")
    page = show("encoder.1.attention.head.1.softmax")
    page.locator(".step.current .heatmap:visible").first.focus()
    before = page.locator(".step.current .readout:visible").first.inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.locator(".step.current .readout:visible").first.inner_text() != before
    assert page.url.endswith("head.1.softmax")


def test_pointing_at_a_cell_shows_its_arithmetic(show: "Callable[..., Page]", found: ExplainedSentence) -> None:
    weights = found.steps["encoder.1.attention.weights"][2]
    page = show("encoder.1.attention.head.3.softmax")
    canvas = page.locator(".step.current canvas:visible").first
    box = canvas.bounding_box()
    assert box is not None
    said = set()
    for share in (0.3, 0.5, 0.7):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.6 * box["height"])
        said.add(page.locator(".step.current .readout:visible").first.inner_text())
    assert len(said) == 3
    for text in said:
        parts = re.match(r"(.+) looks at (.+): e\^(−?[\d.]+) / ([\d.]+) = ([\d.]+) / [\d.]+ = ([\d.]+)", text)
        assert parts is not None, text
        row, column = found.source_pieces.index(parts[1]), found.source_pieces.index(parts[2])
        assert float(parts[6]) == pytest.approx(float(weights[row, column]), abs=0.001)
        assert float(parts[5]) / float(parts[4]) == pytest.approx(float(parts[6]), abs=0.005)


def test_the_sum_of_products_is_the_score(show: "Callable[..., Page]") -> None:
    page = show("decoder.1.cross_attention.head.2.scores")
    titles = page.eval_on_selector_all(".step.current .bar", "(bars) => bars.map((bar) => bar.title)")
    products = [float(each.rpartition("= ")[2].replace("−", "-")) for each in titles]
    shown = page.locator(".step.current .readout strong:visible").first.inner_text().replace("−", "-")
    assert len(products) == 32
    assert sum(products) == pytest.approx(float(shown), abs=0.05)


def test_the_tour_tells_a_story_and_ends(show: "Callable[..., Page]", html: str) -> None:
    page = show()
    assert page.locator("#tour").is_hidden()
    page.click("text=Take the tour")
    stories = []
    for _ in document_of(html)["tour"]:
        stories.append(page.locator("#tour-story").inner_text())
        page.click("#next")
        page.wait_for_timeout(30)
    assert stories == [stop["story"] for stop in document_of(html)["tour"]]
    assert page.locator("#tour").is_hidden()
    assert title(page) == "The beam's tree"


def test_the_slider_moves_through_the_translation(show: "Callable[..., Page]", found: ExplainedSentence) -> None:
    page = show("logits")
    page.locator("input[type=range]").fill("2")
    assert page.locator(".step.current .readout strong").inner_text() == found.target_pieces[2]
    log_probs = found.steps["log_probs"][2]
    best = page.locator(".likely tr").first.inner_text()
    assert found.target.pieces([int(log_probs.argmax())])[0] in best
    assert f"{100 * np.exp(log_probs.max()):.1f} %" in best
    page.locator("#written .chip").nth(5).click()
    assert page.locator("input[type=range]").input_value() == "5"


def test_the_tree_tells_what_became_of_a_candidate(show: "Callable[..., Page]", found: ExplainedSentence) -> None:
    page = show("beam")
    assert page.locator(".beam .node[data-said]").count() == len(found.tree.candidates)
    assert page.locator(".beam .node.won").count() == len(found.tree.path)
    page.locator(".beam .node.pruned").first.hover()
    assert "dropped" in page.locator("#candidate").inner_text()


@pytest.mark.parametrize(
    "step", ["start", "encoder.1.attention.head.1.values", "encoder.output", "beam", "training", "experiments.heads"]
)
def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: "Browser", tmp_path: Path, html: str, step: str
) -> None:
    path = tmp_path / "explain.html"
    path.write_text(html, encoding="utf-8")
    with watched(browser, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True) as seen:
        seen.page.goto(f"{path.as_uri()}#{step}")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert seen.page.locator("#map").is_hidden()
        seen.page.tap("#show-map")
        assert seen.page.locator("#map").is_visible()
        seen.page.locator('#map [data-box="logits"]').tap()
        seen.page.locator(".step.current h2", has_text="A probability for every piece").wait_for()
        assert seen.page.locator("#map").is_hidden()
        assert seen.misdeeds == []


def test_the_arrow_keys_move_in_the_beams_tree(show: "Callable[..., Page]", found: ExplainedSentence) -> None:
    page = show("beam")
    page.locator(".tree").focus()
    tree = found.tree
    firsts = sorted((one for one in tree.candidates if one.step == 1), key=lambda one: -one.log_prob)
    for key, step, log_prob in (
        ("ArrowRight", 1, firsts[0].log_prob),
        ("ArrowDown", 1, firsts[1].log_prob),
        ("ArrowUp", 1, firsts[0].log_prob),
    ):
        page.keyboard.press(key)
        said = page.inner_text("#candidate").replace("−", "-")
        assert f"after {step} piece: log P = {log_prob:.3f}" in said
    page.keyboard.press("ArrowRight")
    assert "after 2 pieces" in page.inner_text("#candidate")
    page.keyboard.press("ArrowLeft")
    assert f"log P = {firsts[0].log_prob:.3f}" in page.inner_text("#candidate").replace("−", "-")
    assert page.url.endswith("#beam")


def test_without_javascript_it_is_a_summary_of_all_steps(browser: "Browser", tmp_path: Path, html: str) -> None:
    path = tmp_path / "explain.html"
    path.write_text(html, encoding="utf-8")
    with watched(browser, java_script_enabled=False) as seen:
        seen.page.goto(path.as_uri())
        steps = re.findall(r'<section class="step"', html)
        assert seen.page.locator(".step:visible").count() == len(steps) > 60
        assert seen.page.locator(".without:visible").count() > 60
        assert seen.page.locator("#map a:visible").count() > 20
        assert seen.page.locator("#walk").is_hidden()
        assert seen.page.locator("#candidate, .actions").locator("visible=true").count() == 0  # nothing that is dead


def test_print_leaves_out_the_map_and_the_buttons(show: "Callable[..., Page]") -> None:
    page = show("encoder.positions")
    page.emulate_media(media="print")
    assert page.locator("#map").is_hidden()
    assert page.locator("#walk").is_hidden()
    assert page.locator(".step.current").is_visible()


def test_paper_is_light_in_the_dark_theme_too(show: "Callable[..., Page]") -> None:
    page = show("encoder.1.attention.head.1.softmax")
    picture = "document.querySelector('.step.current .heatmap canvas').toDataURL()"
    light = page.evaluate(picture)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.wait_for_function(f"(light) => {picture} !== light", arg=light)
    dark = page.evaluate(picture)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(picture) == light
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(picture) == dark


def test_an_unknown_address_shows_the_start_and_the_theme_changes(show: "Callable[..., Page]") -> None:
    page = show("nothing.like.this")
    assert title(page) == "One sentence through the Transformer"
    before = page.evaluate("getComputedStyle(document.body).color")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).color") != before


def test_a_hundred_pieces_on_each_side_fit_into_the_page_and_move_quickly(
    show: "Callable[..., Page]", monkeypatch: pytest.MonkeyPatch
) -> None:
    # Thirty searches for a hundred pieces take minutes here, and this test is about the page.
    made = Counterfactual((5, 1), finished=True, log_prob=-9.0)
    monkeypatch.setattr(CounterfactualRunner, "run", lambda self, source=None, write=None: made)
    own = untrained(VARIANTS["paper"])
    text = " ".join(["the", "house", "is", "old"] * 25)[: -len(" old")]
    given = explain_sentence(Path("run"), own, text, own.search, text)
    assert len(given.source_pieces) == len(given.target_pieces) == 100
    html = make_explanation_page(given)
    assert len(html.encode()) < 5_000_000
    page = show("encoder.1.attention.head.2.softmax", html)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    seconds = page.evaluate(
        """() => {
            const map = [...document.querySelectorAll('.step.current .heatmap')].find((each) => each.clientWidth);
            const began = performance.now();
            for (let i = 0; i < 20; i += 1) {
                const key = i % 2 ? 'ArrowDown' : 'ArrowRight';
                map.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
            }
            return (performance.now() - began) / 1000;
        }"""
    )
    assert seconds < 5  # a quarter of a second for each, on a machine that also does other things


def test_a_served_page_asks_for_another_sentence(browser: "Browser", found: ExplainedSentence) -> None:
    html = make_explanation_page(found, live=True)
    asked: list[Any] = []

    def answer(route: "Route") -> None:
        if route.request.method == "POST":
            assert route.request.headers["x-heedful"] == "1"
            asked.append(route.request.post_data_json)
            route.fulfill(json={"page": "/explanations/2"})
        else:
            route.fulfill(body=html, content_type="text/html; charset=utf-8")

    with watched(browser, own="http://localhost:1/") as seen:
        seen.page.route("**/*", answer)
        seen.page.goto("http://localhost:1/#beam")
        seen.page.click("#show-ask")
        assert seen.page.locator("#ask-text").input_value() == TEXT
        seen.page.fill("#ask-text", "Two <b>dogs</b>.")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("http://localhost:1/explanations/2#beam")
        assert asked == [{"text": "Two <b>dogs</b>.", "translation": ""}]
        assert seen.misdeeds == []


def test_hostile_text_stays_text(show: "Callable[..., Page]") -> None:
    own = untrained(VARIANTS["learned"])
    given = explain_sentence(Path("run"), own, HOSTILE, own.search, HOSTILE)
    page = show("pieces", make_explanation_page(given))
    assert page.locator("main img").count() == 0
    assert page.locator("header .given").inner_text().startswith("<img src=x onerror=alert(1)>")
    for step in ("logits", "beam", "decoder.1.attention.head.1", "encoder.positions", "experiments.order", "training"):
        page.evaluate("(step) => { location.hash = step; }", step)
        page.wait_for_function("(step) => document.querySelector('.step.current').id === step", arg=step, polling=50)

"""The page of all heads, as text and in a real browser."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browser import Watched, chromium, watched

from heedful.inspection.attention_page import make_attention_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

Document = dict[str, Any]

SOURCE = ["▁the", "▁old", "▁house", "▁burns", "</s>"]
TARGETS = [["▁das", "▁alte", "▁Haus", "▁br", "ennt", "</s>"], ["▁ein", "▁Haus", "▁brennt"]]
HEADS = {"encoder": (2, 3), "decoder": (3, 3), "cross": (4, 1)}  # heads of each layer, unequal as after pruning
HOSTILE = [
    *("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "<!--<script>", "\"'`&amp;", "&", "▁"),
    *("שלום", "e\u0301\u0323", "\u2028", "@@script@@", "\ud800", "a" * 200),
]


def weights(heads: int, queries: int, keys: int, *, causal: bool = False, seed: int = 0) -> np.ndarray:
    """Attention whose rows sum to one; if causal, it attends to nothing later."""
    scores = np.random.default_rng(seed).normal(size=(heads, queries, keys)) * 2
    if causal:
        scores[:, ~np.tri(queries, keys, dtype=bool)] = -np.inf
    values: np.ndarray = np.exp(scores - scores.max(-1, keepdims=True))
    return values / values.sum(-1, keepdims=True)


def layer(values: np.ndarray) -> Document:
    heads, queries, keys = values.shape
    packed = base64.b64encode(np.round(values * 65535).astype("<u2").tobytes()).decode()
    return {"heads": heads, "queries": queries, "keys": keys, "weights": packed}


def values_of(kind: str, depth: int, queries: int, keys: int) -> np.ndarray:
    seed = 10 * depth + len(kind)
    return weights(HEADS[kind][depth], queries, keys, causal=kind == "decoder", seed=seed)


def document(
    source: list[str] = SOURCE, targets: list[list[str]] = TARGETS, *, off: tuple[str, ...] = (), live: bool = False
) -> Document:
    """A document for the page: two layers of each attention, two hypotheses."""

    def layers(kind: str, queries: int, keys: int) -> list[Document]:
        return [layer(values_of(kind, depth, queries, keys)) for depth in range(2)]

    hypotheses = []
    for rank, pieces in enumerate(targets):
        length = len(pieces)
        alternatives = [
            [{"piece": piece, "probability": 0.625}, {"piece": "▁oder", "probability": 0.25}] for piece in pieces
        ]
        hypotheses.append(
            {
                "text": "".join(pieces).replace("▁", " ").replace("</s>", "").strip(),
                "score": -0.5 - rank,
                "log_prob": -3.0 - rank,
                "finished": pieces[-1] == "</s>",
                "pieces": pieces,
                "tokens": [{"probability": 0.625, "alternatives": each} for each in alternatives],
                "decoder": layers("decoder", length, length),
                "cross": layers("cross", length, len(source)),
            }
        )
    return {
        "format": 1,
        "model": "runs/en-de",
        "source": {"text": "".join(source).replace("▁", " ").replace("</s>", "").strip(), "pieces": source},
        "encoder": layers("encoder", len(source), len(source)),
        "hypotheses": hypotheses,
        "inputs_start": "<s>",
        "roles": {"cross.1.2": {"name": "alignment", "evidence": "83 % of its weight on the diagonal"}},
        "off": list(off),
        "baseline": "das alte Haus brennt" if off else None,
        "live": live,
    }


# The page as text


def test_the_page_is_one_file_that_loads_nothing() -> None:
    html = make_attention_page(document())
    assert re.findall(r"(?:src|href|action)=\"([^\"]*)\"", html) == ["data:,", "#heads"]
    assert "@import" not in html
    assert "url(" not in html
    assert set(re.findall(r"https?://[\w./]+", html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "innerHTML" not in html


def test_the_policy_allows_only_the_pages_own_style_and_script() -> None:
    html = make_attention_page(document())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    for tag, directive in (("style", "style-src"), ('script type="module"', "script-src")):
        text = html.split(f"<{tag}>")[1].split(f"</{tag.split()[0]}>")[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    assert " style=" not in html


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_piece_stays_inside_the_document_whatever_it_contains(piece: str) -> None:
    given = document([piece, "</s>"])
    html = make_attention_page(given)
    html.encode()  # a lone surrogate could not be written
    plain = make_attention_page(document(["x", "</s>"]))
    block = re.compile(r'<script type="application/json" id="document">([^<>&\u2028\u2029]*)</script>')
    inside = block.search(html)
    assert inside is not None
    assert json.loads(inside[1]) == given
    summary = re.compile(r'<div id="summary">.*?</div></noscript>', re.DOTALL)
    assert summary.sub("", block.sub("", html)) == summary.sub("", block.sub("", plain))
    tags = [re.sub(r"(?<=>)[^<]*", "", summary.findall(page)[0]) for page in (html, plain)]
    assert tags[0] == tags[1]


# The page in a browser


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> "Iterator[Callable[[Document], Page]]":
    """Open a document from disk. A request, an error in the console or a dialog fails the test."""
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:

        def opened(given: Document) -> "Page":
            path = tmp_path / "heads.html"
            path.write_text(make_attention_page(given), encoding="utf-8")
            seen.page.goto(path.as_uri())
            return seen.page

        yield opened
        assert seen.misdeeds == []


def texts(page: "Page", selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def expect_text(page: "Page", selector: str, text: str) -> None:
    """Wait until an element has this text: the page draws at the next frame."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text)


def lines(page: "Page", group: str) -> list[dict[str, Any]]:
    """The lines of a group, after the next frame is drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.eval_on_selector_all(
        f"#{group} line",
        "(all) => all.map((line) => ({...line.dataset, width: Number(line.getAttribute('stroke-width'))}))",
    )


def test_the_grid_shows_every_head_and_the_mean_of_each_layer(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    for kind, heads in HEADS.items():
        page.click(f"#tab-{kind}")
        shown = page.eval_on_selector_all(".head", "(all) => all.map((head) => head.dataset.head)")
        names = [[*(f"{kind}.{i + 1}.{head + 1}" for head in range(heads[i])), f"{kind}.{i + 1}.mean"] for i in (0, 1)]
        assert shown == [*names[0], *names[1]]
    assert texts(page, "#grid th[scope=row]") == ["layer 1", "layer 2"]
    assert texts(page, "#grid th[scope=col]") == ["head 1", "head 2", "head 3", "head 4", "mean"]
    assert texts(page, "#grid td:has(#open-cross\\.1\\.2) .role") == ["alignment"]


def test_a_map_has_one_pixel_per_weight_and_higher_weights_are_darker(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#tab-encoder")
    expected = values_of("encoder", 1, len(SOURCE), len(SOURCE))
    for name, values in (("encoder.2.3", expected[2]), ("encoder.2.mean", expected.mean(0))):
        pixels = page.eval_on_selector(
            f"[data-head='{name}'] canvas",
            "(c) => [c.height, c.width, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]",
        )
        assert pixels[:2] == [len(SOURCE), len(SOURCE)]
        light = np.array(pixels[2:]).reshape(-1, 4)[:, :3].sum(1)
        order = np.argsort(values.ravel())
        assert (np.diff(light[order]) <= 0).all()
        assert light.max() - light.min() > 100


def test_a_click_opens_a_head_with_its_pieces_and_weights(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#open-cross\\.1\\.2")
    expect_text(page, "#head-title", "cross layer 1 head 2")
    expect_text(page, "#head-role", "alignment: 83 % of its weight on the diagonal")
    assert texts(page, "#matrix-rows .axis") == TARGETS[0]
    assert texts(page, "#matrix-columns .axis") == SOURCE
    box = page.locator("#matrix-canvas").bounding_box()
    assert box is not None
    expected = values_of("cross", 0, 6, 5)[1]
    for query, key in ((2, 1), (5, 4), (0, 3)):
        place = {"x": (key + 0.4) * box["width"] / 5, "y": (query + 0.6) * box["height"] / 6}
        page.hover("#matrix-canvas", position=place)  # type: ignore[arg-type]
        names = [spoken(TARGETS[0][query]), spoken(SOURCE[key])]
        expect_text(page, "#cell", f"'{names[0]}' attends to '{names[1]}' {stored(expected[query, key]):.4f}")


def spoken(piece: str) -> str:
    return piece.removeprefix("▁")


def stored(weight: float) -> float:
    """A weight as the document stores it."""
    return float(np.round(weight * 65535) / 65535)


def test_decoder_rows_are_outputs_and_columns_are_inputs(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#tab-decoder")
    assert texts(page, "#matrix-rows .axis") == TARGETS[0]
    assert texts(page, "#matrix-columns .axis") == ["<s>", *TARGETS[0][:-1]]


def test_pointing_at_a_piece_draws_lines_as_wide_as_its_weights(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#open-cross\\.1\\.2")
    expected = values_of("cross", 0, 6, 5)[1]
    page.hover("#queries li >> nth=2")
    drawn = lines(page, "drawn")
    assert {int(line["key"]) for line in drawn} == set(np.flatnonzero(expected[2] >= 0.005))
    assert {line["query"] for line in drawn} == {"2"}
    for line in drawn:
        weight = expected[2, int(line["key"])]
        assert float(line["weight"]) == pytest.approx(weight, abs=1e-4)
        assert line["width"] == pytest.approx(9 * weight, abs=2e-3)
    assert not page.is_visible("#faint line >> nth=0")
    page.hover("#keys li >> nth=1")
    drawn = lines(page, "drawn")
    assert {int(line["query"]) for line in drawn} == set(np.flatnonzero(expected[:, 1] >= 0.005))
    assert {line["key"] for line in drawn} == {"1"}


def test_with_no_piece_selected_all_strong_lines_are_drawn(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#open-cross\\.2\\.1")
    expected = values_of("cross", 1, 6, 5)[0]
    assert {(int(line["query"]), int(line["key"])) for line in lines(page, "faint")} == set(
        zip(*map(list, np.nonzero(expected >= 0.1)), strict=True)
    )
    assert lines(page, "drawn") == []


def test_overlaid_heads_have_their_own_colours(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    for name in ("cross.1.2", "cross.1.3", "cross.1.mean"):
        page.click(f"[id='pin-{name}']")
    page.click("#open-cross\\.1\\.1")
    expect_text(page, "#legend li >> nth=3", "cross layer 1 mean")
    assert len(texts(page, "#legend li")) == 4
    page.hover("#queries li >> nth=0")
    drawn = lines(page, "drawn")
    assert {line["head"] for line in drawn} == {"cross.1.1", "cross.1.2", "cross.1.3", "cross.1.mean"}
    mean = values_of("cross", 0, 6, 5).mean(0)[0]
    assert {line["key"]: float(line["weight"]) for line in drawn if line["head"] == "cross.1.mean"} == pytest.approx(
        {str(key): weight for key, weight in enumerate(mean) if weight >= 0.005}, abs=1e-4
    )
    colours = page.eval_on_selector_all("#drawn line", "(all) => all.map((line) => getComputedStyle(line).stroke)")
    assert len(set(colours)) == 4
    page.click("[id='pin-cross.1.3']")
    page.hover("#queries li >> nth=1")
    assert {line["head"] for line in lines(page, "drawn")} == {"cross.1.1", "cross.1.2", "cross.1.mean"}


def test_at_most_as_many_heads_are_overlaid_as_there_are_colours(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    pins = page.locator("#grid .pin")
    for i in range(6):
        pins.nth(i).click()
    assert page.locator("#grid .pin[aria-pressed=true]").count() == 5
    assert "at most five heads; remove one first" in page.inner_text("#status")


def test_another_hypothesis_shows_its_own_pieces_and_heads(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    assert texts(page, "#hypothesis option") == ["1.  -0.500  das alte Haus brennt", "2.  -1.500  ein Haus brennt"]
    assert not page.is_visible("#unfinished")
    page.select_option("#hypothesis", "1")
    expect_text(page, "#target-text", "ein Haus brennt")
    assert page.is_visible("#unfinished")
    assert texts(page, "#produced .piece") == TARGETS[1]
    assert texts(page, "#matrix-rows .axis") == TARGETS[1]
    page.hover("#queries li >> nth=2")
    expected = values_of("cross", 0, 3, 5)[0, 2]
    assert {line["key"]: float(line["weight"]) for line in lines(page, "drawn")} == pytest.approx(
        {str(key): weight for key, weight in enumerate(expected) if weight >= 0.005}, abs=1e-4
    )


def test_a_token_shows_its_probability_and_the_alternatives(
    show: "Callable[[Document], Page]",
) -> None:
    page = show(document())
    assert texts(page, "#produced .weight") == ["0.63"] * 6
    page.click("#produced li >> nth=2")
    expect_text(page, "#alternatives-of", "Most likely tokens at 'Haus'")
    assert texts(page, "#alternatives-list li") == ["▁Haus0.625", "▁oder0.250"]
    assert page.inner_text("#status") == "Most likely tokens: 'Haus' 0.63, 'oder' 0.25"


def test_the_slider_shows_the_translation_step_by_step(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.click("#tab-cross")
    page.locator("#written").fill("2")
    expect_text(page, "#written-says", "step 2 of 6: writes 'alte'")
    assert page.locator("#produced .chip.later").count() == 4
    assert {int(line["query"]) for line in lines(page, "drawn")} == {1}
    blank = page.eval_on_selector(
        "#matrix-canvas",
        "(map) => [...map.getContext('2d').getImageData(0, 2, map.width, 4).data].every((byte) => byte === 255)",
    )
    assert blank  # white: later steps have no weights yet
    page.locator("#written").press("End")
    expect_text(page, "#written-says", "all steps")
    page.click("#play")
    page.wait_for_function("document.getElementById('written').value !== '6'", polling=50)
    page.click("#play")
    assert page.locator("#play").inner_text() == "Play"


def test_heads_are_ranked_by_what_the_sentence_loses_without_them(show: "Callable[[Document], Page]") -> None:
    page = show(document() | {"costs": {"cross.1.2": 0.5, "encoder.2.3": 2.25, "decoder.1.1": -0.125}})
    assert page.locator("#ranked").is_visible()  # there is room for it
    assert [text.split()[-1] for text in texts(page, "#ranked .weight")] == ["−2.25", "−0.50", "+0.13"]
    assert texts(page, "#grid td:has(#open-cross\\.1\\.2) .role") == ["alignment · no.\xa02"]
    page.click("#ranked button >> nth=0")
    expect_text(page, "#head-title", "encoder layer 2 head 3")
    assert page.locator("#tab-encoder").get_attribute("aria-selected") == "true"
    assert show(document()).locator("#ranking").is_hidden()


def test_without_javascript_it_is_a_summary(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "heads.html"
    path.write_text(make_attention_page(document([*SOURCE[:-1], *HOSTILE, "</s>"])), encoding="utf-8")
    with watched(browser, java_script_enabled=False) as seen:
        seen.page.goto(path.as_uri())
        assert seen.page.locator("#summary strong").inner_text() == "das alte Haus brennt"
        rows = seen.page.locator("#summary tbody tr").all_inner_texts()
        assert len(rows) == sum(map(sum, HEADS.values()))
        best = float(values_of("decoder", 0, 6, 6)[0][1:].max())  # the first row can see one key only
        assert f"{best:.2f}" in next(row for row in rows if row.startswith("decoder.1.1"))
        assert seen.page.locator("#heads").is_hidden()
        assert seen.page.locator("img").count() == 0
        assert seen.misdeeds == []


def test_a_kind_of_attention_that_the_model_lacks_has_no_tab(show: "Callable[[Document], Page]") -> None:
    given = document()
    given["encoder"] = []
    for hypothesis in given["hypotheses"]:
        hypothesis["decoder"] = []
    page = show(given)
    assert texts(page, "[role=tab]") == ["Cross"]
    assert page.locator(".head").count() == 7


def test_everything_works_with_the_keyboard_and_is_announced(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    expected = values_of("encoder", 1, 5, 5)[1]

    def tab_to(selector: str) -> None:
        for _ in range(30):
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
            page.keyboard.press("Tab")
        pytest.fail(f"no way by Tab to {selector}")

    tab_to("#produced li")
    page.keyboard.press("ArrowRight")
    assert "'alte' 0.63" in page.inner_text("#status")
    tab_to("[role=tab]")
    page.keyboard.press("Home")
    expect_text(page, "[role=tab][aria-selected=true]", "Encoder")
    tab_to(".head")
    for key in ("ArrowDown", "ArrowRight", "Enter", "p"):
        page.keyboard.press(key)
    expect_text(page, "#head-title", "encoder layer 2 head 2")
    assert page.get_attribute("[id='pin-encoder.2.2']", "aria-pressed") == "true"
    tab_to("#queries li")
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    best = np.argsort(expected[3])[::-1]
    said = ", ".join(f"'{spoken(SOURCE[i])}' {expected[3, i]:.2f}" for i in best[:4] if expected[3, i] >= 0.05)
    assert page.inner_text("#status") == f"encoder layer 2 head 2: 'burns' attends to {said}"
    assert {line["query"] for line in lines(page, "drawn")} == {"3"}
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"
    page.keyboard.press("Escape")
    assert lines(page, "drawn") == []


def test_hostile_pieces_are_shown_as_text_and_never_run(show: "Callable[[Document], Page]") -> None:
    given = document([*HOSTILE, "</s>"], [[*HOSTILE, "</s>"]])
    given["model"] = given["inputs_start"] = HOSTILE[0]
    given["roles"]["cross.1.1"] = {"name": HOSTILE[0], "evidence": HOSTILE[1]}
    given["source"]["text"] = given["hypotheses"][0]["text"] = HOSTILE[1]
    page = show(given)
    shown = [piece.replace("\ud800", "\ufffd") for piece in [*HOSTILE, "</s>"]]  # as browsers show a lone surrogate
    for selector in ("#produced .piece", "#matrix-rows .axis", "#matrix-columns .axis", "#queries .piece"):
        found = page.eval_on_selector_all(selector, "(all) => all.map((each) => each.textContent.toWellFormed())")
        assert found == shown
    for i in range(len(shown)):
        page.locator("#produced li").nth(i).click()
        page.locator("#queries li").nth(i).hover()
    assert page.inner_text("#source-text") == HOSTILE[1]
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_the_address_names_the_open_head(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    assert page.evaluate("location.hash") == ""
    page.click("[id='open-cross.1.3']")
    page.click("#tab-encoder")
    assert page.evaluate("location.hash") == "#encoder.1.1"
    page.evaluate("history.back()")
    expect_text(page, "#head-title", "cross layer 1 head 3")
    page.goto(page.url.split("#")[0] + "#decoder.2.mean")
    expect_text(page, "#head-title", "decoder layer 2 mean")
    page.reload()
    expect_text(page, "#head-title", "decoder layer 2 mean")
    page.goto(page.url.split("#")[0] + "#decoder.9.1")  # a head that this model does not have
    page.reload()
    assert page.is_visible("#head-title")


def test_paper_gets_the_heads_and_no_buttons(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    page.emulate_media(media="print")
    assert page.is_visible("#grid")
    assert not page.is_visible("#theme")
    assert not page.is_visible(".hint >> nth=0")


# The page with a server


class Server:
    """Answers as a local server would, and records the requests."""

    def __init__(self, given: Document) -> None:
        self.given = given
        self.asked: list[Document] = []
        self.headers: list[dict[str, str]] = []
        self.error: str | None = None

    def __call__(self, route: "Route") -> None:
        request = route.request
        if request.method == "GET":
            route.fulfill(body=make_attention_page(self.given), content_type="text/html; charset=utf-8")
            return
        asked: Document = request.post_data_json or {}
        self.asked.append(asked)
        self.headers.append(request.headers)
        if self.error is not None:
            route.fulfill(status=400, json={"error": self.error})
            return
        target = ["▁das", "▁neue", "▁Haus", "</s>"] if asked["off"] else TARGETS[0]
        route.fulfill(json=document(["▁" + asked["text"], "</s>"], [target], off=tuple(asked["off"]), live=True))


@pytest.fixture
def served(browser: "Browser") -> "Iterator[Callable[[Document], tuple[Watched, Server]]]":
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:

        def opened(given: Document) -> tuple[Watched, Server]:
            server = Server(given)
            seen.page.route("**/*", server)
            seen.page.goto("http://localhost:1/")
            return seen, server

        yield opened
        assert {each for each in seen.misdeeds if not each.startswith("request: http://localhost:1/")} <= {
            "error: Failed to load resource: the server responded with a status of 400 (Bad Request)"
        }


def test_switching_a_head_off_shows_the_new_translation_beside_the_old(
    served: "Callable[[Document], tuple[Watched, Server]]",
) -> None:
    seen, server = served(document(live=True))
    page = seen.page
    assert not page.is_visible("#not-live")
    page.click("[id='power-cross.1.2']")
    expect_text(page, "#some-off-title", "Without cross.1.2")
    assert server.asked == [{"text": "the old house burns", "off": ["cross.1.2"], "n_best": 2}]
    assert server.headers[0]["x-heedful"] == "1"
    assert server.headers[0]["content-type"] == "application/json"
    assert page.inner_text("#all-on") == "das alte Haus brennt"
    assert page.inner_text("#some-off") == "das neue Haus"
    assert texts(page, "#all-on mark") == ["alte", "brennt"]
    assert texts(page, "#some-off mark") == ["neue"]
    assert page.get_attribute("[id='power-cross.1.2']", "aria-checked") == "false"
    page.keyboard.press("Tab")
    page.focus("[id='open-cross.2.1']")
    page.keyboard.press("o")
    expect_text(page, "#some-off-title", "Without cross.1.2, cross.2.1")
    assert page.evaluate("() => document.activeElement.id") == "open-cross.2.1"
    assert texts(page, "#off-names button") == ["cross.1.2", "cross.2.1"]
    page.click("#all-heads-on")
    page.wait_for_selector("#comparison", state="hidden")
    assert server.asked[-1]["off"] == []


def test_a_page_from_disk_shows_the_effect_of_the_heads_that_are_off(show: "Callable[[Document], Page]") -> None:
    page = show(document(off=("cross.1.2",), targets=[["▁das", "▁Haus", "</s>"]]))
    assert page.inner_text("#some-off-title") == "Without cross.1.2"
    assert texts(page, "#all-on mark") == ["alte", "brennt"]
    assert not page.is_visible("#off-bar")


def test_a_new_sentence_is_requested_with_the_same_heads_off(
    served: "Callable[[Document], tuple[Watched, Server]]",
) -> None:
    seen, server = served(document(live=True))
    page = seen.page
    page.click("[id='power-cross.1.2']")
    expect_text(page, "#some-off-title", "Without cross.1.2")
    page.fill("#text", "another <b>one</b>")
    page.click("button[type=submit]")
    expect_text(page, "#source-text", "another <b>one</b>")
    assert server.asked[-1] == {"text": "another <b>one</b>", "off": ["cross.1.2"], "n_best": 1}
    assert page.is_visible("#comparison")


def test_a_refusal_is_shown_and_the_heads_stay_as_they_were(
    served: "Callable[[Document], tuple[Watched, Server]]",
) -> None:
    seen, server = served(document(live=True))
    page = seen.page
    server.error = "the text is empty; write a sentence <i>first</i>"
    page.click("[id='power-cross.1.2']")
    expect_text(page, "#error", server.error)
    assert page.get_attribute("[id='power-cross.1.2']", "aria-checked") == "true"
    assert not page.is_visible("#off-bar")
    server.error = None
    page.click("[id='power-cross.1.2']")
    expect_text(page, "#some-off-title", "Without cross.1.2")
    assert not page.is_visible("#error")


def test_only_the_answer_to_the_newest_request_is_shown(served: "Callable[[Document], tuple[Watched, Server]]") -> None:
    seen, server = served(document(live=True))
    page = seen.page
    held: list[Route] = []

    def hold_the_first(route: "Route") -> None:
        if held:
            server(route)
        else:
            held.append(route)

    page.route("**/attention", hold_the_first)
    page.fill("#text", "slow")
    page.click("button[type=submit]")
    page.wait_for_function("() => document.body.ariaBusy === 'true'")
    page.fill("#text", "fast")
    page.click("button[type=submit]")
    expect_text(page, "#source-text", "fast")
    held[0].fulfill(json=document(["▁slow", "</s>"], live=True))
    expect_text(page, "#busy", "")
    assert page.inner_text("#source-text") == "fast"
    assert not page.is_visible("#error")


def test_an_example_is_asked_for_at_a_click(served: "Callable[[Document], tuple[Watched, Server]]") -> None:
    seen, server = served(document(live=True) | {"examples": ["a <b>house</b>", "two dogs"]})
    seen.page.click("#examples button >> nth=0")
    expect_text(seen.page, "#status", "Done: das alte Haus brennt")
    assert server.asked[-1]["text"] == "a <b>house</b>"


def test_a_page_without_a_sentence_shows_only_the_form(
    served: "Callable[[Document], tuple[Watched, Server]]",
) -> None:
    given = document(live=True) | {"source": {"text": "", "pieces": []}, "encoder": [], "hypotheses": []}
    seen, server = served(given)
    page = seen.page
    assert not page.is_visible("#translation")
    assert not page.is_visible("#heads")
    page.fill("#text", "hello")
    page.keyboard.press("Enter")
    expect_text(page, "#source-text", "hello")
    assert server.asked == [{"text": "hello", "off": [], "n_best": 1}]
    assert page.is_visible(".head >> nth=0")


# Accessibility and small screens

_NAMELESS = """() => [...document.querySelectorAll(
  'button, select, textarea, a, [role=listbox], [role=option], [role=grid], [role=tabpanel], [role=img], [tabindex="0"]'
)].filter((node) => {
  const by = node.getAttribute('aria-labelledby');
  const label = node.labels?.[0] ?? (by && document.getElementById(by));
  return node.checkVisibility() && !(node.ariaLabel || label?.textContent || node.textContent).trim();
}).map((node) => node.outerHTML)"""

# Colours as the screen has them, of each visible text and of the nearest background behind it.
_COLOURS = """() => {
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = (colours) => {
    pen.clearRect(0, 0, 1, 1);
    for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest('.skip, .unseen, script')) continue;
    const behind = [];
    for (let at = node; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
    const ink = rgb([...behind, getComputedStyle(node).color]);
    found.push([node.id || node.className || node.tagName, ink, rgb(behind)]);
  }
  const surface = getComputedStyle(document.querySelector('.box')).backgroundColor;
  for (const line of document.querySelectorAll('#drawn line')) {
    found.push(['line', rgb([getComputedStyle(line).stroke]), rgb([surface])]);
  }
  return found;
}"""


def contrast(one: list[int], other: list[int]) -> float:
    """The ratio of WCAG 2.2."""

    def luminance(colour: list[int]) -> float:
        parts = [value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in colour]
        return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_control_has_a_name(served: "Callable[[Document], tuple[Watched, Server]]") -> None:
    seen, _ = served(document(live=True))
    seen.page.click("[id='power-cross.1.2']")
    expect_text(seen.page, "#some-off-title", "Without cross.1.2")
    seen.page.click("#produced li >> nth=0")
    assert seen.page.evaluate(_NAMELESS) == []
    assert seen.page.locator("[role=listbox] > :not([role=option])").count() == 0
    ids = seen.page.eval_on_selector_all("[id]", "(all) => all.map((each) => each.id)")
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_and_lines_have_enough_contrast(show: "Callable[[Document], Page]", scheme: str) -> None:
    given = document()
    given["hypotheses"][0]["cross"][1] = layer(np.eye(6, 5)[None])  # the strongest colours
    for token in given["hypotheses"][0]["tokens"]:
        token["probability"] = 1.0
    page = show(given)
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    page.click("#theme")  # the button overrides the system
    for i in range(5):
        page.locator("#grid .pin").nth(i).click()
    page.click("[id='open-cross.2.1']")
    page.click("#produced li >> nth=1")
    page.hover("#queries li >> nth=4")  # its key is </s>, which has its own colour
    lines(page, "drawn")
    found = page.evaluate(_COLOURS)
    assert {name for name, *_ in found} >= {"line", "weight", "hint", "role", "piece special", "head-title"}
    assert (sum(found[0][2]) < 200) == (scheme == "dark")
    weak = [(name, ink, back) for name, ink, back in found if contrast(ink, back) < (3 if name == "line" else 4.5)]
    assert weak == []


def test_the_maps_follow_the_theme(show: "Callable[[Document], Page]") -> None:
    page = show(document())
    corner = "(canvas) => [...canvas.getContext('2d').getImageData(0, 0, 1, 1).data]"
    page.click("#tab-decoder")
    before = page.eval_on_selector("#scale", corner), page.eval_on_selector("#matrix-canvas", corner)
    page.click("#theme")
    assert page.eval_on_selector("#scale", corner) != before[0]
    assert page.eval_on_selector("#matrix-canvas", corner) != before[1]


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_boxes_scroll_sideways_but_the_page_does_not(show: "Callable[[Document], Page]", width: int) -> None:
    page = show(document([*HOSTILE, *SOURCE * 6], [[*HOSTILE, *TARGETS[0] * 6]]))
    page.set_viewport_size({"width": width, "height": 800})
    page.click("#produced li >> nth=1")
    page.click("#queries li >> nth=1")
    assert page.evaluate("() => document.documentElement.scrollWidth") == width

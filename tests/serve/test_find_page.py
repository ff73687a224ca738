"""The page that finds pictures, in a real browser: by words, by a click, by an own picture, and what is refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import caption_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

from browser import chromium, watched
from serve_examples import listening_app, service_of

from heedful import Finder
from heedful.serve.app import create_app
from heedful.serve.finder_routes import load_finders

if TYPE_CHECKING:
    from fastapi import FastAPI
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SLOW = 20_000  # milliseconds; enough on a busy machine
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and the folder `pictures` that it has learnt."""
    folder = tmp_path_factory.mktemp("find")
    caption_examples.train_clip(caption_examples.write_captioned(folder), folder / "run", "train.max_steps=30")
    return folder


@pytest.fixture
def app(folder: Path) -> "FastAPI":
    return create_app(service_of(), findings=load_finders({"clip": folder / "run"}, [folder / "pictures"], "cpu"))


@pytest.fixture
def opened(browser: "Browser", app: "FastAPI") -> "Iterator[Page]":
    """The page. Foreign requests, errors in the console and dialogs fail the test."""
    with (
        listening_app(app) as url,
        watched(browser, url, viewport={"width": 900, "height": 800}, bypass_csp=False) as seen,
    ):
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(f"{url}/find")
        seen.page.wait_for_selector("#search:not([hidden])")
        yield seen.page
        assert [misdeed for misdeed in seen.misdeeds if not re.search("status of 400", misdeed)] == []


def shown_names(page: "Page", heading: str) -> list[str]:
    page.wait_for_function("wanted => document.querySelector('#asked').textContent === wanted", arg=heading)
    return page.locator("#found .name").all_text_contents()


def expect_drawn(page: "Page") -> None:
    """All small copies are there: a canvas that nothing was drawn on is 300 pixels wide."""
    page.wait_for_function("() => [...document.querySelectorAll('#found canvas')].every((each) => each.width === 12)")


def expected_names(finder: Finder, folder: Path, asked: str | Path) -> list[str]:
    index = finder.index(folder / "pictures")
    found = finder.find(asked, index, 24) if isinstance(asked, str) else finder.find_like(asked, index, 24)
    return [Path(one.picture).name for one in found]


def test_words_a_click_and_back_find_what_the_finder_finds(opened: "Page", folder: Path) -> None:
    finder = Finder.load(folder / "run")
    words = "a red <b>bar</b>"
    opened.fill("#text", words)
    opened.press("#text", "Enter")
    by_words = shown_names(opened, words)
    assert by_words == expected_names(finder, folder, words)
    expect_drawn(opened)
    first = finder.find(words, finder.index(folder / "pictures"), 1)[0]
    assert opened.locator("#found .line").first.text_content() == f"1{first.score:.4f}"
    opened.get_by_role("button", name=f"Find pictures like {by_words[2]}", exact=True).press("Enter")
    like = shown_names(opened, f"Pictures like {by_words[2]}")
    assert like == expected_names(finder, folder, folder / "pictures" / by_words[2])
    assert opened.input_value("#text") == ""
    opened.wait_for_function("() => document.activeElement.id === 'found'")
    opened.go_back()
    assert shown_names(opened, words) == by_words
    assert opened.input_value("#text") == words
    opened.reload()
    assert shown_names(opened, words) == by_words


def test_an_own_picture_finds_those_like_it(opened: "Page", folder: Path) -> None:
    picture = folder / "pictures" / "7.png"
    opened.set_input_files("#file", picture)
    assert shown_names(opened, "Pictures like your 7.png") == expected_names(
        Finder.load(folder / "run"), folder, picture
    )
    expect_drawn(opened)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("  ", "Text is empty; say what the pictures should show."), ("x" * 50_001, "exceeds text limit (50000)")],
)
def test_what_cannot_be_found_is_said(opened: "Page", text: str, sentence: str) -> None:
    opened.fill("#text", text)
    opened.click("#search button")
    opened.wait_for_selector("#problem:not([hidden])")
    assert sentence in (opened.text_content("#problem") or "")
    opened.wait_for_selector("#found:not([aria-busy])", state="attached")
    opened.fill("#text", "a bar")
    opened.click("#search button")
    assert len(shown_names(opened, "a bar")) == 24
    assert opened.locator("#problem").is_hidden()


def test_a_file_that_is_no_picture_is_refused_on_the_page(opened: "Page", tmp_path: Path) -> None:
    fake = tmp_path / "<img src=x onerror=alert(1)>.png"
    fake.write_bytes(b"no picture")
    opened.set_input_files("#file", fake)
    opened.wait_for_selector("#problem:not([hidden])")
    assert "is not a PNG or JPEG picture" in (opened.text_content("#problem") or "")
    assert opened.locator("#found > li").count() == 0


def test_a_server_without_such_models_says_so(browser: "Browser") -> None:
    with (
        listening_app(create_app(service_of())) as url,
        watched(browser, url) as seen,
    ):
        seen.page.goto(f"{url}/find#text=a")
        seen.page.wait_for_selector("#none:not([hidden])", timeout=SLOW)
        assert seen.page.locator("#search").is_hidden()
        assert seen.misdeeds == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(browser: "Browser", app: "FastAPI", scheme: Any) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci")
    with (
        listening_app(app) as url,
        watched(browser, url, viewport={"width": 360, "height": 800}, color_scheme=scheme, bypass_csp=True) as seen,
    ):
        page = seen.page
        page.set_default_timeout(SLOW)
        page.add_init_script(path=AXE)
        page.goto(f"{url}/find#text=a+red+bar")
        assert len(shown_names(page, "a red bar")) == 24
        expect_drawn(page)
        found: list[Any] = page.evaluate(
            """async (values) => {
                const report = await axe.run(document, {runOnly: {type: 'tag', values}});
                return report.violations.map(({id, nodes}) => [id, nodes.map((node) => node.html)]);
            }""",
            RULES,
        )
        assert found == []
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate("document.querySelector('#search button').getBoundingClientRect().right") <= 344
        assert page.evaluate("document.querySelector('#found button').getBoundingClientRect().width") > 120

"""The page of labels in a real browser: pictures and texts, bars, and what is refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import label_examples
import picture_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

from browser import chromium, watched
from serve_examples import listening_app, service_of

from heedful import Classifier, PictureClassifier
from heedful.serve.app import create_app
from heedful.serve.classification_routes import load_classifiers

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SLOW = 20_000  # milliseconds; enough on a busy machine
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def sorter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    file = label_examples.write_labels(folder / "train.tsv", 60)
    return label_examples.train_bert(folder, file, "train.max_steps=3", "text.vocabulary_size=262")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    picture_examples.write_pictures(folder / "images", each=10)
    return picture_examples.train_vit(folder / "images", folder / "vit", "train.max_steps=20")


@pytest.fixture
def opened(browser: "Browser", sorter: Path, vit: Path) -> "Iterator[Page]":
    """The page. Foreign requests, errors in the console and dialogs fail the test."""
    desk = load_classifiers({"sorter": sorter, "vit": vit}, "cpu")
    with (
        listening_app(create_app(service_of(), classifications=desk)) as url,
        watched(browser, url, viewport={"width": 900, "height": 800}, bypass_csp=False) as seen,
    ):
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(f"{url}/classify")
        seen.page.wait_for_selector("#model option[value=vit]", state="attached")
        yield seen.page
        assert [misdeed for misdeed in seen.misdeeds if not re.search("status of 400", misdeed)] == []


def shown_labels(page: "Page", row: int = 0) -> list[str]:
    page.wait_for_selector("#found > li")
    return page.locator("#found > li").nth(row).locator(".label").all_text_contents()


def test_pictures_get_bars_of_their_labels(opened: "Page", vit: Path) -> None:
    files = [vit.parent / "images" / "down" / "1.png", vit.parent / "images" / "across" / "0.jpg"]
    opened.set_input_files("#file", files)
    expected = PictureClassifier.load(vit).classify(files)
    for row, wanted in enumerate(expected):
        assert shown_labels(opened, row) == list(wanted.probabilities)
        shares = opened.locator("#found > li").nth(row).locator(".share").all_text_contents()
        assert shares == [f"{100 * share:.1f} %" for share in wanted.probabilities.values()]
    assert opened.locator("#found canvas").first.evaluate("canvas => canvas.width") == 12


def test_a_file_that_is_no_picture_is_refused_on_the_page(opened: "Page", tmp_path: Path) -> None:
    fake = tmp_path / "<img src=x onerror=alert(1)>.png"
    fake.write_bytes(b"no picture")
    opened.set_input_files("#file", fake)
    opened.wait_for_selector("#problem:not([hidden])")
    assert "is not a PNG or JPEG picture" in (opened.text_content("#problem") or "")
    assert opened.locator("#found > li").count() == 0


def test_texts_get_bars_too(opened: "Page", sorter: Path) -> None:
    texts = ["<b>was kostet</b> das", "hallo schön"]
    opened.select_option("#model", "sorter")
    opened.fill("#text", "\n\n".join(texts))
    opened.click("#texts button")
    expected = Classifier.load(sorter).classify(texts)
    assert shown_labels(opened) == list(expected[0].probabilities)
    assert opened.locator("#found .of").all_text_contents() == texts


def test_a_server_without_such_models_says_so(browser: "Browser") -> None:
    with (
        listening_app(create_app(service_of())) as url,
        watched(browser, url) as seen,
    ):
        seen.page.goto(f"{url}/classify")
        seen.page.wait_for_selector("#none:not([hidden])", timeout=SLOW)
        assert seen.page.locator("#pictures").is_hidden()
        assert seen.misdeeds == []


def test_the_page_is_accessible(browser: "Browser", vit: Path) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci")
    desk = load_classifiers({"vit": vit}, "cpu")
    with (
        listening_app(create_app(service_of(), classifications=desk)) as url,
        watched(browser, url, viewport={"width": 390, "height": 800}, color_scheme="dark", bypass_csp=True) as seen,
    ):
        page = seen.page
        page.set_default_timeout(SLOW)
        page.add_init_script(path=AXE)
        page.goto(f"{url}/classify")
        page.wait_for_selector("#pictures:not([hidden])")
        page.set_input_files("#file", vit.parent / "images" / "down" / "1.png")
        shown_labels(page)
        found: list[Any] = page.evaluate(
            """async (values) => {
                const report = await axe.run(document, {runOnly: {type: 'tag', values}});
                return report.violations.map(({id, nodes}) => [id, nodes.map((node) => node.html)]);
            }""",
            RULES,
        )
        assert found == []

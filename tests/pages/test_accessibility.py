"""All pages, as axe-core sees them: names, landmarks, contrast and the size of targets."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import explained
import pytest
import text_examples
import toy

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "lxml", "polib", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve,documents]")

from browser import chromium
from serve_examples import listening, service_of

from heedful.config import ModelConfig, SearchConfig
from heedful.inspection.explain_rival import explain_rival
from heedful.inspection.explanation_page import make_explanation_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice", "experimental"]
SCREENS = {"desktop": (1280, 900, "light"), "phone": (390, 800, "dark")}


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    if not AXE.exists():
        pytest.skip("needs axe-core: npm ci")
    with chromium() as started:
        yield started


@pytest.fixture(params=SCREENS)
def screen(request: pytest.FixtureRequest, browser: "Browser") -> "Iterator[BrowserContext]":
    width, height, scheme = SCREENS[request.param]
    is_phone = request.param == "phone"
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        bypass_csp=True,  # the pages allow no foreign script, such as that of axe
        has_touch=is_phone,
        is_mobile=is_phone,
    )
    context.add_init_script(path=AXE)
    yield context
    context.close()


def violations(page: "Page") -> list[Any]:
    found: list[Any] = page.evaluate(
        """async (values) => {
            const rules = {'label-content-name-mismatch': {enabled: true}, 'target-size': {enabled: true}};
            const report = await axe.run(document, {runOnly: {type: 'tag', values}, rules});
            return report.violations.map(({id, nodes}) => [id, nodes.map((node) => node.html)]);
        }""",
        RULES,
    )
    return found


def test_the_translation_page_and_its_explorer_are_accessible(screen: "BrowserContext", trained: Path) -> None:
    run = trained / "run"
    text = toy.lines_of(trained / "test.en")[0]
    with listening(service_of(run, run, languages=["en-de", "de-en"])) as url:
        page = screen.new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{url}#en/de/unknown words {text}")
        page.wait_for_selector("#target .word")
        page.wait_for_selector("#look:enabled")
        page.click("#confidence")
        assert violations(page) == []
        page.click("#look")
        page.wait_for_selector("#grid .head")
        page.locator("#grid .power").first.click()
        page.wait_for_selector("#comparison")
        page.locator("#produced li").first.click()
        assert violations(page) == []
        page.goto(f"{url}/docs")
        page.wait_for_selector("#endpoints details")
        assert violations(page) == []


def test_pages_from_disk_are_accessible(screen: "BrowserContext", trained: Path, tmp_path: Path) -> None:
    source, target = trained / "test.en", trained / "test.de"
    commands: list[list[object]] = [
        ["heads", trained / "run", toy.lines_of(source)[0], "--n-best", 2, "--out", tmp_path / "heads.html"],
        ["heads", trained / "run", "--input", source, "--target", target, "--report", tmp_path / "report.html"],
        ["explain", trained / "run", toy.lines_of(source)[0], "--out", tmp_path / "explain.html"],
        ["compare", source, target, "--reference", target, "--html", tmp_path / "compare.html"],
    ]
    for command in commands:
        assert toy.run(*command).code == 0
        page = screen.new_page()
        page.goto(Path(str(command[-1])).as_uri())
        page.wait_for_selector("main")
        assert violations(page) == [], command[-1]


def test_every_kind_of_step_of_an_explanation_is_accessible(
    screen: "BrowserContext", trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "explain.html"
    assert toy.run("explain", trained / "run", toy.lines_of(trained / "test.en")[0], "--out", out).code == 0
    head = "decoder.1.attention.head.1"
    steps = ["tour.1", "pieces", "encoder.embedding", "encoder.positions", "encoder.1.attention"]
    steps += [f"{head}.projections", f"{head}.scores", f"{head}.mask", f"{head}.values", "decoder.1.feed_forward"]
    steps += ["encoder.1.attention.output", "encoder.1.attention.residual", "encoder.output", "lens", "logits", "beam"]
    steps += ["training", "cost", "experiments.order", "experiments.parts", "experiments.heads", "experiments.mask"]
    steps += ["experiments.path", "experiments.neighbours", "often-said"]
    page = screen.new_page()
    for step in steps:
        page.goto("about:blank")
        page.goto(f"{out.as_uri()}#{step}")
        page.wait_for_selector(".step.current")
        assert violations(page) == [], step


def test_the_pages_of_a_gpt_are_accessible(screen: "BrowserContext", tmp_path: Path) -> None:
    run = text_examples.train_gpt(tmp_path, "train.max_steps=40")
    for command in ("heads", "explain"):
        assert toy.run(command, run, "the dog", "--length", "9", "--out", tmp_path / f"{command}.html").code == 0
    page = screen.new_page()
    page.goto((tmp_path / "heads.html").as_uri())
    page.wait_for_selector("#grid .head")
    assert violations(page) == []
    for step in ("start", "pieces", "decoder.positions", "decoder.1.attention.head.1.softmax", "sampling", "cost"):
        page.goto("about:blank")
        page.goto(f"{(tmp_path / 'explain.html').as_uri()}#{step}")
        page.wait_for_selector(".step.current")
        assert violations(page) == [], step


def test_the_pages_of_models_that_read_and_answer_are_accessible(
    screen: "BrowserContext", encoder_runs: dict[str, Path], tmp_path: Path
) -> None:
    picture = encoder_runs["vit"].parent / "pictures" / "down" / "1.png"
    texts = {"vit": str(picture), "tagger": "the cat sees New York"}
    page = screen.new_page()
    for name, text in texts.items():
        for command in ("heads", "explain"):
            out = tmp_path / f"{command}-{name}.html"
            assert toy.run(command, encoder_runs[name], text, "--out", out).code == 0
        page.goto((tmp_path / f"heads-{name}.html").as_uri())
        page.wait_for_selector("#grid .head")
        if name == "vit":
            page.click("[data-patch='5']")
        assert violations(page) == [], name
        first = ["patches", "encoder.embedding"] if name == "vit" else ["pieces", "encoder.sum"]
        for step in ("start", *first, "encoder.1.attention", "encoder.1.attention.head.1.softmax", "encoder.positions",
                     "lens", "head", "logits", "training", "experiments.hiding", "often-said"):  # fmt: skip
            page.goto("about:blank")
            page.goto(f"{(tmp_path / f'explain-{name}.html').as_uri()}#{step}")
            page.wait_for_selector(".step.current")
            assert violations(page) == [], (name, step)


def test_the_page_of_a_rival_is_accessible(screen: "BrowserContext", tmp_path: Path) -> None:
    config = ModelConfig(
        family="recurrent", attention="additive", cell="gru", d_model=24, encoder_layers=1, decoder_layers=1
    )
    own = explained.untrained(config, SearchConfig(beam=2, max_extra=3))
    found = explain_rival(Path("run"), own, "A dog runs home.", own.search, "Ein Hund.")
    (tmp_path / "explain.html").write_text(make_explanation_page(found), encoding="utf-8")
    page = screen.new_page()
    for step in ("start", "encoder.output", "decoder.1.cross_attention", "experiments.order"):
        page.goto("about:blank")
        page.goto(f"{(tmp_path / 'explain.html').as_uri()}#{step}")
        page.wait_for_selector(".step.current")
        assert violations(page) == [], step

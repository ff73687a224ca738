"""Take the pictures of the pages, in docs/pictures: those of the server, of `heedful explain` and of `heedful heads`.

    .venv/bin/python scripts/page_pictures.py
    .venv/bin/python scripts/page_pictures.py runs/tiny-shakespeare   # those of a GPT only

It serves the built-in models on a free port, and needs chromium on the path.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
TEXT = """I have never seen such a beautiful garden. Could you show me the way to the station?

She did not want to speak to anyone about it."""
WORD = "Könntest"  # whose alternatives are shown
HEAD = "cross.2.5"  # that is switched off, which changes the translation
SENTENCE = "The animal didn't cross the street because it was too tired."
NEGATION = "cross.2.4"  # the head without which the translation of this sentence loses its "nicht"
PHRASES = Path(__file__).with_name("phrases.tsv")  # the report measures the heads on their English side
PROMPT = "ROMEO:"
BUILT_IN_PICTURES = (
    ("explain", "encoder.1.attention.head.3.softmax", "explain-head"),
    ("explain", "experiments.path", "explain-experiments"),
    ("heads", "cross.2.3", "heads-cross"),
)
GPT_PICTURES = (("explain", "sampling", "explain-gpt"), ("heads", "decoder.2.3", "heads-gpt"))
WIDE: "ViewportSize" = {"width": 1180, "height": 660}
TALL: "ViewportSize" = {"width": 1280, "height": 860}
PHONE: "ViewportSize" = {"width": 390, "height": 844}
PATIENCE = 60_000  # milliseconds


def main() -> None:
    """Take those of the built-in models, or those of the GPT that is named."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("page_pictures: chromium is not on the path; install it")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        if sys.argv[1:]:
            take_files(browser, sys.argv[1], PROMPT, GPT_PICTURES)
        else:
            take_files(browser, "en-de", SENTENCE, BUILT_IN_PICTURES)
            take_live(browser)
            take_report(browser)
            take_served(browser)
        browser.close()
    print(PICTURES)


def take_files(browser: "Browser", model: str, text: str, pictures: Sequence[tuple[str, str, str]]) -> None:
    """Pictures of the files that a command writes: of each, the command, the step or head, and the name."""
    with TemporaryDirectory() as folder:
        for command in dict.fromkeys(command for command, _, _ in pictures):
            file = Path(folder) / f"{command}.html"
            subprocess.run([sys.executable, "-m", "heedful", command, model, text, "--out", file], check=True)
            page = browser.new_page(viewport=TALL, reduced_motion="reduce")
            for _, address, name in (each for each in pictures if each[0] == command):
                page.goto(f"{file.as_uri()}#{address}")
                page.reload()  # a page of heads opens the head that its address names only at first
                page.wait_for_timeout(1000)  # the maps are drawn
                if command == "heads":
                    page.locator("#heads").evaluate("(part) => scrollBy(0, part.getBoundingClientRect().top - 16)")
                page.screenshot(path=PICTURES / f"{name}.png")


def take_live(browser: "Browser") -> None:
    """A picture of the page of `heedful heads --serve`, with a head switched off."""
    with serve("heads", "en-de", SENTENCE, "--serve") as address:
        page = browser.new_page(viewport=TALL, reduced_motion="reduce", color_scheme="dark")
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.click("#tabs [role=tab] >> nth=2")
        switch_off(page, NEGATION)
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(1000)  # the maps are drawn
        page.screenshot(path=PICTURES / "heads-live.png")


def take_report(browser: "Browser") -> None:
    """A picture of the report on every head over a text."""
    with TemporaryDirectory() as folder:
        text, report = Path(folder) / "phrases.en", Path(folder) / "report.html"
        lines = PHRASES.read_text(encoding="utf-8").splitlines()
        text.write_text("".join(line.split("\t")[0] + "\n" for line in lines), encoding="utf-8")
        command: list[str | Path] = [sys.executable, "-m", "heedful", "heads", "en-de"]
        subprocess.run([*command, "--input", text, "--report", report], check=True, stdout=subprocess.DEVNULL)
        page = browser.new_page(viewport=TALL, reduced_motion="reduce")
        page.goto(report.as_uri())
        page.screenshot(path=PICTURES / "heads-report.png")


def take_served(browser: "Browser") -> None:
    """Pictures of the server's page."""
    with serve("serve", "--port", "0") as address:
        page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
        translate(page, address)
        page.click("#confidence")
        page.locator("#target .word", has_text=WORD).click()
        page.wait_for_selector("#choices-list button")
        page.screenshot(path=PICTURES / "serve-page.png")
        page.keyboard.press("Escape")
        look_inside(page)
        page.screenshot(path=PICTURES / "serve-inside.png")
        page = browser.new_page(viewport=PHONE, reduced_motion="reduce", color_scheme="dark")
        translate(page, address)
        page.click("#confidence")
        page.screenshot(path=PICTURES / "serve-phone.png")


@contextmanager
def serve(*arguments: str) -> Iterator[str]:
    """The address of a server that this command starts."""
    command = [sys.executable, "-m", "heedful", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            words = (word for line in server.stderr or () for word in line.split())
            yield next(word for word in words if word.startswith("http://"))
        finally:
            server.terminate()
            server.communicate()


def translate(page: "Page", address: str) -> None:
    """Open the page and translate the text into German."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.select_option("#from", "en")
    page.select_option("#into", "de")
    page.fill("#source", TEXT)
    page.wait_for_selector("#target[aria-busy=false] .word[data-sentence='2']")


def switch_off(page: "Page", head: str) -> None:
    """Switch off a head that is in view, and wait for the translation without it."""
    page.focus(f"[id='open-{head}']")
    page.keyboard.press("o")
    page.wait_for_selector("#comparison")


def look_inside(page: "Page") -> None:
    """Explain the sentence with the word, and switch a head off."""
    page.set_viewport_size(TALL)
    page.locator("#target .word", has_text=WORD).focus()
    page.click("#look")
    page.click("#tabs [role=tab] >> nth=2")
    switch_off(page, HEAD)
    page.locator("#tabs").evaluate("(tabs) => scrollBy(0, tabs.getBoundingClientRect().top - 140)")
    page.wait_for_timeout(1000)  # the maps are drawn


if __name__ == "__main__":
    main()

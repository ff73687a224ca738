"""Debian's chromium for tests that look at a page, and what a page did that it should not."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)


@dataclass
class Watched:
    """A page and its misdeeds: requests for anything but files and its own server, errors in the console, dialogs."""

    page: "Page"
    misdeeds: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser without a window; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, a Python package")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def watched(browser: "Browser", own: str = "file:", **options: Any) -> Iterator[Watched]:
    """A fresh page, whose requests, errors and dialogs are noted; `own` is how addresses of its server begin."""
    context = browser.new_context(**options)
    page = context.new_page()
    seen = Watched(page)
    page.on("dialog", lambda dialog: _note_dialog(seen, dialog))
    page.on("pageerror", lambda error: seen.misdeeds.append(f"error: {error}"))
    page.on("console", lambda said: seen.misdeeds.append(f"error: {said.text}") if said.type == "error" else None)
    page.on("request", lambda request: _note_request(seen, request.url, own))
    try:
        yield seen
    finally:
        context.close()


def _note_dialog(seen: Watched, dialog: "Dialog") -> None:
    seen.misdeeds.append(f"dialog: {dialog.message}")
    dialog.dismiss()  # an open one would hold up the test


def _note_request(seen: Watched, url: str, own: str) -> None:
    if not url.startswith((own, "data:")):
        seen.misdeeds.append(f"request: {url}")

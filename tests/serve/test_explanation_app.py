"""The application of `heedful explain --serve`: the first page, and pages of other sentences."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

from collections.abc import Iterator

import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import listening_app

from heedful.errors import DataError
from heedful.serve.app import create_explanation_app

HEADERS = {"X-Heedful": "1"}


def explain(text: str, translation: str) -> str:
    if not text:
        raise DataError("there is nothing to explain in an empty text; give a sentence")
    return f"<!doctype html><title>{text} {translation}</title>"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    app = create_explanation_app("first ü", explain)
    with listening_app(app) as url, httpx.Client(base_url=url, timeout=20) as opened:
        yield opened


def ask(client: httpx.Client, text: str, translation: str = "") -> httpx.Response:
    return client.post("/explanations", json={"text": text, "translation": translation}, headers=HEADERS)


def test_another_sentence_gets_a_page_of_its_own(client: httpx.Client) -> None:
    assert client.get("/").text == "first ü"
    page = ask(client, "a sentence", "ein Satz").json()["page"]
    answer = client.get(page)
    assert (answer.status_code, answer.text) == (200, "<!doctype html><title>a sentence ein Satz</title>")
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_a_mistake_is_answered_in_one_sentence(client: httpx.Client) -> None:
    answer = ask(client, "")
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "there is nothing to explain in an empty text; give a sentence",
    )


def test_only_the_last_pages_are_kept(client: httpx.Client) -> None:
    pages = [ask(client, f"sentence {number}").json()["page"] for number in range(9)]
    gone = client.get(pages[0])
    assert (gone.status_code, "explain the sentence again at /" in gone.json()["error"]) == (404, True)
    assert all(client.get(page).status_code == 200 for page in pages[1:])


def test_other_pages_cannot_ask(client: httpx.Client) -> None:
    assert client.post("/explanations", json={"text": "a"}).status_code == 403
    answer = client.post("/explanations", json={"text": "a"}, headers=HEADERS | {"Origin": "http://evil.example"})
    assert answer.status_code == 403

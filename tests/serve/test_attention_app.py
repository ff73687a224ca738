"""The application of `heedful heads --serve`: the page of one model, and its requests."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from threading import Event, Thread

import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import listening_app

from heedful.errors import ConfigError, DataError
from heedful.serve.app import create_attention_app
from heedful.serve.listener import listen

HEADERS = {"Content-Type": "application/json", "X-Heedful": "1"}
REQUEST = {"text": "a sentence", "off": ["encoder.1.2"], "n_best": 3}
PAGE = "<!doctype html><title>ü</title>"


def explain(text: str, off: list[str], n_best: int) -> Mapping[str, object]:
    if text == "boom":
        raise ZeroDivisionError("by zero")
    if not text:
        raise DataError("there is nothing to inspect in an empty text; give a sentence")
    return {"text": text, "off": off, "n_best": n_best}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with listening_app(create_attention_app(PAGE, explain)) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


def ask(client: httpx.Client, body: bytes, **headers: str) -> httpx.Response:
    return client.post("/attention", content=body, headers=HEADERS | headers)


def test_the_page_may_not_be_cached_framed_or_sniffed(client: httpx.Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"  # the page itself has the rest


def test_a_request_gets_its_document(client: httpx.Client) -> None:
    answer = ask(client, json.dumps(REQUEST).encode())
    assert (answer.status_code, answer.json()) == (200, REQUEST)
    assert answer.headers["cache-control"] == "no-store"


def test_a_users_mistake_gets_one_sentence(client: httpx.Client) -> None:
    answer = ask(client, json.dumps(REQUEST | {"text": ""}).encode())
    sentence = "there is nothing to inspect in an empty text; give a sentence"
    assert (answer.status_code, answer.json()) == (422, {"error": sentence})


def test_an_unexpected_error_gets_one_sentence(client: httpx.Client) -> None:
    answer = ask(client, json.dumps(REQUEST | {"text": "boom"}).encode())
    assert (answer.status_code, answer.json()) == (500, {"error": "unexpected ZeroDivisionError: by zero"})


def test_a_port_in_use_is_a_users_error(client: httpx.Client) -> None:
    port = client.base_url.port
    assert port
    message = rf"cannot listen on 127.0.0.1, port {port} \(Address already in use\); give another --port"
    with pytest.raises(ConfigError, match=message):
        listen("127.0.0.1", port)


def test_requests_run_one_at_a_time_and_stopping_waits_for_the_last() -> None:
    inside, most, done = 0, 0, []
    begun = Event()

    def slow(text: str, off: list[str], n_best: int) -> Mapping[str, object]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        begun.set()
        time.sleep(0.05)
        inside -= 1
        done.append(text)
        return {"text": text}

    answers: list[int] = []
    body = json.dumps(REQUEST).encode()

    def send(url: str) -> None:
        answers.append(httpx.post(f"{url}/attention", content=body, headers=HEADERS, timeout=20).status_code)

    with listening_app(create_attention_app("", slow)) as url:
        clients = [Thread(target=send, args=(url,)) for _ in range(4)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert (most, len(done)) == (1, 4)
        begun.clear()
        last = Thread(target=send, args=(url,))
        last.start()
        assert begun.wait(20)
    last.join(20)
    assert (len(done), answers) == (5, [200] * 5)  # stopping waited for the last one


@pytest.mark.parametrize("host", ["evil.example:80", "evil.example", "127.0.0.1.evil.example", ""])
def test_a_foreign_host_name_is_refused(client: httpx.Client, host: str) -> None:
    for method, path in (("GET", "/"), ("POST", "/attention")):
        answer = client.request(method, path, content=b"{}", headers=HEADERS | {"Host": host})
        assert (answer.status_code, answer.json()) == (403, {"error": "this server is for this machine only"})


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "application/json"}, {"X-Heedful": "1"}, {**HEADERS, "X-Heedful": "0"}]
)
def test_a_foreign_page_cannot_send_requests(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post("/attention", content=json.dumps(REQUEST).encode(), headers=headers)
    assert answer.status_code == 403
    assert "X-Heedful" in answer.json()["error"]
    foreign = {"Origin": "https://evil.example"}
    assert client.post("/attention", json=REQUEST, headers=HEADERS | foreign).status_code == 403
    preflight = client.options("/attention", headers=foreign)  # browsers ask this before they send such a header
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"\xff",
        b"[" * 30_000,
        b"null",
        b"[]",
        b"{}",
        json.dumps(REQUEST | {"text": 1}).encode(),
        json.dumps(REQUEST | {"off": "encoder.1.2"}).encode(),
        json.dumps(REQUEST | {"off": [1]}).encode(),
        json.dumps(REQUEST | {"n_best": 0}).encode(),
        json.dumps(REQUEST | {"n_best": 11}).encode(),
        json.dumps(REQUEST | {"n_best": True}).encode(),
        json.dumps(REQUEST | {"n_best": 1.5}).encode(),
        json.dumps(REQUEST | {"n_best": float("nan")}).encode(),
    ],
)
def test_an_invalid_body_is_refused(client: httpx.Client, body: bytes) -> None:
    answer = ask(client, body)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_body_that_declares_too_many_bytes_is_not_read(client: httpx.Client) -> None:
    def declare(length: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", client.base_url.port, timeout=20)
        with closing(connection):
            connection.request("POST", "/attention", b"", HEADERS | {"Content-Length": length})
            answer = connection.getresponse()
            return answer.status, answer.read()

    for length in ("65537", "9" * 15):
        status, body = declare(length)
        sentence = "Invalid request: the body may have at most 65536 bytes"
        assert (status, json.loads(body)) == (413, {"error": sentence})
    for length in ("-1", "x", "1_0", "9" * 5000):
        assert declare(length)[0] == 400


def test_other_paths_and_methods_are_refused(client: httpx.Client) -> None:
    for path in ("/../../etc/passwd", "/docs", "/openapi.json", "/metrics"):
        assert client.get(path).status_code == 404
    assert client.get("/attention").status_code == 405
    assert client.post("/", content=b"{}").status_code == 405
    assert client.delete("/").status_code == 405

"""The page of all heads with a model behind it."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from threading import Event, Thread

import pytest
from http_requests import HEADERS, send

from heedful.errors import ConfigError, DataError
from heedful.serve.explorer import Explorer

REQUEST = {"text": "a sentence", "off": ["encoder.1.2"], "n_best": 3}


def answer(text: str, off: list[str], n_best: int) -> Mapping[str, object]:
    if text == "boom":
        raise ZeroDivisionError("by zero")
    if not text:
        raise DataError("there is nothing to inspect in an empty text; give a sentence")
    return {"text": text, "off": off, "n_best": n_best}


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with Explorer(0, "<!doctype html><title>ü</title>", answer) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_page_is_there_and_nobody_may_keep_frame_or_sniff_it(explorer: Explorer) -> None:
    status, content, response = send(explorer, "GET", "/")
    assert (status, content) == (200, "<!doctype html><title>ü</title>")
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"


def test_a_request_gets_its_document(explorer: Explorer) -> None:
    status, document, _ = send(explorer, "POST", "/attention", json.dumps(REQUEST).encode())
    assert (status, document) == (200, REQUEST)


def test_a_users_mistake_is_a_sentence(explorer: Explorer) -> None:
    status, document, _ = send(explorer, "POST", "/attention", json.dumps(REQUEST | {"text": ""}).encode())
    assert (status, document["error"]) == (422, "there is nothing to inspect in an empty text; give a sentence")


def test_a_mistake_of_ours_is_a_sentence_too(explorer: Explorer) -> None:
    status, document, _ = send(explorer, "POST", "/attention", json.dumps(REQUEST | {"text": "boom"}).encode())
    assert (status, document["error"]) == (500, "unexpected ZeroDivisionError: by zero")


def test_a_port_that_is_taken_is_the_users_error(explorer: Explorer) -> None:
    port = explorer.server_port
    with pytest.raises(ConfigError, match=rf"--port {port} cannot be used \(Address already in use\); give another"):
        Explorer(port, "", answer)


def test_the_usual_port_goes_without_saying(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(explorer.hosts) == [f"127.0.0.1:{explorer.server_port}", f"localhost:{explorer.server_port}"]
    monkeypatch.setattr(explorer, "server_port", 80)
    assert list(explorer.hosts) == ["127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"]


def test_one_answer_at_a_time_and_the_last_one_comes_to_its_end() -> None:
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

    with Explorer(0, "", slow) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        body = json.dumps(REQUEST).encode()
        clients = [Thread(target=send, args=(server, "POST", "/attention", body)) for _ in range(4)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert (most, len(done)) == (1, 4)
        begun.clear()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        connection.request("POST", "/attention", body, HEADERS)
        assert begun.wait(20)
        server.shutdown()
    assert len(done) == 5  # closing has waited for it
    connection.close()


@pytest.mark.parametrize("host", ["evil.example:80", "evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_a_foreign_name_that_points_here_gets_nothing(explorer: Explorer, host: str) -> None:
    for method, path in (("GET", "/"), ("POST", "/attention")):
        status, document, _ = send(explorer, method, path, b"{}", {**HEADERS, "Host": host})
        assert (status, document) == (421, {"error": "this page is for this machine only"})


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "application/json"}, {"X-Heedful": "1"}, {**HEADERS, "X-Heedful": "0"}]
)
def test_a_foreign_page_cannot_send_requests(explorer: Explorer, headers: dict[str, str]) -> None:
    status, document, _ = send(explorer, "POST", "/attention", json.dumps(REQUEST).encode(), headers)
    assert status == 403
    assert "X-Heedful" in document["error"]
    status, _, response = send(explorer, "OPTIONS", "/attention")  # what a browser asks before it sends such a header
    assert status == 501
    assert "Access-Control-Allow-Origin" not in response.headers


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
def test_whatever_is_not_a_request_is_refused(explorer: Explorer, body: bytes) -> None:
    status, document, _ = send(explorer, "POST", "/attention", body)
    assert status == 400
    assert document["error"]


def test_a_body_that_is_too_long_is_not_even_read(explorer: Explorer) -> None:
    for length in ("65537", "9" * 5000):
        status, document, _ = send(explorer, "POST", "/attention", b"", {**HEADERS, "Content-Length": length})
        assert (status, document) == (413, {"error": "a request has at most 65536 bytes"})
    for length in ("-1", "x", "1_0"):
        assert send(explorer, "POST", "/attention", b"", {**HEADERS, "Content-Length": length})[0] == 411


def test_there_is_nothing_else(explorer: Explorer) -> None:
    assert send(explorer, "GET", "/../../etc/passwd")[0] == 404
    assert send(explorer, "GET", "/attention")[0] == 404
    assert send(explorer, "POST", "/", b"{}")[0] == 404
    assert send(explorer, "DELETE", "/")[0] == 501

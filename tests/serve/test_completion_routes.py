"""`/v1/complete`: whole answers, streams of pieces, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import text_examples

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import client_of, service_of

from heedful.completion.completer import Completer
from heedful.serve import completion_routes
from heedful.serve.completion_routes import CompletionDesk, load_completers
from heedful.serve.model_registry import split_by_task
from heedful.serve.service import Service, ServiceLimits

ASKED = {"prompt": "the cat", "length": 30, "temperature": 0.7, "seed": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_examples.train_gpt(tmp_path_factory.mktemp("gpt"), "train.max_steps=30")


@pytest.fixture(scope="module")
def desk(run: Path) -> CompletionDesk:
    return load_completers({"gpt": run}, "cpu")


@pytest.fixture(scope="module")
def service() -> Service:
    return service_of()  # nothing that translates


def ask(service: Service, desk: CompletionDesk, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def asked() -> None:
        async with client_of(service, completions=desk) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


def read_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    blocks = [block.splitlines() for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_an_answer_has_the_continuations_of_the_completer(service: Service, desk: CompletionDesk, run: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/complete", json={**ASKED, "n": 2})
        (expected,) = Completer.load(run).complete(["the cat"], n=2, length=30, temperature=0.7, seed=3)
        assert answer.status_code == 200
        assert (answer.json()["model"], answer.json()["prompt"]) == ("gpt", "the cat")
        assert [one["text"] for one in answer.json()["continuations"]] == [one.text for one in expected.continuations]
        assert {one["tokens"] for one in answer.json()["continuations"]} == {30}

    ask(service, desk, work)


def test_a_stream_has_the_same_text_in_pieces(service: Service, desk: CompletionDesk) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        whole = (await client.post("/v1/complete", json={**ASKED, "n": 2})).json()
        answer = await client.post("/v1/complete", json={**ASKED, "n": 2, "stream": True})
        assert answer.headers["content-type"].startswith("text/event-stream")
        *pieces, (last, end) = read_events(answer.text)
        assert (last, end) == ("end", {"model": "gpt"})
        assert {name for name, _ in pieces} == {"piece"}
        for number in range(2):
            text = "".join(piece["text"] for _, piece in pieces if piece["index"] == number)
            assert text == whole["continuations"][number]["text"]
        assert len(pieces) > 30

    ask(service, desk, work)


def test_the_model_is_listed(service: Service, desk: CompletionDesk) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        found = (await client.get("/v1/models")).json()
        assert found["completion"] == ["gpt"]
        assert found["models"] == []

    ask(service, desk, work)


@pytest.mark.parametrize(
    ("change", "status", "sentence"),
    [
        ({"model": "other"}, 404, "no such model of text is loaded"),
        ({"n": 2, "temperature": 0}, 400, "with temperature 0 there is only one continuation; set n to 1"),
        ({"top_p": 0}, 400, "top_p"),
        ({"length": 3000}, 400, "length"),
        ({"prompt": 5}, 400, "prompt"),
        ({"wish": 1}, 400, "wish"),
        ({"prompt": "x" * 60_000}, 400, "exceeds text limit (50000)"),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(
    service: Service, desk: CompletionDesk, change: dict[str, object], status: int, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/complete", json=ASKED | change)
        assert answer.status_code == status
        assert sentence in answer.json()["error"]

    ask(service, desk, work)


def test_one_of_several_models_must_be_named(service: Service, run: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/complete", json=ASKED)
        assert answer.status_code == 400
        assert "name a model, one of one, two" in answer.json()["error"]
        assert (await client.post("/v1/complete", json={**ASKED, "model": "two"})).status_code == 200

    ask(service, load_completers({"one": run, "two": run}, "cpu"), work)


def test_without_a_model_of_text_there_is_none(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/complete", json=ASKED)).status_code == 404

    ask(service, CompletionDesk({}), work)


def test_too_many_requests_are_refused_at_once(service: Service, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_routes, "_MOST_WAITING", 0)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/complete", json=ASKED)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        streamed = await client.post("/v1/complete", json={**ASKED, "stream": True})
        assert read_events(streamed.text) == [("error", {"error": "Slowdown: too many requests are waiting"})]

    ask(service, load_completers({"gpt": run}, "cpu"), work)


def test_a_stream_that_takes_too_long_ends_with_an_error(desk: CompletionDesk) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/complete", json={**ASKED, "length": 2000, "stream": True})
        assert read_events(answer.text)[-1] == ("error", {"error": "Slowdown: not done after 0.05 s"})

    ask(service_of(limits=ServiceLimits(seconds=0.05)), desk, work)


def test_models_are_told_apart_by_their_task(run: Path) -> None:
    split = split_by_task([Path("en-de"), run, run])
    assert split.translators == [Path("en-de")]
    assert split.completers == {"run": run, "run-2": run}
    assert split.classifiers == {}

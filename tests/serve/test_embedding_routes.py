"""`/v1/embed`: vectors as the embedder gives them, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "transformers"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
import numpy as np
from serve_examples import client_of, service_of
from transformers_examples import bert_folder, sentence_folder

from heedful import Embedder
from heedful.formats.import_model import import_model
from heedful.serve import embedding_routes
from heedful.serve.embedding_routes import EmbeddingDesk, load_embedders
from heedful.serve.model_registry import split_by_task
from heedful.serve.service import Service

TEXTS = ["The cat sat.", "über 中文", ""]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    import_model(sentence_folder(folder / "theirs"), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    import_model(bert_folder(folder / "theirs", "BertForMaskedLM"), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def service() -> Service:
    return service_of()  # nothing that translates


def ask(service: Service, desk: EmbeddingDesk, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def asked() -> None:
        async with client_of(service, embeddings=desk) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


def test_an_answer_has_the_vectors_of_the_embedder(service: Service, run: Path) -> None:
    expected = Embedder.load(run).embed(TEXTS)

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/embed", json={"text": TEXTS})).json()
        assert (answer["model"], answer["dimensions"]) == ("minilm", 24)
        np.testing.assert_allclose(answer["vectors"], expected, atol=1e-6)
        (single,) = (await client.post("/v1/embed", json={"text": TEXTS[1]})).json()["vectors"]
        np.testing.assert_allclose(single, expected[1], atol=1e-6)
        assert (await client.get("/v1/models")).json()["embedding"] == ["minilm"]

    ask(service, load_embedders({"minilm": run}, "cpu"), work)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"text": "a", "model": "other"}, 404, "no such model of vectors is loaded"),
        ({"text": []}, 400, "text"),
        ({"text": ["a"] * 1001}, 400, "text"),
        ({"text": 5}, 400, "text"),
        ({"text": [["a"]]}, 400, "text"),
        ({}, 400, "text"),
        ({"text": "a", "wish": 1}, 400, "wish"),
        ({"text": "x" * 60_000}, 400, "exceeds text limit (50000)"),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(
    service: Service, run: Path, body: dict[str, object], status: int, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/embed", json=body)
        assert answer.status_code == status
        assert sentence in answer.json()["error"]

    ask(service, load_embedders({"minilm": run}, "cpu"), work)


def test_a_body_that_is_no_json_is_refused(service: Service, run: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        headers = {"Content-Type": "application/json"}
        for content in (b"", b"{", b'["a"]', b"\xff", b'{"text": "\\ud800"}'):
            assert (await client.post("/v1/embed", content=content, headers=headers)).status_code == 400

    ask(service, load_embedders({"minilm": run}, "cpu"), work)


def test_one_of_several_models_must_be_named(service: Service, run: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/embed", json={"text": "a"})
        assert answer.status_code == 400
        assert "name a model, one of one, two" in answer.json()["error"]
        assert (await client.post("/v1/embed", json={"text": "a", "model": "two"})).status_code == 200

    ask(service, load_embedders({"one": run, "two": run}, "cpu"), work)


def test_too_many_requests_are_refused_at_once(service: Service, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_routes, "_MOST_WAITING", 0)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/embed", json={"text": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")

    ask(service, load_embedders({"minilm": run}, "cpu"), work)


def test_without_a_model_of_vectors_there_is_none(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/embed", json={"text": "a"})).status_code == 404

    ask(service, EmbeddingDesk({}), work)


def test_the_server_says_which_vectors_were_not_learnt(run: Path, hidden: Path) -> None:
    (notice,) = load_embedders({"minilm": run, "hidden": hidden}, "cpu").notices
    assert "has learnt to find hidden tokens and not to compare texts" in notice


def test_models_are_told_apart_by_their_task(run: Path, hidden: Path) -> None:
    split = split_by_task([Path("en-de"), run, hidden])
    assert split.translators == [Path("en-de")]
    assert split.embedders == {"run": run, "run-2": hidden}

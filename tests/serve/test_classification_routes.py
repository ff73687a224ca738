"""`/v1/classify`: labels and tags as the classifier gives them, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import label_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import client_of, service_of

from heedful import Classifier
from heedful.serve import classification_routes
from heedful.serve.classification_routes import ClassificationDesk, load_classifiers
from heedful.serve.model_registry import split_by_task
from heedful.serve.service import Service

TEXTS = ["hallo schön", "was kostet das"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    file = label_examples.write_labels(folder / "train.tsv", 60)
    return label_examples.train_bert(folder, file, "train.max_steps=3", "text.vocabulary_size=262")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    file = label_examples.write_conllu(folder / "train.conllu", 60)
    return label_examples.train_bert(folder, file, "train.max_steps=3", "text.vocabulary_size=262")


@pytest.fixture(scope="module")
def service() -> Service:
    return service_of()  # nothing that translates


def ask(
    service: Service, desk: ClassificationDesk, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]
) -> None:
    async def asked() -> None:
        async with client_of(service, classifications=desk) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


def test_an_answer_has_the_probabilities_of_the_classifier(service: Service, run: Path) -> None:
    expected = Classifier.load(run).classify(TEXTS)

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/classify", json={"text": TEXTS})).json()
        assert answer["model"] == "sorter"
        for found, wanted in zip(answer["texts"], expected, strict=True):
            assert found == {
                "text": wanted.text,
                "label": wanted.label,
                "probability": pytest.approx(wanted.probability),
                "probabilities": pytest.approx(dict(wanted.probabilities)),
            }
        (single,) = (await client.post("/v1/classify", json={"text": TEXTS[0]})).json()["texts"]
        assert single["label"] == expected[0].label
        assert (await client.get("/v1/models")).json()["classification"] == ["sorter"]

    ask(service, load_classifiers({"sorter": run}, "cpu"), work)


def test_a_tagger_answers_with_words(service: Service, tagger: Path) -> None:
    (expected,) = Classifier.load(tagger).tag(["the cat"])

    async def work(client: httpx.AsyncClient) -> None:
        ((found),) = (await client.post("/v1/classify", json={"text": "the cat"})).json()["texts"]
        assert found.keys() == {"text", "words"}
        assert [(one["word"], one["tag"]) for one in found["words"]] == [(w.word, w.tag) for w in expected.words]

    ask(service, load_classifiers({"tagger": tagger}, "cpu"), work)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"text": "a", "model": "other"}, 404, "no such model of labels is loaded"),
        ({"text": []}, 400, "text"),
        ({"text": ["a"] * 1001}, 400, "text"),
        ({"text": 5}, 400, "text"),
        ({}, 400, "text"),
        ({"text": "a", "wish": 1}, 400, "wish"),
        ({"text": "x" * 60_000}, 400, "exceeds text limit (50000)"),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(
    service: Service, run: Path, body: dict[str, object], status: int, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/classify", json=body)
        assert answer.status_code == status
        assert sentence in answer.json()["error"]

    ask(service, load_classifiers({"sorter": run}, "cpu"), work)


def test_one_of_several_models_must_be_named(service: Service, run: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/classify", json={"text": "a"})
        assert answer.status_code == 400
        assert "name a model, one of one, two" in answer.json()["error"]
        assert (await client.post("/v1/classify", json={"text": "a", "model": "two"})).status_code == 200

    ask(service, load_classifiers({"one": run, "two": run}, "cpu"), work)


def test_too_many_requests_are_refused_at_once(service: Service, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classification_routes, "_MOST_WAITING", 0)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/classify", json={"text": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")

    ask(service, load_classifiers({"sorter": run}, "cpu"), work)


def test_without_a_classifier_there_is_none(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post("/v1/classify", json={"text": "a"})).status_code == 404

    ask(service, ClassificationDesk({}), work)


def test_models_are_told_apart_by_their_task(run: Path, tagger: Path) -> None:
    split = split_by_task([Path("en-de"), run, tagger])
    assert split.translators == [Path("en-de")]
    assert split.classifiers == {"run": run, "run-2": tagger}

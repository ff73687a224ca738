"""`/v1/classify`: labels and tags as the classifier gives them, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
import struct
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import label_examples
import picture_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import client_of, service_of

from heedful import Classifier, PictureClassifier
from heedful.serve import classification_routes
from heedful.serve.api_keys import add_key
from heedful.serve.classification_routes import ClassificationDesk, load_classifiers
from heedful.serve.model_registry import split_by_task
from heedful.serve.service import Service, ServiceLimits

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


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    picture_examples.write_pictures(folder / "images", each=10)
    return picture_examples.train_vit(folder / "images", folder / "vit", "train.max_steps=3")


@pytest.fixture(scope="module")
def pictures(vit: Path) -> list[Path]:
    return [vit.parent / "images" / "down" / "1.png", vit.parent / "images" / "across" / "0.jpg"]


def uploads(*files: Path) -> list[tuple[str, tuple[str, bytes]]]:
    return [("picture", (file.name, file.read_bytes())) for file in files]


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


def test_models_are_told_apart_by_their_task(run: Path, tagger: Path, vit: Path) -> None:
    split = split_by_task([Path("en-de"), run, tagger, vit])
    assert split.translators == [Path("en-de")]
    assert split.classifiers == {"run": run, "run-2": tagger, "vit": vit}
    desk = load_classifiers(split.classifiers, "cpu")
    assert (desk.names, desk.pictures.names) == (["run", "run-2"], ["vit"])


# Pictures


def test_pictures_are_labelled_as_by_the_classifier(
    service: Service, run: Path, vit: Path, pictures: list[Path]
) -> None:
    expected = PictureClassifier.load(vit).classify(pictures)

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/classify", files=uploads(*pictures))).json()
        assert answer.keys() == {"model", "pictures"}
        for found, wanted, file in zip(answer["pictures"], expected, pictures, strict=True):
            assert found == {
                "picture": file.name,
                "label": wanted.label,
                "probability": pytest.approx(wanted.probability),
                "probabilities": pytest.approx(dict(wanted.probabilities)),
            }
        assert (await client.post("/v1/classify", json={"text": TEXTS[0]})).json()["model"] == "sorter"
        models = (await client.get("/v1/models")).json()
        assert (models["classification"], models["pictures"]) == (["sorter"], ["vit"])

    ask(service, load_classifiers({"sorter": run, "vit": vit}, "cpu"), work)


def _png(width: int, height: int) -> bytes:
    """A PNG file of this size that ends before its first pixel."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 100) + b"IDAT"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("note.txt", b"no picture", "note.txt is not a PNG or JPEG picture"),
        ("empty.png", b"", "empty.png is not a PNG or JPEG picture"),
        ("evil.gif", b"GIF89a" + bytes(40), "evil.gif is not a PNG or JPEG picture"),
        ("cut.png", _png(12, 12), "cut.png is damaged"),
        ("large.png", _png(10_000, 8000), "large.png has 10,000 x 8,000 pixels, over the 50,000,000"),
        ("x" * 500 + ".png", b"?", "x" * 200 + " is not a PNG"),
        ("../../etc/passwd", b"?", "is not a PNG or JPEG picture"),
    ],
    ids=["text", "empty", "gif", "cut", "large", "long-name", "path"],
)
def test_a_malformed_picture_is_refused_in_one_sentence(
    service: Service, vit: Path, name: str, content: bytes, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/classify", files={"picture": (name, content)})
        assert answer.status_code == 400
        assert sentence in answer.json()["error"]

    ask(service, load_classifiers({"vit": vit}, "cpu"), work)


def test_limits_of_pictures(run: Path, vit: Path, pictures: list[Path]) -> None:
    limited = service_of(limits=ServiceLimits(file=20_000))

    async def work(client: httpx.AsyncClient) -> None:
        async def refused(files: Any, **fields: str) -> tuple[int, str]:
            answer = await client.post("/v1/classify", files=files, data=fields)
            return answer.status_code, answer.json()["error"]

        few, many = uploads(*pictures[:1]), uploads(*pictures[:1] * 17)
        assert (await client.post("/v1/classify", files=uploads(*pictures[:1] * 16))).status_code == 200
        assert await refused(many) == (
            400,
            "Invalid request: the body is not a multipart form with at most 16 files",
        )
        assert (await refused({"picture": ("big.png", bytes(20_000))}))[0] == 413
        assert await refused({"other": few[0][1]}) == (400, "Invalid request: missing picture parameter")
        assert await refused(few, model="sorter") == (
            400,
            "Invalid request: sorter labels texts; send them as JSON, field text",
        )
        assert (await refused(few, model="none"))[0] == 404
        as_text = await client.post("/v1/classify", json={"text": "a", "model": "vit"})
        assert (as_text.status_code, "vit labels pictures; send them as" in as_text.json()["error"]) == (400, True)

    ask(limited, load_classifiers({"sorter": run, "vit": vit}, "cpu"), work)


def test_a_key_is_needed_for_pictures_too(tmp_path: Path, vit: Path, pictures: list[Path]) -> None:
    key = add_key(tmp_path / "keys.json", "me", 60)

    async def work(client: httpx.AsyncClient) -> None:
        refused = await client.post("/v1/classify", files=uploads(pictures[0]))
        assert (refused.status_code, "API key" in refused.json()["error"]) == (400, True)
        asked = await client.post("/v1/classify", files=uploads(pictures[0]), data={"api_key": key})
        assert asked.status_code == 200

    ask(service_of(keys=tmp_path / "keys.json"), load_classifiers({"vit": vit}, "cpu"), work)

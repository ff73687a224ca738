"""`/v1/find`: pictures as the finder ranks them, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import caption_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from serve_examples import client_of, service_of

from heedful import Finder
from heedful.errors import ConfigError
from heedful.serve import finder_routes
from heedful.serve.finder_routes import FindingDesk, load_finders
from heedful.serve.model_registry import split_by_task
from heedful.serve.service import Service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and the folder `pictures` that it has learnt."""
    folder = tmp_path_factory.mktemp("find")
    captions = caption_examples.write_captioned(folder, each=1)
    caption_examples.train_clip(captions, folder / "run", "train.max_steps=3")
    return folder


@pytest.fixture(scope="module")
def desk(folder: Path) -> FindingDesk:
    return load_finders({"clip": folder / "run"}, [folder / "pictures"], "cpu")


@pytest.fixture(scope="module")
def service() -> Service:
    return service_of()  # nothing that translates


def ask(service: Service, desk: FindingDesk, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def asked() -> None:
        async with client_of(service, findings=desk) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


def test_an_answer_has_the_ranking_of_the_finder(service: Service, desk: FindingDesk, folder: Path) -> None:
    finder = Finder.load(folder / "run")
    index = finder.index(folder / "pictures")
    expected = finder.find("a red bar", index, n=4)

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/find", json={"text": "a red bar", "n": 4})).json()
        assert answer["model"] == "clip"
        assert [one["picture"] for one in answer["pictures"]] == [Path(one.picture).name for one in expected]
        assert [one["score"] for one in answer["pictures"]] == pytest.approx([one.score for one in expected], abs=1e-5)
        like = (await client.post("/v1/find", json={"like": "3.png", "n": 2})).json()["pictures"]
        assert like[0] == {"picture": "3.png", "score": pytest.approx(1.0, abs=1e-5)}
        assert len((await client.post("/v1/find", json={"text": "a"})).json()["pictures"]) == 10
        assert (await client.get("/v1/models")).json()["finding"] == ["clip"]

    ask(service, desk, work)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"text": "a", "model": "other"}, 404, "no such model of captions is loaded"),
        ({}, 400, "give either text or like"),
        ({"text": "a", "like": "3.png"}, 400, "give either text or like"),
        ({"text": " "}, 400, "text is empty"),
        ({"like": "../run/config.json"}, 404, "no picture of this name is served"),
        ({"text": "a", "n": 0}, 400, "n"),
        ({"text": "a", "n": 101}, 400, "n"),
        ({"text": ["a"]}, 400, "text"),
        ({"text": "a", "wish": 1}, 400, "wish"),
        ({"text": "x" * 60_000}, 400, "exceeds text limit (50000)"),
    ],
)
def test_a_wrong_request_is_refused_in_one_sentence(
    service: Service, desk: FindingDesk, body: dict[str, object], status: int, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/find", json=body)
        assert answer.status_code == status
        assert sentence in answer.json()["error"]

    ask(service, desk, work)


def test_too_many_requests_are_refused_at_once(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_routes, "_MOST_WAITING", 0)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/find", json={"text": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")

    ask(service, load_finders({"clip": folder / "run"}, [folder / "pictures"], "cpu"), work)


def test_names_tell_several_folders_and_models_apart(service: Service, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "more" / "sub").mkdir(parents=True)
    (tmp_path / "more" / "sub" / "3.png").write_bytes((folder / "pictures" / "3.png").read_bytes())
    desk = load_finders(dict.fromkeys(("one", "two"), folder / "run"), [folder / "pictures", tmp_path / "more"], "cpu")

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/find", json={"text": "a"})
        assert "name a model, one of one, two" in answer.json()["error"]
        found = (await client.post("/v1/find", json={"like": "pictures/3.png", "n": 2, "model": "two"})).json()
        assert {one["picture"] for one in found["pictures"]} == {"pictures/3.png", "more/sub/3.png"}

    ask(service, desk, work)


def test_models_and_pictures_need_each_other(folder: Path) -> None:
    with pytest.raises(ConfigError, match="finds pictures, but there are none; name a folder: --pictures FOLDER"):
        load_finders({"clip": folder / "run"}, [], "cpu")
    with pytest.raises(ConfigError, match="are for a model that finds pictures; name one"):
        load_finders({}, [folder / "pictures"], "cpu")
    with pytest.raises(ConfigError, match=r"pairs\.tsv is no folder; name one"):
        load_finders({"clip": folder / "run"}, [folder / "pairs.tsv"], "cpu")
    assert split_by_task([folder / "run"]).finders == {"run": folder / "run"}

"""`/v1/find`: pictures as the finder ranks them, and requests that are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
import io
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import caption_examples
import pytest

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
from PIL import Image
from serve_examples import client_of, service_of

from heedful import Finder
from heedful.errors import ConfigError
from heedful.serve import finder_routes
from heedful.serve.api_keys import add_key
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
        assert (like[0]["picture"], like[0]["score"]) == ("3.png", pytest.approx(1.0, abs=1e-5))
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


def test_an_own_picture_is_found_like_its_copy_in_the_folder(service: Service, desk: FindingDesk, folder: Path) -> None:
    picture = folder / "pictures" / "3.png"
    finder = Finder.load(folder / "run")
    expected = finder.find_like(picture, finder.index(folder / "pictures"), n=3)

    async def work(client: httpx.AsyncClient) -> None:
        files = {"picture": ("mine.png", picture.read_bytes())}
        found = (await client.post("/v1/find", files=files, data={"n": "3", "model": ""})).json()["pictures"]
        assert [one["picture"] for one in found] == [Path(one.picture).name for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)
        refused: list[tuple[bytes, dict[str, str], int, str]] = [
            (b"no picture", {}, 400, "mine.png is not a PNG or JPEG picture"),
            (picture.read_bytes(), {"n": "101"}, 400, "n: "),
            (picture.read_bytes(), {"text": "a"}, 400, "give one of text, like and picture"),
            (picture.read_bytes(), {"model": "other"}, 404, "no such model of captions is loaded"),
        ]
        for content, data, status, sentence in refused:
            answer = await client.post("/v1/find", files={"picture": ("mine.png", content)}, data=data)
            assert (answer.status_code, sentence in answer.json()["error"]) == (status, True)
        two = [("picture", ("a.png", picture.read_bytes()))] * 2
        assert (await client.post("/v1/find", files=two)).status_code == 400
        assert "missing picture" in (await client.post("/v1/find", files={"file": ("a", b"a")})).json()["error"]

    ask(service, desk, work)


# Small copies.


def make_served(folder: Path, tmp_path: Path) -> tuple[Path, FindingDesk]:
    """A folder with one large picture that says where it was taken, and what serves it."""
    (tmp_path / "own").mkdir()
    picture = tmp_path / "own" / "large.jpg"
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    Image.new("RGB", (1000, 500), (220, 30, 30)).save(picture, exif=exif, comment=b"secret remark")
    return picture, load_finders({"clip": folder / "run"}, [tmp_path / "own"], "cpu")


async def find_thumbnail(client: httpx.AsyncClient, key: str = "") -> str:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    (found,) = (await client.post("/v1/find", json={"text": "a"}, headers=headers)).json()["pictures"]
    return f"/{found['thumbnail']}"


def test_a_thumbnail_is_a_small_copy_that_says_nothing_else(service: Service, folder: Path, tmp_path: Path) -> None:
    _, desk = make_served(folder, tmp_path)

    async def work(client: httpx.AsyncClient) -> None:
        address = await find_thumbnail(client)
        answer = await client.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.headers["cache-control"] == "private, max-age=86400, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        with Image.open(io.BytesIO(answer.content)) as small:
            assert (small.format, small.size) == ("JPEG", (320, 160))
        assert b"secret" not in answer.content
        head = await client.head(address)
        assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "image/jpeg")
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert (await client.request(method, address)).status_code == 405

    ask(service, desk, work)


@pytest.mark.parametrize(
    "written",
    [
        *("large.jpg", "own/large.jpg", "0", "../pictures/3.png", "..%2Fpictures%2F3.png", "%2e%2e%2fpictures%2f3.png"),
        *("%2Fetc%2Fpasswd", "..", "%00", "a" * 32, "", "x" * 5000),
    ],
)
def test_only_identifiers_that_the_server_gave_name_a_picture(
    service: Service, folder: Path, tmp_path: Path, written: str
) -> None:
    picture, desk = make_served(folder, tmp_path)

    async def work(client: httpx.AsyncClient) -> None:
        for address in (written, str(picture), f"{picture}".replace("/", "%2F")):
            answer = await client.get(f"/v1/pictures/{address}")
            assert answer.status_code == 404
            assert str(tmp_path) not in answer.text

    ask(service, desk, work)


def test_a_picture_that_is_gone_is_no_failure_and_names_no_place(
    service: Service, folder: Path, tmp_path: Path
) -> None:
    picture, desk = make_served(folder, tmp_path)

    async def work(client: httpx.AsyncClient) -> None:
        address = await find_thumbnail(client)
        picture.unlink()
        picture.symlink_to(folder / "run" / "config.json")  # no picture, so nothing of it is shown
        answer = await client.get(address)
        assert (answer.status_code, answer.json()) == (404, {"error": "this picture can no longer be read"})

    ask(service, desk, work)


def test_thumbnails_keep_their_address_until_the_file_changes(folder: Path, tmp_path: Path) -> None:
    picture, desk = make_served(folder, tmp_path)
    same = load_finders({"clip": folder / "run"}, [tmp_path / "own"], "cpu")
    assert same.address("large.jpg") == desk.address("large.jpg")
    Image.new("RGB", (10, 10)).save(picture)
    other = load_finders({"clip": folder / "run"}, [tmp_path / "own"], "cpu")
    assert other.address("large.jpg") != desk.address("large.jpg")


def test_thumbnails_need_a_key_but_do_not_use_it_up(folder: Path, tmp_path: Path) -> None:
    _, desk = make_served(folder, tmp_path)
    key = add_key(tmp_path / "keys.json", "ann", 1)

    async def work(client: httpx.AsyncClient) -> None:
        address = await find_thumbnail(client, key)
        assert (await client.get(address)).status_code == 400
        assert (await client.get(address, headers={"Authorization": "Bearer wrong"})).status_code == 403
        for _ in range(3):
            assert (await client.get(address, headers={"Authorization": f"Bearer {key}"})).status_code == 200

    ask(service_of(keys=tmp_path / "keys.json"), desk, work)


def test_too_many_requests_are_refused_at_once(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_routes, "_MOST_WAITING", 0)

    async def work(client: httpx.AsyncClient) -> None:
        address = "/v1/pictures/" + "a" * 32
        for answer in (await client.post("/v1/find", json={"text": "a"}), await client.get(address)):
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
    (folder / "more" / "pictures").mkdir(parents=True)
    (folder / "more" / "pictures" / "3.png").write_bytes((folder / "pictures" / "3.png").read_bytes())
    with pytest.raises(ConfigError, match=r"gives 2 pictures the name pictures/3\.png; rename one of the folders"):
        load_finders({"clip": folder / "run"}, [folder / "pictures", folder / "more" / "pictures"], "cpu")
    assert split_by_task([folder / "run"]).finders == {"run": folder / "run"}

"""Files over HTTP and on the command line: uploaded, translated, downloaded and refused."""
# ruff: noqa: E402 (without the extras, nothing below can be imported)

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest
import toy

for needed in ("fastapi", "httpx", "lxml", "polib", "markdown_it", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve,documents]")

import httpx
from serve_examples import client_of, service_of
from starlette.requests import ClientDisconnect

from heedful.documents import read_document, safe_parsing
from heedful.documents.segmentation import TranslatedSentence
from heedful.serve import file_routes
from heedful.serve import libretranslate_routes as libre
from heedful.serve.api_keys import add_key
from heedful.serve.batcher import QueueFull
from heedful.serve.file_routes import FileStore, translated_name
from heedful.serve.http_errors import RequestError
from heedful.serve.segments import SegmentedTexts
from heedful.serve.service import Service, ServiceLimits

PAIR = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def service(trained: Path) -> Service:
    return service_of(trained / "run")


@pytest.fixture(scope="module")
def some(trained: Path) -> list[str]:
    return [line for line in toy.lines_of(trained / "test.en") if line.count(" ") > 1]


def ask(service: Service, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def asked() -> None:
        async with client_of(service) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


def test_a_file_is_uploaded_translated_and_downloaded(service: Service, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        page = f"<p>{some[0]}</p><p class=x>{some[1]}</p>"
        for source in ("en", "auto"):
            answer = await client.post(
                "/translate_file", files={"file": ("p.html", page)}, data=PAIR | {"source": source}
            )
            assert (answer.status_code, answer.json()["notes"]) == (200, [])
            address = answer.json()["translatedFileUrl"]
            assert address.startswith("http://127.0.0.1:5000/download_file/")
            file = await client.get(address)
            assert file.text == f'<p>{toy.translated(some[0])}</p><p class="x">{toy.translated(some[1])}</p>'
            assert file.headers["content-disposition"] == "attachment; filename*=UTF-8''p.de.html"
            assert file.headers["content-type"] == "application/octet-stream"
            assert file.headers["content-security-policy"] == "sandbox"
            assert file.headers["x-content-type-options"] == "nosniff"
        settings = (await client.get("/frontend/settings")).json()
        assert settings["filesTranslation"] is True
        assert ".docx" in settings["supportedFilesFormat"]

    ask(service, work)


def test_markup_follows_its_words(service: Service, some: list[str]) -> None:
    words, (first, *_) = some[0].split(), toy.translated(some[0]).split()
    marked = " ".join([*words[:-1], f"<b>{words[-1]}</b>"])  # the last word of the source comes first

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate_file", files={"file": ("p.html", marked)}, data=PAIR)
        out = (await client.get(answer.json()["translatedFileUrl"])).text
        assert out.count("<b>") == 1
        assert out.replace("<b>", "").replace("</b>", "") == toy.translated(some[0])
        assert f"<b>{first}</b>" in out

    ask(service, work)


@pytest.mark.parametrize("most", [100, 0])
def test_markup_inside_a_sentence_does_not_split_it(
    service: Service, some: list[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """This holds for texts as well as files. With too many sentences, the server guesses where markup goes."""
    monkeypatch.setattr(libre, "_MOST_ALIGNED", most)
    *words, last = some[0].split()
    page = f"<p>{some[1]}</p>{' '.join(words)} <b onclick='x()' title=a>{last}</b><script>x()</script>"
    first, *_, final = toy.translated(some[0]).split()

    async def work(client: httpx.AsyncClient) -> None:
        asked = {"q": [page, some[2]], "format": "html", "alternatives": 2, **PAIR}
        answer = (await client.post("/translate", json=asked)).json()
        whole = toy.translated(some[0])
        bold = first if most else final  # the last word of the source comes first
        marked = whole.replace(bold, f'<b title="a">{bold}</b>')
        assert answer["translatedText"] == [f"<p>{toy.translated(some[1])}</p>{marked}", toy.translated(some[2])]
        assert answer["alternatives"][0]
        assert all(other.count("<b") == 1 and "<script" not in other for other in answer["alternatives"][0])

    ask(service, work)


@pytest.mark.parametrize(
    "html", ["<b>" * 300 + "a b", "a <b>b</b> c<" + "b " * 3000, "a <b>&lt;script&gt;</b> b", "a\0 <b>b</b>"]
)
def test_any_page_becomes_harmless(html: str) -> None:
    parts = SegmentedTexts([html], "en", html=True)
    (out,) = parts.join(parts.sentences, "de", [TranslatedSentence(text) for text in parts.mixed])
    assert "a " in out
    assert "<script" not in out
    assert out.count("<b>") == out.count("</b>")


def test_a_client_that_accepts_events_gets_progress(
    service: Service, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_routes, "_SENTENCES_AT_ONCE", 2)

    async def work(client: httpx.AsyncClient) -> None:
        text = "\n".join(some[:5])
        answer = await client.post(
            "/translate_file", files={"file": ("a.txt", text)}, data=PAIR, headers={"accept": "text/event-stream"}
        )
        events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        names = [name.removeprefix("event: ") for name, _ in events]
        contents = [json.loads(data.removeprefix("data: ")) for _, data in events]
        assert names == ["progress"] * 4 + ["end"]
        assert contents[:-1] == [{"done": done, "total": 5} for done in (0, 2, 4, 5)]
        out = await client.get(contents[-1]["translatedFileUrl"])
        assert out.text == "\n".join(map(toy.translated, some[:5]))

    ask(service, work)


BOMB = io.BytesIO()
with zipfile.ZipFile(BOMB, "w", zipfile.ZIP_DEFLATED) as _archive:
    _archive.writestr("word/document.xml", bytes(safe_parsing.MOST_UNPACKED // 8))


@pytest.mark.parametrize(
    ("name", "content", "data", "status", "sentence"),
    [
        ("a.txt", b"a", {"target": "de"}, 400, "Invalid request: missing source parameter"),
        ("a.txt", b"a", {"source": "en"}, 400, "Invalid request: missing target parameter"),
        ("a.txt", b"a", {"source": "zz", "target": "de"}, 400, "zz is not supported"),
        ("a.exe", b"a", PAIR, 400, "Invalid request: unsupported file type .exe; supported"),
        ("../../etc/passwd", b"a", PAIR, 400, "Invalid request: unsupported file type (no suffix); supported"),
        ("a.json", b"{", PAIR, 400, "Invalid request: the file is not JSON"),
        (
            "a.txt",
            b"a",
            PAIR | {"glossary": "a=b"},
            400,
            "Invalid request: glossary: give a JSON object of up to 100 terms",
        ),
        ("a.txt", b"a", PAIR | {"glossary": '{"a": 1}'}, 400, "Invalid request: glossary: give a JSON object"),
        ("a.txt", b"a " * 5000, PAIR, 413, "Invalid request: the document has more than 2,000 characters of text"),
        ("a.html", b"<p>a" * 30, PAIR, 413, "Invalid request: the document has more than 20 passages; split it"),
        ("a.html", b"<p>" * 60, PAIR, 413, "Invalid request: the document has more than 50 elements; split it"),
        ("a.txt", b"a" * 40_000, PAIR, 413, "Invalid request: the body may have at most 30000 bytes"),
        ("a.docx", BOMB.getvalue(), PAIR, 413, "Invalid request: the archive unpacks to more than 1,000,000 bytes"),
    ],
)
def test_invalid_uploads_are_refused_with_a_sentence(
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes,
    data: dict[str, str],
    status: int,
    sentence: str,
) -> None:
    monkeypatch.setattr(safe_parsing, "MOST_UNPACKED", 1_000_000)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate_file", files={"file": (name, content)}, data=data)
        assert answer.status_code == status
        assert answer.json()["error"].startswith(sentence)

    limits = ServiceLimits(file=30_000, file_characters=2000, file_passages=20, file_elements=50)
    ask(service_of(trained / "run", limits=limits), work)


def test_a_glossary_is_applied_to_files(service: Service, some: list[str]) -> None:
    term = other = some[0].split()[0]  # a name, which is never given up

    async def work(client: httpx.AsyncClient) -> None:
        data = PAIR | {"glossary": json.dumps({term: other})}
        answer = await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=data)
        assert other in (await client.get(answer.json()["translatedFileUrl"])).text.split()
        assert answer.json()["notes"] == []
        data = PAIR | {"glossary": json.dumps({term: "Zürich-West"})}
        answer = await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=data)
        assert answer.json()["notes"] == [f"term not used, because it does not fit: {term} = Zürich-West"]

    assert other not in toy.translated(some[0]).split()
    ask(service, work)


def test_a_server_without_the_libraries_refuses_files(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_routes, "can_translate_files", lambda: False)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate_file", files={"file": ("a.txt", "a")}, data=PAIR)
        assert (answer.status_code, answer.json()) == (
            403,
            {"error": "Files translation are disabled on this server."},
        )

    ask(service, work)


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
def test_files_wait_until_their_deadline_and_only_a_few_at_a_time(
    trained: Path, some: list[str], monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    """A file waits for room in the queue until its deadline; meanwhile, the server refuses other files."""

    service = service_of(trained / "run", limits=ServiceLimits(files=1, seconds=0.1))

    def full(*_: object) -> None:
        raise QueueFull(0.01)

    async def work(client: httpx.AsyncClient) -> None:
        async def send() -> httpx.Response:
            return await client.post(
                "/translate_file", files={"file": ("a.txt", some[0])}, data=PAIR, headers={"accept": accept}
            )

        with monkeypatch.context() as patched:
            patched.setattr(service.batcher, "submit", full)
            first, second = await asyncio.gather(send(), send())
        assert "Slowdown: the file is not done after 0.5 s" in first.text
        assert first.status_code == (200 if accept == "text/event-stream" else 503)
        assert (second.status_code, second.json()) == (
            503,
            {"error": "Slowdown: too many files are being translated"},
        )
        assert int(second.headers["retry-after"]) > 0
        service.limits = ServiceLimits(files=1)
        assert (await send()).status_code == 200

    ask(service, work)


def test_stalled_uploads_take_no_place(trained: Path, some: list[str]) -> None:
    """Only the bytes of all arriving files are bounded; beyond that, the oldest is given up."""
    service = service_of(trained / "run", limits=ServiceLimits(files=1, file=1000, arriving=1.0))

    async def work(client: httpx.AsyncClient) -> None:
        async def idle(size: int, begun: asyncio.Event) -> AsyncIterator[bytes]:
            yield b"x" * size
            begun.set()
            await asyncio.sleep(20)

        def sent(size: int, begun: asyncio.Event) -> Coroutine[Any, Any, httpx.Response]:
            headers = {"content-type": "multipart/form-data; boundary=x"}
            return client.post("/translate_file", content=idle(size, begun), headers=headers)

        async def real() -> httpx.Response:
            return await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=PAIR)

        for size, status in ((3, 408), (700, 503)):  # the second one is given up to make room
            begun = asyncio.Event()
            waiting = asyncio.create_task(sent(size, begun))
            await begun.wait()
            assert (await real()).status_code == 200
            assert (await waiting).status_code == status

    ask(service, work)


def test_files_are_read_in_their_own_threads_until_a_deadline(
    trained: Path, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_of(trained / "run", limits=ServiceLimits(seconds=0.1))
    release, names = Event(), []

    def slow(*given: Any) -> Any:
        names.append(current_thread().name)
        release.wait(30)
        return read_document(*given)

    async def work(client: httpx.AsyncClient) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(file_routes, "read_document", slow)
            answer = await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=PAIR)
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        release.set()
        service.limits = ServiceLimits()
        answer = await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=PAIR)
        assert answer.status_code == 200

    ask(service, work)
    assert [name.partition("_")[0] for name in names] == ["files"]


def test_a_stream_without_a_reader_frees_its_place() -> None:
    left = []

    async def events() -> AsyncIterator[str]:
        yield "a"

    async def gone(*_: object) -> Any:
        raise OSError

    response = file_routes._EventStream(events(), lambda: left.append(True))
    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    with pytest.raises((OSError, ClientDisconnect)):
        asyncio.run(response(scope, gone, gone))
    assert left == [True]


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data; boundary=x; charset=punycode", b"--x--", 415),  # a decoder that takes minutes
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\r\n--x--", 400),
        (
            "multipart/form-data; boundary=x",
            b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\na\r\n--x--\r\n",
            400,
        ),
        (
            "multipart/form-data; boundary=x; charset=none",
            b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\na\r\n--x--\r\n",
            415,
        ),
        ("multipart/form-data; boundary=" + "x" * 500, b"\xff" * 100, 400),
    ],
)
def test_a_body_without_a_file_is_refused(service: Service, kind: str, body: bytes, status: int) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate_file", content=body, headers={"content-type": kind})
        assert (answer.status_code, list(answer.json())) == (status, ["error"])

    ask(service, work)


def test_files_need_a_key_if_texts_do(trained: Path, tmp_path: Path, some: list[str]) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "ann", 60)

    async def work(client: httpx.AsyncClient) -> None:
        for given, status in (({}, 400), ({"api_key": "none"}, 403), ({"api_key": key}, 200)):
            answer = await client.post("/translate_file", files={"file": ("a.txt", some[0])}, data=PAIR | given)
            assert answer.status_code == status

    ask(service_of(trained / "run", keys=keys), work)


def test_uploads_without_a_key_do_not_keep_out_those_with_one(trained: Path, tmp_path: Path, some: list[str]) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "ann", 60)
    service = service_of(trained / "run", keys=keys, limits=ServiceLimits(files=2, file=1000, arriving=30.0))
    headers = {"content-type": "multipart/form-data; boundary=x"}

    async def work(client: httpx.AsyncClient) -> None:
        async def stall(begun: asyncio.Event) -> AsyncIterator[bytes]:
            yield b"x" * 900
            begun.set()
            await asyncio.sleep(60)

        events = [asyncio.Event() for _ in range(8)]
        stalled = [
            asyncio.create_task(client.post("/translate_file", content=stall(begun), headers=headers))
            for begun in events
        ]
        for begun in events:
            await begun.wait()
        upload = {"file": ("a.txt", some[0])}
        bearer = {"Authorization": f"bearer {key}"}
        assert (await client.post("/translate_file", files=upload, data=PAIR, headers=bearer)).status_code == 200
        assert (await client.post("/translate_file", files=upload, data=PAIR | {"api_key": key})).status_code == 200
        for task in stalled:
            task.cancel()
        statuses = [task.result().status_code for task in stalled if not task.cancelled() and task.done()]
        assert set(statuses) <= {503}

    ask(service, work)


def test_results_are_stored_for_a_while_under_secret_keys(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_routes, "_STORED_BYTES", 10)
    kept = FileStore()
    first, second = kept.add("a", b"12345678"), kept.add("b", b"12345678")
    assert kept.get(second.split("/")[0]).content == b"12345678"
    for gone in (first.split("/")[0], "", "../a"):
        with pytest.raises(RequestError, match="404"):
            kept.get(gone)
    monkeypatch.setattr(file_routes, "monotonic", lambda: 1e12)
    with pytest.raises(RequestError):
        kept.get(second.split("/")[0])

    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/download_file/x/y")).status_code == 404

    ask(service, work)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("strings.po", "strings.de.po"),
        ("../../etc/a.txt", "a.de.txt"),
        ("C:\\x\\a.txt", "a.de.txt"),
        ("a\r\nSet-Cookie: x.txt", "aSet-Cookie: x.de.txt"),
        ("none", "none.de"),
        ("", "file.de"),
    ],
)
def test_a_file_name_is_never_a_path(name: str, shown: str) -> None:
    assert translated_name(name, "de") == shown


# The command line.


def test_a_document_is_translated_on_the_command_line(trained: Path, tmp_path: Path, some: list[str]) -> None:
    source, target = tmp_path / "a.md", tmp_path / "a.de.md"
    source.write_text(f"# {some[0]}\n\n```\n{some[1]}\n```\n\n<div>\n</div>\n")
    ran = toy.run("translate", trained / "run", "--input", source, "--output", target)
    assert (ran.code, ran.out) == (0, "")
    assert target.read_text() == f"# {toy.translated(some[0])}\n\n```\n{some[1]}\n```\n\n<div>\n</div>\n"
    assert f"{target}: HTML blocks in Markdown are not translated" in ran.err
    for arguments, sentence in (
        (("--output", tmp_path / "a.txt"), "a.txt: the file type cannot change; end the name in .md"),
        ((), f"{source} is a document; name a file for its translation with --output"),
        (("--output", target, "--n-best", 2), f"--n-best is for lines of text, but {source} is a document"),
    ):
        ran = toy.run("translate", trained / "run", "--input", source, *arguments)
        assert (ran.code, sentence in ran.err) == (2, True), ran.err
    source.write_text("[" * 40_000)
    ran = toy.run("translate", trained / "run", "--input", source, "--output", target)
    assert (ran.code, "more than 32,768 lines and Markdown marks; split it" in ran.err) == (2, True)
    ran = toy.run("translate", trained / "run", "--input", tmp_path / "no.po", "--output", tmp_path / "b.po")
    assert (ran.code, "no.po cannot be read: No such file or directory" in ran.err) == (2, True)

"""The HTTP API: LibreTranslate's endpoints, our own, limits, access, and a real server."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import asyncio
import errno
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread, Timer, current_thread, main_thread
from time import sleep
from typing import Any

import pytest
import toy

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
import psutil
from serve_examples import client_of, listening, service_of

from heedful.attention.head_names import all_heads
from heedful.progress import SilentReporter
from heedful.serve.api_keys import add_key
from heedful.serve.app import create_app
from heedful.serve.batcher import Batcher, BatchJob, JobItem, PendingJob
from heedful.serve.jobs import ScoringJob, TranslationJob
from heedful.serve.listener import listen
from heedful.serve.middleware import check_origin, own_hosts
from heedful.serve.server import Server
from heedful.serve.service import Service, ServiceLimits
from heedful.storage.model_names import built_in_models
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer import Tokenizer
from heedful.translation.pipeline import TokenizedText
from heedful.translation.result import Translation
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import find_aligner

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PAIR = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def service(trained: Path) -> Service:
    return service_of(trained / "run")


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


@pytest.fixture(scope="module")
def some(trained: Path) -> list[str]:
    return toy.lines_of(trained / "test.en")[:6]


def ask(service: Service, work: Callable[[httpx.AsyncClient], Coroutine[Any, Any, None]], **how: Any) -> None:
    async def asked() -> None:
        async with client_of(service, **how) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(asked(), 60))


# LibreTranslate's endpoints.


def test_translate_answers_as_libretranslate_does(service: Service, translator: Translator, some: list[str]) -> None:
    best = [translation.text for translation in translator.translate(some)]

    async def work(client: httpx.AsyncClient) -> None:
        one = await client.post("/translate", json={"q": some[0], **PAIR})
        assert (one.status_code, one.json()) == (200, {"translatedText": best[0]})
        several = await client.post("/translate", json={"q": some, **PAIR})
        assert several.json() == {"translatedText": best}
        form = await client.post("/translate", data={"q": some[0], **PAIR, "alternatives": "2", "unknown": "x"})
        assert form.json()["translatedText"] == best[0]
        assert len(form.json()["alternatives"]) == 2
        assert best[0] not in form.json()["alternatives"]
        guessed = await client.post("/translate", json={"q": some[:2], "source": "auto", "target": "de"})
        assert guessed.json()["translatedText"] == best[:2]
        assert [found["language"] for found in guessed.json()["detectedLanguage"]] == ["en", "en"]

    ask(service, work)


def test_language_codes_may_have_any_case_and_a_region(service: Service, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        wanted = (await client.post("/translate", json={"q": some[0], **PAIR})).json()
        again = await client.post("/translate", json={"q": some[0], "source": "EN", "target": "de-AT"})
        assert (again.status_code, again.json()) == (200, wanted)
        own = await client.post("/v1/translate", json={"text": [some[0]], "source": "en_GB", "target": "DE"})
        assert (own.status_code, own.json()["source"], own.json()["target"]) == (200, "en", "de"), own.text
        pair = {"source": "en-US", "target": "De"}
        sent = await client.post("/translate_file", files={"file": ("a.txt", some[0].encode())}, data=pair)
        assert sent.status_code == 200, sent.text

    ask(service, work)


def test_a_request_may_be_a_query_string_or_a_form(service: Service, translator: Translator, some: list[str]) -> None:
    asked = {"q": some[0], **PAIR}
    best = {"translatedText": translator.translate(some[:1])[0].text}

    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post("/translate", params=asked)).json() == best
        parts = {name: (None, value) for name, value in asked.items()}
        assert (await client.post("/translate", files=parts)).json() == best
        both = await client.post("/translate", params={"q": some[0]}, data={"q": some[1], **PAIR})
        assert both.json() == best  # the query has precedence
        found = await client.post("/detect", files={"q": (None, "\n".join(some))})
        assert found.json()[0]["language"] == "en"
        assert (await client.post("/translate")).json() == {"error": "Invalid request: missing q parameter"}

        async def status(content: bytes, kind: str = "multipart/form-data; boundary=x") -> int:
            return (await client.post("/translate", content=content, headers={"content-type": kind})).status_code

        part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
        assert await status(part * 2001 + b"--x--") == 400
        assert await status(b"--y\r\n") == 400
        assert await status(part.replace(b'"q"', b'"q"; filename="a.txt"') + b"--x--") == 400
        assert await status(part, "multipart/form-data") == 400
        assert await status(part + b"--x--", "multipart/form-data; boundary=x; charset=punycode") == 415
        assert await status(b"a" * (1 << 20) + b"a") == 413

    ask(service, work)


def test_an_empty_text_stays_empty_and_the_default_format_is_text(
    service: Service, translator: Translator, some: list[str]
) -> None:
    best = translator.translate(some[:1])[0].text

    async def work(client: httpx.AsyncClient) -> None:
        for form in (None, "", "html"):
            answer = await client.post("/translate", json={"q": [some[0], "", " "], **PAIR, "format": form})
            assert answer.json() == {"translatedText": [best, "", " "]}

    ask(service, work)


def test_a_text_in_the_target_language_is_returned_unchanged(
    service: Service, translator: Translator, trained: Path
) -> None:
    english, german = (" ".join(toy.lines_of(trained / f"test.{code}")[:8]) for code in ("en", "de"))
    assert min(len(english), len(german)) > 40
    (best,) = translator.translate([english])

    async def work(client: httpx.AsyncClient) -> None:
        same = await client.post("/translate", json={"q": "One  two.", "source": "en", "target": "en"})
        assert same.json() == {"translatedText": "One  two."}
        page = {"q": "<p onclick=x()>One &amp; two</p>", "source": "de", "target": "de", "format": "html"}
        assert (await client.post("/translate", json=page)).json() == {"translatedText": "<p>One &amp; two</p>"}
        asked = {"q": [german, english, german], "source": "auto", "target": "de", "alternatives": 1}
        answer = (await client.post("/translate", json=asked)).json()
        assert answer["translatedText"] == [german, best.text, german]
        assert [found["language"] for found in answer["detectedLanguage"]] == ["de", "en", "de"]
        assert [len(others) for others in answer["alternatives"]] == [0, 1, 0]
        assert answer["unchanged"] == ["target", None, "target"]

    ask(service, work)


def test_white_space_and_markup_are_kept(service: Service, translator: Translator, some: list[str]) -> None:
    one, two = (translation.text for translation in translator.translate(some[:2]))
    cut = translator.translate(["a b"])[0].text

    async def translated(client: httpx.AsyncClient, text: str, form: str) -> str:
        answer = await client.post("/translate", json={"q": text, **PAIR, "format": form})
        return str(answer.json()["translatedText"])

    async def work(client: httpx.AsyncClient) -> None:
        assert await translated(client, f"  {some[0]}\n\n\t{some[1]} \n", "text") == f"  {one}\n\n\t{two} \n"
        page = f"<p onclick='x()'>{some[0]}</p><b>{some[1]}</b><script>x()</script>"
        assert await translated(client, page, "html") == f"<p>{one}</p><b>{two}</b>"
        assert await translated(client, " \n ", "text") == " \n "
        assert await translated(client, "a b", "text") == cut

    ask(service, work)


def test_the_endpoints_that_libretranslates_page_needs_at_the_start(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/languages")).json() == [
            {"code": "en", "name": "English", "targets": ["de"]},
            {"code": "de", "name": "German", "targets": []},
        ]
        assert (await client.get("/health")).json() == {"status": "ok"}
        settings = (await client.get("/frontend/settings")).json()
        assert settings["charLimit"] == 50_000
        assert settings["language"]["target"] == {"code": "de", "name": "German"}

    ask(service, work)


def test_a_text_in_another_language_is_returned_as_it_is(trained: Path) -> None:
    from heedful.storage.model_names import find_model

    served = service_of(find_model("en-fr"), find_model("fr-en"))
    others = ("Ich habe ihn noch nie gesehen.", "¿Cuánto cuesta este vestido?", "駅はどこですか。", "12", "x = f(y);")

    async def work(client: httpx.AsyncClient) -> None:
        async def confidence(text: str) -> dict[str, float]:
            found = (await client.post("/detect", json={"q": text})).json()
            return {each["language"]: each["confidence"] for each in found}

        assert (await confidence("Where is the station?"))["en"] > 90
        assert 50 < sum((await confidence("Taxi")).values()) < 100
        for text in others:
            assert sum((await confidence(text)).values()) < 50, text
            answer = (await client.post("/translate", json={"q": text, "source": "auto", "target": "fr"})).json()
            assert (answer["translatedText"], answer["unchanged"]) == (text, "unknown")
            assert answer["detectedLanguage"]["confidence"] < 50
        both = {"q": [others[0], "Where is the station?"], "source": "auto", "target": "fr"}
        answer = (await client.post("/translate", json=both)).json()
        assert answer["unchanged"][1] is None
        assert answer["translatedText"][1] != both["q"][1]

    ask(served, work)


def test_a_file_in_no_served_language_is_refused(trained: Path) -> None:
    from heedful.storage.model_names import find_model

    served = service_of(find_model("en-fr"), find_model("fr-en"))

    async def work(client: httpx.AsyncClient) -> None:
        for text, sentence in (
            ("Où est la gare ? Je ne l'ai jamais vu.", "the text seems to be French already; choose its language"),
            ("Ich habe ihn nie gesehen.", "the text seems to be in none of the served languages; choose its language"),
        ):
            fields = {"source": "auto", "target": "fr"}
            answer = await client.post("/translate_file", data=fields, files={"file": ("a.txt", text.encode())})
            assert (answer.status_code, answer.json()["error"]) == (400, sentence)

    ask(served, work)


def test_languages_are_detected(service: Service, trained: Path) -> None:
    lines = {code: toy.lines_of(trained / f"test.{code}") for code in ("en", "de")}

    async def work(client: httpx.AsyncClient) -> None:
        for code, several in lines.items():
            found = [(await client.post("/detect", data={"q": line})).json()[0]["language"] for line in several[:20]]
            assert found.count(code) >= 18
        both = (await client.post("/detect", json={"q": lines["en"][0]})).json()
        assert sum(found["confidence"] for found in both) <= 100.1

    ask(service, work)


@pytest.mark.parametrize(
    ("given", "status", "sentence"),
    [
        ({"source": "en", "target": "de"}, 400, "Invalid request: missing q parameter"),
        ({"q": "", **PAIR}, 400, "Invalid request: missing q parameter"),
        ({"q": None, **PAIR}, 400, "Invalid request: missing q parameter"),
        ({"q": [], **PAIR}, 400, "Invalid request: missing q parameter"),
        ({"q": "a", "source": "en"}, 400, "Invalid request: missing target parameter"),
        ({"q": "a", **PAIR, "format": "xml"}, 400, "xml format is not supported"),
        ({"q": [1] * 500_000, **PAIR}, 400, "Invalid request: request (500000) exceeds text limit (1000)"),
        ({"q": "a", "source": "zz", "target": "zz"}, 400, "zz is not supported"),
        ({"q": "a", "source": "zz", "target": "de"}, 400, "zz is not supported"),
        ({"q": "a", "source": "en", "target": "zz"}, 400, "zz is not supported"),
        ({"q": "a", "source": "auto", "target": "zz"}, 400, "zz is not supported"),
        (
            {"q": "a", "source": "de", "target": "en"},
            400,
            "English (en) is not available as a target language from German (de)",
        ),
        ({"q": "a" * 50_001, **PAIR}, 400, "Invalid request: request (50001) exceeds text limit (50000)"),
        ({"q": "a", **PAIR, "alternatives": 99}, 400, "Invalid request: alternatives parameter must be <= 10"),
    ],
)
def test_errors_have_libretranslates_wording(
    service: Service, given: dict[str, Any], status: int, sentence: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate", json=given)
        assert (answer.status_code, answer.json()) == (status, {"error": sentence})

    ask(service, work)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"q": NaN}',
        b'{"q": "a", "source": "en", "target": "de", "alternatives": 1e400}',
        b'{"q": "a", "source": "en", "target": "de", "alternatives": -1}',
        b'{"q": "a", "source": "en", "target": "de", "alternatives": "2"}',
        b'{"q": "\\ud800", "source": "en", "target": "de"}',
        b'{"q": ["a", "\\udfff"], "source": "en", "target": "de"}',
        b'{"q": "a", "source": "\\ud800", "target": "de"}',
        b'{"q": {"a": 1}, "source": "en", "target": "de"}',
        b'{"q": [], "source": "en", "target": "de"}',
        b'{"q": ["a", 1], "source": "en", "target": "de"}',
        b'{"q": "a", "source": 1, "target": "de"}',
        b'{"q": "a", "source": "en", "target": "de", "format": "pdf"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"q":' * 20_000,
        b'{"n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_malformed_requests_are_refused_with_a_sentence(service: Service, body: bytes) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/translate", "/detect", "/v1/translate", "/v1/score", "/v1/attention"):
            answer = await client.post(path, content=body, headers=JSON)
            if path == "/detect" and answer.status_code == 200:
                continue  # /detect knows fewer fields
            assert answer.status_code == 400, (path, body[:50])
            assert list(answer.json()) == ["error"]
            assert len(answer.json()["error"]) < 200
        form = await client.post(
            "/translate", content=body, headers={"content-type": "application/x-www-form-urlencoded"}
        )
        assert form.status_code == 400

    ask(service, work)


def test_other_media_types_and_paths_are_refused(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (
            await client.post("/translate", content=b"<q/>", headers={"content-type": "text/xml"})
        ).status_code == 415
        assert (await client.post("/v1/translate")).status_code == 415
        for path in ("/v2", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/docs/x"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
        answer = await client.get("/translate")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert (await client.post("/translate_file")).status_code in (403, 415)
        for name in ("../run", "run/../run", "/etc/passwd", ""):
            answer = await client.post("/v1/translate", json={"text": "a", "model": name})
            assert answer.status_code == (404 if name else 400)

    ask(service, work)


# Our own endpoints.


def test_a_prefix_has_several_continuations(service: Service, some: list[str]) -> None:
    source = next(text for text in some if text.count(" ") > 1)
    first = toy.translated(source).split()[0]
    asked = {"text": source, "prefix": first, "n_best": 4, "diverse": True}

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/translate", json=asked)).json()
        ways = [option["text"].split() for option in answer["texts"][0]["sentences"][0]["alternatives"]]
        assert {words[0] for words in ways} == {first}
        assert len({tuple(words) for words in ways}) == len(ways) > 1
        several = await client.post("/v1/translate", json=asked | {"text": f"{source}\n{source}"})
        assert several.json() == {"error": "Invalid request: a prefix is for one sentence, but the text has 2"}

    ask(service, work)


def test_our_own_endpoint_reports_everything_about_a_translation(
    service: Service, translator: Translator, some: list[str], trained: Path
) -> None:
    aligner = find_aligner(RunFolder(trained / "run"), translator, SilentReporter())
    expected = translator.translate(some[:2], n_best=2, confidence=True, aligner=aligner)
    asked = {"text": f"{some[0]}\n{some[1]}", "n_best": 2, "confidence": True, "alignments": True}

    async def work(client: httpx.AsyncClient) -> None:
        answer = (await client.post("/v1/translate", json=asked)).json()
        assert (answer["model"], answer["source"], answer["target"]) == ("run", "en", "de")
        (text,) = answer["texts"]
        assert text["text"] == "\n".join(translation.text for translation in expected)
        for sentence, source, wanted in zip(text["sentences"], some, expected, strict=False):
            assert asked["text"][sentence["start"] : sentence["end"]] == source  # type: ignore[index]
            assert [option["text"] for option in sentence["alternatives"]] == [a.text for a in wanted.alternatives]
            best = sentence["alternatives"][0]
            assert best["log_prob"] == pytest.approx(wanted.alternatives[0].log_prob, abs=1e-4)
            assert [word["word"] for word in best["words"]] == wanted.text.split()
            assert [tuple(link) for link in best["alignment"]] == list(wanted.alternatives[0].alignment or ())
        plain = (await client.post("/v1/translate", json={"text": some[0]})).json()
        assert set(plain["texts"][0]["sentences"][0]["alternatives"][0]).isdisjoint({"words", "alignment"})

    ask(service, work)


def test_a_glossary_is_applied(service: Service, some: list[str]) -> None:
    word = some[0].split()[0]

    async def work(client: httpx.AsyncClient) -> None:
        asked = {"text": some[0], "glossary": {word: word}}
        (sentence,) = (await client.post("/v1/translate", json=asked)).json()["texts"][0]["sentences"]
        assert word in sentence["text"].split()
        assert "failed_terms" not in sentence
        asked = {"text": some[0], "glossary": {word: "Zürich-West"}}
        (sentence,) = (await client.post("/v1/translate", json=asked)).json()["texts"][0]["sentences"]
        assert sentence["failed_terms"] == [f"{word} = Zürich-West"]
        assert (
            sentence["text"] == (await client.post("/v1/translate", json={"text": some[0]})).json()["texts"][0]["text"]
        )

    ask(service, work)


def test_long_texts_are_streamed(service: Service, translator: Translator, some: list[str]) -> None:
    best = [translation.text for translation in translator.translate(some)]

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/translate", json={"text": ["\n".join(some[:5]), some[5]], "stream": True})
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event.split("\n") for event in answer.text.removesuffix("\n\n").split("\n\n")]
        assert [event[0] for event in events] == [*["event: sentence"] * 6, "event: end"]
        data = [json.loads(event[1].removeprefix("data: ")) for event in events]
        assert [(sentence["index"], sentence["text"]) for sentence in data[:-1]] == list(
            zip([0, 0, 0, 0, 0, 1], best, strict=True)
        )
        assert data[-1]["texts"][0]["text"] == "\n".join(best[:5])

    ask(service, work)


def test_pairs_are_scored(service: Service, translator: Translator, some: list[str]) -> None:
    (best,) = translator.translate(some[:1])

    async def work(client: httpx.AsyncClient) -> None:
        asked = {"texts": [some[0]] * 2, "translations": [best.text, "nothing of this"]}
        right, wrong = (await client.post("/v1/score", json=asked)).json()["scores"]
        assert right["log_prob"] == pytest.approx(best.alternatives[0].log_prob, abs=1e-4)
        assert right["log_prob"] == pytest.approx(sum(right["log_probs"]), abs=1e-5)
        assert wrong["per_piece"] < right["per_piece"] <= 0
        refused = await client.post("/v1/score", json={"texts": ["a"], "translations": ["b", "c"]})
        counts = "texts (1) and translations (2) differ in number"
        assert refused.json() == {"error": f"Invalid request: {counts}; give one translation for each text"}

    ask(service, work)


def test_the_attention_explains_the_translation_that_is_given(service: Service, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        term = wish = some[0].split()[0]  # a name, which is never given up
        terms = {"text": some[0], "glossary": {term: wish}}
        shown = (await client.post("/v1/translate", json=terms)).json()["texts"][0]["text"]
        for given in (shown, toy.translated(some[1]), "äöü ? <b>"):
            asked = {"text": some[0], "translation": given, "n_best": 3, "glossary": {term: wish}}
            document = (await client.post("/v1/attention", json=asked)).json()
            first, *others = document["hypotheses"]
            scored = await client.post("/v1/score", json={"texts": [some[0]], "translations": [given]})
            (score,) = scored.json()["scores"]
            assert (first["text"], first["pieces"]) == (given, score["pieces"])
            assert first["log_prob"] == pytest.approx(score["log_prob"], abs=1e-4)
            assert len(others) == 2
            assert given not in [other["text"] for other in others]
        without = (await client.post("/v1/attention", json=asked | {"heads_off": ["cross.1.1"]})).json()
        assert without["baseline"] == shown  # by the same search, with the same terms
        assert wish in without["hypotheses"][0]["text"]
        long = await client.post("/v1/attention", json={"text": "a", "translation": "a " * 300})
        assert (long.status_code, "at most 200 can be shown" in long.json()["error"]) == (400, True)

    ask(service, work)


def test_heads_are_ranked_for_the_translation_that_is_given(service: Service, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        asked = {"text": some[0], "translation": toy.translated(some[1])}
        plain = (await client.post("/v1/attention", json=asked)).json()
        ranked = (await client.post("/v1/attention", json=asked | {"rank": True})).json()
        costs = ranked.pop("costs")
        assert ranked == plain
        translator = service.registry.models[0].exclusive_translator
        assert set(costs) == {str(head) for head in all_heads(translator.model)}
        with translator.switch_off_heads(["cross.1.2"]):
            without = translator.look(some[0], translation=asked["translation"]).inside[0].log_probs.sum()
        assert costs["cross.1.2"] == pytest.approx(plain["hypotheses"][0]["log_prob"] - float(without), abs=2e-3)
        off = await client.post("/v1/attention", json=asked | {"rank": True, "heads_off": ["cross.1.2"]})
        assert "costs" not in off.json()

    ask(service, work)


def test_every_head_can_be_shown_and_switched_off(service: Service, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        document = (await client.post("/v1/attention", json={"text": some[0]})).json()
        assert document["model"] == "run"
        words = len(some[0].split())
        assert document["encoder"][0]["keys"] == words + 1
        off = {"text": some[0], "heads_off": ["cross.1.1", "cross.1.2"]}
        changed = (await client.post("/v1/attention", json=off)).json()
        assert changed["baseline"] == document["hypotheses"][0]["text"]
        assert changed["hypotheses"][0]["log_prob"] != document["hypotheses"][0]["log_prob"]
        again = (await client.post("/v1/translate", json={"text": some[0]})).json()
        assert again["texts"][0]["text"] == document["hypotheses"][0]["text"]
        wrong = await client.post("/v1/attention", json={"text": some[0], "heads_off": ["cross.9.9"]})
        assert wrong.status_code == 400
        unknown = await client.post("/v1/attention", json={"text": some[0], "off": ["cross.1.1"]})
        assert unknown.json() == {"error": "Invalid request: off: extra inputs are not permitted"}
        long = await client.post("/v1/attention", json={"text": "a " * 300})
        assert (long.status_code, "at most 200 can be shown" in long.json()["error"]) == (400, True)

    ask(service, work)


def test_a_sentence_is_tokenized_once(service: Service, some: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenized: list[str] = []
    real = Tokenizer.encode_all

    def encode_all(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        tokenized.extend(texts)
        return real(tokenizer, texts)

    monkeypatch.setattr(Tokenizer, "encode_all", encode_all)

    async def work(client: httpx.AsyncClient) -> None:
        for path, asked in (
            ("/translate", {"q": some[:3], **PAIR}),
            ("/v1/translate", {"text": some[:3], "confidence": True, "n_best": 2}),
            ("/v1/score", {"texts": some[:1], "translations": some[1:2]}),
            ("/v1/attention", {"text": some[0]}),
        ):
            tokenized.clear()
            assert (await client.post(path, json=asked)).status_code == 200
            assert tokenized and len(tokenized) == len(set(tokenized)), path

    ask(service, work)


def test_the_documented_requests_work_with_all_built_in_models() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/serve.md").read_text(encoding="utf-8")
    commands = [shlex.split(found) for found in re.findall(r"^curl ((?:.*\\\n)*.*)", page, re.MULTILINE)]
    assert len(commands) == 2

    async def work(client: httpx.AsyncClient) -> None:
        for url, *options in commands:
            data = [value for option, value in pairwise(options) if option == "-d"]
            headers = JSON if data[0].startswith("{") else FORM
            answer = await client.post(httpx.URL(url).path, content="&".join(data), headers=headers)
            assert answer.status_code == 200, answer.text

    ask(service_of(*built_in_models().values()), work)


def test_freed_memory_is_returned() -> None:
    program = (
        "import psutil\n"
        "from heedful.process_memory import keep_freed_memory, release_freed_memory\n"
        "keep_freed_memory()\n"
        "del (kept := [bytearray(1 << 20) for _ in range(200)])[:]\n"
        "before = psutil.Process().memory_info().rss\n"
        "release_freed_memory()\n"
        "print(before - psutil.Process().memory_info().rss > 100 << 20)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == ("True\n" if sys.platform == "linux" else ran.stdout)


def test_models_are_listed(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        (model,) = (await client.get("/v1/models")).json()["models"]
        assert (model["name"], model["engine"], model["source"]) == ("run", "torch", "en")
        missing = await client.post("/v1/translate", json={"text": "a", "source": "fr"})
        assert (missing.status_code, "/v1/models" in missing.json()["error"]) == (404, True)

    ask(service, work)


# Limits.


def test_two_models_translate_through_english(trained: Path, some: list[str]) -> None:
    served = service_of(trained / "run", trained / "run", languages=["fr-en", "en-de"])
    translator = Translator.load(trained / "run")
    middle = translator.translate(some[:1])[0].text
    last = translator.translate([middle])[0].text
    pair = {"source": "fr", "target": "de"}

    async def work(client: httpx.AsyncClient) -> None:
        targets = {each["code"]: each["targets"] for each in (await client.get("/languages")).json()}
        assert targets == {"fr": ["en", "de"], "en": ["de"], "de": []}
        listed = (await client.get("/v1/models")).json()
        assert listed["pivots"] == [{"source": "fr", "via": "en", "target": "de", "models": ["run", "run-2"]}]
        asked = {"text": some[0], **pair, "confidence": True, "alignments": True, "n_best": 2}
        answer = (await client.post("/v1/translate", json=asked)).json()
        assert (answer["model"], answer["source"], answer["via"], answer["target"]) == ("run+run-2", "fr", "en", "de")
        (sentence,) = answer["texts"][0]["sentences"]
        assert (sentence["pivot"], sentence["text"]) == (middle, last)
        assert len(sentence["alternatives"]) == 2
        assert all("alignment" in each and "words" in each for each in sentence["alternatives"])
        streamed = await client.post("/v1/translate", json={"text": some[0], **pair, "stream": True})
        assert '"via":"en"' in streamed.text
        direct = (await client.post("/v1/translate", json={"text": some[0], **PAIR})).json()
        assert "via" not in direct
        assert "pivot" not in direct["texts"][0]["sentences"][0]
        libre = await client.post("/translate", json={"q": some[0], **pair})
        assert libre.json() == {"translatedText": last, "via": "en"}
        several = await client.post("/translate", json={"q": [some[0], some[0]], **pair})
        assert several.json() == {"translatedText": [last, last], "via": ["en", "en"]}
        for path, more in (("/v1/score", {"texts": ["a"], "translations": ["b"]}), ("/v1/attention", {"text": "a"})):
            refused = await client.post(path, json=more | pair)
            sentence = "Invalid request: run and run-2 translate one after the other; name one of them"
            assert (refused.status_code, refused.json()["error"]) == (400, sentence)
        files = {"file": ("a.txt", some[0].encode(), "text/plain")}
        file = await client.post("/translate_file", data=pair, files=files)
        assert file.json()["notes"] == ["translated through English"]

    ask(served, work)


def test_an_overlong_list_is_refused_without_validating_it(service: Service) -> None:
    terms = {str(number): 1 for number in range(1001)}

    async def work(client: httpx.AsyncClient) -> None:
        for path, asked in (
            ("/v1/translate", {"text": [1] * 1001}),
            ("/v1/translate", {"text": "a", "glossary": terms}),
            ("/v1/attention", {"text": "a", "heads_off": [1] * 1001}),
        ):
            answer = await client.post(path, json=asked)
            assert answer.json() == {"error": "Invalid request: request (1001) exceeds text limit (1000)"}

    ask(service, work)


def test_a_glossary_and_a_prefix_count_towards_the_limits(service: Service) -> None:
    terms = {str(number): "x" * 600 for number in range(100)}
    over = "Invalid request: request (60191) exceeds text limit (50000)"

    async def work(client: httpx.AsyncClient) -> None:
        for asked, sentence in (
            ({"prefix": "x" * 1001}, "Invalid request: prefix: string should have at most 1000 characters"),
            ({"glossary": {"a": "x" * 1001}}, "Invalid request: glossary: string should have at most 1000 characters"),
            ({"glossary": terms}, over),
        ):
            answer = await client.post("/v1/translate", json={"text": "a", **asked})
            assert (answer.status_code, answer.json()) == (400, {"error": sentence})

    ask(service, work)


def test_every_limit_has_its_own_message(trained: Path) -> None:
    limits = ServiceLimits(body=2000, texts=3, sentences=4, pieces=10, rows=30, characters=500)
    asked: list[tuple[dict[str, Any], int, str]] = [
        ({"q": ["a"] * 4}, 400, "Invalid request: request (4) exceeds text limit (3)"),
        ({"q": "a\n" * 5}, 400, "Invalid request: 5 sentences, over the limit of 4"),
        ({"q": "gipu " * 30}, 400, "Invalid request: a sentence has 31 tokens, over the limit of 10; split it"),
        ({"q": "a" * 3000}, 413, "Invalid request: the body may have at most 2000 bytes"),
    ]

    async def work(client: httpx.AsyncClient) -> None:
        for given, status, sentence in asked:
            answer = await client.post("/translate", json=PAIR | given)
            assert (answer.status_code, answer.json()) == (status, {"error": sentence})
        answer = await client.post("/v1/translate", json={"text": "gipu " * 6, "n_best": 5})
        sentence = "Invalid request: a sentence has 7 tokens, over the limit of 6 for a beam of 5; split it"
        assert (answer.status_code, answer.json()) == (400, {"error": sentence})

        async def endless() -> Any:
            while True:
                yield b"x" * 500

        answer = await client.post("/translate", content=endless(), headers=JSON)
        assert answer.status_code == 413

    ask(service_of(trained / "run", limits=limits), work)


def test_a_request_that_does_not_arrive_times_out(trained: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async def slow() -> Any:
            yield b"{"
            await asyncio.sleep(20)

        answer = await client.post("/translate", content=slow(), headers=JSON)
        assert answer.status_code == 408

    ask(service_of(trained / "run", limits=ServiceLimits(arriving=0.05)), work)


def test_overload_is_refused_at_once_and_the_rest_is_answered(trained: Path, some: list[str]) -> None:
    service = service_of(trained / "run", limits=ServiceLimits(queue=40))

    async def work(client: httpx.AsyncClient) -> None:
        requests = [client.post("/translate", json={"q": some[number % 6], **PAIR}) for number in range(60)]
        answers = await asyncio.gather(*requests)
        assert {answer.status_code for answer in answers} == {200, 503}
        for answer in answers:
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json() == {"error": "Slowdown: too many requests are waiting"}
            else:
                assert answer.json()["translatedText"]
        assert (await client.post("/translate", json={"q": some[0], **PAIR})).status_code == 200

    ask(service, work)


def test_a_request_that_takes_too_long_times_out(trained: Path, some: list[str]) -> None:
    service = service_of(trained / "run", limits=ServiceLimits(seconds=0.0))

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/translate", json={"q": some[0], **PAIR})
        assert (answer.status_code, answer.json()) == (503, {"error": "Slowdown: not done after 0 s"})
        assert answer.headers["retry-after"]
        streamed = await client.post("/v1/translate", json={"text": some[0], "stream": True})
        assert streamed.text == 'event: error\ndata: {"error":"Slowdown: not done after 0 s"}\n\n'
        assert service.batcher.queued_cost == 0

    ask(service, work)


def test_a_stream_has_one_deadline(trained: Path, some: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sentence alone is done in time, but all together are not."""
    real = TranslationJob.run

    def slow(job: TranslationJob, items: Sequence[TokenizedText]) -> list[Translation]:
        sleep(0.5)
        return real(job, items)

    monkeypatch.setattr(TranslationJob, "run", slow)
    monkeypatch.setattr(TranslationJob, "budget", 1)
    service = service_of(trained / "run", limits=ServiceLimits(seconds=1.2))

    async def work(client: httpx.AsyncClient) -> None:
        streamed = await client.post("/v1/translate", json={"text": "\n".join(some), "stream": True})
        assert streamed.text.endswith('event: error\ndata: {"error":"Slowdown: not done after 1.2 s"}\n\n')
        assert service.batcher.queued_cost == 0

    ask(service, work)


def test_a_stream_is_dropped_if_its_client_leaves_before_it_begins(
    service: Service, gate: Event, some: list[str]
) -> None:
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/translate", "query_string": b""}
    scope |= {"headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "asgi": {}}
    body = json.dumps({"text": some, "stream": True}).encode()

    async def work(client: httpx.AsyncClient) -> None:
        messages = iter([{"type": "http.request", "body": body}])
        sent: list[str] = []

        async def receive() -> Any:
            return next(messages, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message["type"])

        first = asyncio.create_task(client.post("/translate", json={"q": some[0], **PAIR}))  # keeps the worker busy
        while not service.batcher.busy:
            await asyncio.sleep(0.01)
        await create_app(service)(scope, receive, send)
        assert sent == ["http.response.start"]
        assert service.batcher.queued_cost == 0
        gate.set()
        assert (await first).status_code == 200

    ask(service, work)


def test_long_texts_are_tokenized_in_a_thread(
    service: Service, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    real = ScoringJob.make_items

    def make_items(job: ScoringJob, *given: Sequence[str]) -> list[JobItem]:
        threads.append(current_thread() is main_thread())
        return real(job, *given)

    monkeypatch.setattr(ScoringJob, "make_items", make_items)

    async def work(client: httpx.AsyncClient) -> None:
        for translation in (some[0], "a" * 3000):
            await client.post("/v1/score", json={"texts": [some[0]], "translations": [translation]})

    ask(service, work)
    assert threads == [True, False]


# Access.


def test_requests_need_a_key_and_count_against_its_limit(trained: Path, tmp_path: Path, some: list[str]) -> None:
    file = tmp_path / "keys.json"
    key = add_key(file, "ann", per_minute=3)
    assert key not in file.read_text()

    async def work(client: httpx.AsyncClient) -> None:
        async def status(more: dict[str, str], **how: Any) -> tuple[int, str]:
            answer = await client.post("/translate", json={"q": some[0], **PAIR, **more}, **how)
            return answer.status_code, answer.json().get("error", "")

        assert await status({}) == (400, "Please contact the server operator to get an API key")
        assert await status({"api_key": "wrong"}) == (403, "Invalid API key")
        assert (await client.get("/metrics")).status_code == 400
        assert (await client.get("/languages")).status_code == 200
        assert await status({"api_key": key}) == (200, "")
        assert await status({}, headers={"Authorization": f"Bearer {key}"}) == (200, "")
        assert await status({}, params={"api_key": key}) == (200, "")
        refused = await client.post("/translate", json={"q": some[0], **PAIR, "api_key": key})
        assert (refused.status_code, refused.json()) == (429, {"error": "Slowdown: 3 per 1 minute"})
        assert 1 <= int(refused.headers["retry-after"]) <= 20

    ask(service_of(trained / "run", keys=file), work)


def test_a_key_is_checked_before_a_body_is_read(trained: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "ann", per_minute=2)

    async def work(client: httpx.AsyncClient) -> None:
        async def endless() -> Any:
            yield b"{"
            await asyncio.sleep(60)

        for path in ("/v1/translate", "/v1/score", "/v1/attention"):
            for headers, status in (({}, 400), ({"Authorization": "Bearer none"}, 403)):
                answer = await client.post(path, content=endless(), headers=JSON | headers)
                assert (answer.status_code, answer.headers["connection"]) == (status, "close")
        for scheme in ("bearer", "BEARER"):
            answer = await client.get("/metrics", headers={"Authorization": f"{scheme} {key}"})
            assert answer.status_code == 200
        assert (await client.get("/metrics", headers={"Authorization": f"Basic {key}"})).status_code == 400

    ask(service_of(trained / "run", keys=keys), work)


def test_a_server_answers_to_the_address_it_listens_on(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for host, status in (("127.0.0.2:5000", 200), ("localhost", 200), ("127.0.0.3", 403)):
            assert (await client.get("/languages", headers={"host": host})).status_code == status

    ask(service, work, hosts=own_hosts("127.0.0.2"))
    assert own_hosts("::1")[-1] == "[::1]"
    assert check_origin("http://[::1]:8000") and check_origin("https://a.example")


def test_foreign_origins_and_hosts_are_refused(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async def status(**headers: str) -> int:
            return (await client.get("/languages", headers=headers)).status_code

        assert await status(host="localhost:5000") == 200
        assert await status(host="localhost") == 200
        assert await status(host="evil.example:5000") == 403
        assert await status(host="127.0.0.1.evil.example") == 403
        assert await status(origin="http://127.0.0.1:5000") == 200
        assert await status(origin="https://evil.example") == 403
        assert await status(origin="null") == 403

    ask(service, work)


def test_a_named_origin_may_send_requests(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.get("/languages", headers={"origin": "https://a.example"})
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert "access-control-allow-credentials" not in answer.headers
        other = await client.get("/languages", headers={"origin": "https://b.example"})
        assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)

    ask(service, work, origins=["https://a.example"])


def test_every_answer_has_security_headers_and_an_id(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/languages", "/nothing", "/metrics"):
            answer = await client.get(path, headers={"x-request-id": "mine-1"})
            assert answer.headers["x-request-id"] == "mine-1"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-security-policy"].startswith("default-src 'none'")
            assert "access-control-allow-origin" not in answer.headers
        forged = await client.get("/health", headers={"x-request-id": "a b<script>"})
        assert len(forged.headers["x-request-id"]) == 16

    ask(service, work)


def test_head_has_the_headers_of_get_and_no_body(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/", "/docs", "/languages", "/health", "/assets/main.js", "/openapi.json", "/none"):
            get, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (get.status_code, b"")
            own = {"x-request-id"}
            assert {k: v for k, v in head.headers.items() if k not in own} == {
                k: v for k, v in get.headers.items() if k not in own
            }
        assert (await client.head("/translate")).status_code == 405

    ask(service, work)


def test_metrics_count_requests_and_characters(trained: Path, some: list[str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/translate", json={"q": some[0], **PAIR})
        await client.get("/made/up/by/a/client")
        shown = (await client.get("/metrics")).text
        assert 'heedful_requests_total{path="/translate",status="200"} 1.0' in shown
        assert 'heedful_requests_total{path="other",status="404"} 1.0' in shown
        assert f'heedful_characters_total{{model="run"}} {float(len(some[0]))}' in shown
        assert "heedful_batch_pieces_count 1.0" in shown
        assert "heedful_queue_pieces 0.0" in shown
        assert "made" not in shown

    ask(service_of(trained / "run"), work)


def test_an_unexpected_error_does_not_reveal_its_cause(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service.detector, "detect", fail)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/detect", json={"q": "a"}, headers={"x-request-id": "this"})
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error; the log has more under this"})

    ask(service, work)


# The OpenAPI document.


def test_the_document_names_every_endpoint_and_field(service: Service) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        document = (await client.get("/openapi.json")).json()
        assert set(document["paths"]) == {
            *("/translate", "/detect", "/languages", "/health", "/frontend/settings", "/translate_file"),
            *("/v1/translate", "/v1/score", "/v1/attention", "/v1/models", "/v1/complete", "/v1/classify"),
            *("/v1/embed", "/v1/find"),
        }
        wanted = document["components"]["schemas"]
        assert set(wanted["LibreRequest"]["required"]) == {"q", "source", "target"}
        assert wanted["ErrorAnswer"]["required"] == ["error"]

    ask(service, work)


# A real server.


def test_the_published_client_works(service: Service, translator: Translator, some: list[str]) -> None:
    client = pytest.importorskip("libretranslatepy", reason="needs libretranslatepy")
    with listening(service) as url:
        api = client.LibreTranslateAPI(url)
        assert api.translate(some[0], "en", "de") == translator.translate(some[:1])[0].text
        assert api.languages()[0]["code"] == "en"
        assert api.detect(" ".join(some))[0]["language"] == "en"


def test_nagles_algorithm_is_off() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # then asyncio disables Nagle's algorithm


def raw(url: str, *sent: bytes) -> bytes:
    """The answer to these bytes, until the server closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        received = b""
        with suppress(ConnectionError):  # the server may close before it has read everything
            for part in sent:
                connection.sendall(part)
            while part := connection.recv(65_536):
                received += part
        return received


@contextmanager
def connected(url: str, path: str, asked: dict[str, Any]) -> Iterator[None]:
    """A client that has sent a request, and disconnects at the end of the block."""
    host, _, port = url.removeprefix("http://").partition(":")
    body = json.dumps(asked)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"{head}\r\n\r\n{body}".encode())
        yield


def request(body: bytes, *headers: bytes) -> bytes:
    lines = (b"POST /translate HTTP/1.1", b"Host: localhost", b"Connection: close", *headers)
    return b"\r\n".join((*lines, b"", body))


def test_an_unfinished_request_is_closed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.server._HEAD_SECONDS", 0.2)
    with listening(service) as url:
        assert raw(url, b"GET / HT") == b""
        assert raw(url) == b""


def test_bytes_after_a_body_are_bounded(service: Service) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for trailer in (b"X: %s\r\n" % (b"a" * 1000), b"X: " + b"a" * 1000):
        with listening(service) as url:
            assert raw(url, head, b"2\r\n{}\r\n0\r\n", *[trailer] * 10_000) == b""  # closed before the end


def test_the_body_of_a_request_for_another_protocol_may_arrive_late(service: Service, some: list[str]) -> None:
    body = json.dumps({"q": some[0], **PAIR}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: Upgrade\r\n"
    head += b"Upgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body)
    with listening(service) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(head)
            sleep(0.3)  # the server has read the head by then
            connection.sendall(body)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"anything"])
def test_a_request_for_another_protocol_is_answered_in_this_one(
    service: Service, some: list[str], protocol: bytes
) -> None:
    """curl --http2 sends such a head with every request."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + protocol + b"\r\nHTTP2-Settings: AAMAAABk"
    body = json.dumps({"q": some[0], **PAIR}).encode()
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + upgrade
    sized = head + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    chunked = head + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with listening(service) as url:
        for parts in (
            (sized + body, last),
            (sized, body[:5], body[5:] + get + last),
            (chunked + b"%x\r\n" % len(body) + body, b"\r\n0\r\n\r\n", get * 300 + last),
        ):
            answer = raw(url, *parts)
            assert answer.count(b"HTTP/1.1 200") == 2 + b"".join(parts).count(get)
            assert b'{"translatedText"' in answer


def test_too_many_connections_make_room_for_new_ones(
    service: Service, gate: Event, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted, real = [], Batcher.submit

    def submit(batcher: Batcher, job: BatchJob, items: Sequence[JobItem]) -> PendingJob:
        submitted.extend([job] if items else [])
        return real(batcher, job, items)

    monkeypatch.setattr(Batcher, "submit", submit)
    monkeypatch.setattr("heedful.serve.server.count_allowed_connections", lambda: 3)
    with listening(service) as url, ExitStack() as stack:
        address = httpx.URL(url)

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection((address.host, address.port or 0), 20))

        stack.callback(gate.set)
        idle = connect()
        for _ in range(2):
            stack.enter_context(connected(url, "/translate", {"q": some[0], **PAIR}))
        until(lambda: len(submitted) == 2)
        assert httpx.get(f"{url}/health").status_code == 200
        assert idle.recv(10) == b""  # it had been idle for longest
        stack.enter_context(connected(url, "/translate", {"q": some[0], **PAIR}))
        until(lambda: len(submitted) == 3)
        assert connect().recv(100).startswith(b"HTTP/1.1 503")  # all others are busy


def test_a_lack_of_descriptors_is_one_line_in_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(create_app(service))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            server._handle_loop_error(loop, {"message": "out", "exception": OSError(errno.EMFILE, "Too many files")})

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records] == ["cannot accept connections: Too many files"]


def test_a_client_that_does_not_read_is_disconnected(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.serve.server._STUCK_SECONDS", 0.1)
    asked = b"GET /assets/heads.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with listening(service) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect((host, int(port)))
            connection.sendall(asked * 1000)
            own = connection.getsockname()[1]

            def connected() -> bool:
                sockets = psutil.Process().net_connections("tcp")
                return any(one.raddr and one.raddr.port == own for one in sockets)

            until(connected)
            until(lambda: not connected())


def test_random_bytes_do_no_harm(service: Service, some: list[str]) -> None:
    form = f"q={some[0]}&source=en&target=de".replace(" ", "+").encode()
    kind = b"Content-Type: application/x-www-form-urlencoded"
    with listening(service) as url:
        assert raw(url, b"GET / HTTP/9.9\r\n\r\n").startswith(b"HTTP/1.1 400")
        assert raw(url, b"\x16\x03\x01\x02\x00").startswith(b"HTTP/1.1 400")
        assert b" 200 " not in raw(
            url, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000 + b"\r\n\r\n"
        )
        both = request(b"0\r\n\r\n", b"Content-Length: 5", b"Transfer-Encoding: chunked")
        assert raw(url, both).startswith(b"HTTP/1.1 4")
        huge = request(b"", b"Content-Length: 99999999999", b"Content-Type: application/json")
        assert raw(url, huge).startswith(b"HTTP/1.1 413")
        short = request(form, kind, b"Content-Length: %d" % len(form))
        assert raw(url, short).startswith(b"HTTP/1.1 200")
        chunks = (b"%x\r\n%s\r\n" % (len(form), form), b"0\r\n\r\n")
        assert raw(url, request(b"", kind, b"Transfer-Encoding: chunked"), *chunks).startswith(b"HTTP/1.1 200")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """While this event is not set, no batch finishes."""
    shut, real = Event(), TranslationJob.run

    def run(job: TranslationJob, items: Sequence[TokenizedText]) -> list[Translation]:
        assert shut.wait(20)
        return real(job, items)

    monkeypatch.setattr(TranslationJob, "run", run)
    yield shut
    shut.set()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        sleep(0.01)
    pytest.fail("it did not come to pass")


def test_a_short_request_is_answered_before_twenty_long_ones(
    service: Service, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch of the long ones takes until the short one is answered."""
    answered, real = Event(), TranslationJob.run

    def run(job: TranslationJob, items: Sequence[TokenizedText]) -> list[Translation]:
        if job.glossary:
            assert answered.wait(20)
        return real(job, items)

    monkeypatch.setattr(TranslationJob, "run", run)
    texts = (some * 300)[:300]

    async def work(client: httpx.AsyncClient) -> None:
        bodies = [{"text": texts, "glossary": {f"term{number}": "x"}} for number in range(20)]
        long = [asyncio.create_task(client.post("/v1/translate", json=body)) for body in bodies]
        while service.batcher.queued_cost < 1000:
            await asyncio.sleep(0.01)
        answer = await client.post("/translate", json={"q": some[0], **PAIR})
        assert answer.status_code == 200
        assert not any(task.done() for task in long)
        answered.set()
        assert {(await task).status_code for task in long} == {200}

    ask(service, work)


def test_work_for_a_disconnected_client_is_dropped(service: Service, gate: Event, some: list[str]) -> None:
    with listening(service) as url, connected(url, "/translate", {"q": some, **PAIR}):
        until(lambda: service.batcher.busy > 0)
        for path, asked in (("/translate", {"q": some, **PAIR}), ("/v1/translate", {"text": some, "stream": True})):
            with connected(url, path, asked):
                until(lambda: service.batcher.queued_cost > 0)
            until(lambda: service.batcher.queued_cost == 0)
        gate.set()
        until(lambda: service.batcher.busy == 0)


def test_a_stopping_server_answers_accepted_requests(
    service: Service, gate: Event, some: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int] = []
    accepted: list[PendingJob] = []
    real = Batcher.submit

    def submit(*given: Any) -> PendingJob:
        ticket = real(*given)
        accepted.extend([ticket] if ticket.queued else [])
        return ticket

    monkeypatch.setattr(Batcher, "submit", submit)

    def send(url: str) -> None:
        answers.append(httpx.post(f"{url}/translate", json={"q": some, **PAIR}, timeout=20).status_code)

    with listening(service) as url:
        threads = [Thread(target=send, args=(url,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: len(accepted) == 5)
        Timer(0.3, gate.set).start()  # after the server has begun to stop
    for thread in threads:
        thread.join(20)
    assert answers == [200] * 5


def test_a_stopping_server_waits_for_streams(service: Service, gate: Event, some: list[str]) -> None:
    events: list[str] = []

    def send(url: str) -> None:
        asked = {"text": some, "stream": True}
        events.extend(httpx.post(f"{url}/v1/translate", json=asked, timeout=20).text.split("\n\n"))

    with listening(service) as url:
        thread = Thread(target=send, args=(url,))
        thread.start()
        until(lambda: service.batcher.busy > 0)
        Timer(0.5, gate.set).start()  # after the server has begun to stop
    thread.join(20)
    assert [event.partition("\n")[0] for event in events] == [*["event: sentence"] * 6, "event: end", ""]


def test_a_failed_reload_is_logged_and_the_old_state_stays(
    trained: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys.json"
    add_key(keys, "ann", per_minute=3)
    service = service_of(trained / "run", keys=keys)
    keys.write_text("broken")

    def fail(_: RunFolder) -> str:
        raise OSError("the disk is gone")

    monkeypatch.setattr("heedful.serve.model_registry._fingerprint_weights", fail)
    asyncio.run(service.reload())
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == ["run", "keeping the old keys"]
    assert "the disk is gone" in told[0]


def test_attention_and_translation_use_the_same_weights(trained: Path, tmp_path: Path, some: list[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    service = service_of(run)
    weights = {name: -tensor for name, tensor in toy.weights(run).items()}
    RunFolder(run).write_weights(weights, "others")

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/attention", json={"text": some[0]})
        assert (answer.status_code, "send SIGHUP to the server" in answer.json()["error"]) == (503, True)
        await service.reload()
        assert (await client.post("/v1/attention", json={"text": some[0]})).status_code == 200

    ask(service, work)


def test_new_weights_are_loaded_while_requests_run(trained: Path, tmp_path: Path, some: list[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    service = service_of(run)
    before = service.registry.models[0]

    async def work(client: httpx.AsyncClient) -> None:
        async def translated() -> str:
            return str((await client.post("/translate", json={"q": some[0], **PAIR})).json()["translatedText"])

        old = await translated()
        (run / "model.safetensors").write_bytes(b"half of a file")
        await service.reload()
        assert (service.registry.models[0], await translated()) == (before, old)  # a damaged folder is not loaded
        weights = {name: -tensor for name, tensor in toy.weights(trained / "run").items()}
        RunFolder(run).write_weights(weights, "others")
        pending = asyncio.gather(*(translated() for _ in range(8)))
        await service.reload()
        assert all(await pending)
        assert await translated() != old
        (model,) = (await client.get("/v1/models")).json()["models"]
        assert model["weights"] != before.weights

    ask(service, work)

"""The page of `heedful serve` in a real browser."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import toy

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx", "lxml", "polib", "python_multipart"):
    pytest.importorskip(needed, reason="needs heedful[serve,documents]")

import httpx
from browser import chromium, watched
from serve_examples import listening, service_of

from heedful.attention.head_names import all_heads
from heedful.serve.api_keys import add_key
from heedful.serve.page_routes import StaticPages
from heedful.serve.service import ServiceLimits
from heedful.translation.translator import Translator

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

HOSTILE = "<img src=x onerror=alert(1)> </textarea><script>alert(2)</script> \"'><svg onload=alert(3)>"
SLOW = 20_000  # milliseconds; enough on a busy machine


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def url(trained: Path) -> Iterator[str]:
    """The address of a server with one model under two names, so that languages can be swapped."""
    run = trained / "run"
    with listening(service_of(run, run, limits=ServiceLimits(characters=600), languages=["en-de", "de-en"])) as address:
        yield address


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


@pytest.fixture(scope="module")
def some(trained: Path) -> list[str]:
    """Sentences of at least three words."""
    return [line for line in toy.lines_of(trained / "test.en") if line.count(" ") > 1]


@pytest.fixture
def opened(browser: "Browser", url: str) -> "Iterator[Page]":
    """The page, translating from English. Foreign requests, errors in the console and dialogs fail the test."""
    with watched(browser, url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(url)
        seen.page.select_option("#from", "en")
        yield seen.page
        # A browser logs every error response.
        assert [misdeed for misdeed in seen.misdeeds if not re.search("status of (400|502|503)", misdeed)] == []


def expect_text(page: "Page", selector: str, text: "str | re.Pattern[str]") -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text, timeout=SLOW)


def wait_until(page: "Page", condition: str) -> None:
    """Poll from here, because the policy of the page does not allow a script made from a string."""
    for _ in range(SLOW // 20):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(20)
    raise AssertionError(condition)


def praise_alternatives(route: "Route") -> None:
    """Pass on a request; its alternatives come back as probable ones, which those of a toy model are not."""
    body: Any = route.request.post_data_json
    if body.get("stream"):
        route.continue_()
        return
    answer = route.fetch().json()
    for alternative in answer["texts"][0]["sentences"][0]["alternatives"]:
        alternative |= {"unsure": False, "log_prob": -1.0}
        for word in alternative["words"]:
            word["least"] = 0.5
    route.fulfill(json=answer)


def translate(page: "Page", text: str, translation: str) -> None:
    page.fill("#source", text)
    expect_text(page, "#target", translation)


# The files.


@pytest.mark.parametrize("path", ["/", "/classify", "/find", "/docs"])
def test_the_page_has_no_inline_script_or_style_and_loads_nothing_foreign(url: str, path: str) -> None:
    answer = httpx.get(url + path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    html = answer.text
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"<style| style=| on\w+=|javascript:", html) == []
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
    assert "unsafe" not in "".join(policy)
    loaded = re.findall(r"(?:src|href)=\"(assets/[^\"]*)\"", html)
    assert len(loaded) >= 6
    for address in loaded:
        file = httpx.get(f"{url}/{address}")
        assert file.status_code == 200
        assert set(re.findall(r"https?://[\w./]+", file.text)) <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in file.text
    for path in (
        "/assets/none.js",
        "/assets/..%2Fapp.py",
        "/assets/../app.py",
        "/assets/index.html",
        "/assets/docs.html",
        "/assets/classify.html",
        "/assets/find.html",
    ):
        assert httpx.get(f"{url}{path}").status_code == 404


def test_modules_import_only_files_that_exist() -> None:
    page = StaticPages()
    for name, content in page.files.items():
        for imported in re.findall(r"^import .* from '\./(.*)';$", content, re.MULTILINE):
            assert imported in page.files, f"{name} imports {imported}"


# Translating.


def test_text_is_translated_while_it_is_typed(opened: "Page", translator: Translator, some: list[str]) -> None:
    one, two = (translation.text for translation in translator.translate(some[:2]))
    opened.type("#source", some[0])
    expect_text(opened, "#target", one)
    opened.press("#source", "Enter")
    opened.press("#source", "Enter")
    opened.type("#source", some[1])
    expect_text(opened, "#target", f"{one}\n\n{two}")
    assert opened.inner_text("#count") == f"{len(some[0]) + len(some[1]) + 2} / 600"
    opened.click("#clear")
    expect_text(opened, "#target", "")
    assert opened.is_disabled("#copy")
    assert opened.evaluate("document.activeElement.id") == "source"


def test_a_late_answer_is_dropped(opened: "Page", translator: Translator, some: list[str]) -> None:
    asked: list[str] = []

    def late(route: "Route") -> None:
        body: Any = route.request.post_data_json
        asked.append(body["text"])
        if len(asked) > 1:
            route.continue_()  # the first request gets no answer

    opened.route("**/v1/translate", late)
    opened.fill("#source", some[0])
    wait_until(opened, "document.getElementById('working').textContent !== ''")
    translate(opened, some[1], translator.translate([some[1]])[0].text)
    assert asked == some[:2]


def test_swapping_languages_makes_the_translation_the_text(
    opened: "Page", translator: Translator, some: list[str]
) -> None:
    there = translator.translate([some[0]])[0].text
    back = translator.translate([there])[0].text
    translate(opened, some[0], there)
    opened.press("#source", "Alt+s")
    expect_text(opened, "#target", back)
    assert [opened.input_value(f"#{name}") for name in ("source", "from", "into")] == [there, "de", "en"]
    opened.reload()
    opened.wait_for_function("document.querySelector('#from').value === 'de'")  # the page remembers it


def test_the_page_starts_with_the_language_that_has_most_targets(browser: "Browser", trained: Path) -> None:
    run = trained / "run"
    names = ["de-en", "en-de", "en-fr", "fr-en"]
    with listening(service_of(run, run, run, run, languages=names)) as address, watched(browser, address) as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector("#into option", state="attached")
        assert seen.page.input_value("#from") == "en"


def test_alternatives_of_a_word_can_be_chosen_by_pointer_and_by_keyboard(
    opened: "Page", translator: Translator, some: list[str]
) -> None:
    best = translator.translate([some[0]])[0].text
    translate(opened, some[0], best)
    opened.route("**/v1/translate", praise_alternatives)
    opened.click("#target .word >> nth=1")
    first = opened.locator("#choices-list button").first
    first.wait_for()
    expect_text(opened, "#choices-title", f"Alternatives to “{best.split()[1]}”")
    other = f"{best.split()[0]} {(first.text_content() or '').removesuffix(' 50 %')}"
    first.click()
    expect_text(opened, "#target", other)
    assert other != best
    assert not opened.is_visible("#choices")
    opened.fill("#source", some[0] + "\n" + some[1])  # what was chosen stays
    expect_text(opened, "#target", re.compile(re.escape(other)))

    opened.fill("#source", some[2])
    expect_text(opened, "#target", translator.translate([some[2]])[0].text)
    opened.focus("#target .word >> nth=0")
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate("document.activeElement.dataset.start") != "0"
    opened.keyboard.press("Enter")
    opened.locator("#choices-list button").first.wait_for()
    opened.keyboard.press("Escape")
    assert not opened.is_visible("#choices")
    opened.keyboard.press("Enter")
    opened.locator("#choices-list button").first.wait_for()
    wait_until(opened, "document.activeElement.closest('#choices-list')")
    opened.keyboard.press("Enter")
    wait_until(opened, "!document.getElementById('choices').matches(':popover-open')")
    assert opened.inner_text("#target") != translator.translate([some[2]])[0].text


def test_words_of_low_confidence_are_shaded(opened: "Page", some: list[str]) -> None:
    opened.fill("#source", "unknown words " + some[0])
    unsure = opened.locator("#target .sure-0, #target .sure-1, #target .sure-2").first
    unsure.wait_for()
    before = unsure.evaluate("(word) => getComputedStyle(word).backgroundColor")
    opened.click("#confidence")
    assert unsure.evaluate("(word) => getComputedStyle(word).backgroundColor") != before
    assert opened.get_attribute("#confidence", "aria-pressed") == "true"
    assert opened.is_visible("#shades")


def test_a_sentence_of_low_confidence_is_marked(opened: "Page", some: list[str], translator: Translator) -> None:
    translate(opened, some[0], translator.translate([some[0]])[0].text)
    assert opened.locator("#target .unsure").count() == 0
    strange = "of this it knows no word at all"
    translate(opened, strange, translator.translate([strange])[0].text)
    assert opened.locator("#target .unsure").count() == 1


def test_terms_of_the_glossary_are_used(opened: "Page", some: list[str]) -> None:
    term = some[0].split()[0]
    opened.fill("#source", some[0])
    opened.click("#open-glossary")
    opened.fill("#terms", f"{term} =")
    expect_text(opened, "#terms-problem", "Line 1 must be a term, an equals sign and its translation.")
    opened.fill("#terms", f"{term} = Zürich-West")
    opened.keyboard.press("Escape")
    expect_text(opened, "#failed-terms", f"Terms that do not fit this text and were left out: {term} = Zürich-West")
    wish = term  # a name, which is never left out
    opened.click("#open-glossary")
    opened.fill("#terms", f"{term} = {wish}")
    opened.keyboard.press("Escape")
    expect_text(opened, "#target", re.compile(rf"\b{wish}\b"))
    assert not opened.is_visible("#failed-terms")
    expect_text(opened, "#glossary-count", "1")
    opened.route("**/v1/translate", praise_alternatives)
    opened.locator("#target .word", has_not_text=wish).last.click()  # alternatives keep to the glossary, too
    other = opened.locator("#choices-list button").first
    other.click()
    expect_text(opened, "#target", re.compile(rf"\b{wish}\b"))
    assert not opened.is_visible("#choices")


def test_the_history_keeps_translations_until_it_is_cleared(
    opened: "Page", translator: Translator, some: list[str]
) -> None:
    translate(opened, some[0], translator.translate([some[0]])[0].text)
    wait_until(opened, "localStorage.getItem('history')")
    opened.fill("#source", "")
    opened.click("#open-history")
    opened.click("#past button")
    assert opened.input_value("#source") == some[0]
    opened.click("#open-history")
    opened.click("#forget")
    assert opened.is_visible("#no-past")
    assert opened.evaluate("localStorage.getItem('history')") is None


def test_the_translation_is_copied(opened: "Page", translator: Translator, some: list[str]) -> None:
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    best = translator.translate([some[0]])[0].text
    translate(opened, some[0], best)
    opened.click("#copy")
    expect_text(opened, "#copy", "Copied")
    assert opened.evaluate("navigator.clipboard.readText()") == best


# Looking inside.


def test_heads_are_switched_off_live(opened: "Page", translator: Translator, some: list[str]) -> None:
    asked: list[Any] = []
    opened.on("request", lambda request: asked.append(request.post_data_json) if "attention" in request.url else None)
    opened.fill("#source", f"{some[0]}\n{some[1]}")
    expect_text(opened, "#target", "\n".join(found.text for found in translator.translate(some[:2])))
    opened.click("#look")
    opened.wait_for_selector("#grid .head")
    assert opened.input_value("#which") == "0"
    expect_text(opened, "#source-text", some[0])
    heads = len(all_heads(translator.model))
    assert opened.locator("#ranked li").count() == heads
    opened.select_option("#which", "1")
    expect_text(opened, "#source-text", some[1])
    name = opened.get_attribute("#grid .head", "data-head") or ""
    opened.focus(f"[id='open-{name}']")
    opened.keyboard.press("o")
    opened.wait_for_selector("#comparison")
    expect_text(opened, "#some-off-title", f"Without {name}")
    expect_text(opened, "#all-on", translator.translate([some[1]])[0].text + " ")
    assert asked[-1] | {"text": some[1], "heads_off": [name], "source": "en", "target": "de"} == asked[-1]
    opened.click("#all-heads-on")
    opened.wait_for_selector("#comparison", state="hidden")
    opened.click("#close-inside")
    assert not opened.is_visible("#inside")


def test_a_character_counts_once_whatever_its_encoding(opened: "Page", some: list[str]) -> None:
    opened.fill("#source", f"🐎🐎🐎\n{some[1]}")
    opened.wait_for_selector("#target .word[data-sentence='1']")
    assert opened.inner_text("#count") == f"{len(some[1]) + 4} / 600"
    opened.focus("#target .word[data-sentence='1']")
    opened.click("#look")
    expect_text(opened, "#source-text", some[1])


# Files.


def test_a_file_is_uploaded_and_its_translation_downloaded(opened: "Page", some: list[str], tmp_path: Path) -> None:
    from playwright.sync_api import expect

    source = tmp_path / "strings.po"
    source.write_text(f'#: a.c:1\nmsgid "{some[0]}"\nmsgstr ""\n\nmsgid "{some[1]}"\nmsgstr ""\n')
    opened.set_input_files("#file", source)
    link = opened.locator("#jobs .download")
    expect(link).to_have_text("Download strings.de.po", timeout=SLOW)
    with opened.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "strings.de.po"
    out = Path(download.value.path()).read_text()
    assert "#: a.c:1\n" in out
    assert f'msgid "{some[0]}"\nmsgstr "{toy.translated(some[0])}"' in out
    opened.click("#jobs button")
    assert opened.locator("#jobs li").count() == 0


def test_a_dropped_file_is_translated_or_refused_with_a_sentence(opened: "Page", some: list[str]) -> None:
    def drop(name: str, content: str) -> None:
        files = opened.evaluate_handle(
            """([name, content]) => {
                const all = new DataTransfer();
                all.items.add(new File([content], name));
                return all;
            }""",
            [name, content],
        )
        opened.dispatch_event("#source", "drop", {"dataTransfer": files})

    drop("text.txt", some[0])
    opened.wait_for_selector("#jobs .download")
    drop("picture.png", "")
    expect_text(opened, "#jobs .problem", re.compile("Unsupported file type; supported: .txt"))
    drop("broken.json", "{")
    expect_text(opened, "#jobs li >> nth=0 >> .problem", re.compile("The file is not JSON"))


# The API.


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 320)])
def test_the_api_page_shows_every_endpoint(browser: "Browser", url: str, scheme: str, width: int) -> None:
    document = httpx.get(f"{url}/openapi.json").json()
    with watched(browser, url, color_scheme=scheme, viewport={"width": width, "height": 800}) as seen:
        page = seen.page
        page.set_default_timeout(SLOW)
        page.goto(url)
        page.click("footer a")
        page.wait_for_selector("#endpoints details")
        assert page.locator("#endpoints summary code").all_text_contents() == list(document["paths"])
        assert page.locator("#endpoints h2").all_text_contents() == ["LibreTranslate", "heedful"]
        assert page.locator("#objects details").count() == len(document["components"]["schemas"])
        page.click("#post-v1-translate > summary")
        shown = page.locator("#post-v1-translate")
        fields = document["components"]["schemas"]["TranslateRequest"]["properties"]
        assert shown.locator("table >> nth=0 >> th code").all_text_contents() == list(fields)
        said = shown.text_content() or ""
        assert all(field.get("description", "") in said for field in fields.values())
        assert "at least 1; at most 10; default 1" in said
        assert f"curl {url}/v1/translate -H 'Content-Type: application/json' -d '{{\"text\":" in said
        example = '-d \'{"q":"A man rides a horse.","source":"de","target":"en"}\''
        assert example in (page.text_content("#post-translate pre") or "")
        statuses = document["paths"]["/v1/translate"]["post"]["responses"]
        assert shown.locator("table >> nth=1 >> th").all_text_contents() == sorted(statuses)
        shown.locator("a", has_text="TranslateAnswer").click()
        page.wait_for_selector("#TranslateAnswer[open]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.misdeeds == []


# Hostile text, errors and devices.


def test_text_is_never_markup(opened: "Page", url: str, tmp_path: Path) -> None:
    def run_over(route: "Route") -> None:
        option = {"text": HOSTILE, "words": []}
        answer = {
            "texts": [
                {
                    "text": HOSTILE,
                    "sentences": [{"start": 0, "end": len(HOSTILE), "text": HOSTILE, "alternatives": [option]}],
                }
            ]
        }
        route.fulfill(status=200, content_type="text/event-stream", body=f"event: end\ndata: {json.dumps(answer)}\n\n")

    opened.route("**/v1/translate", run_over)
    opened.fill("#source", HOSTILE)
    expect_text(opened, "#target", HOSTILE)
    wait_until(opened, "localStorage.getItem('history')")
    opened.click("#open-history")
    assert HOSTILE in (opened.text_content("#past") or "")
    opened.keyboard.press("Escape")
    opened.click("#open-glossary")
    opened.fill("#terms", f"{HOSTILE}\n{HOSTILE}")
    opened.keyboard.press("Escape")
    opened.unroute("**/v1/translate")
    opened.click("#look")
    expect_text(opened, "#source-text", re.compile(re.escape("<img src=x onerror=alert(1)>")))
    file = tmp_path / "<img src=x onerror=alert(4)>.txt"
    file.write_text(HOSTILE)
    opened.set_input_files("#file", file)
    opened.wait_for_selector("#jobs .download")
    assert opened.locator("main img, main script, main svg[onload], dialog img").count() == 0


def test_an_error_is_shown_as_a_sentence(opened: "Page", some: list[str]) -> None:
    opened.fill("#source", "a" * 601)
    expect_text(opened, "#problem", re.compile("The text is too long: the limit is 600 characters."))
    full = {
        "status": 503,
        "headers": {"Retry-After": "7"},
        "body": '{"error": "Slowdown: too many requests are waiting"}',
    }
    opened.route("**/v1/translate", lambda route: route.fulfill(**full))
    opened.fill("#source", some[0])
    expect_text(opened, "#problem", "The server is busy. Trying again in 7 s.")
    opened.unroute("**/v1/translate")
    opened.press("#source", "Control+Enter")
    opened.wait_for_selector("#problem", state="hidden")


def test_the_page_sends_the_api_key_that_the_server_requires(
    browser: "Browser", trained: Path, tmp_path: Path, some: list[str]
) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "ann", 600)
    with listening(service_of(trained / "run", keys=keys)) as url, watched(browser, url) as seen:
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(url)
        seen.page.fill("#key", key)
        seen.page.click("#key-box button")
        translate(seen.page, some[0], toy.translated(some[0]))
        assert seen.misdeeds == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_until_they_are_switched(browser: "Browser", url: str, scheme: str) -> None:
    with watched(browser, url, color_scheme=scheme) as seen:
        seen.page.goto(url)

        def colour() -> str:
            return str(seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

        own = colour()
        assert own == ("rgb(247, 246, 243)" if scheme == "light" else "rgb(17, 20, 25)")
        shown = []
        for name in ("Light", "Dark"):
            seen.page.click("#theme")
            assert seen.page.inner_text("#theme") == name
            shown.append(colour())
        assert len(set(shown)) == 2
        seen.page.reload()
        assert colour() == shown[-1]
        seen.page.click("#theme")
        assert colour() == own


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_a_phone(browser: "Browser", url: str, some: list[str], width: int) -> None:
    with watched(browser, url, viewport={"width": width, "height": 800}) as seen:
        seen.page.goto(url)
        seen.page.select_option("#from", "en")
        translate(seen.page, some[0], toy.translated(some[0]))
        seen.page.click("#look")
        seen.page.wait_for_selector("#grid .head")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.page.click("#target .word >> nth=0")
        box = seen.page.locator("#choices").bounding_box()
        assert box is not None
        assert box["x"] >= 0 and box["x"] + box["width"] <= width


def test_every_control_has_a_name_and_can_be_reached(opened: "Page", some: list[str]) -> None:
    translate(opened, some[0], toy.translated(some[0]))
    opened.focus("#source")
    reached = []
    for _ in range(8):
        opened.keyboard.press("Tab")
        reached.append(opened.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached[:5] == ["clear", "word", "confidence", "look", "copy"]
    assert "file" in reached
    nameless = opened.evaluate(
        """() => [...document.querySelectorAll('button, select, textarea, input, a')].filter((node) => !(
        node.textContent.trim() || node.ariaLabel || node.labels?.length)).map((node) => node.outerHTML)"""
    )
    assert [html for html in nameless if "open-p" not in html] == []  # two in the explorer, which is still empty


# Typing, streams and failures


def test_the_translation_appears_before_typing_stops(opened: "Page", some: list[str]) -> None:
    opened.focus("#source")
    for _ in range(200):
        opened.keyboard.type(some[0][0] if not opened.input_value("#source") else "a")
        opened.wait_for_timeout(100)  # never as long as a pause
        if opened.inner_text("#target"):
            return
    raise AssertionError("nothing appears while somebody types")


FAKE_STREAM = """() => {
    const real = window.fetch;
    window.fetch = (path, options) => {
        if (path !== 'v1/translate') return real(path, options);
        window.asked = JSON.parse(options.body);
        const body = new ReadableStream({start: (stream) => { window.stream = stream; }});
        return Promise.resolve(new Response(body, {headers: {'Content-Type': 'text/event-stream'}}));
    };
    window.sendEvent = (name, content) => {
        window.stream.enqueue(new TextEncoder().encode(`event: ${name}\\ndata: ${JSON.stringify(content)}\\n\\n`));
        if (name === 'end') window.stream.close();
    };
}"""


def sentence_of(start: int, end: int, text: str) -> dict[str, Any]:
    alternative = {"text": text, "log_prob": -1.0, "finished": True, "repeats": False, "unsure": False, "words": []}
    return {"start": start, "end": end, "text": text, "alternatives": [alternative]}


def test_each_sentence_appears_as_soon_as_it_is_translated(opened: "Page") -> None:
    opened.evaluate(FAKE_STREAM)
    send = "([name, content]) => window.sendEvent(name, content)"
    both = [sentence_of(0, 4, "Eins."), sentence_of(6, 10, "Zwei.")]
    opened.fill("#source", "One.  Two.")
    wait_until(opened, "window.stream !== undefined")
    assert opened.evaluate("window.asked.stream")
    opened.evaluate(send, ["sentence", both[0]])
    expect_text(opened, "#target", "Eins.")
    assert opened.is_disabled("#copy")
    opened.evaluate(send, ["sentence", both[1]])
    opened.evaluate(send, ["end", {"texts": [{"text": "Eins.  Zwei.", "sentences": both}]}])
    expect_text(opened, "#target", "Eins.  Zwei.")
    opened.wait_for_selector("#copy:enabled")
    opened.evaluate("delete window.stream")
    opened.fill("#source", "Two.  Two.")
    wait_until(opened, "window.stream !== undefined")
    opened.evaluate(send, ["sentence", sentence_of(0, 4, "Drei.")])
    expect_text(opened, "#target", "Drei.  Zwei.")
    assert opened.locator("#target .stale").all_text_contents() == ["Zwei."]


def test_a_failure_keeps_the_translation_and_the_page_tries_again(
    opened: "Page", translator: Translator, some: list[str]
) -> None:
    one, two = (translation.text for translation in translator.translate(some[:2]))
    translate(opened, some[0], one)
    failed: list[str] = []

    def fail_twice(route: "Route") -> None:
        failed.append(route.request.url)
        if len(failed) == 1:
            route.fulfill(status=503, headers={"Retry-After": "1"}, body='{"error": "Slowdown: too many"}')
        elif len(failed) == 2:
            route.fulfill(status=502)
        else:
            route.continue_()

    opened.route("**/v1/translate", fail_twice)
    opened.fill("#source", some[1])
    expect_text(opened, "#problem", "The server is busy. Trying again in 1 s.")
    assert opened.inner_text("#target") == one
    assert opened.locator("#target .stale").count() == 1
    expect_text(opened, "#target", two)
    opened.wait_for_selector("#problem", state="hidden")
    assert len(failed) == 3
    assert opened.locator("#target .stale").count() == 0


def test_the_page_waits_for_a_server_that_does_not_answer_yet(browser: "Browser", url: str, some: list[str]) -> None:
    with watched(browser, url) as seen:
        failed: list[str] = []

        def fail_once(route: "Route") -> None:
            failed.append(route.request.url)
            if len(failed) == 1:
                route.abort()
            else:
                route.continue_()

        seen.page.route("**/languages", fail_once)
        seen.page.goto(url)
        expect_text(seen.page, "#problem", "The server is not responding. Trying again in 1 s.")
        seen.page.wait_for_selector("#from option[value='en']", state="attached", timeout=SLOW)
        seen.page.select_option("#from", "en")
        translate(seen.page, some[0], toy.translated(some[0]))


def test_the_page_works_if_the_browser_stores_nothing(browser: "Browser", url: str, some: list[str]) -> None:
    blocked = """for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, {
        get() { throw new DOMException('blocked', 'SecurityError'); } });"""
    with watched(browser, url) as seen:
        seen.page.add_init_script(blocked)
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(url)
        seen.page.select_option("#from", "en")
        translate(seen.page, some[0], toy.translated(some[0]))
        seen.page.click("#theme")
        seen.page.click("#open-glossary")
        seen.page.fill("#terms", "a = b")
        expect_text(seen.page, "#glossary-count", "1")
        seen.page.keyboard.press("Escape")
        assert seen.misdeeds == []


# What people do to the page


def test_dropped_text_is_translated(opened: "Page", some: list[str]) -> None:
    def drop(text: str, selector: str) -> bool:
        """Drop a text, and return whether the page leaves it to the browser."""
        left: bool = opened.evaluate(
            """([text, selector]) => {
                const dataTransfer = new DataTransfer();
                dataTransfer.setData('text/plain', text);
                const event = new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer});
                return document.querySelector(selector).dispatchEvent(event);
            }""",
            [text, selector],
        )
        return left

    assert not drop(some[0], "#target")
    expect_text(opened, "#target", toy.translated(some[0]))
    assert not drop(some[1], "header")
    assert opened.input_value("#source") == f"{some[0]}\n{some[1]}"
    assert drop("more", "#source")  # a text box inserts it where it is dropped


@pytest.mark.parametrize(
    "event",
    [
        {"key": "ś", "code": "KeyS", "altKey": True, "ctrlKey": True},  # AltGr on Windows
        {"key": "ś", "code": "KeyS", "altKey": True, "modifierAltGraph": True},
        {"key": "ß", "code": "KeyS", "altKey": True},  # Option on a Mac
    ],
)
def test_a_key_that_types_a_letter_does_not_swap_the_languages(opened: "Page", event: dict[str, Any]) -> None:
    opened.evaluate("(how) => dispatchEvent(new KeyboardEvent('keydown', how))", event)
    assert opened.input_value("#from") == "en"
    opened.evaluate("dispatchEvent(new KeyboardEvent('keydown', {key: 's', code: 'KeyS', altKey: true}))")
    assert opened.input_value("#from") == "de"


def test_each_pair_of_languages_has_its_own_glossary(opened: "Page") -> None:
    opened.click("#open-glossary")
    expect_text(opened, "#glossary-pair", "English to German")
    opened.fill("#terms", "horse = Ross\nold = alt")
    opened.keyboard.press("Escape")
    expect_text(opened, "#glossary-count", "2")
    opened.click("#swap")
    assert not opened.is_visible("#glossary-count")
    opened.click("#open-glossary")
    expect_text(opened, "#glossary-pair", "German to English")
    assert opened.input_value("#terms") == ""
    opened.keyboard.press("Escape")
    opened.click("#swap")
    expect_text(opened, "#glossary-count", "2")


def test_the_glossary_of_an_older_version_is_kept(browser: "Browser", url: str) -> None:
    with watched(browser, url) as seen:
        seen.page.add_init_script("localStorage.setItem('from', 'en'); localStorage.setItem('glossary', 'old = alt');")
        seen.page.goto(url)
        expect_text(seen.page, "#glossary-count", "1")
        assert seen.page.evaluate("localStorage.getItem('glossary en de')") == "old = alt"


def test_alternatives_have_probabilities_no_nonsense_and_an_undo(opened: "Page", some: list[str]) -> None:
    best = toy.translated(some[0])
    translate(opened, some[0], best)
    words = best.split()

    def alternative(word: str, probability: float, **how: object) -> dict[str, Any]:
        text = " ".join([words[0], word, *words[2:]])
        confidence = [{"word": each, "mean": probability, "least": probability} for each in text.split()]
        plain = {"log_prob": -3.0, "finished": True, "repeats": False, "unsure": False}
        return {"text": text, "words": confidence, **plain, **how}

    offered = [
        alternative(words[1], 0.9, log_prob=-1.0),
        alternative("rare", 0.04),
        alternative("good", 0.253),
        alternative("improbable", 0.004),
        alternative("unsure", 0.3, unsure=True),
        alternative("looping", 0.3, repeats=True),
        alternative("cut", 0.3, finished=False),
        alternative("far", 0.3, log_prob=-9.0),
    ]
    answer = {"texts": [{"text": best, "sentences": [{"start": 0, "end": 9, "text": best, "alternatives": offered}]}]}
    opened.route("**/v1/translate", lambda route: route.fulfill(json=answer))
    opened.click("#target .word >> nth=1")
    opened.wait_for_selector("#choices-list button")
    shown = [text.split()[0] + " " + text.split("  ")[-1][-4:] for text in texts_of(opened, "#choices-list button")]
    assert shown == ["good 25 %", "rare  4 %"]
    opened.click("#choices-list button >> nth=0")
    expect_text(opened, "#target", " ".join([words[0], "good", *words[2:]]))
    opened.click("#undo")
    expect_text(opened, "#target", best)
    assert not opened.is_visible("#undo")


def texts_of(page: "Page", selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


@pytest.mark.parametrize(
    ("detected", "note"),
    [
        ([("en", 97.2), ("de", 2.8)], "Detected: English"),
        ([("en", 58.0), ("de", 0.0)], "Perhaps English: a guess"),
        ([("de", 50.0), ("en", 20.0)], "Perhaps English: a guess"),
    ],
)
def test_a_language_is_called_detected_only_with_confidence(
    opened: "Page", some: list[str], detected: list[tuple[str, float]], note: str
) -> None:
    answer = [{"language": code, "confidence": confidence} for code, confidence in detected]
    opened.route("**/detect", lambda route: route.fulfill(json=answer))
    opened.select_option("#from", "auto")
    opened.select_option("#into", "de")
    opened.fill("#source", some[0])
    expect_text(opened, "#detected", note)


@pytest.mark.parametrize(
    ("detected", "note"),
    [
        ([("en", 20.0), ("de", 10.0)], "Not a language that is known here. Choose it to translate."),
        ([("de", 99.0), ("en", 0.0)], "Already German"),
        ([("de", 60.0), ("en", 5.0)], "Already German"),
    ],
)
def test_a_text_that_is_not_translated_is_shown_as_it_is(
    opened: "Page", detected: list[tuple[str, float]], note: str
) -> None:
    answer = [{"language": code, "confidence": confidence} for code, confidence in detected]
    opened.route("**/detect", lambda route: route.fulfill(json=answer))
    opened.route("**/v1/translate", lambda route: route.abort())
    opened.select_option("#from", "auto")
    opened.select_option("#into", "de")
    opened.fill("#source", "One two.\n  Three.")
    expect_text(opened, "#detected", note)
    assert opened.locator("#target").text_content() == "One two.\n  Three."
    assert opened.locator("#look").is_disabled()
    assert opened.locator("#problem").text_content() == ""


# The address


def test_an_address_opens_a_text_and_a_head_and_back_returns(browser: "Browser", url: str, some: list[str]) -> None:
    from urllib.parse import quote

    with watched(browser, url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.set_default_timeout(SLOW)
        text = f"{some[0]}\n{some[1]}/100%"
        page.goto(f"{url}#en/de/{quote(text, safe='')}/2/encoder.1.2")
        expect_text(page, "#head-title", "encoder layer 1 head 2")
        assert page.input_value("#source") == text
        assert page.input_value("#which") == "1"
        page.click("#tab-cross")
        wait_until(page, "location.hash.endsWith('/2/cross.1.2')")
        page.click("#close-inside")
        wait_until(page, "decodeURIComponent(location.hash).endsWith('/100%')")
        page.fill("#source", some[2])
        wait_until(page, f"decodeURIComponent(location.hash) === {json.dumps(f'#en/de/{some[2]}')}")
        page.evaluate("history.back()")
        wait_until(page, f"document.getElementById('source').value === {json.dumps(text)}")
        expect_text(page, "#target", re.compile(re.escape(toy.translated(some[0]))))
        assert not page.is_visible("#inside")
        page.evaluate("history.back()")
        expect_text(page, "#head-title", "cross layer 1 head 2")
        page.click("#clear")
        wait_until(page, "location.hash === '#en/de/'")
        assert not page.is_visible("#inside")
        page.goto(f"{url}#%/x/%")  # no address of ours
        page.reload()
        page.wait_for_selector("#into option", state="attached")
        assert page.input_value("#source") == ""
        assert seen.misdeeds == []


# Looking inside


def test_look_inside_explains_exactly_what_is_shown(opened: "Page", some: list[str]) -> None:
    asked: list[Any] = []
    opened.on("request", lambda request: asked.append(request.post_data_json) if "attention" in request.url else None)
    translate(opened, some[0], toy.translated(some[0]))
    other = toy.translated(some[1])
    answer = {"texts": [{"text": other, "sentences": [sentence_of(0, len(some[0]), other)]}]}
    opened.route("**/v1/translate", lambda route: route.fulfill(body=f"event: end\ndata: {json.dumps(answer)}\n\n"))
    opened.press("#source", "Control+Enter")
    expect_text(opened, "#target", other)
    opened.click("#look")
    expect_text(opened, "#target-text", other)
    assert asked[-1]["translation"] == other
    wait_until(opened, "document.activeElement.id === 'inside-title'")
    assert opened.evaluate("document.getElementById('inside').getBoundingClientRect().top") < 300
    third = toy.translated(some[2])
    answer["texts"] = [{"text": third, "sentences": [sentence_of(0, len(some[0]), third)]}]
    opened.press("#source", "Control+Enter")
    expect_text(opened, "#target-text", third)
    opened.locator("#grid .power").first.click()
    opened.wait_for_selector("#comparison")
    assert opened.is_visible("#other-baseline")  # the search with all heads finds the right translation
    expect_text(opened, "#all-on", toy.translated(some[0]) + " ")
    opened.click("#clear")
    opened.wait_for_selector("#inside", state="hidden")


def test_a_translation_through_english_says_so_and_both_steps_can_be_seen(
    browser: "Browser", trained: Path, translator: Translator, some: list[str]
) -> None:
    middle = translator.translate(some[:1])[0].text
    run = trained / "run"
    with (
        listening(service_of(run, run, languages=["fr-en", "en-de"])) as address,
        watched(browser, address, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen,
    ):
        page = seen.page
        page.set_default_timeout(SLOW)
        page.goto(f"{address}#fr/de/{some[0]}")
        expect_text(page, "#via", "Through English")
        page.click("#look")
        expect_text(page, "#step", "1: French to English2: English to German")
        expect_text(page, "#target-text", middle)
        page.select_option("#step", "1")
        expect_text(page, "#source-text", middle)
        page.select_option("#into", "en")
        expect_text(page, "#target", middle)
        expect_text(page, "#via", "")
        assert page.is_hidden("#step-box")
        assert seen.misdeeds == []


# Paper and fingers


def test_words_are_large_enough_for_fingers_and_the_mark_is_explained(
    browser: "Browser", url: str, some: list[str]
) -> None:
    with watched(browser, url, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True) as seen:
        seen.page.set_default_timeout(SLOW)
        seen.page.goto(f"{url}#en/de/of this it knows no word at all")
        seen.page.wait_for_selector("#target .word")
        heights = seen.page.eval_on_selector_all(
            "#target .word", "(all) => all.map((word) => word.getBoundingClientRect().height)"
        )
        assert min(heights) >= 36
        gap = seen.page.evaluate("parseFloat(getComputedStyle(document.getElementById('target')).lineHeight)")
        assert gap >= max(heights)  # lines do not overlap
        expect_text(seen.page, "#unsure-legend", "A sentence marked like this has low model confidence: check it.")
        seen.page.goto(f"{url}#en/de/{some[0]}")
        expect_text(seen.page, "#target", toy.translated(some[0]))
        assert not seen.page.is_visible("#unsure-legend")


def test_paper_gets_the_texts_and_no_buttons(opened: "Page", some: list[str]) -> None:
    translate(opened, some[0], toy.translated(some[0]))
    opened.emulate_media(media="print")
    assert opened.is_visible("#source")
    assert opened.is_visible("#target")
    for selector in ("nav", "#copy", "#swap", "#files", "footer"):
        assert not opened.is_visible(selector), selector

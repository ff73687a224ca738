"""Broken and hostile documents: each is read, or refused with a sentence, in bounded time."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import importlib
import io
import json
import pkgutil
import re
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from time import process_time

import pytest

for needed in ("lxml", "polib", "markdown_it"):
    pytest.importorskip(needed, reason="needs heedful[documents]")

from test_documents import HTML, JSON, MARKDOWN, PO, SUBTITLES, VTT, XLIFF, XLIFF2, backwards, open_file, translated

import heedful.documents
from heedful.documents import markdown, read_document, safe_parsing
from heedful.documents.document import InlineRun
from heedful.documents.markup_transfer import RunSpan, transfer_markup
from heedful.documents.safe_parsing import DocumentLimits, DocumentTooLarge
from heedful.errors import DataError

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def word_file(body: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        text = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", text)
    return file.getvalue()


def xliff(source: str) -> bytes:
    unit = f"<trans-unit><source>{source}</source></trans-unit>"
    return f'<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2">{unit}</xliff>'.encode()


WORD_BODY = (
    "<w:p><w:pPr><w:jc/></w:pPr><w:r><w:rPr><w:b/></w:rPr><w:t>A man</w:t></w:r><w:r><w:t> rides</w:t><w:br/></w:r>"
    '<w:hyperlink w:a="1"><w:r><w:t>a horse.</w:t></w:r></w:hyperlink></w:p>'
)
OPEN_BODY = '<text:p text:style-name="P">A <text:span>man</text:span> rides<text:line-break/>a horse.</text:p>'
SAMPLES: dict[str, bytes] = {
    "a.txt": b"A man rides. A horse, too.\n",
    "a.html": HTML.encode(),
    "b.html": b"A part of <b title='A dog'>a page</b>.<p>And more",
    "a.md": MARKDOWN.encode(),
    "a.srt": SUBTITLES.encode(),
    "a.vtt": VTT.encode(),
    "a.po": PO.encode(),
    "a.xlf": XLIFF.encode(),
    "b.xlf": XLIFF2.encode(),
    "a.json": JSON.encode(),
    "a.docx": word_file(WORD_BODY),
    "a.odt": open_file(OPEN_BODY),
}


# Broken ones.


def outcome(name: str, content: bytes) -> str:
    """Whether it was read; any exception other than a refusal is passed on."""
    try:
        translated(name, content, backwards)
    except DataError as error:
        assert str(error)
        assert "\n" not in str(error)
        return "refused"
    return "read"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_flipped_bit_is_read_or_refused(name: str) -> None:
    random, content = Random(8), SAMPLES[name]
    seen = set()
    for _ in range(120):
        broken = bytearray(content)
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
        seen.add(outcome(name, bytes(broken)))
    assert "read" in seen


PIECES = [
    "&#12;",
    "\x0c",
    "\x01",
    "\x00",
    "\ufffe",
    "&#xD800;",
    "\\ud800",
    "\\",
    "<a:b/>",
    "<x a:c='1'/>",
    "<!-- ",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?x ",
    "<",
    ">",
    '"',
    "'",
    "&",
    "%",
    "%(a)s",
    "{{",
    "\n\n",
    "\r",
    "```",
    "[![](",
    "| - |\n",
    "msgid",
    "msgstr[7]",
    "#~ ",
    "00:01 --> 00:02\n",
    "<br>",
    "<script>",
    "</p>",
    "<table><tr>",
    "<w:fldChar/>",
    "<w:p>",
    "</w:p>",
    "<text:p>",
]


def mutated(text: str, random: Random) -> str:
    """The content with an extra piece, or with a part left out or repeated."""
    start = random.randrange(len(text))
    end = min(len(text), start + random.randrange(30))
    middle = random.choice(["", text[start:end] * 2, *PIECES])
    return text[:start] + middle + text[end if random.random() < 0.5 else start :]


@pytest.mark.parametrize("name", SAMPLES)
def test_an_extra_or_missing_part_is_read_or_refused(name: str) -> None:
    random = Random(9)
    makers: dict[str, Callable[[str], bytes]] = {"a.docx": word_file, "a.odt": open_file}
    text = {"a.docx": WORD_BODY, "a.odt": OPEN_BODY}.get(name) or SAMPLES[name].decode()
    seen = set()
    for _ in range(150):
        broken = mutated(text, random)
        seen.add(outcome(name, makers.get(name, str.encode)(broken)))
    assert "read" in seen


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.docx", word_file("<w:p><b:r/></w:p>"), "the file is not well-formed XML: unbound prefix"),
        (
            "a.docx",
            word_file('<w:p xmlns:v="u" xmlns:u="u" v:a="1" u:a="2"/>'),
            "the file is not well-formed XML: duplicate attribute",
        ),
        ("a.docx", word_file("<w:p>" * 300 + "</w:p>" * 300), "the file is not readable XML: Excessive depth"),
        ("a.docx", word_file(f"<{'a' * 60_000}/>"), "the file is not readable XML"),
        ("a.xlf", b"<?xml version='1.0' encoding='UTN-8'?><a/>", "the file is not well-formed XML: unknown encoding"),
        ("a.xlf", xliff("<b:x/>"), "the file is not well-formed XML: unbound prefix"),
        ("a.xlf", xliff("<g>" * 300 + "</g>" * 300), "the file is not readable XML: Excessive depth"),
    ],
)
def test_files_that_only_one_of_two_parsers_accepts_are_refused(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)):
        read_document(content, name)


def test_archives_are_packed_as_office_programs_pack_them() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("word/document.xml", "<a/>")
    with pytest.raises(DataError, match="the archive uses an unusual compression method; save the file again"):
        read_document(file.getvalue(), "a.docx")


@pytest.mark.parametrize("odd", ["\x0c", "&#12;", "\x01", "\ufffe", "\x00"])
def test_characters_that_xml_cannot_hold_become_spaces(odd: str) -> None:
    page = f"<p title='a{odd}b'>One{odd}two<b title='c{odd}d'> three{odd}</b></p>"
    assert translated("a.html", page).decode() == '<p title="A B">ONE TWO <b title="C D">THREE </b></p>'


def test_half_of_a_surrogate_pair_in_json_is_kept() -> None:
    text = r'["a b", "\ud800 c d", "\ud800", "\ud83d\ude00 e f"]'
    assert translated("a.json", text).decode() == r'["A B", "\ud800 c d", "\ud800", "😀 E F"]'


def test_titles_of_inline_elements_are_translated() -> None:
    page = '<p>Go <a title="a dog" href="x">there</a> now</p>'
    assert translated("a.html", page).decode() == '<p>GO <a title="A DOG" href="x">THERE</a> NOW</p>'


def test_empty_inline_elements_are_kept() -> None:
    page = '<p><a id="x"></a>Hello <b>big <i class="icon"></i></b>world</p>'
    out = translated("a.html", page).decode()
    assert (out.count('<a id="x"></a>'), out.count('<i class="icon"></i>')) == (1, 1)


def test_attributes_that_lxml_cannot_write_are_kept() -> None:
    out = translated("a.html", "<p>Go <a {{x}} title='\x0c'>there</a> now <a @click='f' :b=1>here</a></p>").decode()
    assert out.startswith("<p>GO <a {{x}}")
    assert '<a @click="f" :b="1">HERE</a></p>' in out


def test_carriage_returns_end_lines() -> None:
    assert translated("a.md", "# one\r\rtwo *three*\r") == b"# ONE\r\rTWO *THREE*\r"


@pytest.mark.parametrize("page", ["<!DOCTYPE \ufffehtml>\n<html><p>a</html>", "<!DOCTYPE html>\n<!-- <html> -->"])
def test_pages_with_odd_beginnings_are_kept(page: str) -> None:
    assert outcome("a.html", page.encode())


def test_json_distinguishes_identifiers_from_words() -> None:
    names = ["a1", "a_b", "a/b", "camelCase", "main.js", "v.2", "#fff", "a@b"]
    texts = ["word", "Two words", "End.", "Hello!", "etc...", "camelCase and more"]
    out = json.loads(translated("a.json", json.dumps(names + texts)))
    assert out == names + [text.upper() for text in texts]


# Large ones.


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.docx", word_file("<w:p/>" * 60), "the document has more than 50 elements; split it"),
        ("a.docx", word_file("<?a?>" * 60), "the document has more than 50 elements"),
        ("a.xlf", xliff("a" + "<!---->" * 60), "the document has more than 50 elements"),
        ("a.odt", open_file("<text:p>a</text:p>" * 15), "the document has more than 10 passages; split it"),
        ("a.html", b"<p>" * 60, "the document has more than 50 elements"),
        ("a.html", b"<p>a" * 15, "the document has more than 10 passages"),
        ("a.json", b"[" + b"[]," * 60 + b"1]", "the document has more than 50 elements"),
        ("a.json", b"[" + b'"a b",' * 15 + b"1]", "the document has more than 10 passages"),
        ("a.srt", b"\n" * 60, "the document has more than 50 elements"),
        ("a.po", b"\n" * 60, "the document has more than 50 elements"),
        ("a.md", b"a\n\n" * 15, "the document has more than 10 passages"),
        ("a.txt", b"a " * 600, "the document has more than 1,000 characters of text; split it"),
        ("a.json", b'["' + b"<b> a" * 30 + b'"]', "the document has more than 50 elements"),
    ],
)
def test_a_document_over_a_limit_is_refused(name: str, content: bytes, sentence: str) -> None:
    few = DocumentLimits(elements=50, passages=10, characters=1000)
    with pytest.raises(DocumentTooLarge, match=re.escape(sentence)):
        read_document(content, name, few)
    read_document(SAMPLES["a.txt"], "a.txt", few)


def test_members_of_an_archive_count_together() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for part in ("document", "header1", "header2"):
            archive.writestr(f"word/{part}.xml", "<a>" + "<b/>" * 20 + "</a>")
    with pytest.raises(DocumentTooLarge, match="more than 50 elements"):
        read_document(file.getvalue(), "a.docx", DocumentLimits(elements=50))


MANY = " ".join(f"a{number}='>'" for number in range(safe_parsing.MOST_ATTRIBUTES + 1))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.html", f"<p {MANY}>a".encode(), "the page has a tag with more than 1,000 attributes"),
        ("a.html", f'<!-- <a b=" --><p {MANY}>a'.encode(), "the page has a tag with more than 1,000 attributes"),
        ("a.html", f'<style>a<b c="</style></p {MANY}>a'.encode(), "the page has a tag with more than 1,000 attr"),
        ("a.html", f"<title {MANY}></title>".encode(), "the page has a tag with more than 1,000 attributes"),
        ("a.xlf", xliff(f"<x {MANY}/>"), "the XML has an element with more than 1,000 attributes"),
        (
            "a.docx",
            word_file("<w:p " + " ".join(f'xmlns:a{n}="{n}"' for n in range(300)) + "/>"),
            "the XML has an element with more than 200 namespaces in scope",
        ),
        ("a.po", b'msgid ""\n' + b'"a"\n' * 2001, "the catalogue has an entry of more than 2,000 lines"),
        ("a.md", b"[" * (markdown._MOST_MARKS + 1), "the file has more than 32,768 lines and Markdown marks"),
        ("a.md", b"- a\n" * 33_000, "the file has more than 32,768 lines and Markdown marks"),
        ("a.json", b'["' + b"%s " * 10_001 + b'"]', "a text of the document has more than 10,000 tags"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_file_that_would_take_quadratic_time_is_refused(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(DocumentTooLarge, match=re.escape(sentence)):
        read_document(content, name)


def test_namespaces_may_be_declared_again_and_again() -> None:
    content = word_file('<w:p><w:r xmlns:b="b"><w:t>a</w:t></w:r></w:p>' * 300)
    assert translated("a.docx", content)


def test_nested_units_are_copied_once() -> None:
    deep = "<trans-unit><source>" * 50 + "<x/>" * 100 + "a" + "</source></trans-unit>" * 50
    assert translated("a.xlf", xliff(deep)).count(b"<x/>") == 200


FIELD = ['<w:r><w:fldChar w:fldCharType="begin"/></w:r>', '<w:r><w:fldChar w:fldCharType="end"/></w:r>']
PLAIN_RUN, BOLD_RUN = "<w:r><w:t>one </w:t></w:r>", "<w:r><w:rPr><w:b/></w:rPr><w:t>two </w:t></w:r>"
MANY_RUNS: dict[str, Callable[[int], str]] = {
    "fields after each other": lambda count: (PLAIN_RUN + "".join(FIELD)) * (count // 3),
    "fields in each other": lambda count: PLAIN_RUN + FIELD[0] * (count // 2) + FIELD[1] * (count // 2),
    "fields without an end": lambda count: PLAIN_RUN + (FIELD[0] + PLAIN_RUN) * (count // 2),
    "runs": lambda count: (PLAIN_RUN + BOLD_RUN) * (count // 2),
    "runs in a link": lambda count: f'<w:hyperlink w:id="3">{(PLAIN_RUN + BOLD_RUN) * (count // 2)}</w:hyperlink>',
}


@pytest.mark.parametrize("name", MANY_RUNS)
def test_a_paragraph_of_many_runs_takes_linear_time(name: str) -> None:
    """Eight times as many runs take eight times as long; quadratic time would be 64 times as long."""

    def seconds(count: int) -> float:
        content = word_file(f"<w:p>{MANY_RUNS[name](count)}</w:p>")
        began = process_time()
        document = read_document(content, "a.docx")
        passages = [[(number, run.text) for number, run in enumerate(passage)] for passage in document.passages]
        document.write(passages, "de")
        return process_time() - began

    few = min(seconds(5000) for _ in range(3))
    many = min(seconds(40_000) for _ in range(2))
    assert many < 40 * few


def test_a_namespace_that_only_an_inline_element_declares_keeps_its_prefix() -> None:
    link = f'<w:hyperlink xmlns:rel="urn:rel" rel:id="7">{BOLD_RUN}</w:hyperlink>'
    written = word_text(word_file(f"<w:p>{PLAIN_RUN}{link}</w:p>"))
    assert '<w:hyperlink xmlns:rel="urn:rel" rel:id="7"><w:r><w:rPr><w:b/></w:rPr>' in written
    assert written.count("xmlns:") == 2


def word_text(content: bytes) -> str:
    """The XML of a Word file after every passage was replaced by itself."""
    document = read_document(content, "a.docx")
    passages = [[(number, run.text) for number, run in enumerate(passage)] for passage in document.passages]
    with zipfile.ZipFile(io.BytesIO(document.write(passages, "de"))) as archive:
        return archive.read("word/document.xml").decode()


def test_many_marks_without_text_take_linear_time() -> None:
    """Each mark of a sentence is visited a few times only."""
    looks = 0

    class Seen(RunSpan):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += 1
            return super().__getattribute__(name)

    text = "a " * 100
    spans = [
        Seen(0, InlineRun(text[:5]), 0, 5),
        *(Seen(number, InlineRun("", fixed=True), 5, 5) for number in range(1, 1001)),
        Seen(1001, InlineRun(text[5:]), 5, len(text)),
    ]
    placed = transfer_markup(text, spans, text.upper(), [(number, number) for number in range(100)])
    assert [number for number, _ in placed if 0 < number < 1001] == list(range(1, 1001))
    assert looks < 40 * len(spans)


# Patterns.


def patterns() -> Iterator[tuple[str, "re.Pattern[str]"]]:
    for module in pkgutil.iter_modules(heedful.documents.__path__):
        for name, value in vars(importlib.import_module(f"heedful.documents.{module.name}")).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value


BEGIN = ["", "%", "<a ", '<a b="', "{", "<!--", "<script>", "---\n"]
AGAIN = ["0", "a", " ", "<", "a ", "-", "=", "%0"]
SIZE = 100_000


@contextmanager
def watchdog(seconds: int) -> Iterator[None]:
    def bark(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("name", "pattern"), list(patterns()), ids=[name for name, _ in patterns()])
def test_every_pattern_takes_linear_time(name: str, pattern: "re.Pattern[str]") -> None:
    """A linear pattern needs milliseconds; a quadratic one would need many seconds for a single text."""
    with watchdog(15):
        for begin in BEGIN:
            for again in AGAIN:
                text = begin + again * (SIZE // len(again)) + "\x00x"
                pattern.fullmatch(text)
                rest, _ = pattern.subn("", text)
                assert len(rest) <= len(text)

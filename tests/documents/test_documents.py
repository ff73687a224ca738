"""Documents of all types: structure is kept, inline markup follows its words, and bombs are refused."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

for needed in ("lxml", "polib", "markdown_it"):
    pytest.importorskip(needed, reason="needs heedful[documents]")

from heedful.documents import find_structure, read_document, safe_parsing
from heedful.documents.document import InlineRun
from heedful.documents.markup_transfer import RunSpan, transfer_markup
from heedful.documents.segmentation import SegmentedDocument, TranslatedSentence
from heedful.errors import DataError

Translate = Callable[[str], TranslatedSentence]
SOME = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def same(text: str) -> TranslatedSentence:
    """A translator that changes nothing."""
    return TranslatedSentence(text, tuple((number, number) for number in range(len(text.split()))))


def loud(text: str) -> TranslatedSentence:
    """A translator into capitals."""
    return TranslatedSentence(text.upper(), same(text).alignment)


def backwards(text: str) -> TranslatedSentence:
    """A translator into capitals that reverses the words, with their alignment."""
    words = text.upper().split()
    return TranslatedSentence(
        " ".join(reversed(words)), tuple((len(words) - 1 - place, place) for place in range(len(words)))
    )


def blind(text: str) -> TranslatedSentence:
    """A translator without word alignments."""
    return TranslatedSentence(text.upper())


def translated(name: str, content: str | bytes, how: Translate = loud) -> bytes:
    work = SegmentedDocument(read_document(content if isinstance(content, bytes) else content.encode(), name), "en")
    return work.write([how(text) for text in work.plain], [how(text) for text in work.mixed], "de")


def notes(name: str, content: str | bytes) -> list[str]:
    work = SegmentedDocument(read_document(content if isinstance(content, bytes) else content.encode(), name), "en")
    return work.list_notes([])


SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
A man <i>rides</i>
a horse. {\\an8}

2
00:00:03,000 --> 00:00:04,000
- Who is it?
- Me.
"""
VTT = """WEBVTT Kind: captions

STYLE
::cue { color: papayawhip }

NOTE not for the audience

first
00:01.000 --> 00:02.000 align:start position:10%
<v Roger Bingham>We are in <c.loud>New York</c>
"""
PO = """# A translator's comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=0;\\n"

#. extracted
#: menu.c:17
#, c-format
msgctxt "menu"
msgid "Open %s now"
msgstr ""

#, fuzzy
#| msgid "Finished"
msgid "Done"
msgstr "Etwas anderes"

msgid "Kept"
msgstr "Behalten"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

#~ msgid "gone"
#~ msgstr "weg"
"""
XLIFF = """<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
  <file original="a.c" source-language="en" datatype="plaintext">
    <body>
      <trans-unit id="1">
        <source>A <g id="b">man</g> rides<x id="2"/> %s horses.</source>
        <note>for people</note>
      </trans-unit>
      <trans-unit id="2" translate="no"><source>Stay</source></trans-unit>
      <trans-unit id="3"><source>Has one</source><target>Hat eins</target></trans-unit>
    </body>
  </file>
</xliff>"""
XLIFF2 = """<?xml version='1.0' encoding='UTF-8'?>
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
  <file id="f">
    <unit id="1"><segment><source>Press <pc id="1">the key</pc><ph id="2"/></source></segment></unit>
  </file>
</xliff>"""
JSON = """{"title": "Hello there",  "size": 1.50,
 "list": ["a b", "#ff0000", "https://x.y/z", "camelCase", 7, null],
 "deep": {"a key": "Hi %s, you have {count} \\u00fcber mails"}}
"""
HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>My page</title><style>p > b { color: red }</style>
<script>if (1 < 2) alert("text in a script");</script></head>
<body class="x" onload="go()"><h1 id="top">Hello <em>big</em> world</h1>
<p>Run <code>make all</code> now.<br>Then <a href="x?a=1&amp;b=2">go <b>there</b></a>. <img src="a.png" alt="A dog"></p>
<ul><li>One thing<ul><li>Two &amp; three</li></ul></li></ul><pre>keep
  this</pre><p translate="no">Stay</p><!-- remark --></body></html>
"""
MARKDOWN = """---
title: Not for people
---
# A *big* title

Some **bold text**, `code`
and a [link here](http://x.y "t") of <b>old</b> times.

> Quote one
> quote two

- item one
  1. nested ~~thing~~
- item two\\
  after a break

| left side | right |
|-----------|:-----:|
| x y       | z `q` |

```py
code here
```

![a picture](a.png) <http://auto.link>
"""


# The structure is kept.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "\ufeffOne line. Another one.\n\n\tIndented\r\n no end"),
        ("a.vtt", VTT),
        ("a.srt", SUBTITLES.replace("A man <i>rides</i>\na", "A man <i>rides</i> a")),
        ("a.json", JSON.replace("\\u00fc", "ü")),
        ("a.html", HTML),
        ("b.html", "A part of <b>a page</b>.<p>And more"),
        ("a.md", MARKDOWN.replace("\nand a", " and a").replace("\n> quote", " quote")),
        ("c.html", "3 &lt; 4 &amp; <b>so</b> on"),
        ("d.html", "&lt;img src=x onerror=alert(1)&gt; is <b>very</b> old"),
        ("c.md", "- [ ] a task\n- [x] one `f()`, done\n- [y] none\n".replace("[y]", "\\[y\\]")),
        ("b.srt", "1\n00:00:01,000 --> 00:00:02,000\n- Alone.\n\n2\n00:00:03,000 --> 00:00:04,000\n-One.\n– Two.\n"),
        ("b.md", "1\\. no list\n\n\\# no title, snake_case, 2 \\* 3\r\n\r\nnext\r\n"),
    ],
    ids=lambda value: value if value.count(".") == 1 and len(value) < 9 else "",
)
def test_an_identical_translation_gives_an_identical_document(name: str, content: str) -> None:
    out = translated(name, content, same).decode()
    assert out.replace('lang="de"', 'lang="en"') == content.replace("<p>And more", "<p>And more</p>")


def test_plain_text_keeps_its_white_space() -> None:
    assert translated("a.TXT", "  One. Two!\n\n\tthree\r\n") == b"  ONE. TWO!\n\n\tTHREE\r\n"


def test_subtitles_keep_times_tags_and_the_number_of_lines() -> None:
    out = translated("a.srt", SUBTITLES).decode()
    assert out == SUBTITLES.replace("A man <i>rides</i>\na horse.", "A MAN <i>RIDES</i>\nA HORSE.").replace(
        "- Who is it?\n- Me.", "- WHO IS IT?\n- ME."
    )
    assert translated("a.vtt", VTT).decode() == VTT.replace("We are in <c.loud>New York", "WE ARE IN <c.loud>NEW YORK")
    assert translated("a.srt", SUBTITLES.replace("\n", "\r\n")).decode() == out.replace("\n", "\r\n")


def test_missing_translations_of_a_catalogue_are_added() -> None:
    import polib

    out = translated("a.po", PO).decode()
    kept = [
        "# A translator's comment",
        "#. extracted",
        "#: menu.c:17",
        "#, fuzzy, c-format",
        'msgctxt "menu"',
        '#~ msgid "gone"',
    ]
    assert [line for line in kept if line not in out.splitlines()] == []
    catalogue = polib.pofile(out)
    assert catalogue.metadata["Language"] == "de"
    assert {entry.msgid: entry.msgstr for entry in catalogue if not entry.obsolete} == {
        "Open %s now": "OPEN %s NOW",
        "Done": "DONE",
        "Kept": "Behalten",
        "%d file": "",
    }
    assert catalogue.find("%d file").msgstr_plural == {0: "%d FILE", 1: "%d FILES", 2: "%d FILES"}
    assert {entry.msgid for entry in catalogue if entry.fuzzy} == {"Open %s now", "Done", "%d file"}  # machine-made
    assert catalogue.find("Done").previous_msgid is None


def test_new_entries_of_a_catalogue_are_not_fuzzy_if_they_are_final() -> None:
    import polib

    document = read_document(PO.encode(), "a.po", final=True)
    passages = [[(0, "".join(run.text for run in passage))] for passage in document.passages]
    catalogue = polib.pofile(document.write(passages, "de").decode())
    assert [entry.msgid for entry in catalogue if entry.fuzzy] == []
    assert catalogue.find("Open %s now", msgctxt="menu").flags == ["c-format"]


def test_xliff_gets_targets_with_all_codes() -> None:
    from lxml import etree

    out = translated("a.xlf", XLIFF, backwards)
    targets = re.findall(r"<target>.*?</target>", out.decode())
    assert targets == [
        '<target>HORSES. %s RIDES<x id="2"/> <g id="b">MAN</g> A</target>',
        "<target>Hat eins</target>",
    ]
    root = etree.fromstring(out)
    assert root[0].get("target-language") == "de"
    assert [child.tag.rpartition("}")[2] for child in root[0][0][0]] == ["source", "target", "note"]
    second = translated("a.xliff", XLIFF2).decode()
    assert '<target>PRESS <pc id="1">THE KEY</pc><ph id="2"/></target>' in second
    assert 'trgLang="de"' in second


def test_only_the_values_of_json_change() -> None:
    out = translated("a.json", JSON, backwards).decode()
    assert out.startswith('{"title": "THERE HELLO",  "size": 1.50,\n "list": ["B A", "#ff0000", ')
    assert json.loads(out) == {
        "title": "THERE HELLO",
        "size": 1.5,
        "list": ["B A", "#ff0000", "https://x.y/z", "camelCase", 7, None],
        "deep": {"a key": "MAILS ÜBER {count} HAVE YOU %s, HI"},
    }


def test_a_page_keeps_tags_styles_and_scripts() -> None:
    out = translated("a.html", HTML, backwards).decode()
    assert '<h1 id="top">WORLD <em>BIG</em> HELLO</h1>' in out
    assert "<p>NOW. <code>make all</code> RUN<br>" in out
    assert (
        '<a href="x?a=1&amp;b=2"><b>THERE</b></a>. <a href="x?a=1&amp;b=2">GO</a> THEN <img src="a.png" alt="DOG A">'
        in out
    )
    assert "<li>THING ONE<ul><li>THREE &amp; TWO</li></ul></li>" in out
    for kept in (
        "p > b { color: red }",
        "if (1 < 2)",
        'onload="go()"',
        "<!-- remark -->",
        ">Stay<",
        "keep\n  this</pre>",
    ):
        assert kept in out
    assert '<html lang="de">' in out


def test_markdown_keeps_everything_but_text() -> None:
    out = translated("a.md", MARKDOWN, backwards).decode()
    assert out.startswith("---\ntitle: Not for people\n---\n# TITLE *BIG* A\n")
    assert '\nTIMES. <b>OLD</b> OF [HERE LINK](http://x.y "t") A AND `code` **TEXT**, **BOLD** SOME\n' in out
    assert "\n> TWO QUOTE ONE QUOTE\n" in out
    assert "\n  1. ~~THING~~ NESTED\n- TWO ITEM\\\n  BREAK A AFTER\n" in out
    assert "\n| SIDE LEFT | RIGHT |\n|-----------|:-----:|\n| Y X       | `q` Z |\n" in out
    assert "```py\ncode here\n```" in out
    assert "![a picture](a.png) <http://auto.link>" in out
    assert notes("b.md", "<div>\nas it is\n</div>\n") == ["HTML blocks in Markdown are not translated"]


def test_translated_text_does_not_turn_into_markdown_syntax() -> None:
    out = translated(
        "a.md", "one\n\n| a |\n|---|\n| b |\n", lambda text: TranslatedSentence({"one": "- *x* <b>"}.get(text, "a|b"))
    )
    assert out.decode() == "\\- \\*x\\* \\<b>\n\n| a\\|b |\n|---|\n| a\\|b |\n"


# Office.


def word_file() -> bytes:
    docx = pytest.importorskip("docx", reason="needs python-docx")
    document = docx.Document()
    document.add_heading("A big title", 1)
    paragraph = document.add_paragraph("A man ")
    paragraph.add_run("ri").bold = True
    paragraph.add_run("des").bold = True
    paragraph.add_run(" a horse.").add_break()
    paragraph.add_run("Next line here.\tAfter a tab.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Cell one", "Cell two"
    document.sections[0].header.paragraphs[0].text = "Above all"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_word_keeps_styles_runs_tables_and_headers() -> None:
    import docx

    document = docx.Document(io.BytesIO(translated("a.docx", word_file(), backwards)))
    assert [paragraph.style and paragraph.style.name for paragraph in document.paragraphs] == ["Heading 1", "Normal"]
    title, text = document.paragraphs
    assert title.text == "TITLE BIG A"
    assert text.text == "HORSE. A RIDES MAN A\nHERE. LINE NEXT\tTAB. A AFTER"
    assert [run.text.strip() for run in text.runs if run.bold] == ["RIDES"]
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["ONE CELL", "TWO CELL"]
    assert document.sections[0].header.paragraphs[0].text == "ALL ABOVE"


def rezipped(content: bytes, changes: dict[str, Callable[[bytes], bytes]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name, bytes)(old.read(name)))
    return file.getvalue()


def test_word_fields_stay_whole() -> None:
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    field = mark.format("begin") + "<w:r><w:instrText>PAGE</w:instrText></w:r>" + mark.format("end")
    file = rezipped(
        word_file(),
        {"word/document.xml": lambda xml: xml.replace(b"<w:r><w:t>Next", field.encode() + b"<w:r><w:t>Next", 1)},
    )
    out = translated("a.docx", file, backwards)
    assert field.encode() in zipfile.ZipFile(io.BytesIO(out)).read("word/document.xml")
    assert "fields, such as cross-references and dates" in notes("a.docx", file)[0]


TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"


def open_file(body: str, manifest: str = "<manifest/>") -> bytes:
    file = io.BytesIO()
    names = f'xmlns:office="{OFFICE}" xmlns:text="{TEXT}"'
    content = f"<office:document-content {names}><office:text>{body}</office:text></office:document-content>"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text", zipfile.ZIP_STORED)
        archive.writestr("content.xml", content)
        archive.writestr("Pictures/a.png", b"\x89PNG")
        archive.writestr("META-INF/manifest.xml", manifest)
    return file.getvalue()


def test_open_document_keeps_spans_notes_and_breaks() -> None:
    note = "<text:note><text:note-body><text:p>{}</text:p></text:note-body></text:note>"
    text = (
        '<text:p text:style-name="P1">{} <text:span text:style-name="B">{}</text:span>{}{}<text:line-break/>{}</text:p>'
    )
    body = "<text:h>A title</text:h>" + text.format("A man", "rides", "{}", " a\n horse.", "Next line")
    out = translated("a.odt", open_file(body.format(note.format("A note"))), backwards)
    archive = zipfile.ZipFile(io.BytesIO(out))
    assert archive.namelist() == ["mimetype", "content.xml", "Pictures/a.png", "META-INF/manifest.xml"]
    assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED  # or it would not be known for what it is
    assert archive.read("Pictures/a.png") == b"\x89PNG"
    expected = text.format("HORSE. A", "RIDES", note.format("NOTE A"), " MAN A", "LINE NEXT")
    assert f"<text:h>TITLE A</text:h>{expected}" in archive.read("content.xml").decode()


# Where mark-up goes.


def spans_of(*runs: tuple[str, bool]) -> tuple[str, list[RunSpan]]:
    spans, start = [], 0
    for number, (text, fixed) in enumerate(runs):
        spans.append(RunSpan(number, InlineRun(text, fixed, number % 2), start, start + len(text)))
        start += len(text)
    return "".join(text for text, _ in runs), spans


def test_markup_follows_its_words() -> None:
    text, spans = spans_of(("The ", False), ("red", False), (" house, please.", False))
    placed = transfer_markup(text, spans, "Bitte das rote Haus.", [(3, 0), (0, 1), (1, 2), (2, 3)])
    assert placed == [(2, "Bitte "), (0, "das "), (1, "rote"), (2, " Haus.")]


def test_without_an_alignment_markup_stays_about_where_it_was() -> None:
    html = "<p>One <b>two</b> three four <img src=1>five six<img src=2></p>"
    out = translated("a.html", html, blind).decode()
    assert out == '<p>ONE <b>TWO</b> THREE FOUR<img src="1"> FIVE SIX<img src="2"></p>'
    work = SegmentedDocument(read_document(html.encode(), "a.html"), "en")
    assert work.list_notes([blind(text) for text in work.mixed]) == [
        "the position of inline markup is a guess in 1 sentence"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Hello {name}, welcome back.",
        "Save it ({size}).",
        "Is it {name}?",
        "From {first}/{last}: {}, ({}) and %(count)d%%!",
        "<b>{x}</b>, then",
    ],
)
def test_punctuation_next_to_a_placeholder_appears_once(text: str) -> None:
    assert json.loads(translated("a.json", json.dumps([text]), same)) == [text]


def test_the_brackets_of_a_translated_placeholder_move_with_it() -> None:
    text, spans = spans_of(("In ", False), ("{size}", True), (", ", False))
    assert transfer_markup(text, spans, "In {Größe}, ", [(0, 0), (1, 1)]) == [(0, "In "), (1, "{size}"), (2, ",")]


words = st.lists(st.text("abc.%,", min_size=1, max_size=4), min_size=1, max_size=6).map(" ".join)


@SOME
@given(st.lists(st.tuples(words, st.booleans()), min_size=2, max_size=5), words, st.randoms(use_true_random=False))
def test_every_word_and_every_fixed_run_appears_once(runs: list[tuple[str, bool]], target: str, random: Random) -> None:
    text, spans = spans_of(*runs, (" end", False))
    source, count = len(text.split()), len(target.split())
    links = [(random.randrange(source), place) for place in range(count) if random.random() < 0.7]
    placed = transfer_markup(text, spans, target, links)
    fixed = {number: run for number, (run, is_fixed) in enumerate(runs) if is_fixed}
    assert sorted(number for number, _ in placed if number in fixed) == sorted(fixed)
    assert all(part == fixed[number] for number, part in placed if number in fixed)
    if not fixed:
        assert "".join(part for _, part in placed) == target


@pytest.mark.parametrize("how", [same, loud, backwards, blind])
@pytest.mark.parametrize(
    ("name", "content"), [("a.html", HTML), ("a.md", MARKDOWN), ("a.po", PO), ("a.xlf", XLIFF), ("a.json", JSON)]
)
def test_every_placeholder_and_address_survives(name: str, content: str, how: Translate) -> None:
    out = translated(name, content, how).decode()
    marks = re.compile(r"%[sd]|\{count\}|https?://[\w./]+|<code>.*?</code>|<x id=\"2\"/>|`\w+`|src=\"[^\"]*\"")
    before = marks.findall(content)
    assert before
    if name == "a.html":
        assert set(marks.findall(out)) == set(before)
    else:
        assert set(before) <= set(marks.findall(out))


# Refusals.


def archive_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


LAUGHS = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pdf", b"", "unsupported file type .pdf; supported: .txt .html"),
        ("passwd", b"", "unsupported file type (no suffix); supported"),
        ("a.txt", b"caf\xe9", "the file is not UTF-8 text: byte 4 cannot be read; save it as UTF-8"),
        ("a.json", b"{", "the file is not JSON"),
        ("a.json", b"[" * 100_000, "the file is not JSON"),
        ("a.po", b'msgid "a\nmsgstr', "the file is not a PO catalogue"),
        ("a.po", b"/etc/passwd", "the file is not a PO catalogue"),
        ("a.xlf", b"<a>", "the file is not well-formed XML"),
        ("a.xlf", b"<a/>", "the file is not XLIFF 1.x or 2.x: its root element is a"),
        ("a.xlf", LAUGHS, "the XML declares entities, which are not supported"),
        ("a.xlf", LAUGHS.replace(b'"ha"', b'SYSTEM "file:///etc/passwd"'), "the XML declares entities"),
        ("a.docx", b"PK", "the file is not a readable archive"),
        ("a.docx", archive_of({"a": b""}), "its archive has no word/document.xml"),
        ("a.docx", archive_of({"word/document.xml": LAUGHS}), "the XML declares entities"),
        ("a.odt", open_file("", "<encryption-data/>"), "the document is encrypted; save it without a password"),
    ],
)
def test_an_unreadable_file_is_refused_with_a_sentence(name: str, content: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)) as raised:
        read_document(content, name)
    assert "\n" not in str(raised.value)


def test_archives_cannot_expand_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_parsing, "MOST_UNPACKED", 100_000)
    bomb = archive_of({"word/document.xml": b"<a/>", "word/media/a.png": bytes(200_000)})
    assert len(bomb) < 1000
    with pytest.raises(DataError, match="the archive unpacks to more than 100,000 bytes"):
        read_document(bomb, "a.docx")
    lying = bomb.replace((200_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))  # of its size
    with pytest.raises(DataError):
        read_document(lying, "a.docx")
    monkeypatch.setattr(safe_parsing, "MOST_MEMBERS", 1)
    with pytest.raises(DataError, match="the archive has 2 members, over the limit of 1"):
        read_document(bomb, "a.docx")
    monkeypatch.setattr(safe_parsing, "MOST_XML", 10)
    with pytest.raises(DataError, match="over the limit of 10"):
        read_document(XLIFF.encode(), "a.xlf")


MARKS: Sequence[str] = [
    "<b>",
    "</b>",
    "<",
    ">",
    "&",
    "*",
    "_",
    "`",
    "[",
    "](x)",
    "|",
    "%s",
    "{a}",
    "\n",
    "\n\n",
    " ",
    "a b",
    "-",
    "# ",
    "> ",
    "\\",
    "<!--",
    "-->",
    "<br>",
    "<p>",
    "1. ",
    "00:01.000 --> 00:02.000\n",
    '"',
    "\x00",
    "\u2028",
]


@SOME
@given(st.sampled_from([".txt", ".html", ".md", ".srt", ".vtt"]), st.lists(st.sampled_from(MARKS), max_size=25))
def test_any_text_is_read_or_refused(end: str, parts: list[str]) -> None:
    for how in (loud, backwards, blind):
        try:
            translated(f"a{end}", "".join(parts), how)
        except DataError as error:
            assert str(error)


# Files of unknown types


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"<tmx/>", "XML or HTML"),
        (b"\xef\xbb\xbf <?xml version='1.0'?>", "XML or HTML"),
        (b"<!doctype html><p>a", "XML or HTML"),
        (b"<ts version='2'>\n<b>a</b>\n</ts>\n", "XML or HTML"),
        (b'{"a": 1}', "JSON"),
        (b'[{"a":\n"b"}]', "JSON"),
        (b'["a", "b"]', "JSON"),
        (b'{"a": "b"}\n{"a": "c"}\n', "JSON"),
        (b'{\n  "a": [' + b'"x", ' * 9 + b"...\n}", "JSON"),
        (b"\x89PNG\r\n", "a picture"),
    ],
)
def test_structured_files_are_recognised_by_content(content: bytes, kind: str) -> None:
    assert find_structure(content) == kind


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<i>One</i> line.\nAnother one.",
        b"<3 you all",
        b"[1] A note.\n[2] Another.",
        b"[1]\nTwo",
        b"{count} files are new.",
        b"{not json}",
        b"A < B > C",
        b"<unclosed> text",
    ],
)
def test_text_with_brackets_is_text(content: bytes) -> None:
    assert find_structure(content) == ""

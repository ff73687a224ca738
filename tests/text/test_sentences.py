"""Splitting texts and pages and joining them again loses nothing."""

import re
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_examples import HARD_CASES

from heedful.text.html_fragments import Markup
from heedful.text.sentences import LONGEST, Sentences

LETTERS = st.text(alphabet="aB .!?\n\t\r\u2028\u00a0。、,\"')3Mr", max_size=200)


@given(LETTERS, st.sampled_from(["", "en", "de", "fr", "ja", "zh"]), st.integers(5, 60))
def test_splitting_and_joining_gives_the_same_text(text: str, language: str, longest: int) -> None:
    sentences = Sentences(text, language, longest)
    assert sentences.join(sentences.texts, "zh") == text
    assert all(sentence == sentence.strip() and 0 < len(sentence) <= longest for sentence in sentences.texts)


@given(LETTERS)
def test_every_character_but_white_space_is_in_a_sentence(text: str) -> None:
    assert "".join("".join(Sentences(text).texts).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith came. He left!", ["Dr. Smith came.", "He left!"]),
        ("en", 'He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("en", "J. Smith paid 3.50 for it (cf. p. 3). Good.", ["J. Smith paid 3.50 for it (cf. p. 3).", "Good."]),
        ("en", "What? no. yes", ["What? no. yes"]),
        ("en", "what? no, yes", ["what?", "no, yes"]),
        ("en", "One\nTwo\r\n\r\nThree", ["One", "Two", "Three"]),
        ("de", "Am 3. Oktober war es z.B. kalt. Gut.", ["Am 3. Oktober war es z.B. kalt.", "Gut."]),
        ("en", "It was 1999. Then came 2000.", ["It was 1999.", "Then came 2000."]),
        ("zh", "你好。再见！走", ["你好。", "再见！", "走"]),
        ("en", " \n\t ", []),
    ],
)
def test_where_sentences_end(language: str, text: str, expected: list[str]) -> None:
    assert Sentences(text, language).texts == expected


@pytest.mark.parametrize(("language", "case"), [(code, case) for code, cases in HARD_CASES.items() for case in cases])
def test_hard_cases_are_split_as_people_would(language: str, case: str) -> None:
    expected = [sentence.strip() for sentence in case.split("|")]
    text = ("" if case.count(" | ") == 0 else " ").join(expected)
    assert Sentences(text, language).texts == expected


def test_the_hard_cases_are_in_at_least_15_languages() -> None:
    assert len(HARD_CASES) >= 15


# Examples of every kind of mark in Unicode's property Sentence_Terminal.
@pytest.mark.parametrize("mark", "!.?։؟۔।॥።፧။។៕。！？｡．‼⁇⁈⁉‽꛳꯫𑅁\U0001bc9f")
def test_every_terminal_of_unicode_ends_a_sentence(mark: str) -> None:
    assert Sentences(f"Ab{mark} Cd{mark}{mark} Ef").texts == [f"Ab{mark}", f"Cd{mark}{mark}", "Ef"]


@pytest.mark.parametrize("code", ["de", "DE", "de-AT", "de_CH", "deu"])
def test_the_rules_of_a_language_are_found_by_any_form_of_its_code(code: str) -> None:
    assert Sentences("Am 3. Oktober.", code).texts == ["Am 3. Oktober."]


def test_the_name_of_no_language_stops_splitting() -> None:
    assert Sentences("One. Two.", "tlh").texts == ["One.", "Two."]


def test_a_language_with_spaces_gets_them_between_sentences_that_had_none() -> None:
    assert Sentences("你好。再见。", "zh").join(["Hello.", "Bye."], "en") == "Hello. Bye."


def test_a_sentence_that_is_too_long_is_cut_between_clauses_or_words() -> None:
    assert Sentences("aaa bbb, ccc ddd eee", longest=14).texts == ["aaa bbb,", "ccc ddd eee"]
    assert Sentences("aaa bbb ccc ddd eee", longest=12).texts == ["aaa bbb ccc", "ddd eee"]
    assert Sentences("a" * 25, longest=10).texts == ["a" * 10, "a" * 10, "a" * 5]


# Pages


def upper(html: str) -> str:
    page = Markup(html)
    return page.join([text.upper() for text in page.texts])


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a <b>b</b>&amp;c</p>", "<p>A <b>B</b>&amp;C</p>"),
        ("<!DOCTYPE html><html lang=en><body>a<br/>b", '<!doctype html><html lang="en"><body>A<br>B</body></html>'),
        (
            '<a href="https://x.y/?a=1&amp;b=2" title="a > b">x</a>',
            '<a href="https://x.y/?a=1&amp;b=2" title="a &gt; b">X</a>',
        ),
        ("a<code>b</code><p translate=no>c<i>d</i></p>e", 'A<code>b</code><p translate="no">c<i>d</i></p>E'),
        ("<b><i>a</b>b</i>", "<b><i>A</i></b>B"),
        ("a < b > c", "A &lt; B &gt; C"),
        ("<x-y>a</x-y><!-- b -->c", "AC"),
        ("\n <p>\n a </p>", "\n <p>\n A </p>"),
    ],
)
def test_a_page_keeps_its_structure(html: str, expected: str) -> None:
    assert upper(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        "<script>alert(1)</script>",
        "<ScRiPt >alert(1)</sCrIpT >",
        "<script>alert(1)",
        "<img src=x onerror=alert(1)>",
        "<a href='javascript:alert(1)'>a</a>",
        "<a href=' java\nscript:alert(1)'>a</a>",
        "<a href='&#106;avascript:alert(1)'>a</a>",
        "<a href=data:text/html,alert>a</a>",
        "<svg><script>alert(1)</script></svg>",
        "<svg/onload=alert(1)>",
        "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
        "<style>@import 'x'</style><link rel=stylesheet href=x><meta http-equiv=refresh>",
        "<p style='background:url(x)'>a</p><form action=x><input autofocus onfocus=alert(1)>",
        "<!--><script>alert(1)</script>-->",
        "<![CDATA[<script>alert(1)</script>]]>",
        '<p title="<script>alert(1)</script>">',
        "<p title=\"a' onclick='alert(1)\">",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ],
)
def test_the_output_has_nothing_that_a_browser_would_run(html: str) -> None:
    page = Markup(html)
    made = page.join(page.texts)
    tags = re.findall(r"<[^>]*>", made)
    assert not re.search(r"(?i)<(?:script|svg|iframe|style|link|meta|form|input)|javascript:|data:", "".join(tags))
    # Names of attributes, outside of quotes.
    assert not re.search(r"(?i)\bon\w+\s*=|style=", re.sub(r'"[^"]*"', "", "".join(tags)))


@given(st.text(alphabet="<>/!-\"'= abpscript&;#x", max_size=120))
def test_the_output_parses_to_itself(html: str) -> None:
    page = Markup(html)
    made = page.join(page.texts)
    again = Markup(made)
    assert again.join(again.texts) == made  # all of it is known and balanced


@pytest.mark.timeout(60)  # html.parser needs minutes
@pytest.mark.parametrize(
    "part", ["<!", "<a", "<![", "<!--", "</", "<a b='", '<a b="', "<a <", "&#x", "<svg>", "</p>", "<i>"]
)
def test_a_hostile_page_takes_linear_time(part: str) -> None:
    page = Markup(part * (60_000 // len(part)))
    made = page.join(page.texts)
    assert made.count("<i>") == made.count("</i>")
    assert "<a" not in made


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", [".", '."', ". ", ", ", "e.g. ", "3. ", "x", "。", ";", "\n"])
def test_a_hostile_text_takes_linear_time(part: str) -> None:
    text = part * (200_000 // len(part))
    sentences = Sentences(text, "de")
    assert sentences.join(sentences.texts) == text
    assert max(map(len, sentences.texts), default=0) <= LONGEST


def test_translations_are_escaped() -> None:
    assert Markup("<p>a</p>").join(["<script>&"]) == "<p>&lt;script&gt;&amp;</p>"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/?page=2&section=3", "/?page=2&section=3"),
        ("/?a=1&copy=2&region=x&notit;&ampx", "/?a=1&copy=2&region=x&notit;&ampx"),
        ("/?a=1&amp;copy=2&#x26;b", "/?a=1&copy=2&b"),
        ("/&copy;=&copy&reg", "/©=©®"),
        ("/&#0000000000065;&#" + "1" * 5000 + ";", "/A\ufffd"),
    ],
)
def test_addresses_have_the_entities_that_a_browser_sees(written: str, meant: str) -> None:
    assert upper(f'<a href="{written}">x</a>') == f'<a href="{escape(meant)}">X</a>'
    assert upper(f"&#{'1' * 5000};") == "\ufffd"


@pytest.mark.timeout(60)
def test_marks_that_end_no_sentence_are_read_once() -> None:
    assert Markup("<script>" + "</script " * 100_000).texts == []

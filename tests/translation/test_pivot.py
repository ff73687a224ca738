"""Two models in a row, through the language that they share."""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path

import pytest
import toy
from builtin_examples import NAMES, stand_ins
from hypothesis import given
from hypothesis import strategies as st

from heedful import PivotTranslator, Translator
from heedful.data.stream import TextStream
from heedful.errors import ConfigError
from heedful.progress import SilentReporter
from heedful.storage import model_names as names
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.text.constraints import Constraints
from heedful.translation.direction import choose_direction, find_pivots
from heedful.translation.pivot import PivotAligners, compose_links
from heedful.translation.result import Translation
from heedful.translation.word_alignment import find_aligner

pytest.importorskip("ctranslate2", reason="needs CTranslate2")


@pytest.fixture(scope="module")
def shelf(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_ins(trained, tmp_path_factory.mktemp("built-in"))


@pytest.fixture
def named(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in models are stand-ins."""
    monkeypatch.setattr(names, "BUILT_IN", shelf)


@pytest.fixture(scope="module")
def legs(shelf: Path) -> tuple[Translator, Translator]:
    return Translator.load(shelf / "fr-en"), Translator.load(shelf / "en-de")


@pytest.fixture(scope="module")
def pivot(legs: tuple[Translator, Translator]) -> PivotTranslator:
    return PivotTranslator(*legs, ("fr", "en", "de"))


@pytest.fixture(scope="module")
def some(trained: Path) -> list[str]:
    return toy.lines_of(trained / "test.en")[:5]


def texts_of(translations: Sequence[Translation]) -> list[str]:
    return [translation.text for translation in translations]


# The route


def test_languages_that_share_english_are_connected_and_direct_models_win() -> None:
    every = [(name[:2], name[3:]) for name in NAMES]
    assert sorted(find_pivots(every)) == [("de", "fr"), ("fr", "de")]
    assert find_pivots([*every, ("de", "fr")]) == [("fr", "de")]
    more = [*every, ("en", "es"), ("es", "en")]
    assert len(find_pivots(more)) == 6
    assert find_pivots([("fr", "es"), ("es", "de")]) == []  # they do not share English
    assert find_pivots([("fr", "en"), ("en", "fr")]) == []
    assert find_pivots([]) == []


@pytest.mark.parametrize(
    ("text", "given", "models", "why"),
    [
        ("x", ("fr", "de", ""), ("fr-en", "en-de"), "fr-de: through English, with fr-en and en-de"),
        ("x", ("en", "de", ""), ("en-de",), ""),
        (
            "Wo ist der Bahnhof?",
            ("", "fr", ""),
            ("de-en", "en-fr"),
            "seems to be German; through English, with",
        ),
        ("Wo ist der Bahnhof?", ("", "", ""), ("de-en",), "de-en: the text seems to be German"),
        (
            "Wo ist der Bahnhof?",
            ("", "", "fr"),
            ("de-en", "en-fr"),
            "French, the language of your locale; --to en",
        ),
    ],
)
def test_two_models_are_chosen_only_if_there_is_no_direct_one(
    text: str, given: tuple[str, str, str], models: tuple[str, ...], why: str
) -> None:
    found = choose_direction(NAMES, [text], *given)
    assert found.models == models
    assert why in found.reason
    assert bool(why) == bool(found.reason)


def test_the_models_must_share_a_language(shelf: Path) -> None:
    with pytest.raises(ConfigError, match=r"en-fr translates into French, but \S*en-de translates from English; "):
        PivotTranslator.load(shelf / "en-fr", shelf / "en-de")


# The translation


def test_the_second_model_translates_what_the_first_has_made(
    pivot: PivotTranslator, legs: tuple[Translator, Translator], some: list[str]
) -> None:
    between = legs[0].translate(some)
    expected = legs[1].translate(texts_of(between), n_best=3)
    found = pivot.translate(some, n_best=3)
    assert [one.source for one in found] == some
    assert texts_of(found) == texts_of(expected)
    for one, middle, last in zip(found, between, expected, strict=True):
        assert one.via == "en"
        assert [alternative.text for alternative in one.alternatives] == [each.text for each in last.alternatives]
        assert [alternative.pivot for alternative in one.alternatives] == [middle.alternatives[0]] * 3
        assert one.source_pieces == middle.source_pieces
        assert one.unsure == (middle.unsure or last.alternatives[0].unsure)


def test_sentences_stay_apart_and_white_space_stays(pivot: PivotTranslator, some: list[str]) -> None:
    sentences = [f"{text.capitalize()}." for text in some[:2]]
    first, second = pivot.translate(sentences)
    text = f"  {sentences[0]}\n\n{sentences[1]} "
    (found,) = pivot.translate([text])
    assert found.text == f"  {first.text}\n\n{second.text} "
    assert [one.text for one in found.sentences] == [first.text, second.text]
    assert found.via == "en"
    joined = found.alternatives[0].pivot
    assert joined
    assert first.alternatives[0].pivot
    assert joined.text.startswith(f"  {first.alternatives[0].pivot.text}\n\n")
    assert texts_of(pivot.translate(["", "  ", text])) == ["", "", found.text]


def test_a_stream_gives_the_same_and_reports_its_progress(pivot: PivotTranslator, some: list[str]) -> None:
    counted: list[int] = []
    streamed = pivot.translate_lines(TextStream(iter(some)), done=counted.append)
    assert texts_of(list(streamed)) == texts_of(pivot.translate(some))
    assert counted[-1] == len(some)


def test_terms_of_the_source_are_required_of_the_second_model(pivot: PivotTranslator, some: list[str]) -> None:
    word = some[0].split()[0]
    wanted = toy.translated(some[1]).split()[0]
    assert wanted not in pivot.translate([some[0]])[0].text.split()
    kept = Constraints({word: wanted}, max_loss=inf)
    (found,) = pivot.translate([some[0]], constraints=kept)
    assert wanted in found.text.split()
    (other,) = pivot.translate([toy.translated(some[0])], constraints=kept)  # does not have the word
    assert other.text == pivot.translate([toy.translated(some[0])])[0].text


@given(
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7))),
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 4))),
)
def test_links_are_composed_as_relations(first: set[tuple[int, int]], second: set[tuple[int, int]]) -> None:
    expected = {(a, d) for a, b in first for c, d in second if b == c}
    found = compose_links(sorted(first), sorted(second))
    assert set(found) == expected
    assert len(found) == len(expected)


def test_words_are_aligned_over_the_words_between() -> None:
    pivot = PivotTranslator.load("fr-en", "en-de")
    runs = [RunFolder.open(find_model(name)) for name in ("fr-en", "en-de")]
    first, second = (
        find_aligner(run, one, SilentReporter()) for run, one in zip(runs, (pivot.first, pivot.second), strict=True)
    )
    (found,) = pivot.translate(["Où est la gare ?"], aligner=PivotAligners(first, second))
    middle = found.alternatives[0].pivot
    assert middle
    assert middle.alignment
    assert found.alignment
    linked = {(found.source.split()[a], found.text.split()[b]) for a, b in found.alignment}
    assert ("gare", "Bahnhof?") in linked
    assert pivot.translate(["Où est la gare ?"])[0].alignment is None


# The command


@pytest.mark.usefixtures("named")
def test_the_command_goes_through_english_and_says_so(some: list[str], tmp_path: Path) -> None:
    ran = toy.run("translate", "--from", "fr", "--to", "de", some[0], "--json", "--confidence")
    assert ran.code == 0, ran.err
    assert ran.err == "fr-de: through English, with fr-en and en-de\n"
    found = json.loads(ran.out)
    expected = PivotTranslator.load("fr-en", "en-de").translate([some[0]])[0]
    middle = expected.alternatives[0].pivot
    assert middle
    assert (found["via"], found["text"]) == ("en", expected.text)
    assert found["alternatives"][0]["pivot"]["text"] == middle.text
    assert "alignment" not in found["alternatives"][0]
    toy.write_lines(tmp_path / "in.md", [f"# {some[0]}", "", f"{some[1]} **{some[2]}**"])
    files = ("--input", tmp_path / "in.md", "--output", tmp_path / "out.md")
    ran = toy.run("translate", "--from", "fr", "--to", "de", *files)
    assert ran.code == 0, ran.err
    assert toy.lines_of(tmp_path / "out.md")[0] == f"# {expected.text}"
    ran = toy.run("translate", "--from", "fr", "--to", "de", "--with", "en-de", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "--with en-de adds to one model, but fr-en and en-de translate one after the other; leave it out" in ran.err


@pytest.mark.usefixtures("named")
def test_a_direct_translation_has_no_via(some: list[str]) -> None:
    found = json.loads(toy.run("translate", "en-de", some[0], "--json").out)
    assert found["via"] == ""
    assert "pivot" not in found["alternatives"][0]

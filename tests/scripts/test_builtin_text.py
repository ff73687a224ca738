"""Training and test text of the built-in models: no sentence is in both."""

import gzip
from pathlib import Path

import builtin_text
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splits import Pairs, Split, split, write_split

from heedful.errors import DataError

words = st.sampled_from("abcdefgh")
some_pairs = st.lists(st.tuples(words, words), max_size=30)
some_parts = st.builds(split, some_pairs, st.integers(0, 3), st.integers(0, 2))


class TestSplit:
    @given(some_pairs, st.integers(0, 4), st.integers(0, 3))
    def test_no_sentence_is_on_two_sides(self, pairs: Pairs, test: int, valid: int) -> None:
        parts = split(pairs, test, valid)
        for side in (0, 1):
            trained, validated, tested = (
                {pair[side] for pair in part} for part in (parts.train, parts.valid, parts.test)
            )
            assert not trained & validated
            assert not trained & tested
            assert not validated & tested

    @given(some_pairs)
    def test_the_test_set_has_the_requested_size_without_duplicates(self, pairs: Pairs) -> None:
        tested = split(pairs, 3, 2).test
        assert len(tested) == len({english for english, _ in tested}) == min(3, len(dict(pairs)))
        assert set(tested) <= set(pairs)

    @given(some_pairs)
    def test_without_held_out_sentences_all_are_training_sentences(self, pairs: Pairs) -> None:
        assert split(pairs, 0, 0).train == pairs

    @given(st.lists(st.tuples(st.text("aAbB", min_size=1), st.text("aAbB", min_size=1)), max_size=20))
    def test_near_duplicates_are_on_one_side(self, pairs: Pairs) -> None:
        parts = split(pairs, 3, 2, str.lower)
        for side in (0, 1):
            trained = {pair[side].lower() for pair in parts.train}
            assert not trained & {pair[side].lower() for pair in (*parts.valid, *parts.test)}

    def test_it_does_not_depend_on_the_order(self) -> None:
        pairs = [(f"sentence {number}", f"phrase {number}") for number in range(50)]
        parts, turned = split(pairs, 5, 4), split(pairs[::-1], 5, 4)
        assert (parts.test, parts.valid, sorted(parts.train)) == (turned.test, turned.valid, sorted(turned.train))
        assert [english for english, _ in parts.test[:2]] == ["sentence 29", "sentence 45"]

    def test_the_test_set_has_the_first_of_several_translations(self) -> None:
        assert split([("Go.", "Va !"), ("Go.", "Vas-y.")], 1, 0).test == [("Go.", "Va !")]

    def test_the_files_have_the_pairs_line_by_line(self, tmp_path: Path) -> None:
        write_split(Split([("a", "à"), ("b", "é")], [("c", "ç")], []), tmp_path / "data", ("en", "fr"))
        assert (tmp_path / "data" / "train.fr").read_bytes() == "à\né\n".encode()
        assert (tmp_path / "data" / "val.en").read_bytes() == b"c\n"
        assert len(list((tmp_path / "data").iterdir())) == 6


class TestHeldOut:
    @given(some_pairs)
    def test_blocks_are_held_out_whole_and_nothing_is_lost(self, pairs: Pairs) -> None:
        parts = builtin_text.split_blocks(pairs)
        assert sorted([*parts.train, *parts.valid, *parts.test]) == sorted(pairs)

    def test_blocks_are_neighbours(self) -> None:
        pairs = [(str(number), str(-number)) for number in range(5000)]
        parts = builtin_text.split_blocks(pairs)
        assert (len(parts.test), len(parts.valid), len(parts.train)) == (2000, 1000, 2000)
        starts = [number for number in range(0, 2000, 100) if int(parts.test[number][0]) % 100]
        assert starts == []

    @given(some_parts, some_parts)
    def test_texts_of_all_splits_and_sides_are_held_out(self, french: Split, german: Split) -> None:
        held = builtin_text.held_out([french, german])
        for part in (french, german):
            assert {text for pair in (*part.valid, *part.test) for text in pair} <= held


def write_german(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        for language in ("en", "de"):
            (folder / f"{name}.{language}").write_text(f"{name}  in {language}\n", encoding="utf-8")


def write_software(folder: Path) -> None:
    folder.mkdir()
    for language in builtin_text.LANGUAGES:
        rows = "".join(f"Text {number}\tTexto {number}\n" for number in range(3100))
        with gzip.open(folder / f"en-{language}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write(rows + "Text 1\tTexto 1\nno tab\n")


class TestPhrases:
    def test_every_phrase_has_all_languages_and_stands_once(self) -> None:
        columns = [builtin_text.read_phrases(language) for language in builtin_text.LANGUAGES]
        for phrases in columns:
            assert all(text and text == " ".join(text.split()) for pair in phrases for text in pair)
        english = [source for source, _ in columns[0]]
        assert len(set(english)) == len(english) == len(columns[2]) > 250

    def test_questions_and_calls_are_such_in_all_languages(self) -> None:
        for language in builtin_text.LANGUAGES:
            for source, target in builtin_text.read_phrases(language):
                assert source[-1] not in "?!" or target[-1] == source[-1]
                if language == "es" and source[-1] in "?!":
                    assert {"?": "¿", "!": "¡"}[source[-1]] in target


class TestWhole:
    @pytest.fixture(autouse=True)
    def offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pairs = [(f"Sentence {number} is short.", f"Phrase {number} est brève.") for number in range(4100)]
        monkeypatch.setattr(builtin_text, "english_french", lambda _: pairs)
        monkeypatch.setattr(builtin_text, "english_spanish", lambda _: pairs[::-1])
        monkeypatch.setattr(builtin_text, "messages_of_programs", lambda *_: [("Save", "Enregistrer"), ("Text 1", "T")])
        monkeypatch.setattr(builtin_text, "names", lambda *_: [("Chile", "Chili")])
        monkeypatch.setattr(builtin_text, "days_and_months", lambda *_: [("May", "Mai")])

    def test_every_direction_has_its_files_and_no_held_out_text_is_trained_on(self, tmp_path: Path) -> None:
        write_german(tmp_path / "german", "train", "val", "test")
        write_software(tmp_path / "software")
        out = tmp_path / "out"
        assert builtin_text.builtin_text(tmp_path / "german", tmp_path / "software", out) == 0
        assert sorted(path.name for path in out.iterdir() if path.is_dir()) == [
            *("de-en", "en-de", "en-es", "en-fr", "es-en", "fr-en")
        ]
        held: set[str] = set()
        trained: set[str] = set()
        for folder in (path for path in out.iterdir() if path.is_dir()):
            for path in folder.iterdir():
                lines = set(path.read_text(encoding="utf-8").splitlines())
                (trained if path.name.startswith("train") else held).update(lines)
        assert {"train in de", "Save", "Enregistrer", "Chile", "May", "Good night!", "¡Buenas noches!"} <= trained
        assert len(held) > 4000
        assert not trained & held
        french = (out / "en-fr" / "train.en").read_text().splitlines()
        assert (french.count("May"), french.count("Chile")) == (20, 4)

    def test_the_first_word_names_the_target_language(self, tmp_path: Path) -> None:
        write_german(tmp_path / "german", "train", "val", "test")
        write_software(tmp_path / "software")
        builtin_text.builtin_text(tmp_path / "german", tmp_path / "software", tmp_path / "out")
        sources = (tmp_path / "out" / "from-english.train.source").read_text(encoding="utf-8").splitlines()
        assert {source.split()[0] for source in sources} == {"xde", "xfr", "xes"}
        sources = (tmp_path / "out" / "into-english.train.source").read_text(encoding="utf-8").splitlines()
        assert "train in de" in sources

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        write_german(tmp_path / "german", "train", "val")
        with pytest.raises(DataError, match=r"there is no file .*test\.en"):
            builtin_text.builtin_text(tmp_path / "german", tmp_path / "software", tmp_path / "out")
        assert not (tmp_path / "out").exists()

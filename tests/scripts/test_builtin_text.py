"""Training and test text of the built-in models: no sentence is in both."""

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


class TestAllDirections:
    @given(some_parts, some_parts)
    def test_no_held_out_sentence_is_in_the_training_text_in_any_language(self, french: Split, german: Split) -> None:
        parts = builtin_text.without_leaks({"fr": french, "de": german})
        trained = {text for part in parts.values() for pair in part.train for text in pair}
        held = {text for part in parts.values() for pair in (*part.valid, *part.test) for text in pair}
        assert not trained & held
        assert [(part.valid, part.test) for part in parts.values()] == [
            (part.valid, part.test) for part in (french, german)
        ]

    def test_the_first_word_names_the_target_language(self) -> None:
        rows = builtin_text.all_directions({"fr": [("Go.", "Va !")], "de": [("Hi.", "Hallo."), ("Go.", "Geh.")]})
        assert rows == [
            ("<fr> Go.", "Va !"),
            ("<en> Va !", "Go."),
            ("<de> Hi.", "Hallo."),
            ("<de> Go.", "Geh."),
            ("<en> Hallo.", "Hi."),
            ("<en> Geh.", "Go."),
        ]


def write_german(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        for language in ("en", "de"):
            (folder / f"{name}.{language}").write_text(f"{name}  in {language}\n", encoding="utf-8")


class TestWhole:
    def test_all_files_are_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pairs = [(f"sentence {number}", f"phrase {number}") for number in range(4100)]
        monkeypatch.setattr(builtin_text, "english_french", lambda _: pairs)
        write_german(tmp_path / "german", "train", "val", "test")
        assert builtin_text.builtin_text(tmp_path / "german", tmp_path / "out") == 0
        assert (tmp_path / "out" / "en-de" / "train.de").read_text() == "train in de\n"
        assert len((tmp_path / "out" / "en-fr" / "val.fr").read_text().splitlines()) == 2000
        sources = (tmp_path / "out" / "all.train.source").read_text().splitlines()
        assert len(sources) == 202
        assert sources[-2:] == ["<de> train in en", "<en> train in de"]
        assert len((tmp_path / "out" / "all.val.target").read_text().splitlines()) == 602

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        write_german(tmp_path / "german", "train", "val")
        with pytest.raises(DataError, match=r"there is no file .*test\.en"):
            builtin_text.builtin_text(tmp_path / "german", tmp_path / "out")
        assert not (tmp_path / "out").exists()

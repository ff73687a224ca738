"""The baseline of labelled texts learns words and pairs of words, and its penalty is chosen on other texts."""

import sys
from pathlib import Path

import bag_of_words
import label_examples
import pytest
from bag_of_words import BagOfWords, choose_model, find_features, score

from heedful.data.pairs import Pair


def texts(count: int, seed: int) -> list[Pair]:
    return [Pair(text, label) for label, text in label_examples.labelled(count, seed)]


def test_features_are_words_and_pairs_in_lower_case() -> None:
    assert find_features("Not good, not") == {"not", "good", ",", "not good", "good ,", ", not"}


def test_words_that_tell_a_label_are_learnt() -> None:
    model = choose_model(texts(200, 1), texts(50, 2))
    assert score(model, texts(100, 3)).scores[0].value >= 99.0


def test_a_pair_of_words_tells_what_single_words_do_not() -> None:
    pairs = [Pair("a b", "X"), Pair("b a", "Y")] * 10
    assert BagOfWords(pairs, 1e-4).predict(["a b", "b a"]) == ["X", "Y"]


def test_the_command_prints_both_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = label_examples.write_labels(tmp_path / "a"), label_examples.write_labels(tmp_path / "b", 40, 9)
    monkeypatch.setattr(sys, "argv", ["bag_of_words.py", str(train), str(test)])
    bag_of_words.main()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("accuracy ")
    assert second.startswith("macro F1 ")

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest

from heedful.config.experiment import TextConfig, TokenizerKind
from heedful.errors import ConfigError, DataError
from heedful.text import tokenizer_training
from heedful.text.tokenizer_training import learn_tokenizer

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)


def corpus() -> list[str]:
    pick = random.Random(11)
    words = [a + b + c for a in ("ba", "ki", "mü") for b in ("", "n", "rt", "ß") for c in ("e", "ung", "?", "字")]
    return [" ".join(pick.choices(words, k=6)) for _ in range(170)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_lines_give_the_same_file_in_another_process(kind: TokenizerKind) -> None:
    size = {"wordpiece": 540, "unigram": 267}.get(kind, 300)
    here = learn_tokenizer(corpus(), TextConfig(kind=kind, vocabulary_size=size)).to_json()
    program = (
        "import sys; from heedful.config.experiment import TextConfig;"
        "from heedful.text.tokenizer_training import learn_tokenizer;"
        f"config = TextConfig(kind={kind!r}, vocabulary_size={size});"
        "lines = sys.stdin.buffer.read().decode().split('\\n');"
        "sys.stdout.buffer.write(learn_tokenizer(lines, config).to_json().encode())"
    )
    there = subprocess.run(
        [sys.executable, "-c", program], input="\n".join(corpus()).encode(), capture_output=True, check=True
    )
    assert there.stdout.decode() == here
    assert there.stderr == b""


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_vocabulary_has_exactly_the_size_that_was_asked_for(kind: TokenizerKind) -> None:
    size = {"wordpiece": 537, "unigram": 266}.get(kind, 283)
    assert learn_tokenizer(corpus(), TextConfig(kind=kind, vocabulary_size=size)).vocabulary_size == size


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_too_large_a_size_is_an_error_that_names_the_largest_one_that_works(kind: TokenizerKind) -> None:
    message = r"^text\.vocabulary_size is 37000 but this text has only (\d+) different pieces; set it to at most (\d+)$"
    with pytest.raises(DataError, match=message) as caught:
        learn_tokenizer(corpus(), TextConfig(kind=kind))
    largest = int(str(caught.value).split()[-1])
    assert str(caught.value).count(f" {largest}") == 2
    assert learn_tokenizer(corpus(), TextConfig(kind=kind, vocabulary_size=largest)).vocabulary_size == largest


def test_words_are_the_most_frequent_ones_up_to_the_size() -> None:
    lines = ["cat cat cat dog dog bird", "cat dog bird bird emu"]
    learnt = learn_tokenizer(lines, TextConfig(kind="words", vocabulary_size=260))
    assert learnt.vocabulary_size == 260
    assert [len(learnt.encode(word)) for word in ("cat", "bird", "dog", "emu")] == [2, 2, 5, 5]
    assert learn_tokenizer(lines, TextConfig(kind="words")).vocabulary_size == 258 + 4


def test_symbols_are_whole_whatever_they_are_made_of() -> None:
    lines = ["(S (NP XX )NP )S", "AH0 t͡ʃ ɔ̃ IP-MAT ␣"]
    learnt = learn_tokenizer(lines, TextConfig(kind="symbols"))
    for line in lines:
        assert learnt.pieces(learnt.encode(line)) == [*(f"▁{symbol}" for symbol in line.split()), "</s>"]
    assert learnt.decode(learnt.encode("a  (S (QP ")) == "a  (S (QP "


def test_characters_are_one_piece_each_and_rare_ones_their_bytes() -> None:
    learnt = learn_tokenizer(["字字ßß", "字é"], TextConfig(kind="characters", vocabulary_size=260))
    assert learnt.pieces(learnt.encode("字 ßéa")) == ["字", "▁", "ß", "<0xC3>", "<0xA9>", "a", "</s>"]


def test_bytes_need_no_learning() -> None:
    learnt = learn_tokenizer(["x"], TextConfig(kind="bytes"))
    assert learnt.vocabulary_size == 258
    assert learnt.encode("ab") == [2 + ord("a"), 2 + ord("b"), 1]


def test_special_strings_in_the_text_are_learnt_as_text() -> None:
    for kind in KINDS:
        learnt = learn_tokenizer(["a </s> <pad> b"] * 40, TextConfig(kind=kind, vocabulary_size=_least(kind)))
        assert learnt.encode("</s><pad>").count(1) == 1
        assert (learnt.piece_at(0), learnt.piece_at(1)) == ("<pad>", "</s>")


def _least(kind: TokenizerKind) -> int:
    return 514 if kind == "wordpiece" else 258


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_size_works_and_one_less_is_an_error_that_names_it(kind: TokenizerKind) -> None:
    least = _least(kind)
    assert learn_tokenizer([" "], TextConfig(kind=kind, vocabulary_size=least)).decode([5, 1]) != ""
    message = (
        rf"^text\.vocabulary_size is {least - 1}, but kind '{kind}' needs room for every byte; "
        rf"set it to at least {least}$"
    )
    with pytest.raises(ConfigError, match=message):
        learn_tokenizer(corpus(), TextConfig(kind=kind, vocabulary_size=least - 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [[], ["", "", ""]])
def test_no_text_is_an_error(kind: TokenizerKind, lines: list[str]) -> None:
    with pytest.raises(DataError, match=r"^there is no text to learn a vocabulary from; name files that have lines"):
        learn_tokenizer(lines, TextConfig(kind=kind))


def test_lines_are_read_once_and_no_further_than_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_training, "SAMPLE_LINES", 37)
    read: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(100_000):
            read.append(number)
            yield "some words of text"

    learn_tokenizer(lines(), TextConfig(kind="bpe", vocabulary_size=262))
    assert read == list(range(37))


def test_an_error_of_the_reader_comes_through() -> None:
    def lines() -> Iterator[str]:
        yield "first"
        raise DataError("my.de is damaged")

    with pytest.raises(DataError, match=r"^my\.de is damaged$"):
        learn_tokenizer(lines(), TextConfig(vocabulary_size=260))

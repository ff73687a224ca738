import random
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer

from heedful.config.experiment import TextConfig
from heedful.errors import ConfigError, DataError
from heedful.text import Tokenizer
from heedful.text import bpe_dropout as module
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.byte_level_bpe import merge
from heedful.text.tokenizer_training import learn_tokenizer

WORDS = [a + b for a in ("wasser", "strassen", "haupt", "bahn", "fuß", "volks") for b in ("fall", "hof", "ball", "s")]
SPACES = ["  ", "\n", " \n ", "\t", "\x1c", "\x85", "\u3000", "\u200b", "'s", "!\x1f", " 's"]


def corpus(lines: int = 210) -> list[str]:
    pick = random.Random(3)
    return [" ".join(pick.choices(WORDS, k=11)) for _ in range(lines)]


@cache
def tokenizer() -> Tokenizer:
    return learn_tokenizer(corpus(), TextConfig(vocabulary_size=310))


def any_text() -> st.SearchStrategy[str]:
    return st.lists(st.one_of(st.text(max_size=7), st.sampled_from([*WORDS, *SPACES])), max_size=8).map("".join)


@given(text=any_text(), probability=st.floats(0, 1), seed=st.integers(0, 2**63))
@settings(max_examples=200, deadline=None)
def test_every_segmentation_decodes_to_the_same_text(text: str, probability: float, seed: int) -> None:
    ids = BpeDropout(tokenizer(), probability).encode_all([text, "x", text], seed)
    assert tokenizer().decode_all(ids) == [text, "x", text]
    assert all(sentence[-1] == 1 and not {0, 1} & set(sentence[:-1]) for sentence in ids)


@given(text=any_text())
@settings(max_examples=300, deadline=None)
@example(text="wasserfall " * 3 + "\x1c!\x1c \n hof's")
@example(text="fuß" * 100)
def test_probability_zero_gives_the_ids_of_the_library(text: str) -> None:
    assert BpeDropout(tokenizer(), 0).encode_all([text], seed=5) == tokenizer().encode_all([text])


def test_probability_one_leaves_bytes() -> None:
    ids = BpeDropout(tokenizer(), 1).encode_all(["fußball hof"], seed=5)[0]
    assert [tokenizer().piece_at(number) for number in ids] == [*"ĠfuÃŁballĠhof", "</s>"]


def test_the_same_texts_and_seed_give_the_same_ids_whatever_was_encoded_before() -> None:
    fresh = BpeDropout(tokenizer(), 0.3).encode_all(corpus(), seed=4)
    used = BpeDropout(tokenizer(), 0.3)
    other = used.encode_all(corpus(), seed=8)
    used.encode_all(corpus()[::-1], seed=4)
    assert used.encode_all(corpus(), seed=4) == fresh
    assert other != fresh


def test_the_cache_never_changes_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    free = BpeDropout(tokenizer(), 0.3).encode_all(corpus(), seed=4)
    monkeypatch.setattr(module, "MAX_WORDS", 2)
    assert BpeDropout(tokenizer(), 0.3).encode_all(corpus(), seed=4) == free
    monkeypatch.setattr(module, "MAX_WORD_LENGTH", 0)
    assert BpeDropout(tokenizer(), 0.3).encode_all(corpus(), seed=4) == free


def test_one_seed_splits_a_word_in_up_to_eight_ways() -> None:
    text = " ".join(["strassenbahn"] * 400)
    pieces = tokenizer().pieces(BpeDropout(tokenizer(), 0.5).encode_all([text], seed=6)[0])
    ways = {tuple(word.split("|")[1:]) for word in "|".join(["", *pieces[:-1]]).split("|▁")}
    assert 4 <= len(ways) - 1 <= 8


def test_merges_are_skipped_as_often_as_by_the_library() -> None:
    rust = RustTokenizer.from_str(tokenizer().to_json())
    rust.model.dropout = 0.2
    texts = corpus(1000)
    library = sum(len(encoding.ids) for encoding in rust.encode_batch(texts))
    ours = BpeDropout(tokenizer(), 0.2)
    mean = sum(len(ids) for seed in range(20) for ids in ours.encode_all(texts, seed)) / 20
    plain = sum(map(len, tokenizer().encode_all(texts)))
    assert plain * 1.1 < library
    assert mean == pytest.approx(library, rel=0.03)


def test_a_skipped_merge_is_possible_again_after_another_merge() -> None:
    # Ranks: ab, then cd. The first look at ab drops it; cd is made; ab is looked at again and made.
    answers = iter([True, False, False])
    merges = {(1, 2): (0, 9), (3, 4): (1, 8)}
    assert merge([1, 2, 3, 4], merges, lambda: next(answers)) == [9, 8]


def test_a_cached_word_is_not_split_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = BpeDropout(tokenizer(), 0.1)
    first = ours.encode_all(corpus(), seed=1)
    monkeypatch.setattr(module, "merge", None)  # any further cut would fail
    assert ours.encode_all(corpus(), seed=1) == first


@pytest.mark.parametrize("probability", [-0.1, 1.5, float("nan")])
def test_a_probability_below_0_or_above_1_is_an_error(probability: float) -> None:
    with pytest.raises(ConfigError, match=rf"^text\.bpe_dropout must be between 0 and 1, but is {probability}$"):
        BpeDropout(tokenizer(), probability)


def test_another_kind_of_tokenizer_is_an_error_with_the_way_out() -> None:
    words = learn_tokenizer(corpus(), TextConfig(kind="words"))
    message = (
        r"^text\.bpe_dropout is 0\.1, but a tokenizer of kind 'words' has no merges to skip; "
        r"set it to 0, or text\.kind to 'bpe'$"
    )
    with pytest.raises(ConfigError, match=message):
        BpeDropout(words, 0.1)


def test_half_of_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(DataError, match=r"^a text contains U\+DC00"):
        BpeDropout(tokenizer(), 0.1).encode_all(["\udc00"], seed=1)

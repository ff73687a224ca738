"""Tree constraints: outputs are trees over the words of their sentence, whatever the model prefers."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_examples import CONTEXTS, EOS, START, SYMBOLS, Table, random_table

from heedful.config.experiment import SearchConfig, TextConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.search import run_search
from heedful.decoding.token_constraints import TreeLeaves
from heedful.decoding.tree_constraints import constrain_to_trees
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.text.trees import build_tree, linearise, linearise_with_words, read_tree, remove_words
from heedful.translation.pipeline import TreeConstraintEncoder

VOCABULARY = 14
BRACKETS = {3: 4, 5: 6}  # two labels
WORD_IDS = st.sampled_from([7, 8, 9, 10, 11, 12, 13])
sentences = st.lists(st.lists(WORD_IDS, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)
searches = st.sampled_from(
    [
        SearchConfig(beam=1),
        SearchConfig(beam=3, alpha=0.3),
        SearchConfig(beam=4, groups=2, diversity=1.0),
        SearchConfig(method="sample"),
    ]
)


def leaves_of(words: Sequence[tuple[int, ...]]) -> TreeLeaves:
    starts = [sum(map(len, words[:count])) for count in range(len(words))]
    return TreeLeaves(tuple(piece for word in words for piece in word), frozenset(starts), BRACKETS)


def searched(table: Table, trees: Sequence[TreeLeaves | None], search: SearchConfig) -> list[list[Hypothesis]]:
    numbers = list(range(len(trees)))
    step, state = constrain_to_trees(table.step, table.start(numbers), SYMBOLS, trees)
    limits = torch.full((len(trees),), 60)
    return run_search(step, state, SYMBOLS, limits, search, [[number] for number in numbers])


def words_of(tokens: Sequence[int], words: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The words of an output; fails unless its brackets match and its words are whole."""
    opened: list[int] = []
    inside: list[int] = []  # the number of items in each open phrase
    found: list[tuple[int, ...]] = []
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if token in BRACKETS:
            opened.append(BRACKETS[token])
            inside.append(0)
            continue
        if token in BRACKETS.values():
            assert token == opened.pop()
            assert inside.pop() > 0
        else:
            word = words[len(found)]
            found.append((token, *(rest.pop(0) for _ in word[1:])))
        if inside:
            inside[-1] += 1
    assert not opened
    return found


@settings(deadline=None)
@given(st.integers(0, 50), st.lists(sentences, min_size=1, max_size=3), searches)
def test_every_output_that_ends_is_a_tree_over_the_words(
    seed: int, several: list[list[tuple[int, ...]]], search: SearchConfig
) -> None:
    found = searched(random_table(seed, VOCABULARY), [leaves_of(words) for words in several], search)
    for words, (best, *_) in zip(several, found, strict=True):
        if best.finished:
            assert best.tokens[-1] == EOS
            assert words_of(best.tokens[:-1], words) == words


@settings(deadline=None)
@given(st.integers(0, 50), sentences, sentences)
def test_a_tree_does_not_depend_on_its_batch(
    seed: int, words: list[tuple[int, ...]], other: list[tuple[int, ...]]
) -> None:
    table, search = random_table(seed, VOCABULARY), SearchConfig(beam=3)
    (alone,) = searched(table, [leaves_of(words)], search)
    together, _ = searched(table, [leaves_of(words), leaves_of(other)], search)
    (beside_none, free) = searched(table, [leaves_of(words), None], search)
    assert alone == together == beside_none
    plain = run_search(table.step, table.start([0, 1]), SYMBOLS, torch.tensor([60, 60]), search, [[0], [1]])
    for ours, theirs in zip(free, plain[1], strict=True):  # unconstrained rows are not affected
        assert ours.tokens == theirs.tokens
        assert ours.log_prob == pytest.approx(theirs.log_prob)


def test_legal_tokens_share_all_probability_and_the_next_word_gets_that_of_all_words() -> None:
    logits = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    table = Table(logits.expand(CONTEXTS, -1))
    step, state = constrain_to_trees(table.step, table.start([0]), SYMBOLS, [leaves_of([(7, 8), (9, 8)])])
    shares = logits.softmax(dim=0)
    any_word = float(shares[[7, 8, 9]].sum())

    def after(token: int) -> dict[int, float]:
        nonlocal state
        found, state = step(torch.tensor([token]), state)
        return {number: share for number, share in enumerate(found[0].softmax(dim=0).tolist()) if share}

    def expected(choices: dict[int, float]) -> object:
        total = sum(choices.values())
        return pytest.approx({number: share / total for number, share in choices.items()})

    opening = {number: float(shares[number]) for number in BRACKETS}
    assert after(START) == expected({**opening, 7: any_word})
    assert after(3) == expected({**opening, 7: any_word})  # an empty phrase cannot be closed
    assert after(7) == {8: 1.0}  # the rest of the word
    assert after(8) == expected({**opening, 4: float(shares[4]), 9: any_word})
    assert after(9) == {8: 1.0}
    assert after(8) == {4: 1.0}  # no word is left for another phrase
    assert after(4) == {EOS: 1.0}


LINES = [linearise_with_words(read_tree("(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (PRP me))) (. .))"))] * 20
TOKENIZER = learn_tokenizer(LINES, TextConfig(kind="bpe", vocabulary_size=283))


def test_a_tokenizer_knows_its_brackets_and_the_pieces_of_words() -> None:
    leaves = TreeConstraintEncoder(TOKENIZER).encode(["the", "cats", "(NP"])
    assert leaves
    pieces = TOKENIZER.pieces(leaves.pieces)
    assert "".join(pieces) == "▁the▁cats▁(NP"
    assert [pieces[start][0] for start in sorted(leaves.begins) if start < len(pieces)] == ["▁"] * 3
    shown = {"".join(TOKENIZER.pieces(both)) for both in leaves.brackets.items()}
    assert {"▁ᐸNP▁ᐳNP", "▁ᐸVP▁ᐳVP", "▁ᐸS▁ᐳS"} <= shown


def test_without_distinct_brackets_there_is_no_tree_constraint() -> None:
    assert TreeConstraintEncoder(TOKENIZER).encode(["the", "ᐸNP"]) is None
    assert (
        TreeConstraintEncoder(learn_tokenizer(["no brackets here"], TextConfig(kind="characters"))).encode(["no"])
        is None
    )


def test_a_word_that_looks_like_a_bracket_is_still_a_word() -> None:
    tree = read_tree("(S (NP (X ᐸVP)) (VP (X -LRB-)))")
    words = tree.texts()
    assert remove_words(words, linearise_with_words(tree).split()) == linearise(tree).split()
    assert build_tree(words, remove_words(words, ["ᐸS", "quite", "wrong", "ᐳS"])) == build_tree(
        words, ["(S", "XX", "XX", ")S"]
    )

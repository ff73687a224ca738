"""Labelled brackets: EVALB's rules, on cases worked out by hand."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_examples import labels, trees

from heedful.errors import DataError
from heedful.metrics import Score
from heedful.metrics.brackets import BracketCounts, Parse, count_brackets, score_brackets
from heedful.text.trees import Tree, build_tree, read_tree, write_tree

GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .)))"


def parse(tree: Tree | str) -> Parse:
    tree = read_tree(tree) if isinstance(tree, str) else tree
    return Parse(tuple(tree.brackets()), tree.tags())


def count(found: str, gold: str) -> BracketCounts:
    return count_brackets(parse(found), parse(gold))


def by_name(found: list[str], gold: list[str], resamples: int = 1) -> dict[str, Score]:
    scores = score_brackets(list(map(parse, found)), list(map(parse, gold)), resamples)
    return {score.metric: score for score in scores}


@settings(deadline=None)
@given(trees)
def test_a_tree_is_a_perfect_parse_of_itself(tree: Tree) -> None:
    counts = count_brackets(parse(tree), parse(tree))
    assert counts.matched == counts.found == counts.wanted
    assert counts.crossing == 0
    assert counts.right_tags == counts.words
    assert counts.complete == counts.sentences


@settings(deadline=None)
@given(trees, st.lists(st.one_of(labels.map("({}".format), labels.map("){}".format), st.just("XX")), max_size=30))
def test_swapping_sides_swaps_precision_and_recall(tree: Tree, symbols: list[str]) -> None:
    other = build_tree(tree.texts(), symbols)
    assert other is not None
    ours = Parse(tuple(other.brackets()), tree.tags())
    there, back = count_brackets(ours, parse(tree)), count_brackets(parse(tree), ours)
    assert (there.matched, there.found, there.wanted) == (back.matched, back.wanted, back.found)
    assert 0 <= there.matched <= min(there.found, there.wanted)
    assert (
        there.crossing <= there.found - there.matched
    )  # a bracket that matches one of a tree crosses none of its brackets


@settings(deadline=None)
@given(trees)
def test_a_bracket_around_everything_adds_one_to_both_sides(tree: Tree) -> None:
    around = Tree(tree.label, (Tree("S", tree.children),))
    before, after = count_brackets(parse(tree), parse(tree)), count_brackets(parse(around), parse(around))
    assert after.found == before.found + before.sentences
    assert after.matched == before.matched + before.sentences


def test_precision_recall_and_f1_match_a_calculation_by_hand() -> None:
    # Gold: S(0,6) NP(0,2) VP(2,6) PP(3,6) NP(4,6). Found: S NP VP(2,4) PP(3,4), NP(4,6): three of five match, each way;
    # VP(2,4) crosses PP(3,6).
    found = "(S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on))) (NP (DT the) (NNP mat)) (. .))"
    assert count(found, GOLD) == BracketCounts(3, 5, 5, 1, 5, 6, 0, 1)
    scores = by_name([found, GOLD], [GOLD, GOLD])
    assert scores["precision"].value == scores["recall"].value == scores["F1"].value == pytest.approx(80)
    assert scores["complete"].value == pytest.approx(50)
    assert scores["crossing"].value == pytest.approx(0.5)
    assert scores["tags"].value == pytest.approx(100 * 11 / 12)


def test_a_flat_parse_has_precision_but_little_recall() -> None:
    flat = "(S (DT the) (NN cat) (VBD sat) (IN on) (DT the) (NN mat) (. .))"
    scores = by_name([flat], [GOLD])
    assert scores["precision"].value == pytest.approx(100)
    assert scores["recall"].value == pytest.approx(20)
    assert scores["F1"].value == pytest.approx(100 / 3)


def test_scores_are_computed_from_sums_over_the_corpus() -> None:
    # 1 of 1 bracket, and 0 of 4: 1/5, where the mean of the sentences would be 1/2.
    small, long = "(X (A a))", "(X (Y (A a) (A b)) (Z (A c) (Z (A d))))"
    wrong = "(Q (Q (A a) (A b)) (Q (A c) (Q (A d))))"
    assert by_name([small, wrong], [small, long])["F1"].value == pytest.approx(20)


def test_the_attachment_of_punctuation_does_not_matter() -> None:
    inside = "(S (NP (NN a) (, ,)) (VP (V b) (. .)))"
    outside = "(S (NP (NN a)) (, ,) (VP (V b)) (. .))"
    assert count(inside, outside) == BracketCounts(3, 3, 3, 0, 2, 2, 1, 1)


@pytest.mark.parametrize("tag", [",", ":", "``", "''", "."])
def test_these_tags_are_punctuation(tag: str) -> None:
    assert count(f"(S (NP (NN a)) (VP (V b) ({tag} x)))", f"(S (NP (NN a) ({tag} x)) (VP (V b)))").matched == 3


@pytest.mark.parametrize("tag", ["-LRB-", "$", "#", "NN", '"'])
def test_these_tags_are_not_punctuation(tag: str) -> None:
    assert count(f"(S (NP (NN a)) (VP ({tag} x) (V b)))", f"(S (NP (NN a) ({tag} x)) (VP (V b)))").matched == 1


def test_the_tags_of_the_reference_decide_what_is_punctuation() -> None:
    found = "(S (NP (XX a)) (VP (XX b) (XX .)))"  # the output of a parser that writes no tags
    assert count(found, "(S (NP (NN a)) (VP (V b)) (. .))").complete == 1


def test_a_bracket_of_punctuation_alone_does_not_count() -> None:
    assert count("(S (NN a) (PRN (, ,) (: --)))", "(S (NN a) (, ,) (: --))") == BracketCounts(1, 1, 1, 0, 1, 1, 1, 1)


def test_advp_and_prt_count_as_the_same_label() -> None:
    assert count("(VP (V go) (PRT (RP up)))", "(VP (V go) (ADVP (RP up)))").complete == 1
    assert count("(VP (V go) (PP (RP up)))", "(VP (V go) (ADVP (RP up)))").complete == 0


def test_top_and_function_tags_do_not_count() -> None:
    ours = Parse((("TOP", 0, 2), ("NP-SBJ", 0, 2)), ("NN", "NN"))
    right = Parse((("NP=1", 0, 2),), ("NN", "NN"))
    assert count_brackets(ours, right) == BracketCounts(1, 1, 1, 0, 2, 2, 1, 1)


def test_repeated_brackets_match_as_often_as_both_sides_have_them() -> None:
    # EVALB's README, section 7: n in the gold file and m in the other.
    assert count("(NP (NP (NP (NN a))))", "(NP (NN a))") == BracketCounts(1, 3, 1, 0, 1, 1, 0, 1)
    assert count("(NP (NN a))", "(NP (NP (NN a)))") == BracketCounts(1, 1, 2, 0, 1, 1, 0, 1)


def test_a_bracket_that_crosses_several_others_counts_once() -> None:
    gold = "(S (A (N a) (N b)) (B (C (N c) (N d)) (N e)))"  # C(2,4), A(0,2), B(2,5)
    found = "(S (N a) (X (N b) (N c)) (N d) (N e))"  # X(1,3) crosses A, B and C
    assert count(found, gold).crossing == 1


def test_brackets_can_cross_on_either_side() -> None:
    left, right = "(S (A (N a) (N b)) (N c))", "(S (N a) (B (N b) (N c)))"
    assert count(left, right).crossing == count(right, left).crossing == 1


def test_a_sentence_of_punctuation_alone_is_left_out() -> None:
    assert count("(S (. !))", "(NP (. !))").sentences == 0
    assert by_name(["(S (. !))", GOLD], ["(NP (. !))", GOLD])["F1"].value == pytest.approx(100)


def test_a_sentence_without_brackets_is_complete_if_none_are_found() -> None:
    assert by_name(["(NN a)"], ["(TOP (NN a))"])["F1"].value == pytest.approx(100)
    assert by_name(["(NP (NN a))"], ["(NN a)"])["F1"].value == 0


def test_tags_are_scored_only_if_they_are_known() -> None:
    right = parse(GOLD)
    assert [score.metric for score in score_brackets([Parse(right.brackets, ())], [right], 1)] == [
        *("F1", "precision", "recall", "complete", "crossing")
    ]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=2, max_size=9))
def test_a_score_lies_in_its_interval_and_is_the_same_each_time(right: list[bool]) -> None:
    wrong = "(X (DT the) (NN cat) (VBD sat) (IN on) (DT the) (NN mat) (. .))"
    found = [GOLD if good else wrong for good in right]
    scores = by_name(found, [GOLD] * len(found), resamples=40)
    assert all(0 <= score.low <= score.value <= score.high <= 100 for score in scores.values())
    assert scores == by_name(found, [GOLD] * len(found), resamples=40)


def test_an_interval_of_mixed_sentences_has_a_width_and_a_signature() -> None:
    wrong = "(X (DT the) (NN cat) (VBD sat) (IN on) (DT the) (NN mat) (. .))"
    f1 = by_name([GOLD, wrong] * 20, [GOLD] * 40, resamples=200)["F1"]
    assert f1.low < f1.value - 5 < f1.value + 5 < f1.high
    assert f1.signature == "bs:200|seed:12345|evalb:COLLINS.prm|labelled|punctuation:by-reference-tags|lengths:all"


def test_inputs_that_cannot_be_scored_are_refused() -> None:
    with pytest.raises(DataError, match="1 tree but 2 references; they must pair up"):
        by_name([GOLD], [GOLD, GOLD])
    with pytest.raises(DataError, match="there are no trees to score; the test set has no words"):
        by_name([], [])


def test_nltk_counts_the_same_spans(shared_data: Path) -> None:
    nltk = pytest.importorskip("nltk", reason="needs nltk to compare with")
    from heedful.data.pairs import read_lines
    from heedful.text.trees import read_trees

    path = shared_data / "treebank-wsj-sample" / "wsj_0004.mrg"
    for tree in read_trees(read_lines(path), str(path)):
        theirs = nltk.Tree.fromstring(write_tree(tree))
        spans = []
        for place in theirs.treepositions("preorder"):
            node = theirs[place]
            if isinstance(node, nltk.Tree) and node.height() > 2:
                before = sum(1 for leaf in theirs.treepositions("leaves") if leaf < place)
                spans.append((node.label(), before, before + len(node.leaves())))
        assert tree.brackets() == spans

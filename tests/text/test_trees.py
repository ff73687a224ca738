"""Read, write, linearise, repair and draw trees."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_examples import labels, trees

from heedful.data.pairs import read_lines
from heedful.errors import DataError
from heedful.text.tree_svg import tree_svg
from heedful.text.trees import (
    DEEPEST,
    TOP,
    Tree,
    Word,
    build_tree,
    linearise,
    read_tree,
    read_trees,
    remove_tags,
    write_tree,
)

words = st.lists(st.text("ab()*-.0é木", min_size=1, max_size=5), max_size=7)
# As a model writes them, and worse: labels that cannot be, brackets inside, no label, TOP and traces.
symbols = st.lists(
    st.one_of(
        labels.map("({}".format),
        labels.map("){}".format),
        st.just("XX"),
        st.sampled_from(
            ["(", ")", "((", "(NP)", "(TOP", ")TOP", "(NP-SBJ", "(-NONE-", "(CODE", "word", "", "( x", "()"]
        ),
        st.text(max_size=4),
    ),
    max_size=40,
)


def phrases(tree: Tree) -> Iterator[Tree]:
    yield tree
    for child in tree.children:
        if isinstance(child, Tree):
            yield from phrases(child)


@settings(deadline=None)
@given(trees)
def test_a_written_tree_is_read_again(tree: Tree) -> None:
    assert read_tree(write_tree(tree)) == tree


@settings(deadline=None)
@given(st.lists(trees, max_size=4), st.sampled_from([" ", "\n", "\n\t "]))
def test_trees_may_be_broken_into_lines_anywhere(several: list[Tree], space: str) -> None:
    text = "\n".join(write_tree(tree).replace(" ", space) for tree in several)
    assert list(read_trees(text.split("\n"), "file")) == several


@settings(deadline=None)
@given(trees)
def test_a_linear_form_and_its_words_give_the_tree_without_tags(tree: Tree) -> None:
    assert build_tree(tree.texts(), linearise(tree).split()) == remove_tags(tree)
    assert build_tree(tree.texts(), linearise(tree, tags=True).split()) == tree


@settings(deadline=None, max_examples=400)
@given(words, symbols)
def test_any_symbols_give_a_sound_tree_over_exactly_the_words(sentence: list[str], sequence: list[str]) -> None:
    tree = build_tree(sentence, sequence)
    if tree is None:
        assert not sentence
        return
    assert tree.texts() == tuple(sentence)
    assert tree.label == TOP
    assert all(phrase.children for phrase in phrases(tree))
    assert read_tree(write_tree(tree)) == tree


@settings(deadline=None)
@given(trees, st.data())
def test_a_linear_form_that_breaks_off_keeps_the_brackets_that_were_closed(tree: Tree, data: st.DataObject) -> None:
    whole = linearise(tree).split()
    cut = data.draw(st.integers(0, len(whole)))
    found = build_tree(tree.texts(), whole[:cut])
    assert found is not None
    closed = sum(symbol.startswith(")") for symbol in whole[:cut])
    # All but the last phrase, which the rest of the words may be put into, are where they were.
    kept = set(found.brackets()) & set(tree.brackets())
    assert len(kept) >= len(set(_closed(tree, closed))) - 1


def _closed(tree: Tree, count: int) -> list[tuple[str, int, int]]:
    """The first brackets that a linear form closes."""
    ordered: list[tuple[str, int, int]] = []

    def walk(node: Tree, start: int) -> int:
        end = start
        for child in node.children:
            end = end + 1 if isinstance(child, Word) else walk(child, end)
        ordered.append((node.label, start, end))
        return end

    walk(tree, 0)
    return ordered[:count]


def test_the_linear_form_is_that_of_vinyals() -> None:
    tree = read_tree("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    assert linearise(tree) == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"
    assert linearise(tree, tags=True) == "(S (NP NNP )NP (VP VBZ (NP DT NN )NP )VP . )S"


@pytest.mark.parametrize(
    ("sequence", "mended"),
    [
        ("(S (NP XX )NP (VP XX XX )VP )S", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),
        ("(S (NP XX )NP (VP XX XX", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),  # broken off
        ("(S (NP XX )NP (VP XX", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),  # and a word short
        ("(S (NP XX )NP (VP XX )VP )S", "(TOP (S (NP (XX a)) (VP (XX b)) (XX c)))"),  # a word short
        ("(S (NP XX )VP (VP XX XX )VP )S", "(TOP (S (NP (XX a)) (VP (XX b) (XX c))))"),  # a wrong label
        ("(S (NP XX (VP XX XX )S", "(TOP (S (NP (XX a) (VP (XX b) (XX c)))))"),  # two not closed
        ("(S (NP XX XX XX XX )NP (VP XX )VP )S", "(TOP (S (NP (XX a) (XX b) (XX c))))"),  # words too many
        ("XX )NP )S XX", "(TOP (XX a) (XX b) (XX c))"),
        ("(NP XX )NP (VP XX XX )VP", "(TOP (NP (XX a)) (VP (XX b) (XX c)))"),
        ("", "(TOP (XX a) (XX b) (XX c))"),
    ],
)
def test_malformed_output_is_mended(sequence: str, mended: str) -> None:
    tree = build_tree(["a", "b", "c"], sequence.split())
    assert tree is not None
    assert write_tree(tree) == mended


def test_endless_opening_brackets_are_bounded() -> None:
    tree = build_tree(["a"], ["(NP"] * 9000 + ["XX"])
    assert tree is not None
    assert read_tree(write_tree(tree)) == tree
    assert DEEPEST - 3 < len(tree.brackets()) <= DEEPEST


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("( (S (NP-SBJ-1 (PRP I)) (VP (VBP see))))", "(TOP (S (NP (PRP I)) (VP (VBP see))))"),
        ("(ROOT (S (NP=2 (PRP I))))", "(TOP (S (NP (PRP I))))"),
        ("(S1 (S (ADVP|PRT (RB up))))", "(TOP (S (ADVP (RB up))))"),
        ("((S (NP (-NONE- *T*-1)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *))))))", "(TOP (S (VP (VB go))))"),
        (
            "(S (PRN (-LRB- -LRB-) (NP-TMP (CD 1\\/2)) (-RRB- -RRB-)))",
            "(TOP (S (PRN (-LRB- -LRB-) (NP (CD 1/2)) (-RRB- -RRB-))))",
        ),
        ("(NP the dog)", "(TOP (NP (XX the) (XX dog)))"),  # without tags
        ("( (NP (NN a)) (. .))", "(TOP (NP (NN a)) (. .))"),  # two at the top
        ("(NP (CD 0) (SYM *))", "(TOP (NP (CD 0) (SYM *)))"),  # words that only look like traces
    ],
)
def test_trees_are_normalised(written: str, plain: str) -> None:
    assert write_tree(read_tree(written)) == plain


def test_escaped_brackets_inside_words_become_characters() -> None:
    assert read_tree("(NP (-LRB- -LRB-) (NN :-RRB-) (-LCB- -LCB-))").texts() == ("(", ":)", "{")


def test_icepahc_has_lemmas_remarks_and_traces_for_words() -> None:
    text = """( (IP-MAT (CODE <P_1>) (NP-SBJ (D-N $nar-hinn) (WNP-1 0)) (VBPI er-vera) (NP *T*-1) (CP (C *con*))
      (NPR Efra<dash/>Fossi-efrifoss) (NUM 0-0) (, ---) (. .-.)) (ID 1150.X,.1))
    ( (CODE {COM:nothing_else})  (ID 1150.X,.2))
    ( (. ?-?))"""
    first, second = read_trees(text.split("\n"), "file")
    assert first.texts() == ("$nar", "er", "Efra-Fossi", "0", "-", ".")
    assert linearise(first) == "(IP (NP XX )NP XX XX XX XX XX )IP"
    assert second == Tree(TOP, (Word(".", "?"),))


def test_headers_and_comments_between_trees_are_skipped() -> None:
    lines = ["*x*x*x*x*", "%% (c) by somebody (here)", "(NP (NN a)", "  (NN b))", "", "; more", "(NP (NN c))"]
    assert [tree.texts() for tree in read_trees(lines, "file")] == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["", "(S (NP (NN a))"], "f.mrg, line 2: the tree that begins here lacks 1 closing brackets"),
        (["(NP (NN a)))"], "f.mrg, line 1: ')' is outside of all trees; is there a closing bracket too many?"),
        (["(NP (NN a)) b"], "f.mrg, line 1: 'b' is outside of all trees; is there a closing bracket too many?"),
        (["(" * 201], "f.mrg, line 1: more than 200 nested brackets; is a closing bracket missing?"),
    ],
)
def test_each_mistake_in_a_file_is_named(lines: list[str], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_trees(lines, "f.mrg"))
    assert str(caught.value) == sentence


def test_a_text_that_is_not_one_tree_is_refused() -> None:
    with pytest.raises(DataError, match=r"output 3 must be one tree in brackets, but has 2: '\(A a\) \(B b\)'"):
        read_tree("(A a) (B b)", "output 3")


def test_brackets_are_spans_of_words() -> None:
    tree = read_tree("(S (NP (DT a) (NN b)) (VP (V c)))")
    assert tree.brackets() == [("TOP", 0, 3), ("S", 0, 3), ("NP", 0, 2), ("VP", 2, 3)]
    assert tree.tags() == ("DT", "NN", "V")


@settings(deadline=None)
@given(trees)
def test_a_picture_is_xml_that_contains_every_label_and_word(tree: Tree) -> None:
    picture = ElementTree.fromstring(tree_svg(tree))
    texts = [element for element in picture.iter() if element.tag.endswith("text")]
    wanted = [phrase.label for phrase in phrases(tree)] + list(tree.texts()) + list(tree.tags())
    assert sorted(element.text or "" for element in texts) == sorted(wanted)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert all(0 < float(e.attrib["x"]) < width and 0 < float(e.attrib["y"]) < height for e in texts)


@settings(deadline=None)
@given(trees)
def test_a_picture_shows_the_words_in_order(tree: Tree) -> None:
    picture = ElementTree.fromstring(tree_svg(remove_tags(tree)))
    blue = [e for e in picture.iter() if e.attrib.get("fill") == "#06c"]
    assert [e.text for e in blue] == list(tree.texts())
    places = [float(e.attrib["x"]) for e in blue]
    assert places == sorted(set(places))


def test_a_picture_escapes_markup() -> None:
    shown = tree_svg(Tree(TOP, (Word("<b>", "</svg>&\x00\ud800"),)))
    assert "&lt;b&gt;" in shown
    assert "&lt;/svg&gt;&amp;\ufffd\ufffd" in shown


@pytest.mark.parametrize("pattern", ["treebank-wsj-sample/*.mrg", "icepahc/*.psd.gz"])
def test_real_treebanks_round_trip(shared_data: Path, pattern: str) -> None:
    files = sorted(shared_data.glob(pattern))[::20]  # all of them take minutes
    some = [tree for path in files for tree in islice(read_trees(read_lines(path), str(path)), 150)]
    assert len(some) > 100
    for tree in some:
        assert read_tree(write_tree(tree)) == tree
        assert build_tree(tree.texts(), linearise(tree).split()) == remove_tags(tree)


@pytest.mark.slow
def test_all_trees_of_the_wsj_sample_are_read(shared_data: Path) -> None:
    files = sorted((shared_data / "treebank-wsj-sample").glob("*.mrg"))
    assert sum(1 for path in files for _ in read_trees(read_lines(path), str(path))) == 3914


def test_nltk_reads_the_same_brackets(shared_data: Path) -> None:
    nltk = pytest.importorskip("nltk", reason="needs nltk to compare with")
    path = shared_data / "treebank-wsj-sample" / "wsj_0003.mrg"
    ours = list(read_trees(read_lines(path), str(path)))
    theirs = [nltk.Tree.fromstring(write_tree(tree)) for tree in ours]
    assert [list(tree.leaves()) for tree in theirs] == [
        [text.replace("(", "-LRB-").replace(")", "-RRB-") for text in tree.texts()] for tree in ours
    ]
    assert [[t.label() for t in tree.subtrees(lambda t: t.height() > 2)] for tree in theirs] == [
        [phrase.label for phrase in phrases(tree)] for tree in ours
    ]

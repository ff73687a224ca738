"""`heedful translate --draw`: the tree of a sentence as a picture."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import toy

from heedful.text.tree_svg import tree_svg
from heedful.text.trees import read_tree

TREES = ["(S (NP (DT the) (NN cat)) (VP (VBZ sees) (NP (PRP me))) (. .))", "(S (NP (PRP I)) (VP (VBP see)))"]
TEXT = "the cat sees a (strange) dog ."


def trained(folder: Path, *files: object) -> Path:
    few = ("train.max_steps=1", "train.batch_tokens=64", "train.warmup_steps=1", "data.hold_out=0")
    separate = ("text.vocabularies=separate", "model.sharing=target")
    with toy.plain_log():
        ran = toy.run("train", *files, "--out", folder / "run", *toy.settings(*few, *separate))
    assert ran.code == 0, ran.err
    return folder / "run"


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parser")
    return trained(folder, "--source", toy.write_lines(folder / "train", TREES * 4), "--set", "task=parsing")


def blue(picture: str) -> list[str]:
    """The words of a picture."""
    return [e.text or "" for e in ElementTree.fromstring(picture).iter() if e.attrib.get("fill") == "#06c"]


def test_the_tree_is_printed_and_drawn_over_the_words_that_were_given(parser: Path, tmp_path: Path) -> None:
    ran = toy.run("translate", parser, TEXT, "--draw", tmp_path / "tree.svg")
    assert ran.code == 0, ran.err
    picture = (tmp_path / "tree.svg").read_text(encoding="utf-8")
    assert picture == tree_svg(read_tree(ran.lines[0]))
    assert blue(picture) == TEXT.split()
    assert [path.name for path in tmp_path.iterdir()] == ["tree.svg"]


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["a b", "c"], "--draw draws the tree of one text, but there are 2; give one"),
        ([" "], "--draw draws the tree of a text, but the text is empty; give a sentence"),
    ],
)
def test_not_one_sentence_is_refused(parser: Path, tmp_path: Path, texts: list[str], sentence: str) -> None:
    ran = toy.run("translate", parser, *texts, "--draw", tmp_path / "tree.svg")
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err
    assert not list(tmp_path.iterdir())


def test_a_translation_has_no_tree(tmp_path: Path) -> None:
    source, target = toy.write_pairs(tmp_path, "train", 8, 1)
    run = trained(tmp_path, "--source", source, "--target", target)
    ran = toy.run("translate", run, "a", "--draw", tmp_path / "tree.svg")
    assert (ran.code, ran.out) == (2, "")
    assert f"--draw draws parse trees, but {run} is a model for translation" in ran.err
    assert not (tmp_path / "tree.svg").exists()


def test_a_folder_that_is_not_there_is_told_before_the_model_is_read(tmp_path: Path) -> None:
    ran = toy.run("translate", tmp_path, "a", "--draw", tmp_path / "no" / "tree.svg")
    assert ran.code == 2
    assert f"--draw {tmp_path / 'no' / 'tree.svg'}: there is no folder {tmp_path / 'no'}" in ran.err


def places(picture: str) -> dict[str, tuple[float, float]]:
    texts = (e for e in ElementTree.fromstring(picture).iter() if e.tag.endswith("text"))
    return {e.text or "": (float(e.attrib["x"]), float(e.attrib["y"])) for e in texts}


def test_words_stand_in_one_row_and_phrases_over_the_middle_of_their_children() -> None:
    at = places(tree_svg(read_tree("(S (NP (A a) (B bbbbbbbb)) (VP (C c) (PP (D dddd) (ADVP (E e)))) (F f))")))
    words = ("a", "bbbbbbbb", "c", "dddd", "e", "f")
    assert {at[word][1] for word in words} == {max(y for _, y in at.values())}
    assert at["NP"][0] == pytest.approx((at["A"][0] + at["B"][0]) / 2, abs=0.01)
    assert at["S"][0] == pytest.approx((at["NP"][0] + at["F"][0]) / 2, abs=0.01)


def test_words_in_capitals_have_more_room() -> None:
    def gap(word: str) -> float:
        at = places(tree_svg(read_tree(f"(S (A {word}) (B x))")))
        return at["x"][0] - at[word][0]

    assert gap("MMMM") > gap("ABCD") > gap("abcd") > gap("illi")


def test_a_name_of_another_kind_of_picture_is_refused(parser: Path, tmp_path: Path) -> None:
    ran = toy.run("translate", parser, TEXT, "--draw", tmp_path / "tree.png")
    assert ran.code == 2
    assert "tree.png: the picture is an SVG; give the file a name that ends in .svg" in ran.err
    assert not (tmp_path / "tree.png").exists()

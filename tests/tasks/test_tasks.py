"""Tasks beside translation: what their files hold, what a model sees of it, and what comes back."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_examples import trees

from heedful.config.experiment import DataConfig, Task
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, DataError
from heedful.tasks.choose import (
    Question,
    finish,
    questions,
    quick_score,
    read_pairs,
    read_validation,
    scores,
    source_symbols,
    symbols,
    target_symbols,
    writes_trees,
)
from heedful.text.linearisation import untagged
from heedful.text.trees import Tree, read_tree, write_tree

TASKS: tuple[Task, ...] = get_args(Task)
TREE = "(TOP (S (NP (PRP I)) (VP (VBP see)) (. .)))"
ANSWERS: dict[Task, tuple[str, str]] = {
    "translation": ("I see a cat .", "Ich sehe eine Katze ."),
    "parsing": ("I see .", TREE),
    "tagged-parsing": ("I see .", TREE),
    "lexical-parsing": ("I see .", TREE),
    "pronunciation": ("CAT", "K AE T"),
    "characters": ("gehen\tV;PST", "ging fort"),
    "copy": ("a b c", "a b c"),
    "reverse": ("a b c", "c b a"),
}
lines = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="␣") | st.just(" "), max_size=12)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(task: Task, path: Path, text: str) -> list[Pair]:
    return list(read_pairs(task, DataConfig(source=(written(path, text),))))


@settings(deadline=None)
@given(trees)
def test_what_a_parser_should_write_is_finished_to_the_tree(tree: Tree) -> None:
    line = write_tree(tree)
    output = target_symbols("parsing", line)
    assert finish("parsing", " ".join(tree.texts()), output) == write_tree(untagged(tree))
    tagged = target_symbols("tagged-parsing", line)
    assert finish("tagged-parsing", " ".join(tree.texts()), tagged) == line
    lexical = target_symbols("lexical-parsing", line)
    assert finish("lexical-parsing", " ".join(tree.texts()), lexical) == write_tree(untagged(tree))


@settings(deadline=None)
@given(lines)
def test_characters_come_back_from_their_symbols(text: str) -> None:
    assert finish("characters", "x", target_symbols("characters", text)) == text
    assert len(source_symbols("pronunciation", text).split()) == len(text)


@settings(deadline=None)
@given(st.sampled_from(TASKS), lines, lines)
def test_any_output_is_finished_once_and_for_all(task: Task, source: str, output: str) -> None:
    done = finish(task, source, output)
    assert "\n" not in done
    if writes_trees(task):
        assert not source.split() or len(read_tree(done).texts()) == len(source.split())
    elif task != "characters":
        assert finish(task, source, done) == done


@pytest.mark.parametrize("task", TASKS)
def test_the_right_answer_is_perfect_in_every_task(task: Task) -> None:
    source, target = ANSWERS[task]
    outputs = [finish(task, source, target_symbols(task, target))] * 3
    references = [[target]] * 3
    assert quick_score(task, outputs, references, "none") == pytest.approx(100)
    found = {score.metric: score.value for score in scores(task, outputs, references, "none", "en", resamples=5)}
    errors = {"TER", "WER", "PER", "CER", "token errors", "crossing"}
    assert found
    assert found == pytest.approx({name: 0 if name in errors else 100 for name in found})


@pytest.mark.parametrize("task", TASKS)
def test_a_wrong_answer_is_worse_than_the_right_one(task: Task) -> None:
    source, target = ANSWERS[task]
    assert quick_score(task, [finish(task, source, "(X Q )X")], [[target]], "none") < 90


@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        ("translation", ["BLEU", "chrF", "TER", "BLEU (paper)"]),
        ("parsing", ["F1", "precision", "recall", "complete", "crossing"]),
        ("tagged-parsing", ["F1", "precision", "recall", "complete", "crossing", "tags"]),
        ("lexical-parsing", ["F1", "precision", "recall", "complete", "crossing"]),
        ("pronunciation", ["WER", "PER"]),
        ("characters", ["accuracy", "CER"]),
        ("copy", ["accuracy", "token errors"]),
        ("reverse", ["accuracy", "token errors"]),
    ],
)
def test_each_task_has_its_metrics(task: Task, metrics: list[str]) -> None:
    source, target = ANSWERS[task]
    output = finish(task, source, target_symbols(task, target))
    assert [score.metric for score in scores(task, [output], [[target]], "none", "en", 2)] == metrics


def test_a_file_of_trees_gives_words_and_trees(tmp_path: Path) -> None:
    text = "( (S (NP-SBJ (PRP I))\n (VP (VBP see) (NP (-NONE- *T*)))\n (. .)))\n( (NP (-LRB- -LRB-)))\n"
    pairs = read("parsing", tmp_path / "a.mrg", text)
    assert pairs == [Pair("I see .", TREE), Pair("(", "(TOP (NP (-LRB- -LRB-)))")]
    assert symbols("parsing", pairs[0]) == Pair("I see .", "(S (NP XX )NP (VP XX )VP XX )S")


def test_dictionaries_are_read_with_tabs_and_as_cmudict(tmp_path: Path) -> None:
    assert read("pronunciation", tmp_path / "a.tsv", "ad hoc\tæ d  h ɑ k\n\n(1)\tw ʌ n\nREAD(1)\tR IY D\n") == [
        Pair("ad hoc", "æ d h ɑ k"),
        Pair("(1)", "w ʌ n"),
        Pair("READ", "R IY D"),
    ]
    cmudict = ";;; a comment\nREAD  R EH D\nREAD(1)  R IY D\naaronson's(2) AA1 R # from somewhere\n"
    assert read("pronunciation", tmp_path / "cmu", cmudict) == [
        Pair("READ", "R EH D"),
        Pair("READ", "R IY D"),
        Pair("aaronson's", "AA1 R"),
    ]


def test_a_word_with_several_pronunciations_is_one_question() -> None:
    pairs = [Pair("READ", "R EH D"), Pair("CAT", "K AE T"), Pair("READ", "R IY D")]
    asked = questions("pronunciation", pairs)
    assert asked == [Question("READ", ("R EH D", "R IY D")), Question("CAT", ("K AE T",))]
    assert scores("pronunciation", ["R IY D", "K AE T"], [q.references for q in asked], "none", "", 1)[0].value == 0
    assert len(questions("copy", pairs)) == 3


def test_inflections_have_features_that_are_symbols_of_their_own(tmp_path: Path) -> None:
    pairs = read("characters", tmp_path / "a.tsv", "gehen\tging\tV;PST\nMoskva\tМосква\n")
    assert pairs == [Pair("gehen\tV;PST", "ging"), Pair("Moskva", "Москва")]
    assert symbols("characters", pairs[0]) == Pair("g e h e n <V> <PST>", "g i n g")
    assert source_symbols("characters", "ad hoc") == "a d ␣ h o c"


def test_copies_and_reversals_are_made_of_plain_lines(tmp_path: Path) -> None:
    assert read("copy", tmp_path / "a", "a  b c\n") == [Pair("a  b c", "a b c")]
    assert read("reverse", tmp_path / "a", "a b c\n") == [Pair("a b c", "c b a")]


def test_parallel_files_do_as_well(tmp_path: Path) -> None:
    words, phonemes = written(tmp_path / "w", "CAT\n"), written(tmp_path / "p", "K AE T\n")
    table = written(tmp_path / "t", "DOG\tD AO G\n")
    data = DataConfig(
        source=(words,), target=(phonemes,), tsv=(table,), valid_source=(words,), valid_target=(phonemes,)
    )
    for task in ("translation", "pronunciation"):
        assert list(read_pairs(task, data)) == [Pair("CAT", "K AE T"), Pair("DOG", "D AO G")]
        assert list(read_validation(task, data)) == [Pair("CAT", "K AE T")]


@pytest.mark.parametrize(
    ("task", "text", "sentence"),
    [
        ("parsing", "no tree\n", "holds no tree; it must be in Penn brackets, such as"),
        ("parsing", "(S (NP\n", "line 1: the tree that begins here lacks 2 closing brackets"),
        ("pronunciation", "CAT  K AE T\nDOG\n", "line 2: 'DOG' must be a word, a tab and its phonemes"),
        ("pronunciation", "\tK AE T\n", "must be a word, a tab and its phonemes"),
        ("characters", "a\tb\tc\td\n", "line 1: a line must have 2 or 3 columns, but has 4"),
        ("copy", "", "is empty"),
    ],
)
def test_each_mistake_in_a_file_is_named(tmp_path: Path, task: Task, text: str, sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        read(task, tmp_path / "file", text)
    assert str(tmp_path / "file") in str(caught.value)
    assert sentence in str(caught.value)


def test_missing_files_are_named_before_anything_is_read(tmp_path: Path) -> None:
    first = written(tmp_path / "words.txt", "a b\n")
    with pytest.raises(DataError, match=r"there is no file .*word\.txt; did you mean 'words.txt'"):
        read_pairs("copy", DataConfig(source=(first, str(tmp_path / "word.txt"))))
    with pytest.raises(DataError, match=r"there is nothing to read; give data\.source"):
        read_pairs("copy", DataConfig())


def test_trees_have_no_second_file() -> None:
    with pytest.raises(ConfigError, match=r"holds words and brackets; leave the other file \(b\) out"):
        read_pairs("parsing", DataConfig(source=("a",), target=("b",)))


def test_trees_of_other_sentences_are_refused() -> None:
    with pytest.raises(DataError, match="tree 1 has 1 words but its reference 3; both must be of the same sentence"):
        scores("parsing", ["(NP (XX I))"], [[TREE]], "none", "", 1)
    with pytest.raises(DataError, match="there are 2 trees but 1 references; they must pair up"):
        scores("parsing", [TREE, TREE], [[TREE]], "none", "", 1)


def test_a_reference_without_tags_is_scored() -> None:
    tree, output = "(S (NP the cat) (VP sees (NP a dog)))", "(TOP (S (NP (XX the) (XX cat)) (XX sees) (XX a) (XX dog)))"
    found = scores("parsing", [output], [[tree]], "none", "", 1)
    assert {score.metric: round(score.value) for score in found} == {
        **{"F1": 67, "precision": 100, "recall": 50},
        **{"complete": 0, "crossing": 0},
    }


def test_translations_need_the_same_number_of_references_each() -> None:
    with pytest.raises(DataError, match="some sentences have more references than others"):
        quick_score("translation", ["a", "b"], [["a"], ["b", "c"]], "none")


def test_cmudict_is_read(shared_data: Path) -> None:
    pairs = list(read_pairs("pronunciation", DataConfig(source=(str(shared_data / "cmudict" / "test"),))))
    asked = questions("pronunciation", pairs)
    assert len(pairs) == 12855
    assert len(asked) == len({pair.source for pair in pairs}) == 11994
    assert max(Counter(len(question.references) for question in asked)) > 1
    firsts = [question.references[-1] for question in asked]
    assert scores("pronunciation", firsts, [q.references for q in asked], "none", "", 1)[0].value == 0


def test_sigmorphon_is_read(shared_data: Path) -> None:
    path = shared_data / "sigmorphon2021" / "fre_dev.tsv"
    pairs = list(read_pairs("pronunciation", DataConfig(source=(str(path),))))
    assert len(pairs) == 1000
    assert symbols("pronunciation", pairs[1]) == Pair("a b s e n c e", "a p s ɑ̃ s")


def test_real_trees_are_perfect_parses_of_themselves(shared_data: Path) -> None:
    path = shared_data / "treebank-wsj-sample" / "wsj_0003.mrg"
    pairs = list(read_pairs("parsing", DataConfig(source=(str(path),))))
    outputs = [finish("parsing", pair.source, target_symbols("parsing", pair.target)) for pair in pairs]
    assert len(pairs) > 20
    assert quick_score("parsing", outputs, [[pair.target] for pair in pairs], "none") == 100

"""Tasks: reading their files, making symbols for the model, and finishing and scoring outputs."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_examples import trees

from heedful.config.experiment import DataConfig
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, DataError
from heedful.tasks import TASKS, Question, ScoringOptions, Task, find_task, make_experiment
from heedful.text.trees import Tree, read_tree, remove_tags, write_tree

TREE = "(TOP (S (NP (PRP I)) (VP (VBP see)) (. .)))"
ANSWERS: dict[str, tuple[str, str]] = {
    "translation": ("I see a cat .", "Ich sehe eine Katze ."),
    "parsing": ("I see .", TREE),
    "tagged-parsing": ("I see .", TREE),
    "lexical-parsing": ("I see .", TREE),
    "pronunciation": ("CAT", "K AE T"),
    "characters": ("gehen\tV;PST", "ging fort"),
    "completion": ("Once upon", "a time"),
    "denoising": ("Once <extra_id_0> a time", "<extra_id_0> upon"),
    "classification": ("a good film", "good"),
    "tagging": ("run", "VERB"),
    "masked": ("a [MASK] film", "good"),
    "embedding": ("a film", "a vector"),
    "pictures": ("cat.png", "cat"),
    "copy": ("a b c", "a b c"),
    "reverse": ("a b c", "c b a"),
}
ONCE = ScoringOptions("none", resamples=1)
lines = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"], exclude_characters="␣") | st.just(" "), max_size=12)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(task: str, path: Path, text: str) -> list[Pair]:
    return list(find_task(task).read_pairs(DataConfig(source=(written(path, text),))))


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_every_task_is_found_by_its_name(task: Task) -> None:
    assert find_task(task.name) is task
    assert make_experiment({"task": task.name}).task == task.name


def test_an_unknown_task_is_refused_with_a_list_of_tasks() -> None:
    with pytest.raises(ConfigError, match=r"must be one of translation, parsing, .*'parsin' instead; did .* 'parsing'"):
        find_task("parsin")
    with pytest.raises(ConfigError, match=r"task must be one of .*, but is '5' instead"):
        make_experiment({"task": 5})


def test_a_task_has_its_own_defaults_but_the_recipe_wins() -> None:
    parser, chosen = make_experiment({"task": "parsing"}), {"task": "parsing", "search": {"max_extra": 7}}
    assert (parser.data.max_length, parser.search.max_extra, parser.model.sharing) == (600, 300, "target")
    assert make_experiment(chosen).search.max_extra == make_experiment({}, chosen).search.max_extra == 7
    assert make_experiment({"task": "lexical-parsing"}).model.sharing == "all"


def test_two_kinds_of_tokenizers_cannot_share_a_vocabulary() -> None:
    joint = {"text": {"vocabularies": "joint"}}
    with pytest.raises(ConfigError, match=r"task is 'parsing', whose source \(bpe\) and target \(symbols\)"):
        make_experiment({"task": "parsing", **joint})
    both = {"task": "parsing", "text": {"vocabularies": "joint", "kind": "symbols"}}
    assert make_experiment(both).text.vocabularies == "joint"
    assert make_experiment({"task": "lexical-parsing", **joint}).text.vocabularies == "joint"


@settings(deadline=None)
@given(trees)
def test_the_target_of_a_parser_is_finished_to_its_tree(tree: Tree) -> None:
    line = write_tree(tree)
    output = find_task("parsing").target_symbols(line)
    assert find_task("parsing").finish(" ".join(tree.texts()), output) == write_tree(remove_tags(tree))
    tagged = find_task("tagged-parsing").target_symbols(line)
    assert find_task("tagged-parsing").finish(" ".join(tree.texts()), tagged) == line
    lexical = find_task("lexical-parsing").target_symbols(line)
    assert find_task("lexical-parsing").finish(" ".join(tree.texts()), lexical) == write_tree(remove_tags(tree))


@settings(deadline=None)
@given(lines)
def test_characters_come_back_from_their_symbols(text: str) -> None:
    assert find_task("characters").finish("x", find_task("characters").target_symbols(text)) == text
    assert len(find_task("pronunciation").source_symbols(text).split()) == len(text)


@settings(deadline=None)
@given(st.sampled_from(TASKS), lines, lines)
def test_finishing_an_output_twice_changes_nothing(task: Task, source: str, output: str) -> None:
    done = task.finish(source, output)
    assert "\n" not in done
    if task.writes_trees:
        assert not source.split() or len(read_tree(done).texts()) == len(source.split())
    elif task.name != "characters":
        assert task.finish(source, done) == done


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_the_correct_answer_is_perfect_in_every_task(task: Task) -> None:
    source, target = ANSWERS[task.name]
    outputs = [task.finish(source, task.target_symbols(target))] * 3
    references = [[target]] * 3
    assert task.quick_score(outputs, references, "none").value == pytest.approx(100)
    scores = task.score(outputs, references, ScoringOptions("none", "en", resamples=5))
    found = {score.metric: score.value for score in scores}
    errors = {"TER", "WER", "PER", "CER", "token errors", "crossing"}
    assert found
    assert found == pytest.approx({name: 0 if name in errors else 100 for name in found})


@pytest.mark.parametrize("task", TASKS, ids=[task.name for task in TASKS])
def test_a_wrong_answer_scores_lower_than_the_correct_one(task: Task) -> None:
    source, target = ANSWERS[task.name]
    assert task.quick_score([task.finish(source, "(X Q )X")], [[target]], "none").value < 90


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("translation", ["BLEU", "chrF", "TER", "BLEU (paper)"]),
        ("parsing", ["F1", "precision", "recall", "complete", "crossing"]),
        ("tagged-parsing", ["F1", "precision", "recall", "complete", "crossing", "tags"]),
        ("lexical-parsing", ["F1", "precision", "recall", "complete", "crossing"]),
        ("pronunciation", ["WER", "PER"]),
        ("characters", ["accuracy", "CER"]),
        ("completion", ["accuracy", "CER"]),
        ("copy", ["accuracy", "token errors"]),
        ("reverse", ["accuracy", "token errors"]),
    ],
)
def test_each_task_has_its_metrics(name: str, metrics: list[str]) -> None:
    task, (source, target) = find_task(name), ANSWERS[name]
    output = task.finish(source, task.target_symbols(target))
    scores = task.score([output], [[target]], ScoringOptions("none", "en", 2))
    assert [score.metric for score in scores] == metrics


def test_a_file_of_trees_gives_words_and_trees(tmp_path: Path) -> None:
    text = "( (S (NP-SBJ (PRP I))\n (VP (VBP see) (NP (-NONE- *T*)))\n (. .)))\n( (NP (-LRB- -LRB-)))\n"
    pairs = read("parsing", tmp_path / "a.mrg", text)
    assert pairs == [Pair("I see .", TREE), Pair("(", "(TOP (NP (-LRB- -LRB-)))")]
    assert find_task("parsing").symbols(pairs[0]) == Pair("I see .", "(S (NP XX )NP (VP XX )VP XX )S")


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
    asked = find_task("pronunciation").make_questions(pairs)
    assert asked == [Question("READ", ("R EH D", "R IY D")), Question("CAT", ("K AE T",))]
    assert find_task("pronunciation").score(["R IY D", "K AE T"], [q.references for q in asked], ONCE)[0].value == 0
    assert len(find_task("copy").make_questions(pairs)) == 3


def test_each_feature_of_an_inflection_is_one_symbol(tmp_path: Path) -> None:
    pairs = read("characters", tmp_path / "a.tsv", "gehen\tging\tV;PST\nMoskva\tМосква\n")
    assert pairs == [Pair("gehen\tV;PST", "ging"), Pair("Moskva", "Москва")]
    assert find_task("characters").symbols(pairs[0]) == Pair("g e h e n <V> <PST>", "g i n g")
    assert find_task("characters").source_symbols("ad hoc") == "a d ␣ h o c"


def test_copies_and_reversals_are_made_of_plain_lines(tmp_path: Path) -> None:
    assert read("copy", tmp_path / "a", "a  b c\n") == [Pair("a  b c", "a b c")]
    assert read("reverse", tmp_path / "a", "a b c\n") == [Pair("a b c", "c b a")]


def test_parallel_files_work_too(tmp_path: Path) -> None:
    words, phonemes = written(tmp_path / "w", "CAT\n"), written(tmp_path / "p", "K AE T\n")
    table = written(tmp_path / "t", "DOG\tD AO G\n")
    data = DataConfig(
        source=(words,), target=(phonemes,), tsv=(table,), valid_source=(words,), valid_target=(phonemes,)
    )
    for task in map(find_task, ("translation", "pronunciation")):
        assert list(task.read_pairs(data)) == [Pair("CAT", "K AE T"), Pair("DOG", "D AO G")]
        assert list(task.read_validation(data)) == [Pair("CAT", "K AE T")]


@pytest.mark.parametrize(
    ("task", "text", "sentence"),
    [
        ("parsing", "no tree\n", "has no trees; write them in Penn brackets, such as"),
        ("parsing", "(S (NP\n", "line 1: the tree that begins here lacks 2 closing brackets"),
        ("pronunciation", "CAT  K AE T\nDOG\n", "line 2: 'DOG' must be a word, a tab and its phonemes"),
        ("pronunciation", "\tK AE T\n", "must be a word, a tab and its phonemes"),
        ("characters", "a\tb\tc\td\n", "line 1: a line must have 2 or 3 columns, but has 4"),
        ("copy", "", "is empty"),
    ],
)
def test_each_mistake_in_a_file_is_named(tmp_path: Path, task: str, text: str, sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        read(task, tmp_path / "file", text)
    assert str(tmp_path / "file") in str(caught.value)
    assert sentence in str(caught.value)


def test_missing_files_are_named_before_anything_is_read(tmp_path: Path) -> None:
    first = written(tmp_path / "words.txt", "a b\n")
    with pytest.raises(DataError, match=r"there is no file .*word\.txt; did you mean 'words.txt'"):
        find_task("copy").read_pairs(DataConfig(source=(first, str(tmp_path / "word.txt"))))
    with pytest.raises(DataError, match=r"the recipe names no training text; set data\.source"):
        find_task("copy").read_pairs(DataConfig())


def test_trees_have_no_second_file() -> None:
    with pytest.raises(ConfigError, match=r"for parsing contain both sides, so b has no use; leave out"):
        find_task("parsing").read_pairs(DataConfig(source=("a",), target=("b",)))


def test_trees_of_different_sentences_are_refused() -> None:
    with pytest.raises(DataError, match="tree 1 has 1 word, but its reference has 3; both must be trees of the same"):
        find_task("parsing").score(["(NP (XX I))"], [[TREE]], ONCE)
    with pytest.raises(DataError, match="2 trees but 1 reference; they must pair up"):
        find_task("parsing").score([TREE, TREE], [[TREE]], ONCE)


def test_a_reference_without_tags_is_scored() -> None:
    tree, output = "(S (NP the cat) (VP sees (NP a dog)))", "(TOP (S (NP (XX the) (XX cat)) (XX sees) (XX a) (XX dog)))"
    found = find_task("parsing").score([output], [[tree]], ONCE)
    assert {score.metric: round(score.value) for score in found} == {
        **{"F1": 67, "precision": 100, "recall": 50},
        **{"complete": 0, "crossing": 0},
    }


def test_all_translations_need_the_same_number_of_references() -> None:
    with pytest.raises(DataError, match="some sentences have more references than others"):
        find_task("translation").quick_score(["a", "b"], [["a"], ["b", "c"]], "none")


def test_cmudict_is_read(shared_data: Path) -> None:
    pairs = list(find_task("pronunciation").read_pairs(DataConfig(source=(str(shared_data / "cmudict" / "test"),))))
    asked = find_task("pronunciation").make_questions(pairs)
    assert len(pairs) == 12855
    assert len(asked) == len({pair.source for pair in pairs}) == 11994
    assert max(Counter(len(question.references) for question in asked)) > 1
    firsts = [question.references[-1] for question in asked]
    assert find_task("pronunciation").score(firsts, [q.references for q in asked], ONCE)[0].value == 0


def test_sigmorphon_is_read(shared_data: Path) -> None:
    path = shared_data / "sigmorphon2021" / "fre_dev.tsv"
    pairs = list(find_task("pronunciation").read_pairs(DataConfig(source=(str(path),))))
    assert len(pairs) == 1000
    assert find_task("pronunciation").symbols(pairs[1]) == Pair("a b s e n c e", "a p s ɑ̃ s")


def test_real_trees_are_perfect_parses_of_themselves(shared_data: Path) -> None:
    path = shared_data / "treebank-wsj-sample" / "wsj_0003.mrg"
    task = find_task("parsing")
    pairs = list(task.read_pairs(DataConfig(source=(str(path),))))
    outputs = [task.finish(pair.source, task.target_symbols(pair.target)) for pair in pairs]
    assert len(pairs) > 20
    assert task.quick_score(outputs, [[pair.target] for pair in pairs], "none").value == 100


def test_the_task_that_contributing_shows_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = page.partition("## Add a task")[2].partition("```python\n")[2].partition("```")[0]
    found: dict[str, Task] = {}
    exec(code, found)
    task = found["CASING"]
    (pair,) = task.read_pairs(DataConfig(source=(written(tmp_path / "text", "Hallo  Welt\n"),)))
    assert pair == Pair("hallo  welt", "Hallo  Welt")
    assert task.finish(pair.source, "Hallo Welt ") == "Hallo Welt"
    assert (task.quick_metric, task.quick_score(["a", "b"], [["a"], ["B"]], "none").value) == ("accuracy", 50)

"""Word alignments: from pieces to words, from attention to links, and the choice of the aligner."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import toy
from alignment_error import Language
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import SMALL, SOURCE_TYPES, TARGET_TYPES, sentences, shaken
from tokenizer_examples import bert, t5

from heedful.attention.aligner import (
    DEFAULT_ALIGNER,
    Aligner,
    WordPair,
    align_words,
    choose_aligner,
    list_aligners,
    make_word_pair,
    prediction_difference,
    strongest_links,
    word_weights,
)
from heedful.config import TextConfig
from heedful.config.experiment import TokenizerKind
from heedful.errors import ConfigError, FolderError
from heedful.metrics.alignment import Link, alignment_score, format_pharaoh
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer_training import learn_tokenizer, reuse_tokenizer
from heedful.text.words import Words, words_of_ids, words_of_text
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import find_aligner

KINDS: dict[TokenizerKind, int] = {
    "bpe": 300,
    "unigram": 262,
    "wordpiece": 530,
    "words": 300,
    "characters": 300,
    "bytes": 258,
}
LINES = [
    "ein mann fährt 😀 mit dem rad",
    "der hund läuft sehr schnell  davon",
    "größere häuser stehen – dort\u3000你好",
] * 5
TOKENIZERS = {kind: learn_tokenizer(LINES, TextConfig(kind=kind, vocabulary_size=size)) for kind, size in KINDS.items()}
SPACES = (" ", "  ", "\t", "\u3000", "\u00a0")
TEXTS = st.text(st.sampled_from("aenrs 😀ü\u3000\t\u00a0你#'.")) | st.text()


# Pieces to words


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_every_piece_belongs_to_one_word_or_to_white_space(kind: TokenizerKind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    found = words_of_text(tokenizer, text)
    assert list(found.texts) == text.split()
    assert len(found.of_pieces) == len(ids)
    assert found.of_pieces[-1] is None  # EOS
    numbers = [number for number in found.of_pieces if number is not None]
    assert numbers == sorted(numbers)
    assert words_of_ids(tokenizer, ids) == found


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(st.sampled_from("aenrs😀ü你#'."), min_size=1), max_size=4), space=st.sampled_from(SPACES))
def test_the_pieces_of_a_word_spell_it(kind: TokenizerKind, words: list[str], space: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(space.join(words))
    found = words_of_text(tokenizer, space.join(words))
    for number, word in enumerate(words):
        own = [piece for piece, of_word in zip(ids, found.of_pieces, strict=True) if of_word == number]
        assert tokenizer.decode(own).strip() == word


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 299), max_size=12))
def test_all_possible_outputs_of_a_model_have_words(ids: list[int]) -> None:
    """Even pieces that are not valid UTF-8 have words."""
    tokenizer = TOKENIZERS["bpe"]
    found = words_of_ids(tokenizer, ids)
    assert list(found.texts) == tokenizer.decode(ids).split()
    assert len(found.of_pieces) == len(ids)
    assert {number for number in found.of_pieces if number is not None} == set(range(len(found.texts)))


def test_words_are_those_of_the_text_even_if_the_tokenizer_changes_it(tmp_path: Path) -> None:
    bert().save(str(tmp_path / "bert.json"))
    found = words_of_text(reuse_tokenizer(tmp_path / "bert.json"), "The  FOXES' dogs.")
    assert found.texts == ("The", "FOXES'", "dogs.")
    assert set(found.of_pieces[:-1]) == {0, 1, 2}
    t5().save(str(tmp_path / "t5.json"))
    tokenizer = reuse_tokenizer(tmp_path / "t5.json")
    spelt = words_of_ids(tokenizer, tokenizer.encode("lazy foxes"))
    ids = tokenizer.encode("lazy foxes")
    own = [[id_ for id_, number in zip(ids, spelt.of_pieces, strict=True) if number == word] for word in (0, 1)]
    assert spelt.texts == tuple(tokenizer.decode(word).strip() for word in own) == ("lazy", "foxes")


# Weights to links


def pair(source_words: list[int | None], target_words: list[int | None]) -> WordPair:
    """A pair in which only the words matter; both sides end in EOS."""

    def words(numbers: list[int | None]) -> Words:
        return Words(tuple("x" * (1 + max(n for n in numbers if n is not None))), (*numbers, None))

    source, target = words(source_words), words(target_words)
    return WordPair([2] * len(source.of_pieces), [2] * len(target.of_pieces), source, target)


def test_weights_are_summed_over_source_pieces_and_averaged_over_target_pieces() -> None:
    weights = np.array([[0.2, 0.2, 0.3, 0.3], [0.0, 0.1, 0.3, 0.6], [0.1, 0.1, 0.8, 0.0], [0.25, 0.25, 0.25, 0.25]])
    found = word_weights(weights, pair([0, 0, 1], [0, 0, 1]))
    # Without EOS the rows are 4 : 3, 1 : 3 and 2 : 8; the row of EOS belongs to no word.
    np.testing.assert_allclose(found, [[(4 / 7 + 1 / 4) / 2, (3 / 7 + 3 / 4) / 2], [0.2, 0.8]])
    assert strongest_links(found) == ((1, 0), (1, 1))


def test_white_space_gets_and_gives_no_link() -> None:
    weights = np.array([[0.1, 0.7, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0], [0.3, 0.5, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]])
    found = word_weights(weights, pair([0, None, 1], [0, None, 1]))
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3], [0.75, 0.25]])
    assert strongest_links(found) == ((0, 1), (1, 0))


def test_a_word_without_a_piece_or_a_weight_has_no_link() -> None:
    weights = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    assert strongest_links(word_weights(weights, pair([0, 1], [0, 2]))) == ((1, 0),)


def test_an_aligner_reads_one_head_or_the_mean_of_a_layer_or_of_all() -> None:
    chance = np.random.default_rng(3)
    cross = [chance.random((2, 4, 5)), chance.random((3, 4, 5))]  # layers may have different numbers of heads
    np.testing.assert_array_equal(Aligner(1, 2, shifted=False).read(cross), cross[1][2])
    np.testing.assert_array_equal(Aligner(1, 2, shifted=True).read(cross)[:-1], cross[1][2][1:])
    np.testing.assert_allclose(Aligner(0, None, shifted=False).read(cross), (cross[0][0] + cross[0][1]) / 2)
    squares = (cross[0][0] ** 2 + cross[0][1] ** 2) / 2
    np.testing.assert_allclose(Aligner(0, None, shifted=False, squared=True).read(cross), squares)
    np.testing.assert_allclose(Aligner(None, None, shifted=False).read(cross), np.concatenate(cross).sum(0) / 5)


def test_all_heads_and_means_of_cross_attention_are_candidates() -> None:
    found = list_aligners(shaken(SMALL))
    names = [f"cross.{layer}.{head}" for layer in (1, 2) for head in (1, 2, 3)]
    means = [f"{name}{square}" for name in ("cross.1", "cross.2", "cross") for square in ("", " squared")]
    assert [str(each) for each in found] == [f"{name}{row}" for name in (*names, *means) for row in ("", " shifted")]
    assert DEFAULT_ALIGNER in found


def test_an_alignment_does_not_depend_on_its_batch() -> None:
    model = shaken(SMALL)
    sources, targets = sentences([4, 8, 6], SOURCE_TYPES), sentences([7, 3, 5], TARGET_TYPES, seed=4)
    pairs = []
    for source, target in zip(sources, targets, strict=True):
        words = [Words(tuple("x" * (len(ids) - 1)), (*range(len(ids) - 1), None)) for ids in (source, target)]
        pairs.append(WordPair(source, target, *words))
    for aligner in list_aligners(model):
        together = align_words(model, aligner, pairs)
        assert together == [align_words(model, aligner, [each])[0] for each in pairs]
        assert [[target for _, target in sorted(each, key=lambda link: link[1])] for each in together] == [
            list(range(len(target) - 1)) for target in targets
        ]


# Error rates


def test_the_error_rate_matches_a_calculation_by_hand() -> None:
    sure = [{(0, 0), (1, 2)}, {(0, 1)}]
    possible = [{(1, 1)}, {(0, 1), (2, 2)}]
    found = [{(0, 0), (1, 1), (2, 2)}, {(0, 1), (1, 0)}]
    score = alignment_score(found, sure, possible)
    # Five links were found: three are possible, and two of these are sure. Three sure links exist.
    assert [score.precision, score.recall] == pytest.approx([3 / 5, 2 / 3])
    assert score.error_rate == pytest.approx(1 - (2 + 3) / (5 + 3))
    only_sure = alignment_score(found, sure)
    assert [only_sure.precision, only_sure.error_rate] == pytest.approx([2 / 5, 1 - 4 / 8])


def test_finding_no_links_is_correct_if_there_are_none() -> None:
    assert alignment_score([set()], [set()]).error_rate == 0.0
    assert alignment_score([set()], [{(0, 0)}]).error_rate == 1.0
    assert alignment_score([{(0, 0)}], [{(0, 0)}]).error_rate == 0.0


def test_links_are_written_in_order() -> None:
    assert format_pharaoh([(10, 0), (2, 1), (2, 0)]) == "2-0 2-1 10-0"
    assert format_pharaoh([]) == ""


def test_the_language_of_the_benchmark_has_one_meaning_for_each_word() -> None:
    language, chance = Language(), random.Random(3)
    meanings: dict[str, set[str]] = {}
    for example in [language.example(chance) for _ in range(300)]:
        source, target = example.source.split(), example.target.split()
        assert sorted(place for _, place in example.sure) == list(range(len(target)))
        for place, other in example.sure | example.possible:
            meanings.setdefault(target[other], set()).add(source[place])
    counts = [len(sources) for sources in meanings.values()]
    assert (set(counts), counts.count(2)) == ({1, 2}, 5)  # five words come from two source words each


# A model trained on a language that reverses sentences


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


def mirror(text: str) -> set[Link]:
    count = len(text.split())
    return {(number, count - 1 - number) for number in range(count)}


def toy_pairs(translator: Translator, texts: list[str]) -> list[WordPair]:
    source, target = translator.tokenizers.source, translator.tokenizers.target
    return [make_word_pair(source, target, text, target.encode(toy.translated(text))) for text in texts]


def error_rate(found: list[tuple[Link, ...]], texts: list[str]) -> float:
    return alignment_score([set(each) for each in found], [mirror(text) for text in texts]).error_rate


def test_the_aligner_chosen_without_labels_is_nearly_the_best(translator: Translator) -> None:
    model = translator.model
    texts = toy.sentences(40, seed=31)
    pairs = toy_pairs(translator, texts)
    choice = choose_aligner(model, toy_pairs(translator, toy.sentences(20, seed=32)))
    errors = {aligner: error_rate(align_words(model, aligner, pairs), texts) for aligner in list_aligners(model)}
    assert error_rate([strongest_links(prediction_difference(model, each)) for each in pairs], texts) < 0.1
    assert errors[choice.aligner] < 0.1
    assert errors[choice.aligner] < min(errors.values()) + 0.05
    assert max(errors.values()) > 0.3  # so the choice matters


def test_a_model_without_attention_to_the_source_has_no_alignments(trained: Path, translator: Translator) -> None:
    without = Translator.from_model(translator.model, translator.tokenizers, translator.search)
    with (
        mock.patch.object(type(translator.model), "attentions", {}),
        pytest.raises(
            ConfigError, match=r"--alignments needs attention to the source, which the model of .* does not have"
        ),
    ):
        find_aligner(RunFolder(trained / "run"), without, SilentReporter())


def test_an_output_that_was_cut_off_is_aligned_to_its_last_word(translator: Translator) -> None:
    source, target = translator.tokenizers.source, translator.tokenizers.target
    text = toy.sentences(1, seed=33)[0]
    ids = target.encode(toy.translated(text))
    assert make_word_pair(source, target, text, ids[:-1]) == make_word_pair(source, target, text, ids)


# The choice in the run folder


class Heard(SilentReporter):
    """Collects messages."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> RunFolder:
    """A copy without checkpoints, which tests may change."""
    ignored = shutil.ignore_patterns("checkpoints", "train-0", "tensorboard")
    return RunFolder(Path(shutil.copytree(trained / "run", tmp_path / "run", ignore=ignored)))


def test_training_saves_the_best_aligner_in_the_run_folder(folder: RunFolder, translator: Translator) -> None:
    heard = Heard()
    kept = folder.about()["alignment"]
    assert isinstance(kept, dict)
    assert (kept["model"], 0.8 < kept["agreement"] <= 1.0, kept["words"] > 100) == (folder.note(), True, True)
    assert str(find_aligner(folder, translator, heard)) == kept["from"]
    assert heard.sentences == []


def test_the_aligner_is_chosen_again_for_new_weights_and_in_older_folders(
    folder: RunFolder, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.translation.word_alignment._PAIRS", 7)
    kept = folder.about()["alignment"]
    assert isinstance(kept, dict)
    for other in (None, {**kept, "model": "last, step 3"}, {**kept, "from": "cross.9"}, "damaged"):
        heard = Heard()
        folder.write_about({"alignment": other})
        found = find_aligner(folder, translator, heard)
        assert heard.sentences == [f"alignments come from {found}, the best on the validation pairs"]
        again = folder.about()["alignment"]
        assert isinstance(again, dict)
        assert (again["from"], again["model"], again["words"] < kept["words"]) == (str(found), folder.note(), True)


def test_without_validation_pairs_the_default_aligner_is_used(folder: RunFolder, translator: Translator) -> None:
    heard = Heard()
    folder.write_about({"alignment": None})
    (folder.data / "valid.json").write_text(json.dumps([["x " * 50, "y"], ["", ""]]))
    assert find_aligner(folder, translator, heard) == DEFAULT_ALIGNER
    shutil.rmtree(folder.data)
    assert find_aligner(folder, translator, heard) == DEFAULT_ALIGNER
    said = "no validation pairs to choose an aligner by; alignments come from cross squared, over all heads"
    assert heard.sentences == [said, said]


def test_a_read_only_folder_does_not_prevent_alignments(
    folder: RunFolder, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_about({"alignment": None})
    monkeypatch.setattr("heedful.translation.word_alignment._PAIRS", 7)
    monkeypatch.setattr(RunFolder, "write_about", mock.Mock(side_effect=FolderError("read-only")))
    heard = Heard()
    assert find_aligner(folder, translator, heard) in list_aligners(translator.model)
    assert heard.sentences[1:] == ["the choice could not be saved in the run folder: read-only"]


# The command


def test_alignments_follow_each_translation(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    ran = toy.run("translate", trained / "run", text, "", "--alignments")
    translation, links_ = ran.lines[0].split(" ||| ")
    assert (ran.code, ran.err, translation, ran.lines[1]) == (0, "", toy.translated(text), " ||| ")
    assert links_ == format_pharaoh(mirror(text))


def test_each_of_several_translations_has_its_own_alignment(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    ran = toy.run("translate", trained / "run", text, " ", "--alignments", "--n-best", "3")
    fields = [line.split(" ||| ") for line in ran.lines]
    assert fields[3] == ["1", "", "0.0000", ""]
    assert fields[0][3] == format_pharaoh(mirror(text))
    for _, translation, _, links_ in fields[:3]:
        targets = sorted(int(link.split("-")[1]) for link in links_.split())
        assert targets == list(range(len(translation.split())))


def test_alignments_in_json_are_pairs_of_numbers(trained: Path) -> None:
    text = toy.lines_of(trained / "train.en")[0]
    ran = toy.run("translate", trained / "run", text, "", "--alignments", "--json")
    found, empty = map(json.loads, ran.lines)
    assert found["alignment"] == found["alternatives"][0]["alignment"] == sorted(map(list, mirror(text)))
    assert (empty["alignment"], empty["alternatives"]) == ([], [])
    plain = json.loads(toy.run("translate", trained / "run", text, "--json").out)
    assert "alignment" not in plain.keys() | plain["alternatives"][0].keys()


def test_alignments_of_a_file_do_not_depend_on_windows_and_batches(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*toy.sentences(9, seed=41), "", *toy.sentences(9, seed=42, longest=9)]
    search = replace(translator.search, beam=2, max_extra=1)
    aligner = Aligner(0, 0, shifted=True)
    whole = translator.translate(texts, search=search, n_best=2, aligner=aligner)
    assert (whole[0].alignment, whole[9].alignment) == (whole[0].alternatives[0].alignment, ())
    monkeypatch.setattr("heedful.data.stream.WINDOW", 3)
    monkeypatch.setattr("heedful.decoding.torch_engine.TorchEngine.batch_tokens", 20)
    parts = translator.translate(texts, search=search, n_best=2, aligner=aligner)
    assert [[a.alignment for a in each.alternatives] for each in parts] == [
        [a.alignment for a in each.alternatives] for each in whole
    ]

"""Files of labelled texts and of tagged words: how they are told apart, read and stored, and what is refused."""

import gzip
from pathlib import Path

import label_examples
import numpy as np
import pytest

from heedful.config import TextConfig
from heedful.data.labelled_corpus import LabelledCorpus, TextEncoder, write_labelled_corpus
from heedful.data.labels import find_label_kind, measure_labels, read_labels, read_tags
from heedful.data.pairs import Pair
from heedful.errors import DataError, FolderError
from heedful.text.tokenizer import CLS, MASK, Tokenizer
from heedful.text.tokenizer_training import learn_tokenizer

CONLLU = (
    "# text = Du pain\n1-2\tDu\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDe\tde\tADP\t_\t_\t0\t_\t_\t_\n2\tle\tle\tDET\t_\t_\t0\t_\t_\t_\n"
    "3\t10 000\t10\t_\tNUM\t_\t0\t_\t_\t_\n3.1\tx\tx\tX\t_\t_\t_\t_\t_\t_\n\n1\tOui\toui\tINTJ\t_\t_\t0\t_\t_\t_\n"
)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ham\thello you\nspam\twin now\n", "classification"),
        ("ham\thello\nspam\twin\n\n", "classification"),  # an empty line at the end
        ("ham\thello you\n\nspam\twin now\n", "classification"),
        (CONLLU, "tagging"),
        ("the\tDET\ncat\tNOUN\n\nran\tVERB\n", "tagging"),
    ],
)
def test_the_content_tells_the_kind(tmp_path: Path, text: str, kind: str) -> None:
    plain, packed = write(tmp_path / "a.txt", text), tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert find_label_kind([str(plain)]) == find_label_kind([str(packed)]) == kind


def test_files_of_two_kinds_are_refused(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.tsv", "ham\thello you\n"), write(tmp_path / "b.conllu", CONLLU)
    with pytest.raises(DataError, match=r"a\.tsv holds a label for each text but .*b\.conllu a tag for each word"):
        find_label_kind([str(one), str(two)])


def test_a_text_may_hold_tabs_and_a_label_spaces(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "two words\t a\tb \nham\t\n\n")
    assert list(read_labels(path)) == [Pair("a b", "two words"), Pair("", "ham")]


def test_words_and_tags_are_read_from_both_forms(tmp_path: Path) -> None:
    assert list(read_tags(write(tmp_path / "a", CONLLU))) == [
        Pair("De\tle\t10 000", "ADP\tDET\tNUM"),
        Pair("Oui", "INTJ"),
    ]
    assert list(read_tags(write(tmp_path / "b", "a\tX\nb c\tY\n\n\nd\tX"))) == [Pair("a\tb c", "X\tY"), Pair("d", "X")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ham hello\n", r"a\.tsv, line 1: no tab; a line must be label, tab, text$"),
        ("ham\tx\n \thello\n", r"a\.tsv, line 2: the label is empty; a line must be label, tab, text$"),
        ("\0\x01", "holds a NUL byte, so the file is binary"),
    ],
)
def test_a_bad_line_of_labels_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_labels(write(tmp_path / "a.tsv", text)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tX\tY\n", "line 1: 3 columns; a line must be word, tab, tag, or the ten columns of CoNLL-U"),
        ("a\t \n", "line 1: the tag is empty"),
        (" \tX\n", "line 1: the word is empty"),
    ],
)
def test_a_bad_line_of_tags_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_tags(write(tmp_path / "a.tsv", text)))


def test_data_that_has_nothing_to_tell_apart_is_refused() -> None:
    with pytest.raises(DataError, match=r"^every text has the label 'ham', so there is nothing to tell apart"):
        measure_labels([Pair("a", "ham"), Pair("b", "ham")], "classification")
    with pytest.raises(DataError, match=r"^every word has the tag 'X', so there is nothing to tell apart"):
        measure_labels([Pair("a\tb", "X\tX")], "tagging")
    swapped = [Pair("ham", f"text {number}") for number in range(40)]
    with pytest.raises(DataError, match=r"^there are 40 different labels for 40 texts; a line must be label, tab"):
        measure_labels(swapped, "classification")


def test_texts_words_and_labels_are_counted() -> None:
    found = measure_labels([Pair("a b", "X"), Pair("c", "Y"), Pair("d", "Y")], "classification")
    assert (found.texts, found.words, found.labels) == (3, 4, (("Y", 2), ("X", 1)))
    assert found.names == ("X", "Y")
    assert measure_labels([Pair("New York\tis", "N\tV")], "tagging").words == 2


def tokenizer(kind: str = "bpe") -> Tokenizer:
    texts = [text for _, text in label_examples.labelled(50)]
    return learn_tokenizer(texts, TextConfig(kind=kind, vocabulary_size=300), (CLS, MASK))  # type: ignore[arg-type]


def test_a_text_begins_with_cls_and_is_cut_at_its_end() -> None:
    own = tokenizer()
    encoder = TextEncoder(own, "classification", 5)
    (whole,), (cut,) = encoder(["das", "hallo heute das bitte und das"])
    assert whole.ids == [own.cls_id, *own.encode("das")]
    assert cut.ids == [own.cls_id, *own.encode("hallo heute das bitte und das")[:3], own.eos_id]
    assert whole.places == cut.places == [0]


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_a_place_is_that_of_the_first_piece_of_a_word(kind: str) -> None:
    own = tokenizer(kind)
    words = ["heute", "New York", "xyz"]
    ((found,),) = TextEncoder(own, "tagging", 99)(["\t".join(words)])
    assert own.decode(found.ids).strip() == "[CLS] heute New York xyz" or own.decode(found.ids[1:]).strip() == " ".join(
        words
    )
    ends = [*found.places[1:], len(found.ids) - 1]
    assert [own.decode(found.ids[a:b]).strip() for a, b in zip(found.places, ends, strict=True)] == words


def test_a_long_sentence_is_divided_between_words() -> None:
    own = tokenizer()
    (parts,) = TextEncoder(own, "tagging", 6)(["\t".join(["das"] * 10)])
    assert [len(part.ids) for part in parts] == [6, 6, 4]
    assert [len(part.places) for part in parts] == [4, 4, 2]
    assert all((part.ids[0], part.ids[-1]) == (own.cls_id, own.eos_id) for part in parts)


def test_a_corpus_gives_back_what_was_written(tmp_path: Path) -> None:
    own = tokenizer()
    encoder = TextEncoder(own, "tagging", 6)
    pairs = [Pair("das\theute", "B\tA"), Pair(" ", "A"), Pair("\t".join(["das"] * 5), "\t".join("ABABB"))]
    corpus = write_labelled_corpus(tmp_path / "c", pairs, encoder, ("A", "B"), own.vocabulary_size)
    assert (len(corpus), corpus.dropped.empty) == (3, 1)
    batch = LabelledCorpus(tmp_path / "c").batch([2, 0], 0)
    assert batch.target_out.tolist() == [1, 1, 0]
    assert batch.target_lengths.tolist() == [1, 2]
    first, second = encoder([pairs[2].source, pairs[0].source])
    assert batch.source.tolist() == first[1].ids + second[0].ids
    assert batch.target_in.tolist() == first[1].places + second[0].places
    assert np.array_equal(corpus.lengths()[1], [2, 4, 1])


def test_a_corpus_without_all_places_is_refused(tmp_path: Path) -> None:
    own = tokenizer()
    write_labelled_corpus(
        tmp_path, [Pair("das", "A")], TextEncoder(own, "classification", 9), ("A", "B"), own.vocabulary_size
    )
    (tmp_path / "places.ids").write_bytes(b"")
    with pytest.raises(FolderError, match="is damaged: not every label has a place"):
        LabelledCorpus(tmp_path)

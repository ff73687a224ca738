"""Labels of texts and tags of words: what is learnt, independence of the batch, long texts, and what is refused."""

import math
from pathlib import Path

import label_examples
import pytest
import torch

from heedful import Classifier, ConfigError, DataError
from heedful.classification.classifier import split_words

TEXTS = ["hallo was kostet das", "schön", "", "bitte heute und kündigen hallo das"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = tmp_path_factory.mktemp("labels")
    return Classifier.load(label_examples.train_bert(folder, label_examples.write_labels(folder / "train.tsv")))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = tmp_path_factory.mktemp("tags")
    file = label_examples.write_conllu(folder / "train.conllu")
    return Classifier.load(
        label_examples.train_bert(
            folder, file, "model.max_positions=12", "text.vocabulary_size=262", "train.max_steps=160"
        )
    )


def test_a_text_gets_the_label_that_its_words_have(classifier: Classifier) -> None:
    assert classifier.labels == ("Frage nach Geld", "Lob", "weg")
    found = classifier.classify([text for _, text in label_examples.labelled(60, seed=7)])
    right = [one.label == label for one, (label, _) in zip(found, label_examples.labelled(60, seed=7), strict=True)]
    assert sum(right) >= 58


def test_the_probabilities_of_all_labels_add_up_to_one_the_largest_first(classifier: Classifier) -> None:
    for one in classifier.classify(TEXTS):
        values = list(one.probabilities.values())
        assert math.fsum(values) == pytest.approx(1.0, abs=1e-5)
        assert values == sorted(values, reverse=True)
        assert (one.label, one.probability) == next(iter(one.probabilities.items()))
        assert set(one.probabilities) == set(classifier.labels)


def test_a_text_is_classified_alike_alone_and_among_others(classifier: Classifier) -> None:
    for text, together in zip(TEXTS, classifier.classify(TEXTS), strict=True):
        (alone,) = classifier.classify([text])
        assert alone.text == together.text == text
        for label, value in alone.probabilities.items():
            assert together.probabilities[label] == pytest.approx(value, abs=1e-5)


def test_the_probabilities_are_those_of_the_model_itself(classifier: Classifier) -> None:
    tokenizer = classifier.encoder.tokenizer
    ids = torch.tensor([tokenizer.cls_id, *tokenizer.encode(TEXTS[0])])
    lengths, one = torch.tensor([len(ids)]), torch.tensor([1])
    with torch.no_grad():
        model = classifier.model
        expected = model.decode(torch.tensor([0]), one, model.encode(ids, lengths)).softmax(-1)[0]
    found = classifier.classify(TEXTS[:1])[0].probabilities
    torch.testing.assert_close(torch.tensor([found[label] for label in classifier.labels]), expected)


def test_of_a_long_text_the_beginning_counts(classifier: Classifier) -> None:
    (found,) = classifier.classify(["kündigen " * 2000])
    (shorter,) = classifier.classify(["kündigen " * 3000])
    assert found.label == "weg"
    assert found.probabilities == shorter.probabilities


def test_each_word_gets_its_tag(tagger: Classifier) -> None:
    sentences = label_examples.tagged(40, seed=9)
    found = tagger.tag(["\t".join(word for word, _ in sentence) + "\t" for sentence in sentences])
    ours = [[(one.word, one.tag) for one in text.words] for text in found]
    wrong = sum(a != b for one, two in zip(ours, sentences, strict=True) for a, b in zip(one, two, strict=True))
    assert wrong <= 1
    assert str(tagger.tag(["the cat ran"])[0]) == "the/DET cat/NOUN ran/VERB"


def test_a_sentence_longer_than_the_model_is_tagged_in_parts(tagger: Classifier) -> None:
    (found,) = tagger.tag(["the cat ran " * 30])
    assert [one.tag for one in found.words] == ["DET", "NOUN", "VERB"] * 30


def test_a_sentence_without_words_has_no_tags(tagger: Classifier) -> None:
    empty, full = tagger.tag(["  ", "cat"])
    assert empty.words == ()
    assert [one.word for one in full.words] == ["cat"]


def test_words_are_those_between_tabs_or_else_words_and_signs() -> None:
    assert split_words("New York\tsees\tme") == ["New York", "sees", "me"]
    assert split_words("L'homme, c.-à-d. 3.5 % !") == ["L'", "homme", ",", "c", ".", "-", "à-d", ".", "3.5", "%", "!"]


def test_each_kind_of_model_has_its_own_method(classifier: Classifier, tagger: Classifier) -> None:
    with pytest.raises(ConfigError, match=r"use tag\(\) instead of classify\(\)"):
        tagger.classify(["a"])
    with pytest.raises(ConfigError, match=r"use classify\(\) instead of tag\(\)"):
        classifier.tag(["a"])
    with pytest.raises(DataError, match=r"classify\(\) takes a list of texts, but got one string"):
        classifier.classify("a")


def test_a_model_that_translates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is a model for translation, which knows no labels; train one with"):
        Classifier.load("en-de")

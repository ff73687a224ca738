"""Texts of several sentences: each sentence is translated for itself, and everything around it stays."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.evaluation.evaluate import evaluate
from heedful.metrics.alignment import Link
from heedful.progress import SilentReporter
from heedful.storage.run_folder import RunFolder
from heedful.tasks.copying import COPY
from heedful.text.constraints import Constraints
from heedful.text.sentences import Sentences
from heedful.translation.result import Alternative, Translation, join_sentences
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import find_aligner

ONE, TWO, THREE = (f"{text.capitalize()}." for text in toy.sentences(3, seed=7, longest=4))

SHORT = ("--set", "search.max_extra=3")


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    found = Translator.load(trained / "run")
    found.search = replace(found.search, max_extra=3)  # capitals are new to the model, and it would go on for long
    return found


def alone(translator: Translator, text: str) -> str:
    (found,) = translator.translate([text], split_sentences=False)
    return found.text


def likelier(translator: Translator, text: str) -> str:
    """The translation of a text as it is or in small letters, whichever the model is more confident of."""
    forms = translator.translate([text, text.lower()], split_sentences=False)
    return max(forms, key=lambda one: one.mean_probability).text


@settings(deadline=None, max_examples=5)
@given(st.lists(st.sampled_from([ONE, TWO, THREE]), min_size=1, max_size=4), st.sampled_from([" ", "\n", "\n\n\t"]))
def test_each_sentence_is_translated_as_if_it_were_alone(
    translator: Translator, sentences: list[str], space: str
) -> None:
    (found,) = translator.translate([f" {space.join(sentences)}{space}"])
    assert found.text == f" {space.join(alone(translator, sentence) for sentence in sentences)}{space}"


def test_a_text_of_one_sentence_has_the_same_result_with_and_without_splitting(translator: Translator) -> None:
    texts = [ONE, "", "  ", TWO]
    assert translator.translate(texts) == translator.translate(texts, split_sentences=False)


def test_one_unit_a_line_is_one_source_for_the_model(translator: Translator) -> None:
    (found,) = translator.translate([f"{ONE} {TWO}"], split_sentences=False)
    assert found.sentences == ()
    assert list(found.source_pieces) == translator.tokenizers.source.pieces(
        translator.tokenizers.source.encode(f"{ONE} {TWO}")
    )


def test_the_parts_of_a_translation_are_those_of_its_sentences(translator: Translator) -> None:
    text = f"{ONE} {TWO}"
    (found,) = translator.translate([text], n_best=2, confidence=True)
    first, second = translator.translate([ONE, TWO], n_best=2, confidence=True)
    assert (found.source, found.sentences) == (text, (first, second))
    assert found.source_pieces == first.source_pieces + second.source_pieces
    for whole, *parts in zip(found.alternatives, first.alternatives, second.alternatives, strict=True):
        assert whole.text == " ".join(part.text for part in parts)
        assert whole.log_prob == pytest.approx(sum(part.log_prob for part in parts))
        assert whole.score == pytest.approx(sum(part.score for part in parts))
        assert whole.pieces == parts[0].pieces + parts[1].pieces
        assert whole.confidence == (parts[0].confidence or ()) + (parts[1].confidence or ())


def test_a_text_is_as_unsure_as_its_least_sure_sentence() -> None:
    def translate(log_prob: float) -> Translation:
        return Translation("a.", "b.", log_prob, ("a",), (Alternative("b.", log_prob, log_prob, ("b",)),))

    both = Sentences("Aa. Bb.", "en")
    assert join_sentences(both, [translate(-0.1), translate(-3.0)], "de").unsure
    assert not join_sentences(both, [translate(-0.1), translate(-0.2)], "de").unsure


def linked(source: str, target: str, *links: Link) -> Translation:
    return Translation(source, target, 0.0, (), (Alternative(target, 0.0, 0.0, (), alignment=links),))


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Uno dos. Tres.", "es", ((0, 1), (1, 0), (2, 2))),
        ("一。二。", "zh", ((0, 1), (0, 0), (0, 2))),  # white space separates words, and there is none
    ],
)
def test_links_count_the_words_of_the_whole_text(text: str, language: str, expected: tuple[Link, ...]) -> None:
    sentences = Sentences(text, language)
    first = linked(sentences.texts[0], "b a.", (0, 1), (1 if language == "es" else 0, 0))
    found = join_sentences(sentences, [first, linked(sentences.texts[1], "c.", (0, 0))], "en")
    assert found.text == "b a. c."
    assert found.alignment == expected


def test_alignments_of_a_real_model_count_through(trained: Path, translator: Translator) -> None:
    run = RunFolder.open(trained / "run")
    aligner = find_aligner(run, translator, SilentReporter())
    whole, *parts = translator.translate([f"{ONE}  {TWO}", ONE, TWO], aligner=aligner)
    words = len(ONE.split()), len(parts[0].text.split())
    shifted = [(source + words[0], target + words[1]) for source, target in parts[1].alignment or ()]
    assert whole.alignment == (*(parts[0].alignment or ()), *shifted)


def test_a_prefix_begins_the_text_and_a_glossary_is_for_every_sentence(translator: Translator) -> None:
    word = TWO.split()[0]
    constraints = Constraints({word: "QQ"}, "Ja", inf)
    (found,) = translator.translate([f"{ONE} {TWO}"], beam=4, constraints=constraints)
    assert found.text.startswith("Ja")
    assert "QQ" in found.sentences[1].text
    assert not found.sentences[1].text.startswith("Ja")


def test_a_task_that_does_not_translate_is_never_split(trained: Path) -> None:
    run = RunFolder.open(trained / "run")
    own = Translator.load(run.path)
    copying = Translator.from_model(own.model, run.tokenizers(), replace(own.search, beam=1), COPY)
    (found,) = copying.translate([f"{ONE} {TWO}"])
    assert found.sentences == ()


def test_evaluation_translates_lines_as_units(trained: Path, translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "two.en").write_text(f"{ONE} {TWO}\n{THREE}\n", encoding="utf-8")
    (tmp_path / "two.de").write_text("x\ny\n", encoding="utf-8")
    short = {"max_extra": 3}
    found = evaluate(trained / "run", source=tmp_path / "two.en", reference=tmp_path / "two.de", search=short)
    assert found.outputs == (alone(translator, f"{ONE} {TWO}"), alone(translator, THREE))


# From the shell


def test_an_argument_keeps_its_sentences_and_paragraphs(trained: Path, translator: Translator) -> None:
    one, two, three = (alone(translator, text) for text in (ONE, TWO, THREE))
    ran = toy.run("translate", trained / "run", *SHORT, f"{ONE} {TWO}\n\n  {THREE}", THREE)
    assert ran.out == f"{one} {two}\n\n  {three}\n{three}\n"


def test_a_file_and_a_pipe_keep_lines_indentation_and_sentences(
    trained: Path, translator: Translator, tmp_path: Path
) -> None:
    one, two, three = (alone(translator, text) for text in (ONE, TWO, THREE))
    text = f"{ONE} {TWO}\n\n\t{THREE}\n"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    for ran in (
        toy.run("translate", trained / "run", *SHORT, "--input", tmp_path / "text.txt"),
        toy.run("translate", trained / "run", *SHORT, stdin=text.encode()),
    ):
        assert ran.out == f"{one} {two}\n\n\t{three}\n"


def test_no_split_gives_the_model_whole_lines(trained: Path, translator: Translator) -> None:
    ran = toy.run("translate", trained / "run", *SHORT, "--no-split", stdin=f"{ONE} {TWO}\n".encode())
    assert ran.out == f"{alone(translator, f'{ONE} {TWO}')}\n"


def test_json_has_the_sentences_of_a_text(trained: Path) -> None:
    found = json.loads(toy.run("translate", trained / "run", *SHORT, f"{ONE} {TWO}", "--json").out)
    assert [sentence["source"] for sentence in found["sentences"]] == [ONE, TWO]
    assert found["text"] == " ".join(sentence["text"] for sentence in found["sentences"])


class TestCapitals:
    def test_a_sentence_in_capitals_is_translated_as_if_it_had_none(self, translator: Translator) -> None:
        (found,) = translator.translate([f"{ONE.upper()} {TWO}"], n_best=2, confidence=True)
        assert found.source == f"{ONE.upper()} {TWO}"
        assert found.text == f"{likelier(translator, ONE).upper()} {alone(translator, TWO)}"
        first = found.sentences[0]
        assert first.source == ONE.upper()
        assert all(one.text == one.text.upper() for one in first.alternatives)
        assert first.alternatives[0].confidence
        assert " ".join(word.word for word in first.alternatives[0].confidence) == first.text

    def test_a_single_sentence_too(self, translator: Translator) -> None:
        (found,) = translator.translate([ONE.upper()])
        assert (found.source, found.text) == (ONE.upper(), likelier(translator, ONE).upper())

    def test_a_sentence_that_is_tokenized_already_too(self, translator: Translator) -> None:
        given = [ONE.upper(), TWO]
        assert translator.translate(translator.tokenize(given)) == translator.translate(given)

    @pytest.mark.parametrize("text", ["EXIT", "NO SMOKING", "PLEASE DO NOT TOUCH"])
    def test_of_both_usual_forms_the_model_chooses_the_likelier(self, text: str) -> None:
        built_in = Translator.load("en-de")
        forms = built_in.translate([text.capitalize(), text.lower()], split_sentences=False)
        (found,) = built_in.translate([text])
        best = max(forms, key=lambda one: one.mean_probability)
        assert (found.text, found.mean_probability) == (best.text.upper(), best.mean_probability)

    @pytest.mark.parametrize("text", ["ABC", "123 456", "ЖЖЖЖ ЖЖЖЖ"], ids=["short", "no letters", "new either way"])
    def test_other_texts_are_translated_as_they_are(self, translator: Translator, text: str) -> None:
        (found,) = translator.translate([text])
        assert found.text == alone(translator, text)

    def test_units_and_constrained_texts_are_translated_as_they_are(self, translator: Translator) -> None:
        (unit,) = translator.translate([ONE.upper()], split_sentences=False)
        (free,) = translator.translate([ONE.upper()])
        assert unit.source_pieces != free.source_pieces
        (begun,) = translator.translate([ONE.upper()], constraints=Constraints(prefix="a"))
        assert begun.source_pieces == unit.source_pieces

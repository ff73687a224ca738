"""How terms are chosen for the measurement of glossaries."""

from pathlib import Path

import toy
from terms import LOSSES, choose_cases, count_dictionary, measure

from heedful.text.constraints import MAX_LOSS
from heedful.translation.result import Alternative, Translation
from heedful.translation.translator import Translator


def test_words_that_occur_together_are_translations() -> None:
    sources = ["the house stands", "a house burns", "the tree stands", "this tree burns"] * 5
    targets = ["dieses Haus steht", "jenes Haus brennt", "dieser Baum steht", "jener Baum brennt"] * 5
    found = count_dictionary(sources, targets)
    assert (found["house"][0], found["tree"][0], found["stands"][0]) == ("Haus", "Baum", "steht")


def test_a_right_term_is_in_the_reference_and_not_in_the_free_translation() -> None:
    free = [
        Translation(source, text, 0.0, (), (Alternative(text, 0.0, -1.0, ("a",)),))
        for source, text in (("the house", "das Heim"), ("a tree", "ein Baum"))
    ]
    dictionary = {"house": ["Haus", "Heim"], "tree": ["Baum"]}
    (case,) = choose_cases(["the house", "a tree"], ["das Haus", "ein Baum"], free, dictionary, 9)
    assert (str(case.right), str(case.wrong)) == ("house = Haus", "house = Baum")


def test_more_terms_are_used_the_more_loss_is_allowed(trained: Path) -> None:
    translator = Translator.load(trained / "run")
    sources = toy.lines_of(trained / "test.en")[:6]
    every = list(toy.dictionary().values())
    free = translator.translate(sources)
    references = [toy.translated(source) + f" {every[-1]}" for source in sources]
    dictionary = {word: [every[-1], toy.translated(word)] for source in sources for word in source.split()}
    cases = choose_cases(sources, references, free, dictionary, 3)
    rows = measure(translator, cases)
    assert [row["loss"] for row in rows] == list(LOSSES)
    assert MAX_LOSS in LOSSES
    used = [row["right used"] for row in rows]
    assert used == sorted(used)
    assert used[-1] == 100

"""Comparisons of systems: equal to sacreBLEU's numbers and to counts by hand."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from heedful.errors import DataError
from heedful.metrics import bleu as translation
from heedful.metrics import comparison
from heedful.metrics.bleu import bleu
from heedful.metrics.breakdown import FREQUENCIES, LENGTHS, f1_by_frequency, make_buckets, name_bucket, partial_bleu
from heedful.metrics.comparison import (
    Comparison,
    EvaluationSet,
    SentenceWins,
    System,
    compare_outputs,
    run_paired_tests,
)

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", ",", ".", "don't"]


def lines(count: int, seed: int) -> list[str]:
    random = Random(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(4, 12))) for _ in range(count)]


def noisy(text: list[str], share: float, seed: int) -> list[str]:
    """Replace some words."""
    random = Random(seed)

    def heard(word: str) -> str:
        return random.choice(WORDS) if random.random() < share else word

    return [" ".join(map(heard, line.split())) for line in text]


REFERENCE = lines(30, 1)
REFERENCES = [REFERENCE, noisy(REFERENCE, 0.3, 2)]
SYSTEMS = [noisy(REFERENCE, 0.2, 3), noisy(REFERENCE, 0.4, 4), noisy(REFERENCE, 0.25, 5)]


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few enough resamples that tests are fast."""
    monkeypatch.setattr(translation, "_MAX_RESAMPLED_SENTENCES", 30 * 7)
    monkeypatch.setattr(comparison, "_MAX_SHUFFLED_SENTENCES", 30 * 9)


# Significance


def test_p_values_of_randomisation_match_the_sacrebleu_command(tmp_path: Path) -> None:
    files = {f"ref{n}": text for n, text in enumerate(REFERENCES)} | {f"sys{n}": text for n, text in enumerate(SYSTEMS)}
    for name, text in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    command = [sys.executable, "-m", "sacrebleu", "ref0", "ref1", "-i", "sys0", "sys1", "sys2", "-m", "bleu", "chrf"]
    options = ["--paired-ar", "--paired-ar-n", "300", "-f", "json", "-w", "6"]
    ran = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=True)
    theirs = json.loads(ran.stdout)
    for found, key in zip(run_paired_tests(SYSTEMS, REFERENCES, "13a", 2, 300), ("BLEU", "chrF2"), strict=True):
        for system, row in zip(found.systems, theirs, strict=True):
            assert system.score.value == pytest.approx(row[key]["score"], abs=1e-5)
        for system, row in zip(found.systems[1:], theirs[1:], strict=True):
            assert system.randomisation == pytest.approx(row[key]["p_value"], abs=1e-5)
        assert found.randomisation_signature.startswith("nrefs:2|ar:300|seed:12345|")


def test_bootstrap_intervals_and_p_values_match_sacrebleu() -> None:
    """Call sacreBLEU's Python interface, because its command cannot write these results as JSON."""
    named: list[tuple[str, Sequence[str]]] = [(str(number), text) for number, text in enumerate(SYSTEMS)]
    signatures, theirs = PairedTest(named, {"BLEU": BLEU(), "chrF": CHRF()}, REFERENCES, "bs", 200)()
    for found, key in zip(run_paired_tests(SYSTEMS, REFERENCES, "13a", 200, 2), ("BLEU", "chrF2"), strict=True):
        for system, told in zip(found.systems, theirs[key], strict=True):
            assert isinstance(told, Result)
            assert system.bootstrap == told.p_value
            assert (system.score.low + system.score.high) / 2 == pytest.approx(told.mean)
            assert (system.score.high - system.score.low) / 2 == pytest.approx(told.ci)
            assert system.score.signature == str(signatures[key])


def test_different_systems_are_significantly_different_and_equal_ones_are_not() -> None:
    for test in run_paired_tests([REFERENCE, noisy(REFERENCE, 0.7, 6), list(REFERENCE)], [REFERENCE], "13a", 100, 100):
        first, worse, same = test.systems
        assert (first.bootstrap, first.randomisation, first.difference, first.significant) == (None, None, 0.0, False)
        assert worse.significant
        assert worse.difference == pytest.approx(worse.score.value - first.score.value)
        # sacreBLEU says 1 / 101 here.
        assert (same.bootstrap, same.randomisation, same.significant) == (1.0, 1.0, False)


def test_a_few_different_sentences_are_not_significant() -> None:
    reference = [f"the {word} sits on the old mat" for word in ("cat", "dog", "bird", "cow", "hen", "fox") * 4]
    for changed, least in ((1, 1.0), (3, 0.25)):
        worse = [*("nothing like it" for _ in range(changed)), *reference[changed:]]
        for test in run_paired_tests([reference, worse], [reference], "13a", resamples=100, trials=200):
            assert (test.systems[1].randomisation or 0) >= least
            assert not test.systems[1].significant


def test_outputs_without_a_correct_letter_can_be_compared() -> None:
    bad = [["zz"] * 30, ["q"] * 30]
    for test in run_paired_tests([*bad, SYSTEMS[0]], [REFERENCE], "13a", 20, 20):
        assert [round(system.score.value) for system in test.systems][:2] == [0, 0]
        assert test.systems[2].significant


@pytest.mark.usefixtures("few_trials")
def test_large_test_sets_have_fewer_trials_and_say_so() -> None:
    for test in run_paired_tests(SYSTEMS[:2], [REFERENCE], "13a"):
        assert "|bs:7|" in test.systems[0].score.signature
        assert "|ar:9|" in test.randomisation_signature


def test_a_missing_output_is_refused() -> None:
    with pytest.raises(DataError, match=r"^29 translations but 30 lines in reference 1; they must pair up"):
        run_paired_tests([SYSTEMS[0], SYSTEMS[1][1:]], [REFERENCE], "13a")


# Parts of a test set


@given(st.lists(st.integers(0, 70)), st.sampled_from([LENGTHS, FREQUENCIES, (3,)]))
def test_everything_is_in_exactly_one_bucket(sizes: list[int], limits: tuple[int, ...]) -> None:
    found = make_buckets(sizes, limits)
    assert sorted(place for bucket in found for place in bucket.places) == list(range(len(sizes)))
    assert all(bucket.places for bucket in found)
    assert len({bucket.name for bucket in found}) == len(found)
    before = -1.0
    for bucket in found:
        assert all(before < sizes[place] <= bucket.limit for place in bucket.places)
        assert {name_bucket(sizes[place], limits) for place in bucket.places} == {bucket.name}
        before = bucket.limit


def test_buckets_have_readable_names() -> None:
    assert [bucket.name for bucket in make_buckets([0, 3, 5, 6, 51], LENGTHS)] == ["up to 5", "6 to 10", "over 50"]
    assert [bucket.name for bucket in make_buckets([0, 1, 3, 1000], FREQUENCIES)] == ["0", "1", "2 to 4", "over 999"]


def test_bleu_of_a_part_is_that_of_its_sentences_alone() -> None:
    some = [4, 1, 9]
    expected = bleu([SYSTEMS[0][n] for n in some], [[REFERENCE[n] for n in some]], "13a")
    assert partial_bleu(some, SYSTEMS[0], [REFERENCE], "13a") == expected


def test_f1_of_words_matches_a_calculation_by_hand() -> None:
    reference = [["the", "cat", "sat"], ["the", "the", "dog"]]
    ours = [["the", "the", "cat"], ["a", "the", "dog"]]
    seen = Counter({"the": 3000, "a": 200, "cat": 5, "dog": 1})
    never, once, some, often = f1_by_frequency([ours, reference], reference, seen)
    assert (never.name, never.count, never.values) == ("0", 1, (0.0, 100.0))  # no output has "sat"
    assert (once.name, once.count, once.values) == ("1", 1, (100.0, 100.0))
    assert (some.name, some.count, some.values) == ("5 to 9", 1, (100.0, 100.0))
    # "the": 3 in the output, 3 in the reference, 1 + 1 correct. "a", which no reference has, is in no row.
    assert (often.name, often.count) == ("over 999", 3)
    assert often.values == pytest.approx((200 / 3, 100.0))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_all_words_of_the_reference_are_counted(seed: int) -> None:
    reference = [line.split() for line in lines(9, seed)]
    seen = {word: Random(seed + number).choice([0, 1, 7, 50, 2000]) for number, word in enumerate(WORDS)}
    assert sum(part.count for part in f1_by_frequency([reference], reference, seen)) == sum(map(len, reference))


# Whole comparisons


@pytest.fixture
def example(few_trials: None) -> Comparison:
    one = System("one", ("the cat sat", "a dog ran .", "", "same"))
    two = System("two", ("a cat", "a dog ran on", "x", "same"))
    texts = EvaluationSet((("the cat sat", "a dog ran on", "x y", "same"),), ("w " * 7, "w", "", "w w"))
    return compare_outputs([one, two], texts, "13a")


def test_a_comparison_has_every_sentence_once(example: Comparison) -> None:
    assert [sentence.number for sentence in example.sentences] == [1, 2, 3, 4]
    assert [sentence.words for sentence in example.sentences] == [7, 1, 0, 2]
    assert sum(part.count for part in example.by_length) == 4
    assert (example.length_of, [part.name for part in example.by_length]) == ("source", ["up to 5", "6 to 10"])
    assert example.counted_in == "the references"
    assert example.length_ratios == pytest.approx((8 / 10, 8 / 10))


def test_wins_and_extremes_are_counted_from_the_first_system(example: Comparison) -> None:
    assert example.wins(1) == SentenceWins(better=2, worse=1, equal=1, identical=1)
    better, worse = example.extremes(1, 3)
    assert ([sentence.number for sentence in better], [sentence.number for sentence in worse]) == ([3, 2], [1])
    assert [sentence.number for sentence in example.extremes(1, 1)[0]] == [3]
    assert better[1].gain(1) == pytest.approx(100 - example.sentences[1].chrf[0], abs=1e-5)


@pytest.mark.usefixtures("few_trials")
def test_without_sources_lengths_are_those_of_the_reference() -> None:
    found = compare_outputs([System("a", ("x",)), System("b", ("y",))], EvaluationSet((("x " * 8,), ("y",))), "13a")
    assert (found.length_of, found.by_length[0].name) == ("reference", "6 to 10")
    assert found.sentences[0].references == ("x " * 8, "y")

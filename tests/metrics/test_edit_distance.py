"""Error rates of phonemes, words and characters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import DataError
from heedful.metrics import Score
from heedful.metrics.edit_distance import count_edits, score_characters, score_pronunciations, score_tokens

symbols = st.lists(st.sampled_from(["AH", "B", "IY", "ɑ̃", "aː"]), max_size=7)


def by_hand(a: list[str], b: list[str]) -> int:
    """The Levenshtein distance by its definition."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.metric: score for score in scores}


@settings(deadline=None)
@given(symbols, symbols)
def test_edits_are_the_levenshtein_distance(ours: list[str], right: list[str]) -> None:
    assert count_edits(ours, [right]) == (by_hand(ours, right), len(right))


@settings(deadline=None)
@given(symbols, st.lists(symbols, min_size=1, max_size=4))
def test_more_references_never_mean_more_edits(ours: list[str], several: list[list[str]]) -> None:
    counts = [count_edits(ours, several[: number + 1])[0] for number in range(len(several))]
    assert counts == sorted(counts, reverse=True)
    assert count_edits(ours, [*several, ours]) == (0, len(ours))


def test_among_equally_close_references_the_longest_counts() -> None:
    assert count_edits("ab", ["a", "abc", "ax"]) == (1, 3)


def test_wer_and_per_match_a_calculation_by_hand() -> None:
    outputs = [["AH", "B", "AE", "D", "IY"], ["K", "AE", "T"], ["R", "EH", "D"], ["D", "AO"]]
    references = [["AH B AA D IY"], ["K AE T"], ["R IY D", "R EH D"], ["D AO G"]]  # 1 of 5, 0 of 3, 0 of 3, 1 of 3
    scores = by_name(score_pronunciations(outputs, [[r.split() for r in several] for several in references]))
    assert scores["WER"].value == pytest.approx(50)
    assert scores["PER"].value == pytest.approx(100 * 2 / 14)
    assert scores["PER"].signature.startswith("bs:1000|seed:12345|nrefs:var|ref:closest|unit:phoneme|")


def test_cer_and_accuracy_match_a_calculation_by_hand() -> None:
    scores = by_name(score_characters(["ging", "kitten", "x"], [["ging"], ["sitting"], [""]], resamples=1))
    assert scores["accuracy"].value == pytest.approx(100 / 3)
    assert scores["CER"].value == pytest.approx(100 * 4 / 11)  # 0 of 4, 3 of 7, 1 of 0
    assert scores["CER"].low == scores["CER"].high == scores["CER"].value


def test_a_line_is_correct_only_as_a_whole() -> None:
    scores = by_name(score_tokens([["a", "b"], ["c"]], [[["a", "x"]], [["c"]]], resamples=1))
    assert scores["accuracy"].value == pytest.approx(50)
    assert scores["token errors"].value == pytest.approx(100 / 3)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(symbols, symbols), min_size=1, max_size=9))
def test_a_score_lies_in_its_interval(pairs: list[tuple[list[str], list[str]]]) -> None:
    for score in score_pronunciations([a for a, _ in pairs], [[b] for _, b in pairs], resamples=20):
        assert 0 <= score.low <= score.value <= score.high


def test_the_interval_of_a_share_is_that_of_the_binomial() -> None:
    # 100 of 400 wrong: 25 % +- 1.96 sqrt(0.25 * 0.75 / 400) = 4.24 %.
    wer = by_name(score_pronunciations([["A"]] * 400, [[["B"]]] * 100 + [[["A"]]] * 300))["WER"]
    assert wer.value == 25
    assert wer.low == pytest.approx(25 - 4.24, abs=0.6)
    assert wer.high == pytest.approx(25 + 4.24, abs=0.6)


@pytest.mark.parametrize(
    ("outputs", "references", "sentence"),
    [
        ([], [], "there are no outputs to score; the test set is empty"),
        (["a"], [["a"], ["b"]], "1 output but references for 2; they must pair up"),
        (["a", "b"], [["a"], []], "output 2 has no reference to compare with; give at least one"),
    ],
)
def test_inputs_that_cannot_be_scored_are_refused(
    outputs: list[str], references: list[list[str]], sentence: str
) -> None:
    with pytest.raises(DataError) as caught:
        score_characters(outputs, references)
    assert str(caught.value) == sentence

"""Scores: equal to the sacreBLEU command, to calculations by hand, and to the paper's BLEU."""

import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import ConfigError, DataError
from heedful.metrics.bleu import bleu, paper_bleu, score_translations, split_compounds, split_like_paper

HYPOTHESES = [
    "The cat sat on the old mat.",
    "It rains a lot in spring, doesn't it?",
    "A well-known state-of-the-art method was used.",
    "He said “nothing at all” and went home early today.",
    "She reads the newspaper every morning before work.",
]
REFERENCES = [
    "The cat sat on the mat.",
    "It rains a lot in autumn, doesn't it?",
    "A well-known state-of-the-art model was used.",
    'He said "nothing at all" and left home early today.',
    "She reads a newspaper every morning before her work.",
]
vocabulary = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", ".", ","]
words = st.lists(st.sampled_from(vocabulary), min_size=4, max_size=12)
lines = st.lists(words.map(" ".join), min_size=2, max_size=9)


def multi_bleu(hypotheses: list[str], references: list[str]) -> float:
    """The arithmetic of multi-bleu.perl, written independently."""
    right, total, length, wanted = [0] * 4, [0] * 4, 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        h, r = hypothesis.split(), reference.split()
        length, wanted = length + len(h), wanted + len(r)
        for n in range(1, 5):
            mine = Counter(tuple(h[i : i + n]) for i in range(len(h) - n + 1))
            theirs = Counter(tuple(r[i : i + n]) for i in range(len(r) - n + 1))
            right[n - 1] += sum((mine & theirs).values())
            total[n - 1] += sum(mine.values())
    penalty = min(1.0, math.exp(1 - wanted / length))
    return 100 * penalty * math.exp(sum(math.log(a / b) for a, b in zip(right, total, strict=True)) / 4)


@settings(deadline=None)
@given(lines)
def test_a_text_is_a_perfect_translation_of_itself(text: list[str]) -> None:
    for value in (bleu(text, [text], "13a"), paper_bleu(text, [text], "en", resamples=3).value):
        assert value == pytest.approx(100)
        assert value <= 100  # sacreBLEU's own is 100.00000000000004


@settings(deadline=None, max_examples=30)
@given(lines, lines, st.randoms(use_true_random=False))
def test_the_order_of_sentences_does_not_matter(ours: list[str], theirs: list[str], random: Random) -> None:
    pairs = list(zip(ours, theirs, strict=False))
    mixed = random.sample(pairs, len(pairs))
    before = score_translations([a for a, _ in pairs], [[b for _, b in pairs]], "13a", "en", resamples=1)
    after = score_translations([a for a, _ in mixed], [[b for _, b in mixed]], "13a", "en", resamples=1)
    assert [score.value for score in before] == pytest.approx([score.value for score in after])


@settings(deadline=None, max_examples=30)
@given(lines, lines)
def test_a_score_lies_in_its_interval(ours: list[str], theirs: list[str]) -> None:
    count = min(len(ours), len(theirs))
    for score in score_translations(ours[:count], [theirs[:count]], "13a", "en", resamples=20):
        assert 0 <= score.low <= score.value <= score.high
        assert score.metric == "TER" or score.high <= 100


def test_bleu_matches_a_calculation_by_hand() -> None:
    # "the cat sat on a mat" against "the cat sat on the mat": 5/6 words, 3/5 pairs, 2/4 triples, 1/3 quadruples.
    by_hand = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu(["the cat sat on a mat"], [["the cat sat on the mat"]], "none") == pytest.approx(by_hand)
    # Four words of six, all correct: only the brevity penalty counts.
    brevity = 100 * math.exp(1 - 6 / 4)
    assert bleu(["the cat sat on"], [["the cat sat on the mat"]], "none") == pytest.approx(brevity)


def test_a_second_reference_can_only_help() -> None:
    one = bleu(HYPOTHESES, [REFERENCES], "13a")
    assert bleu(HYPOTHESES, [REFERENCES, HYPOTHESES], "13a") == pytest.approx(100) != pytest.approx(one)


def test_the_values_and_signatures_are_those_of_the_sacrebleu_command(tmp_path: Path) -> None:
    hypotheses, references = tmp_path / "hyp", tmp_path / "ref"
    hypotheses.write_text("\n".join(HYPOTHESES) + "\n")
    references.write_text("\n".join(REFERENCES) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(references), "-i", str(hypotheses), "-m", "bleu", "chrf", "ter"]
    options = ["--confidence", "--confidence-n", "200", "--format", "text", "-w", "4"]
    said = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    for score, line in zip(
        score_translations(HYPOTHESES, [REFERENCES], "13a", "en", 200)[:3], said.splitlines(), strict=True
    ):
        name, signature = line.split(" = ")[0].split("|", 1)
        mean, margin = line.split("μ = ")[1].split(")")[0].split(" ± ")
        assert name.strip().startswith(score.metric)
        assert signature == score.signature
        assert float(line.split(" = ")[1].split()[0]) == pytest.approx(score.value, abs=6e-5)
        assert score.low == pytest.approx(float(mean) - float(margin), abs=2e-4)
        assert score.high == pytest.approx(min(100, float(mean) + float(margin)), abs=2e-4)


def test_the_same_seed_gives_the_same_interval() -> None:
    assert score_translations(HYPOTHESES, [REFERENCES], "13a", "en") == score_translations(
        HYPOTHESES, [REFERENCES], "13a", "en"
    )


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("state-of-the-art", "state ##AT##-##AT## of ##AT##-##AT## the ##AT##-##AT## art"),
        ("a - b", "a - b"),
        ("-5 or 5-", "-5 or 5-"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # as in the Perl one-liner
        ("", ""),
    ],
)
def test_compounds_are_split_at_their_hyphens(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_the_papers_tokens_have_plain_quotes_and_moses_words() -> None:
    assert split_like_paper(["„So“, sagt’s, «ist’s» z.B. E-Mail.", "x & y"], "de") == [
        "&quot; So &quot; , sagt &apos; s , &quot; ist &apos; s &quot; z.B. E ##AT##-##AT## Mail .",
        "x &amp; y",
    ]


def test_the_papers_bleu_is_multi_bleu_of_the_papers_tokens() -> None:
    score = paper_bleu(HYPOTHESES, [REFERENCES], "en", resamples=10)
    assert score.value == pytest.approx(
        multi_bleu(split_like_paper(HYPOTHESES, "en"), split_like_paper(REFERENCES, "en"))
    )
    assert score.value > bleu(HYPOTHESES, [REFERENCES], "13a"), "split compounds are more words to get right"
    assert score.metric == "BLEU (paper)"
    assert score.signature.startswith(
        "nrefs:1|bs:10|seed:12345|case:mixed|eff:no|tok:moses-en-compound-split|smooth:exp|version:"
    )
    assert "|quotes:ascii|sacremoses:" in score.signature


def test_case_counts_in_the_papers_bleu() -> None:
    lowered = [line.lower() for line in HYPOTHESES]
    assert paper_bleu(lowered, [HYPOTHESES], "en", resamples=2).value < 90


def test_tokenised_text_is_scored_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tokenised = ["this is a sentence ."] * 150
    assert bleu(tokenised, [tokenised], "13a") == pytest.approx(100)
    assert not caplog.records


def test_ter_counts_chinese_characters_as_words() -> None:
    scores = {score.metric: score for score in score_translations(["我爱北京"], [["我爱南京"]], "zh", "zh", 2)}
    assert scores["TER"].value == pytest.approx(25)
    assert "asian:yes" in scores["TER"].signature


def test_inputs_that_cannot_be_scored_are_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match="2 translations but 3 lines in reference 2; they must pair up"):
        bleu(["a", "b"], [["a", "b"], ["a", "b", "c"]], "13a")
    with pytest.raises(DataError, match="there are no translations to score; the test set is empty"):
        score_translations([], [[]], "13a", "en")
    with pytest.raises(DataError, match="there are no references to compare with"):
        paper_bleu(["a"], [], "en")


def test_an_uninstalled_tokenizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise RuntimeError("\nmecab is not there.\nInstall it.")

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", missing)
    with pytest.raises(
        ConfigError, match=r"evaluate.tokenize = 'ja-mecab' needs .* \(mecab is not there\.\); use '13a'"
    ):
        bleu(["a"], [["a"]], "ja-mecab")


def test_an_output_that_shares_no_character_does_not_break_the_interval() -> None:
    scores = score_translations(["zzz", "zzz", "a dog"], [["a cat", "a cow", "a dog"]], "13a", "en", resamples=50)
    chrf = next(score for score in scores if score.metric == "chrF")
    assert 0.0 <= chrf.low < chrf.value < chrf.high <= 100.0

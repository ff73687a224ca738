"""Compare several systems on one test set, each with the first: scores, significance, and where they differ.

sacreBLEU's two paired tests say whether one system is better than another or was merely lucky. Both ask how often a
difference as large as this one would appear if the two systems were equally good. The bootstrap draws other test sets
from this one (Koehn 2004); approximate randomisation swaps the two outputs of some sentences (Riezler and Maxwell
2005).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast

from heedful.config.experiment import BleuTokens
from heedful.metrics import Score
from heedful.metrics.bleu import check_line_counts, limit_resamples, make_bleu, make_score, split_words
from heedful.metrics.breakdown import LENGTHS, BucketScore, f1_by_frequency, make_buckets, partial_bleu

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.significance import PairedTest, Result

SIGNIFICANT = 0.05

# sacreBLEU makes all trials at once and needs about ten bytes per sentence. Above this limit there are fewer
# trials, and the signature says how many.
_MAX_SHUFFLED_SENTENCES = 40_000_000


@dataclass(frozen=True, slots=True)
class SystemTest:
    """The score of one system, and its difference from the first; the first system has no p-values."""

    score: Score
    difference: float
    bootstrap: float | None
    randomisation: float | None

    @property
    def significant(self) -> bool:
        """Whether both tests find the difference significant."""
        ps = (self.bootstrap, self.randomisation)
        return all(p is not None and p < SIGNIFICANT for p in ps)


@dataclass(frozen=True, slots=True)
class MetricTest:
    """The tests of all systems with one metric. The signature of the scores is that of the bootstrap."""

    metric: str
    systems: tuple[SystemTest, ...]
    randomisation_signature: str


def run_paired_tests(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    resamples: int = 1000,
    trials: int = 10_000,
) -> list[MetricTest]:
    """BLEU and chrF of several systems, each tested against the first."""
    from heedful.metrics.chrf import Chrf

    for outputs in systems:
        check_line_counts(outputs, references)
    count = len(systems[0])
    numbers = limit_resamples(resamples, count), min(trials, max(2, _MAX_SHUFFLED_SENTENCES // count))
    return [
        _test("BLEU", lambda: make_bleu(tokenize), systems, references, *numbers),
        _test("chrF", Chrf, systems, references, *numbers),
    ]


def _test(
    name: str,
    metric: "Callable[[], Metric]",
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    resamples: int,
    trials: int,
) -> MetricTest:
    from sacrebleu.significance import PairedTest

    named = [(str(number), outputs) for number, outputs in enumerate(systems)]
    signature, drawn = _results(PairedTest(named, {name: metric()}, references, "bs", resamples))
    other_signature, shuffled = _results(PairedTest(named, {name: metric()}, references, "ar", trials))
    base = float(drawn[0].score)
    tested: list[SystemTest] = []
    for ours, theirs, outputs in zip(drawn, shuffled, systems, strict=True):
        value = float(ours.score)
        score = make_score(name, value, float(ours.mean or value), float(ours.ci or 0.0), signature)
        # sacreBLEU counts the trials that exceed the difference, so it would call two equal systems different.
        ps = (1.0, 1.0) if value == base else (ours.p_value, _bound_p(theirs.p_value, systems[0], outputs))
        tested.append(SystemTest(score, value - base, *(ps if tested else (None, None))))
    return MetricTest(name, tuple(tested), other_signature)


def _bound_p(p: float | None, ours: Sequence[str], theirs: Sequence[str]) -> float | None:
    """The p-value of randomisation, but at least the share of swaps that change nothing."""
    differ = sum(one != other for one, other in zip(ours, theirs, strict=True))
    return None if p is None else max(p, 2.0 ** (1 - differ))


def _results(test: "PairedTest") -> "tuple[str, list[Result]]":
    """The signature, and the result of each system."""
    signatures, results = test()
    ((name, signature),) = signatures.items()  # the metric by sacreBLEU's own name
    return str(signature), cast("list[Result]", results[name])


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The lines of a test set: the sources, if known, and one list for each set of references."""

    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class System:
    """A name, and the system's translation of each line."""

    name: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the test set, with each system's output and its chrF."""

    number: int  # from 1
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    chrf: tuple[float, ...]
    words: int  # decides its bucket in `by_length`

    def gain(self, system: int) -> float:
        """The system's chrF minus the first system's, without rounding errors."""
        return round(self.chrf[system] - self.chrf[0], 6)


@dataclass(frozen=True, slots=True)
class SentenceWins:
    """The numbers of sentences with a better, worse or equal chrF than the first system, and with the same text."""

    better: int
    worse: int
    equal: int
    identical: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores, tests and sentences of several systems, always in the order of `names`."""

    names: tuple[str, ...]
    tests: tuple[MetricTest, ...]
    length_ratios: tuple[float, ...]  # words of the outputs over those of the references
    length_of: str  # the side whose words `by_length` counts: source or reference
    by_length: tuple[BucketScore, ...]  # BLEU
    counted_in: str  # the text whose word frequencies `by_frequency` uses
    by_frequency: tuple[BucketScore, ...]  # F1 of words
    sentences: tuple[Sentence, ...]

    def wins(self, system: int) -> SentenceWins:
        """How many sentences a system translates better or worse than the first."""
        gains = [sentence.gain(system) for sentence in self.sentences]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        identical = sum(sentence.outputs[system] == sentence.outputs[0] for sentence in self.sentences)
        return SentenceWins(better, worse, len(gains) - better - worse, identical)

    def extremes(self, system: int, most: int) -> tuple[list[Sentence], list[Sentence]]:
        """The sentences where a system gains most, and those where it loses most; at most `most` of each."""
        ranked = sorted(self.sentences, key=lambda sentence: -sentence.gain(system))
        gained = [sentence for sentence in ranked[:most] if sentence.gain(system) > 0]
        return gained, [sentence for sentence in ranked[: -most - 1 : -1] if sentence.gain(system) < 0]


def compare_outputs(
    systems: Sequence[System],
    test: EvaluationSet,
    tokenize: BleuTokens,
    frequency: Mapping[str, int] | None = None,
    counted_in: str = "the references",
) -> Comparison:
    """Score all systems. `frequency` holds the count of each word in `counted_in`; None: counts in the references."""
    for system in systems:
        check_line_counts(system.outputs, test.references)
    outputs = [system.outputs for system in systems]
    lengths = [len(line.split()) for line in test.sources or test.references[0]]
    if frequency is None:
        frequency = Counter(chain.from_iterable(split_words(chain.from_iterable(test.references), tokenize)))
    output_words = [list(split_words(lines, tokenize)) for lines in outputs]
    return Comparison(
        tuple(system.name for system in systems),
        tuple(run_paired_tests(outputs, test.references, tokenize)),
        tuple(_length_ratio(lines, test.references, tokenize) for lines in outputs),
        "source" if test.sources else "reference",
        tuple(
            BucketScore(
                bucket.name,
                len(bucket.places),
                tuple(partial_bleu(bucket.places, lines, test.references, tokenize) for lines in outputs),
            )
            for bucket in make_buckets(lengths, LENGTHS)
        ),
        counted_in,
        tuple(f1_by_frequency(output_words, list(split_words(test.references[0], tokenize)), frequency)),
        tuple(_sentences(outputs, test, lengths)),
    )


def _length_ratio(outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    score = make_bleu(tokenize).corpus_score(outputs, references)
    return float(score.sys_len / score.ref_len) if score.ref_len else 0.0


def _sentences(outputs: Sequence[Sequence[str]], test: EvaluationSet, lengths: Sequence[int]) -> list[Sentence]:
    from heedful.metrics.chrf import Chrf

    metric, sentences = Chrf(), []
    for place, words in enumerate(lengths):
        references = tuple(lines[place] for lines in test.references)
        several = tuple(lines[place] for lines in outputs)
        scores = tuple(float(metric.sentence_score(output, references).score) for output in several)
        source = test.sources[place] if test.sources else None
        sentences.append(Sentence(place + 1, source, references, several, scores, words))
    return sentences

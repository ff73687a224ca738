"""Translations of one test set by several systems side by side; each is compared with the first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from heedful.config.experiment import BleuTokens
from heedful.metrics.bleu import check_line_counts, make_bleu, split_words
from heedful.metrics.breakdown import LENGTHS, BucketScore, f1_by_frequency, make_buckets, partial_bleu
from heedful.metrics.significance import MetricTest, run_paired_tests


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
    """Numbers of sentences: with a better, worse or equal chrF than the first system's, and with the same text."""

    better: int
    worse: int
    equal: int
    identical: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores, tests and sentences of several systems; values of each system are in the order of `names`."""

    names: tuple[str, ...]
    tests: tuple[MetricTest, ...]
    length_ratios: tuple[float, ...]  # words of the outputs over those of the references
    length_of: str  # the side whose words `by_length` counts: source or reference
    by_length: tuple[BucketScore, ...]  # BLEU
    counted_in: str  # the text that the frequencies of `by_frequency` come from
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

"""Translations of one test set by several systems, side by side; all others are compared with the first."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from heedful.config.experiment import BleuTokens
from heedful.metrics.bleu import bleu_metric, check_paired, words_of
from heedful.metrics.breakdown import LENGTHS, PartScore, bleu_in, buckets, f1_by_frequency
from heedful.metrics.significance import MetricTest, paired_tests


@dataclass(frozen=True, slots=True)
class Texts:
    """Line by line: sources, if they are known, and one list for each set of references."""

    references: tuple[tuple[str, ...], ...]
    sources: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class System:
    """Who has translated, and what came out."""

    name: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One of the test set, with what each system made of it and its sentence chrF."""

    number: int  # from 1
    source: str | None
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    chrf: tuple[float, ...]
    words: int  # what it counts for in `by_length`

    def gain(self, system: int) -> float:
        """How much better than the first system this one does; rounding is no difference."""
        return round(self.chrf[system] - self.chrf[0], 6)


@dataclass(frozen=True, slots=True)
class Wins:
    """In how many sentences a system has a better, worse, or the same chrF as the first; `identical`: the same text."""

    better: int
    worse: int
    equal: int
    identical: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is known of several systems; everything that is of each of them is in their order."""

    names: tuple[str, ...]
    tests: tuple[MetricTest, ...]
    length_ratios: tuple[float, ...]  # words of the outputs over those of the references
    length_of: str  # which side `by_length` counts the words of: source or reference
    by_length: tuple[PartScore, ...]  # BLEU
    counted_in: str  # where the frequencies of `by_frequency` are from
    by_frequency: tuple[PartScore, ...]  # F1 of words
    sentences: tuple[Sentence, ...]

    def wins(self, system: int) -> Wins:
        """How the sentences of a system compare with those of the first."""
        gains = [sentence.gain(system) for sentence in self.sentences]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        identical = sum(sentence.outputs[system] == sentence.outputs[0] for sentence in self.sentences)
        return Wins(better, worse, len(gains) - better - worse, identical)

    def extremes(self, system: int, most: int) -> tuple[list[Sentence], list[Sentence]]:
        """Where a system gains most, and where it loses most, at most so many of each."""
        ranked = sorted(self.sentences, key=lambda sentence: -sentence.gain(system))
        gained = [sentence for sentence in ranked[:most] if sentence.gain(system) > 0]
        return gained, [sentence for sentence in ranked[: -most - 1 : -1] if sentence.gain(system) < 0]


def compare(
    systems: Sequence[System],
    test: Texts,
    tokenize: BleuTokens,
    frequency: Mapping[str, int] | None = None,
    counted_in: str = "the references",
) -> Comparison:
    """Score all systems. `frequency` is how often each word was seen in `counted_in`; without it, in the references."""
    for system in systems:
        check_paired(system.outputs, test.references)
    outputs = [system.outputs for system in systems]
    lengths = [len(line.split()) for line in test.sources or test.references[0]]
    if frequency is None:
        frequency = Counter(chain.from_iterable(words_of(chain.from_iterable(test.references), tokenize)))
    spoken = [list(words_of(lines, tokenize)) for lines in outputs]
    return Comparison(
        tuple(system.name for system in systems),
        tuple(paired_tests(outputs, test.references, tokenize)),
        tuple(_length_ratio(lines, test.references, tokenize) for lines in outputs),
        "source" if test.sources else "reference",
        tuple(
            PartScore(
                bucket.name,
                len(bucket.places),
                tuple(bleu_in(bucket.places, lines, test.references, tokenize) for lines in outputs),
            )
            for bucket in buckets(lengths, LENGTHS)
        ),
        counted_in,
        tuple(f1_by_frequency(spoken, list(words_of(test.references[0], tokenize)), frequency)),
        tuple(_sentences(outputs, test, lengths)),
    )


def _length_ratio(outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    score = bleu_metric(tokenize).corpus_score(outputs, references)
    return float(score.sys_len / score.ref_len) if score.ref_len else 0.0


def _sentences(outputs: Sequence[Sequence[str]], test: Texts, lengths: Sequence[int]) -> list[Sentence]:
    from heedful.metrics.chrf import Chrf

    metric, sentences = Chrf(), []
    for place, words in enumerate(lengths):
        references = tuple(lines[place] for lines in test.references)
        several = tuple(lines[place] for lines in outputs)
        scores = tuple(float(metric.sentence_score(output, references).score) for output in several)
        source = test.sources[place] if test.sources else None
        sentences.append(Sentence(place + 1, source, references, several, scores, words))
    return sentences

"""Whether one system is better than another, or was lucky: sacreBLEU's paired tests.

Both ask how often a difference as large as this one would be seen if the two were equally good: the bootstrap draws
other test sets out of this one (Koehn 2004), approximate randomisation exchanges the two outputs of some sentences
(Riezler and Maxwell 2005).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from heedful.config.experiment import BleuTokens
from heedful.metrics.bleu import affordable, bleu_metric, check_paired, score_around
from heedful.metrics.score import Score

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.significance import PairedTest, Result

SIGNIFICANT = 0.05

# sacreBLEU forms all trials at once, about ten bytes a sentence; beyond this, there are fewer, and the signature says
# how many.
_MAX_SHUFFLED_SENTENCES = 40_000_000


@dataclass(frozen=True, slots=True)
class Tested:
    """The score of one system, and what it is over the first one's; the first itself has no p-values."""

    score: Score
    difference: float
    bootstrap: float | None
    randomisation: float | None

    @property
    def significant(self) -> bool:
        """Whether both tests say that it is not by chance."""
        ps = (self.bootstrap, self.randomisation)
        return all(p is not None and p < SIGNIFICANT for p in ps)


@dataclass(frozen=True, slots=True)
class MetricTest:
    """All systems by one metric. The signature of their scores is that of the bootstrap."""

    metric: str
    systems: tuple[Tested, ...]
    randomisation_signature: str


def paired_tests(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    resamples: int = 1000,
    trials: int = 10_000,
) -> list[MetricTest]:
    """BLEU and chrF of the outputs of several systems, and whether they differ from the first one's."""
    from heedful.metrics.chrf import Chrf

    for outputs in systems:
        check_paired(outputs, references)
    count = len(systems[0])
    numbers = affordable(resamples, count), min(trials, max(2, _MAX_SHUFFLED_SENTENCES // count))
    return [
        _test("BLEU", lambda: bleu_metric(tokenize), systems, references, *numbers),
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
    tested: list[Tested] = []
    for ours, theirs, outputs in zip(drawn, shuffled, systems, strict=True):
        value = float(ours.score)
        score = score_around(name, value, float(ours.mean or value), float(ours.ci or 0.0), signature)
        # sacreBLEU counts what is beyond the difference: of two that are the same it would be sure that they differ.
        ps = (1.0, 1.0) if value == base else (ours.p_value, _at_least(theirs.p_value, systems[0], outputs))
        tested.append(Tested(score, value - base, *(ps if tested else (None, None))))
    return MetricTest(name, tuple(tested), other_signature)


def _at_least(p: float | None, ours: Sequence[str], theirs: Sequence[str]) -> float | None:
    """The p-value of randomisation, which also does not count the ways to exchange outputs that change nothing."""
    differ = sum(one != other for one, other in zip(ours, theirs, strict=True))
    return None if p is None else max(p, 2.0 ** (1 - differ))


def _results(test: "PairedTest") -> "tuple[str, list[Result]]":
    """The signature, and what came out for each system."""
    signatures, results = test()
    ((name, signature),) = signatures.items()  # the metric by sacreBLEU's own name
    return str(signature), cast("list[Result]", results[name])

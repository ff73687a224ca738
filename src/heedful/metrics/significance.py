"""sacreBLEU's paired tests: is one system better than another, or was it lucky?

Both tests ask how often a difference as large as this one would appear if the two systems were equally good. The
bootstrap draws other test sets from this one (Koehn 2004); approximate randomisation swaps the two outputs of some
sentences (Riezler and Maxwell 2005).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from heedful.config.experiment import BleuTokens
from heedful.metrics import Score
from heedful.metrics.bleu import check_line_counts, limit_resamples, make_bleu, make_score

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.significance import PairedTest, Result

SIGNIFICANT = 0.05

# sacreBLEU forms all trials at once, about ten bytes a sentence. Above this limit there are fewer trials, and the
# signature says how many.
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
    """All systems by one metric. The signature of the scores is the bootstrap's."""

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
    """BLEU and chrF of several systems, each with tests against the first."""
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
        # sacreBLEU counts trials beyond the difference, so it would find two equal systems significantly different.
        ps = (1.0, 1.0) if value == base else (ours.p_value, _bound_p(theirs.p_value, systems[0], outputs))
        tested.append(SystemTest(score, value - base, *(ps if tested else (None, None))))
    return MetricTest(name, tuple(tested), other_signature)


def _bound_p(p: float | None, ours: Sequence[str], theirs: Sequence[str]) -> float | None:
    """The p-value of randomisation, but not less than the share of swaps that change nothing."""
    differ = sum(one != other for one, other in zip(ours, theirs, strict=True))
    return None if p is None else max(p, 2.0 ** (1 - differ))


def _results(test: "PairedTest") -> "tuple[str, list[Result]]":
    """The signature, and the result of each system."""
    signatures, results = test()
    ((name, signature),) = signatures.items()  # the metric by sacreBLEU's own name
    return str(signature), cast("list[Result]", results[name])

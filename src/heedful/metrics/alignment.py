"""Word alignments: their text format, and their error rate against manual alignments."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

Link = tuple[int, int]  # a source word and a target word, both counted from 0


@dataclass(frozen=True, slots=True)
class AlignmentScore:
    """Agreement with alignments made by people (Och and Ney 2003); all values are between 0 and 1."""

    precision: float  # the share of found links that are possible
    recall: float  # the share of sure links that were found
    error_rate: float


def alignment_score(
    found: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]] | None = None
) -> AlignmentScore:
    """Alignment error rate over all sentences together. Sure links always count as possible; None: no others do."""
    hits = likely = links = wanted = 0
    for own, certain, more in zip(found, sure, sure if possible is None else possible, strict=True):
        hits += len(own & certain)
        likely += len(own & (certain | more))
        links += len(own)
        wanted += len(certain)
    return AlignmentScore(_share(likely, links), _share(hits, wanted), 1.0 - _share(hits + likely, links + wanted))


def format_pharaoh(links: Iterable[Link]) -> str:
    """Links in the common text format: `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def _share(part: int, whole: int) -> float:
    """The share of a whole; 1 if the whole is 0, because nothing was wrong."""
    return part / whole if whole else 1.0

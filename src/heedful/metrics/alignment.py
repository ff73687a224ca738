"""Word alignments: how they are written, and how right they are."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

Link = tuple[int, int]  # a source word and a target word, both counted from 0


@dataclass(frozen=True, slots=True)
class AlignmentScore:
    """How alignments compare with those that people have made (Och and Ney 2003), all between 0 and 1."""

    precision: float  # of the links found, those that are possible
    recall: float  # of the sure links, those that were found
    error_rate: float


def alignment_score(
    found: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]] | None = None
) -> AlignmentScore:
    """Alignment error rate, over all sentences together; a sure link is possible, too. None: only those are."""
    hits = likely = links = wanted = 0
    for own, certain, more in zip(found, sure, sure if possible is None else possible, strict=True):
        hits += len(own & certain)
        likely += len(own & (certain | more))
        links += len(own)
        wanted += len(certain)
    return AlignmentScore(_share(likely, links), _share(hits, wanted), 1.0 - _share(hits + likely, links + wanted))


def pharaoh(links: Iterable[Link]) -> str:
    """Write links as all tools do: `0-0 1-2`."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def _share(part: int, whole: int) -> float:
    """Of nothing all is right."""
    return part / whole if whole else 1.0

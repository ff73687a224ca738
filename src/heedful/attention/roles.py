"""Name each head by what it mostly does. The rules are tried in this order:

1. previous token, next token, same token, delimiter, alignment, rare word: among those that reach their threshold, the
   one furthest above chance. In cross attention, alignment takes the place of previous, next and same token.
2. positional: the same three neighbouring offsets in most sentences.
3. broad: weight spread over many keys.
4. mixed: none of these.

Thresholds apply to `AttentionShare.over_chance`, so a head does not get a role just because sentences are short, where
every head must look at the neighbours, or because a text has much punctuation. We set the thresholds by looking at many
heads; they are conventions, not laws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from heedful.attention.head_names import Head
from heedful.attention.measures import WINDOW, AttentionShare, HeadMeasures
from heedful.nn.multi_head import Kind

RoleName = Literal[
    "previous token",
    "next token",
    "same token",
    "alignment",
    "delimiter",
    "rare word",
    "positional",
    "broad",
    "mixed",
]
# Light enough for black text; they also differ in lightness, as far as nine colours can.
ROLE_COLOURS: dict[RoleName, str] = {
    "previous token": "#7fb2e5",
    "next token": "#a8d8f0",
    "same token": "#c3b1e1",
    "alignment": "#8fd19e",
    "delimiter": "#f4a582",
    "rare word": "#e79ac0",
    "positional": "#9ad7d0",
    "broad": "#f6dc85",
    "mixed": "#d5d5d5",
}
ROLE_MEANINGS: dict[RoleName, str] = {
    "previous token": "attends to the token before; in the decoder, to the token just generated",
    "next token": "attends to the token after",
    "same token": "attends to its own token",
    "alignment": "follows the other sentence along the diagonal",
    "delimiter": "attends to punctuation and to the start or the end of the sentence",
    "rare word": "attends to the rarest tokens of the text",
    "positional": "attends to the same three neighbouring positions in most sentences",
    "broad": "attends to many tokens at once",
    "mixed": "no role stands out",
}

MOSTLY = 0.4  # about half of the weight, if chance alone gives a seventh
ALIGNED = 0.3  # lower, because word order differs: even a perfect alignment is not all on the diagonal
FOR_RARE = 0.2  # lower, because a sentence may contain only part of one rare word
STABLE = 0.85  # below it, a head follows the words more than the positions
SPREAD = 0.75  # as if spread evenly over 8 of 16 keys, since 16 ** 0.75 = 8


@dataclass(frozen=True, slots=True)
class Role:
    """What a head mostly does, and the evidence."""

    name: RoleName
    evidence: str
    figure: str  # the number in the evidence, for places with no room for a sentence


def name_roles(measures: Mapping[Head, HeadMeasures]) -> dict[Head, Role]:
    return {head: name_role(head.kind, measured) for head, measured in measures.items()}


def name_role(kind: Kind, measured: HeadMeasures) -> Role:
    """The role of a head of this kind of attention."""
    candidates = _candidates(kind, measured)
    reached = [candidate for candidate in candidates if candidate.share.over_chance >= candidate.threshold]
    if reached:
        best = max(reached, key=lambda candidate: candidate.share.over_chance)
        return Role(best.name, best.evidence, percent(best.share.share))
    if measured.window.over_chance >= MOSTLY and measured.stability >= STABLE:
        figure, offsets = percent(measured.window.share), _offsets(measured.window_at)
        own = "the diagonal" if kind == "cross" else "its own position"
        evidence = (
            f"{figure} of its weight at offsets {offsets} from {own} (by chance {percent(measured.window.chance)})"
        )
        return Role("positional", evidence, f"{offsets}: {figure}")
    if measured.spread >= SPREAD:
        figure = percent(measured.spread)
        return Role("broad", f"its entropy is {figure} of the largest possible", figure)
    best = max(candidates, key=lambda candidate: candidate.share.over_chance)
    return Role("mixed", f"nothing stands out: {best.evidence}", "")


def percent(share: float) -> str:
    """A share as a percentage, such as "40 %"."""
    return f"{100 * share:.0f} %"


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: RoleName
    share: AttentionShare
    threshold: float
    where: str

    @property
    def evidence(self) -> str:
        return f"{percent(self.share.share)} of its weight {self.where} (by chance {percent(self.share.chance)})"


def _candidates(kind: Kind, measured: HeadMeasures) -> list[_Candidate]:
    """All roles that go by a share, in the order that breaks ties."""
    previous = "on the token just generated" if kind == "decoder" else "on the previous token"
    places = [
        _Candidate("previous token", measured.previous, MOSTLY, previous),
        _Candidate("next token", measured.next, MOSTLY, "on the next token"),
        _Candidate("same token", measured.same, MOSTLY, "on the token itself"),
    ]
    if kind == "cross":
        places = [_Candidate("alignment", measured.diagonal, ALIGNED, "within one token of the diagonal")]
    special = "the start symbol" if kind == "decoder" else "EOS"
    return [
        *places,
        _Candidate("delimiter", measured.delimiter, MOSTLY, f"on punctuation and {special}"),
        _Candidate("rare word", measured.rare, FOR_RARE, "on rare tokens"),
    ]


def _offsets(middle: int) -> str:
    first, last = (f"{place:+d}" if place else "0" for place in (middle - WINDOW // 2, middle + WINDOW // 2))
    return f"{first} to {last}"

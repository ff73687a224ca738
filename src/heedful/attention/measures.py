"""Measures of what heads attend to: means over the sentences of a corpus.

The position of a query is that of the piece to which its row belongs. An offset says how many pieces after the query a
key is:

- encoder: key - query. 0 is the same token, -1 the previous one, +1 the next one.
- decoder: a row belongs to the piece that it produced, and a column to the piece that was fed in. So -1, the previous
  token, is the piece just written, and offsets of 0 or more are masked. The start symbol comes before the first piece.
- cross: sentences differ in length, so positions are scaled: the first target piece is at the first source piece, the
  last (EOS) at the last (EOS), and the others in proportion. Offsets may be fractions, and count as "previous", "same"
  or "next" by the nearest whole number.

All rows count, including those of EOS, because the model computes with them. The only exception is a row that sees just
one key, such as the first row of every decoder: it says nothing about its head.
"""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float

from heedful.attention.head_names import KINDS, Head
from heedful.attention.record import Attention, HeadWeights
from heedful.nn.multi_head import Kind
from heedful.text.byte_level_bpe import EOS

RARE_SHARE = 0.1  # the share of the running pieces that count as rare
REACH = 8  # larger offsets are counted together
WINDOW = 3  # neighbouring offsets

_SHARES = ("previous", "same", "next", "diagonal", "punctuation", "special", "delimiter", "rare")
_Place = TypeVar("_Place")
_Sums = dict[str, Float[np.ndarray, "_heads *_values"]]
_OfHead = dict[str, Float[np.ndarray, "*_values"]]


@dataclass(frozen=True, slots=True)
class PieceMarks:
    """Marks for the pieces of a sentence that are punctuation, EOS or rare."""

    punctuation: Bool[np.ndarray, " pieces"]
    end: Bool[np.ndarray, " pieces"]
    rare: Bool[np.ndarray, " pieces"]


@dataclass(frozen=True, slots=True)
class AttentionShare:
    """The share of its weight that a head gives to some keys, in rows that see such a key; 0 if no row does."""

    share: float
    chance: float  # the share with uniform attention

    @property
    def over_chance(self) -> float:
        """The share, corrected for chance as in Cohen's kappa: 1 for all weight, 0 for no more than chance.

        Where chance already gives nearly everything, only rounding is left, so it is 0.
        """
        return (self.share - self.chance) / (1.0 - self.chance) if self.chance < 0.99 else 0.0


@dataclass(frozen=True, slots=True)
class HeadMeasures:
    """Everything measured of one head; values are means over rows unless a comment says otherwise."""

    sentences: int
    rows: int
    entropy: float  # of a row, in nats
    spread: float  # entropy over its maximum, the log of the number of keys that the row sees
    strongest: float  # the largest weight in a row
    distance: float  # the offset without its sign, weighted by attention
    direction: float  # the offset, weighted by attention: negative is back, positive is ahead
    previous: AttentionShare
    same: AttentionShare
    next: AttentionShare
    diagonal: (
        AttentionShare  # at most one piece away; in cross attention: alignment of a language pair with similar order
    )
    punctuation: AttentionShare
    special: AttentionShare  # EOS; in the decoder, which never reads EOS, the start symbol
    delimiter: AttentionShare  # punctuation or special
    rare: AttentionShare
    window: AttentionShare  # the three neighbouring offsets with most weight
    window_at: int  # the middle offset of the window
    stability: float  # see `_stability`


def find_rare_pieces(sentences: Iterable[Sequence[str]]) -> frozenset[str]:
    """The rarest pieces, which make up at most a tenth of the corpus; the very rarest always count.

    Equally frequent pieces are either all rare or none of them is.
    """
    counts = Counter(piece for pieces in sentences for piece in pieces)
    of_count = Counter(counts.values())
    room, limit = RARE_SHARE * counts.total(), min(of_count, default=0)
    for count in sorted(of_count):
        room -= count * of_count[count]
        if room < 0:
            break
        limit = count
    return frozenset(piece for piece, count in counts.items() if count <= limit)


def mark_pieces(pieces: Sequence[str], rare: Collection[str]) -> PieceMarks:
    """The marks of one sentence; punctuation and EOS are never rare."""
    punctuation = np.array([_is_punctuation(piece.strip("▁")) for piece in pieces], dtype=bool)
    end = np.array([piece == EOS and place == len(pieces) - 1 for place, piece in enumerate(pieces)], dtype=bool)
    is_rare = np.array([piece in rare for piece in pieces], dtype=bool)
    return PieceMarks(punctuation & ~end, end, is_rare & ~punctuation & ~end)


def _is_punctuation(text: str) -> bool:
    return text != "" and all(unicodedata.category(character).startswith("P") for character in text)


class HeadStatistics:
    """Adds up sentences; you can read `measures` at any time."""

    def __init__(self) -> None:
        self._layers: dict[tuple[Kind, int], _Sums] = {}
        self._chance: dict[Kind, _Sums] = {}  # the same sums under uniform attention
        self._rows: dict[Kind, _Sums] = {}  # rows that see each kind of key, all rows, sentences

    def add(self, attention: Attention, source: PieceMarks, target: PieceMarks) -> None:
        """Add one sentence pair."""
        for kind in KINDS:
            view = _view(kind, source, target)
            if not attention.of(kind) or not view.rows.any():
                continue
            _add(self._rows, kind, view.counts())
            _add(self._chance, kind, _sums(view.uniform[None], view))
            for layer, weights in enumerate(attention.of(kind)):
                _add(self._layers, (kind, layer), _sums(weights.astype(np.float64), view))

    def measures(self) -> dict[Head, HeadMeasures]:
        """The measures, in order, of all heads that ever had more than one key to choose from."""
        places = sorted(self._layers, key=lambda place: (KINDS.index(place[0]), place[1]))
        return {
            Head(kind, layer, index): _measures(_of_head(sums, index), _of_head(self._chance[kind], 0), rows)
            for kind, layer in places
            for sums, rows in [(self._layers[kind, layer], _of_head(self._rows[kind], 0))]
            for index in range(len(sums["entropy"]))
        }


@dataclass(frozen=True, slots=True)
class _View:
    """The keys that the queries of one attention see in one sentence pair."""

    visible: Bool[np.ndarray, "query key"]
    offset: Float[np.ndarray, "query key"]
    shares: Float[np.ndarray, "shares query key"]  # 1 where a key is visible and of this sort
    buckets: Float[np.ndarray, "buckets query key"]  # the same for each offset from -REACH to REACH

    @property
    def rows(self) -> Bool[np.ndarray, " query"]:
        return self.visible.sum(-1) > 1

    @property
    def uniform(self) -> Float[np.ndarray, "query key"]:
        return self.visible / self.visible.sum(-1, keepdims=True)

    def counts(self) -> _Sums:
        rows = float(self.rows.sum())
        able = (self.shares.any(-1) & self.rows).sum(-1).astype(np.float64)
        return {"shares": able[None], "rows": np.array([rows]), "sentences": np.array([1.0])}


def _view(kind: Kind, source: PieceMarks, target: PieceMarks) -> _View:
    queries = len(source.end if kind == "encoder" else target.end)
    keys = len(target.end if kind == "decoder" else source.end)
    query, key = np.arange(queries, dtype=np.float64)[:, None], np.arange(keys, dtype=np.float64)
    visible = np.ones((queries, keys), dtype=bool)
    seen = source
    special = source.end
    match kind:
        case "encoder":
            offset = key - query
        case "decoder":
            offset = key - 1 - query
            visible = key <= query
            seen = _shift_right(target)
            special = key == 0
        case "cross":
            own = query if queries > 1 else query + 1  # a single piece counts as the last
            offset = key - own * (keys - 1) / max(1, queries - 1)
    step = np.rint(offset)
    sorts = (
        *(step == -1, step == 0, step == 1, np.abs(offset) <= 1),
        *(seen.punctuation, special, seen.punctuation | special, seen.rare),
    )
    shares = np.stack([sort & visible for sort in sorts]).astype(np.float64)
    bucket = np.clip(step, -REACH, REACH)
    buckets = (bucket == np.arange(-REACH, REACH + 1)[:, None, None]) & visible
    return _View(visible, offset, shares, buckets.astype(np.float64))


def _shift_right(target: PieceMarks) -> PieceMarks:
    """The marks of a decoder's inputs: the start symbol, then all pieces except the last."""
    return PieceMarks(*(np.concatenate([[False], mark[:-1]]) for mark in (target.punctuation, target.end, target.rare)))


def _sums(weights: HeadWeights, view: _View) -> _Sums:
    """The sums over the rows of one sentence, for each head."""
    rows = view.rows
    weights = weights[:, rows]
    entropy = _entropy(weights)
    pattern = _of_sort(weights, view.buckets[:, rows])
    whole = pattern / rows.sum()
    return {
        "entropy": entropy.sum(-1),
        "spread": (entropy / np.log(view.visible[rows].sum(-1))).sum(-1),
        "strongest": weights.max(-1).sum(-1),
        "distance": (weights * np.abs(view.offset[rows])).sum((-1, -2)),
        "direction": (weights * view.offset[rows]).sum((-1, -2)),
        "shares": _of_sort(weights, view.shares[:, rows]),
        "pattern": pattern,
        "sentence pattern": whole,
        "sentence entropy": _entropy(whole),
    }


def _of_sort(weights: HeadWeights, sorts: Float[np.ndarray, "sorts query key"]) -> Float[np.ndarray, "_heads sorts"]:
    return weights.reshape(len(weights), sorts[0].size) @ sorts.reshape(len(sorts), -1).T


def _entropy(shares: Float[np.ndarray, "heads *rows values"]) -> Float[np.ndarray, "heads *rows"]:
    return 0.0 - (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)  # and not -0.0


def _add(totals: dict[_Place, _Sums], place: _Place, more: _Sums) -> None:
    before = totals.get(place)
    totals[place] = more if before is None else {name: before[name] + values for name, values in more.items()}


def _of_head(sums: _Sums, index: int) -> _OfHead:
    return {name: np.asarray(values[index]) for name, values in sums.items()}


def _measures(sums: _OfHead, chance: _OfHead, counts: _OfHead) -> HeadMeasures:
    rows = counts["rows"]
    able = dict(zip(_SHARES, np.maximum(counts["shares"], 1.0), strict=True))  # where no row can, the sums are 0
    given, by_chance = (dict(zip(_SHARES, part["shares"], strict=True)) for part in (sums, chance))

    def mean(name: str) -> float:
        return float(sums[name] / rows)

    def share(name: str) -> AttentionShare:
        return AttentionShare(float(given[name] / able[name]), float(by_chance[name] / able[name]))

    start = 1 + int(np.convolve(sums["pattern"][1:-1], np.ones(WINDOW), "valid").argmax())  # none of it beyond REACH
    window = (float(part["pattern"][start : start + WINDOW].sum() / rows) for part in (sums, chance))
    return HeadMeasures(
        sentences=int(counts["sentences"]),
        rows=int(rows),
        entropy=mean("entropy"),
        spread=mean("spread"),
        strongest=mean("strongest"),
        distance=mean("distance"),
        direction=mean("direction"),
        previous=share("previous"),
        same=share("same"),
        next=share("next"),
        diagonal=share("diagonal"),
        punctuation=share("punctuation"),
        special=share("special"),
        delimiter=share("delimiter"),
        rare=share("rare"),
        window=AttentionShare(*window),
        window_at=start + WINDOW // 2 - REACH,
        stability=_stability(sums, float(counts["sentences"])),
    )


def _stability(sums: _OfHead, sentences: float) -> float:
    """How similar the patterns of the sentences are, where a pattern is the weight of each offset from -8 to 8.

    It is one over the effective number of patterns: exp(-D), where D is the Jensen-Shannon divergence of all sentences,
    the entropy of their mean pattern minus the mean entropy of their patterns. It is 1 if all sentences are alike, and
    1/n if n sentences have nothing in common. It can be added up sentence by sentence.
    """
    together = float(_entropy(sums["sentence pattern"][None] / sentences)[0])
    apart = float(sums["sentence entropy"]) / sentences
    return min(1.0, float(np.exp(apart - together)))

"""Measures of heads, and the roles that follow from them."""

import math
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
from heads_examples import dirichlet, looking_at, marked, measured, only, uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.attention.head_names import KINDS, Head
from heedful.attention.measures import AttentionShare, HeadMeasures, HeadStatistics, find_rare_pieces, mark_pieces
from heedful.attention.record import Attention, HeadWeights
from heedful.attention.roles import ROLE_COLOURS, name_role, name_roles
from heedful.nn.multi_head import Kind

LENGTHS = [(7, 5), (4, 9), (6, 6), (11, 3)]  # the lengths of sources and targets
SHARES = [field.name for field in fields(HeadMeasures) if field.type is AttentionShare]


def pair(source: int, target: int, seed: int = 0) -> Attention:
    """Random attention of all kinds, in layers of three and of two heads."""
    sizes: dict[Kind, tuple[int, int]] = {
        "encoder": (source, source),
        "decoder": (target, target),
        "cross": (target, source),
    }
    layers = {kind: tuple(dirichlet(kind, heads, *sizes[kind], seed + heads) for heads in (3, 2)) for kind in KINDS}
    return Attention(**layers)


def tallied(lengths: Sequence[tuple[int, int]]) -> dict[Head, HeadMeasures]:
    tally = HeadStatistics()
    for source, target in lengths:
        tally.add(pair(source, target, seed=source), marked(source), marked(target))
    return tally.measures()


def flat(measures: HeadMeasures) -> list[float]:
    values = (getattr(measures, field.name) for field in fields(measures))
    return [
        number
        for value in values
        for number in ((value.share, value.chance) if isinstance(value, AttentionShare) else [value])
    ]


# Laws


@settings(deadline=None, max_examples=4)
@given(st.permutations(LENGTHS))
def test_the_order_of_sentences_does_not_matter(lengths: list[tuple[int, int]]) -> None:
    expected, found = tallied(LENGTHS), tallied(lengths)
    assert list(found) == list(expected)
    for head in expected:
        assert flat(found[head]) == pytest.approx(flat(expected[head]), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(KINDS), st.integers(2, 9), st.integers(2, 9), st.integers(0, 99))
def test_all_measures_keep_their_bounds(kind: Kind, queries: int, keys: int, seed: int) -> None:
    keys = keys if kind == "cross" else queries
    found = measured(kind, dirichlet(kind, 1, queries, keys, seed))
    assert 0.0 <= found.entropy <= math.log(keys) + 1e-6
    assert 0.0 <= found.spread <= 1.0 + 1e-6
    assert 1 / keys <= found.strongest <= 1.0 + 1e-6
    assert abs(found.direction) <= found.distance + 1e-6
    assert found.stability == pytest.approx(1.0)  # a single sentence has a single pattern
    for name in SHARES:
        share = getattr(found, name)
        assert -1e-6 <= share.share <= 1.0 + 1e-6
        assert 0.0 <= share.chance <= 1.0 + 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_a_uniform_head_has_all_shares_at_chance_and_is_broad(kind: Kind) -> None:
    sizes = LENGTHS if kind == "cross" else [(n, n) for _, n in LENGTHS]
    found = measured(kind, *(uniform(kind, target, source) for source, target in sizes))
    assert found.spread == pytest.approx(1.0)
    for name in SHARES:
        share = getattr(found, name)
        assert share.share == pytest.approx(share.chance)
    assert name_role(kind, found).name == "broad"
    assert name_role(kind, found).evidence == "its entropy is 100 % of the largest possible"


def by_hand(kind: Kind, weights: HeadWeights) -> dict[str, float]:
    """The same measures of one head in plain loops, from the definitions."""
    _, queries, keys = weights.shape
    sums = dict.fromkeys(("entropy", "spread", "distance", "direction", "previous", "special", "rare"), 0.0)
    rows, able = 0, {"previous": 0, "special": 0, "rare": 0}
    for query in range(queries):
        seen = range(query + 1) if kind == "decoder" else range(keys)
        if len(seen) < 2:
            continue
        rows += 1
        entropy = -sum(weights[0, query, key] * math.log(weights[0, query, key]) for key in seen)
        sums["entropy"] += entropy
        sums["spread"] += entropy / math.log(len(seen))
        found = set()
        for key in seen:
            weight = float(weights[0, query, key])
            place = key - 1 if kind == "decoder" else key  # the position of the piece in its own sentence
            own = query * (keys - 1) / (queries - 1) if kind == "cross" else query
            sums["distance"] += weight * abs(place - own)
            sums["direction"] += weight * (place - own)
            last = place == keys - 1
            is_a = {
                "previous": round(place - own) == -1,
                "special": place == -1 if kind == "decoder" else last,
                "rare": place in (1, 4) and not last,
            }
            found |= {name for name, holds in is_a.items() if holds}
            for name, holds in is_a.items():
                sums[name] += weight * holds
        for name in found:
            able[name] += 1
    return {name: value / max(1, able.get(name, rows)) for name, value in sums.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_measures_match_their_definitions(kind: Kind) -> None:
    weights = dirichlet(kind, 1, 6, 8 if kind == "cross" else 6, seed=2)
    found = measured(kind, weights)
    for name, expected in by_hand(kind, weights).items():
        value = getattr(found, name)
        assert (value.share if isinstance(value, AttentionShare) else value) == pytest.approx(expected, abs=1e-6), name
    assert found.rows == (5 if kind == "decoder" else 6)


# Heads that do only one thing


@pytest.mark.parametrize(
    ("kind", "keys", "share", "role", "evidence"),
    [
        ("encoder", [0, 0, 1, 2, 3, 4], "previous", "previous token", "on the previous token (by chance 17 %)"),
        ("encoder", [1, 2, 3, 4, 5, 5], "next", "next token", "on the next token (by chance 17 %)"),
        ("encoder", [0, 1, 2, 3, 4, 5], "same", "same token", "on the token itself (by chance 17 %)"),
        ("encoder", [5, 5, 2, 5, 2, 2], "delimiter", "delimiter", "on punctuation and EOS (by chance 33 %)"),
        ("encoder", [1, 4, 1, 1, 4, 1], "rare", "rare word", "on rare tokens (by chance 33 %)"),
        ("decoder", [0, 1, 2, 3, 4, 5], "previous", "previous token", "on the token just generated (by chance 29 %)"),
        ("decoder", [0, 0, 0, 0, 0, 3], "delimiter", "delimiter", "on punctuation and the start symbol"),
        ("cross", [0, 1, 2, 3, 4, 5], "diagonal", "alignment", "within one token of the diagonal (by chance 44 %)"),
        ("cross", [5, 5, 5, 5, 5, 5], "special", "delimiter", "on punctuation and EOS"),
        ("cross", [4, 4, 4, 1, 1, 1], "rare", "rare word", "on rare tokens"),
    ],
)
def test_a_head_that_does_one_thing_gets_its_role(
    kind: Kind, keys: list[int], share: str, role: str, evidence: str
) -> None:
    found = measured(kind, looking_at(keys, 6), looking_at(keys, 6))
    assert getattr(found, share).share == 1.0
    assert getattr(found, share).over_chance == 1.0
    assert (found.entropy, found.spread, found.strongest, found.stability) == (0.0, 0.0, 1.0, 1.0)
    named = name_role(kind, found)
    assert named.name == role
    assert named.evidence.startswith("100 % of its weight ")
    assert evidence in named.evidence


def test_the_previous_token_is_one_back_in_sentences_of_any_length() -> None:
    found = measured("encoder", *(looking_at([0, *range(n - 1)], n) for n in (30, 40, 60)))
    assert found.previous.share == 1.0
    assert found.direction == pytest.approx(-127 / 130)  # the first piece of each sentence sees only itself
    assert 0.99 < found.stability < 1.0


@pytest.mark.parametrize(("back", "figure"), [(2, "-2 to 0: 100 %"), (5, "-5 to -3: 92 %")])
def test_a_fixed_offset_is_positional(back: int, figure: str) -> None:
    found = measured("encoder", *(looking_at([max(0, place - back) for place in range(40)], 40) for _ in range(3)))
    role = name_role("encoder", found)
    assert (role.name, role.figure) == ("positional", figure)
    assert f"of its weight at offsets {figure.partition(':')[0]} from its own position" in role.evidence


def test_alignment_follows_the_diagonal_of_sentences_that_differ_in_length() -> None:
    ends = measured("cross", looking_at([0, 2, 4, 6, 8], 9))
    assert (ends.distance, ends.same.share) == (0.0, 1.0)  # the first at the first, EOS at EOS
    rounded = measured("cross", looking_at([round(place * 5 / 11) for place in range(12)], 6))
    assert rounded.diagonal.share == 1.0
    assert 0.0 < rounded.distance < 0.5


def test_a_target_of_one_piece_is_at_the_end_of_the_source() -> None:
    assert measured("cross", looking_at([3], 4)).distance == 0.0


def test_a_head_without_a_clear_habit_is_mixed() -> None:
    found = measured("encoder", looking_at([0, 8, 3, 0, 7, 8, 1, 7, 3, 9], 10))
    role = name_role("encoder", found)
    assert role.name == "mixed"
    assert role.evidence.startswith("nothing stands out: ")
    assert role.figure == ""


def test_stability_is_one_over_the_number_of_patterns() -> None:
    same, before = looking_at([0, 1, 2, 3, 4, 5], 6), looking_at([5, 5, 5, 5, 5, 5], 6)
    ahead = looking_at([5, 4, 3, 2, 1, 0], 6)
    assert measured("encoder", same, same, same).stability == pytest.approx(1.0)
    assert 0.5 < measured("encoder", same, before).stability < 1.0  # only the last row is the same
    assert measured("encoder", same, ahead).stability == pytest.approx(0.5)  # no row is the same
    assert measured("encoder", same, ahead, same, ahead).stability == pytest.approx(0.5)


def test_short_sentences_alone_create_no_roles() -> None:
    found = measured("decoder", *(uniform("decoder", 3, 3) for _ in range(4)))
    assert found.window.share == pytest.approx(1.0)  # all keys are neighbours
    assert name_role("decoder", found).name == "broad"


# Which rows count


def test_a_row_that_sees_one_key_says_nothing() -> None:
    tally = HeadStatistics()
    tally.add(pair(1, 1), marked(1), marked(1))
    assert tally.measures() == {}
    tally.add(pair(1, 3), marked(1), marked(3))
    found = tally.measures()
    assert {head.kind for head in found} == {"decoder"}
    assert {(measures.rows, measures.sentences) for measures in found.values()} == {(2, 1)}


def test_pruned_layers_have_fewer_heads_and_all_are_in_their_order() -> None:
    tally = HeadStatistics()
    layers = (dirichlet("encoder", 2, 4, 4, 1), np.zeros((0, 4, 4), np.float32), dirichlet("encoder", 1, 4, 4, 2))
    tally.add(only("encoder", *layers), marked(4), marked(5))
    assert [str(head) for head in tally.measures()] == ["encoder.1.1", "encoder.1.2", "encoder.3.1"]
    assert list(name_roles(tally.measures())) == list(tally.measures())


def test_a_share_is_measured_over_rows_that_see_such_a_key() -> None:
    found = measured("decoder", looking_at([0, 1, 2, 3, 4], 5))
    assert (found.same, found.next) == (AttentionShare(0.0, 0.0), AttentionShare(0.0, 0.0))
    assert found.punctuation.share == pytest.approx(1 / 2)  # fed in as column 3, which rows 3 and 4 see
    assert found.punctuation.chance == pytest.approx((1 / 4 + 1 / 5) / 2)


def test_every_role_has_a_colour_of_its_own() -> None:
    assert len(set(ROLE_COLOURS.values())) == len(ROLE_COLOURS) == 9


# Pieces


def test_punctuation_eos_and_rare_pieces_are_marked() -> None:
    found = mark_pieces(["▁A", "▁(", "…", "$", "▁", "</s>", "x", "。", "</s>"], {"x", "▁(", "</s>"})
    assert np.flatnonzero(found.punctuation).tolist() == [1, 2, 7]
    assert np.flatnonzero(found.end).tolist() == [8]  # a text may have the same characters, but not at its end
    assert np.flatnonzero(found.rare).tolist() == [5, 6]


def test_a_cut_off_hypothesis_has_no_end() -> None:
    assert not mark_pieces(["▁a", "▁b"], ()).end.any()


def test_the_rarest_tenth_is_rare() -> None:
    text = ["the"] * 84 + ["cat"] * 7 + ["sat"] * 3 + ["on"] * 3 + ["mat", "hat", "rat"]
    assert find_rare_pieces([text[:50], text[50:]]) == {"mat", "hat", "rat", "sat", "on"}
    assert find_rare_pieces([[*text, "sat", "sat"]]) == {"mat", "hat", "rat", "on"}  # "sat" and "on" no longer tie


def test_the_very_rarest_pieces_are_rare_even_if_they_are_many() -> None:
    assert find_rare_pieces([["a", "a", "b", "c"]]) == {"b", "c"}
    assert find_rare_pieces([]) == frozenset()

"""The engines: a sentence has the same translation, whichever engine runs the model."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
from engine_examples import engines
from model_examples import EOS, PAD, SMALL, SOURCE_TYPES, TARGET_TYPES, VARIANTS, label, sentences

from heedful.config import ModelConfig, SearchConfig
from heedful.decoding.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, DataError, FolderError

SOURCES = sentences([4, 7, 3, 12, 2, 5], SOURCE_TYPES)
TARGETS = sentences([4, 1, 9, 2, 11, 6], TARGET_TYPES, seed=4)
Both = tuple[TorchEngine, CTranslate2Engine]


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return engines(SMALL, tmp_path)


def assert_alike(ours: Sequence[Hypothesis], theirs: Sequence[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
    assert [hypothesis.finished for hypothesis in ours] == [hypothesis.finished for hypothesis in theirs]
    for field in ("score", "log_prob"):
        left, right = ([getattr(hypothesis, field) for hypothesis in several] for several in (ours, theirs))
        assert left == pytest.approx(right, abs=2e-4)


@pytest.mark.parametrize("config", VARIANTS, ids=label)
def test_every_variant_gives_every_token_the_same_log_probability(config: ModelConfig, tmp_path: Path) -> None:
    torch_engine, fast = engines(config, tmp_path)
    for ours, theirs in zip(torch_engine.score(SOURCES, TARGETS), fast.score(SOURCES, TARGETS), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_pruned_heads_are_padded_for_export(tmp_path: Path) -> None:
    config = replace(SMALL, encoder_heads=(2,), decoder_heads=(1, 3), cross_heads=(2, 1))
    torch_engine, fast = engines(config, tmp_path)
    for ours, theirs in zip(torch_engine.score(SOURCES, TARGETS), fast.score(SOURCES, TARGETS), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize(("numbers", "tolerance"), [("float16", 0.02), ("int8", 0.5)])
def test_quantised_models_give_nearly_the_same_log_probabilities(
    numbers: str, tolerance: float, tmp_path: Path
) -> None:
    torch_engine, fast = engines(SMALL, tmp_path, numbers)  # type: ignore[arg-type]
    found = [
        abs(one - other)
        for ours, theirs in zip(torch_engine.score(SOURCES, TARGETS), fast.score(SOURCES, TARGETS), strict=True)
        for one, other in zip(ours, theirs, strict=True)
    ]
    assert 0 < mean(found) < tolerance
    assert fast.numbers == numbers


@pytest.mark.parametrize("max_extra", [0, 3, 40])
def test_greedy_search_is_the_same(both: Both, max_extra: int) -> None:
    search = SearchConfig(beam=1, max_extra=max_extra)
    ours, theirs = (engine.decode(SOURCES, search, 1) for engine in both)
    for one, other in zip(ours, theirs, strict=True):
        assert_alike(one, other)


@pytest.mark.parametrize("ngram", [1, 2, 3])
def test_forbidding_repeats_gives_the_same_outputs_in_both_engines(both: Both, ngram: int) -> None:
    search = SearchConfig(beam=1, max_extra=30, no_repeat_ngram=ngram)
    ours, theirs = (engine.decode(SOURCES, search, 1) for engine in both)
    for one, other in zip(ours, theirs, strict=True):
        assert_alike(one, other)
    freely = both[0].decode(SOURCES, replace(search, no_repeat_ngram=0), 1)
    assert [found[0].tokens for found in freely] != [found[0].tokens for found in ours]


@pytest.mark.parametrize("penalty", ["paper", "power"])
@pytest.mark.parametrize("max_extra", [0, 8])
def test_ctranslate2_hypotheses_are_scored_and_ranked_like_ours(both: Both, penalty: str, max_extra: int) -> None:
    search = SearchConfig(beam=4, alpha=0.8, penalty=penalty, max_extra=max_extra)  # type: ignore[arg-type]
    torch_engine, fast = both
    for source, found in zip(SOURCES, fast.decode(SOURCES, search, 3), strict=True):
        assert 1 <= len(found) <= 3
        order = [(not hypothesis.finished, -hypothesis.score) for hypothesis in found]
        assert order == sorted(order)
        for hypothesis in found:
            assert len(hypothesis.tokens) <= len(source) + max_extra
            assert hypothesis.finished == (hypothesis.tokens[-1] == EOS)
            ended = hypothesis.tokens if hypothesis.finished else (*hypothesis.tokens, EOS)
            (scores,) = torch_engine.score([source], [ended])
            log_prob, length = sum(scores[: len(hypothesis.tokens)]), len(hypothesis.tokens)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=5e-4)
            divisor = ((5 + length) / 6) ** 0.8 if penalty == "paper" else length**0.8
            assert hypothesis.score == pytest.approx(log_prob / divisor, abs=5e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_sentence_does_not_depend_on_its_batch(both: Both, alpha: float) -> None:
    _, fast = both
    search = SearchConfig(beam=3, max_extra=6, alpha=alpha)
    order = random.Random(3).sample(range(len(SOURCES)), len(SOURCES))
    together = fast.decode([SOURCES[index] for index in order], search, 2)
    for index, found in zip(order, together, strict=True):
        assert_alike(found, fast.decode([SOURCES[index]], search, 2)[0])
    assert fast.decode([], search, 1) == []


def test_no_sources_give_no_hypotheses(both: Both) -> None:
    torch_engine, fast = both
    for beam in (1, 3):
        ((found,),) = fast.decode([[EOS]], SearchConfig(beam=beam), 1)
        assert (found.tokens, found.finished) == ((EOS,), True)
        assert found.log_prob == pytest.approx(torch_engine.score([[EOS]], [[EOS]])[0][0], abs=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
def test_padding_is_never_produced_even_if_the_model_prefers_it(beam: int, tmp_path: Path) -> None:
    torch_engine, fast = engines(replace(SMALL, sharing="none"), tmp_path, likes_pad=True)
    search = SearchConfig(beam=beam, max_extra=9)
    liked = fast._search(SOURCES, 20, search)
    assert any(PAD in tokens for several in liked for tokens, _ in several)
    ours, theirs = torch_engine.decode(SOURCES, search, beam), fast.decode(SOURCES, search, beam)
    for source, one, other in zip(SOURCES, ours, theirs, strict=True):
        assert all(PAD not in hypothesis.tokens for hypothesis in other)
        if beam == 1:
            assert_alike(one, other)
        for hypothesis in other:
            (scores,) = torch_engine.score([source], [(*hypothesis.tokens, EOS)])
            assert hypothesis.log_prob == pytest.approx(sum(scores[: len(hypothesis.tokens)]), abs=5e-4)


def test_ctranslate2_refuses_what_it_cannot_do(both: Both) -> None:
    _, fast = both
    search = SearchConfig(beam=2)
    for other in (replace(search, min_length=3), replace(search, groups=2)):
        with pytest.raises(ConfigError, match="which the ctranslate2 engine cannot do; use --engine torch"):
            fast.decode(SOURCES, other, 1)
    with pytest.raises(ConfigError, match=r"you asked for 3 translations, but search.beam is 2"):
        fast.decode(SOURCES, search, 3)
    with pytest.raises(
        DataError, match="a translation may have up to 2050 pieces, but this model was exported for 2048"
    ):
        fast.decode(sentences([2000], SOURCE_TYPES), search, 1)


def test_a_source_of_over_a_thousand_pieces_is_not_truncated(tmp_path: Path) -> None:
    torch_engine, fast = engines(SMALL, tmp_path)
    source = sentences([1100], SOURCE_TYPES)
    other = [[*source[0][:1030], *reversed(source[0][1030:-1]), EOS]]
    (ours,), (theirs,) = torch_engine.score(source, TARGETS[:1]), fast.score(source, TARGETS[:1])
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert fast.score(other, TARGETS[:1])[0] != pytest.approx(theirs, abs=1e-6)


def test_foreign_and_damaged_exports_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no restricted self-attention, but model.window is 2"):
        engines(replace(SMALL, window=2), tmp_path)
    engines(SMALL, tmp_path)
    (tmp_path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(FolderError, match="CTranslate2 cannot load"):
        CTranslate2Engine(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FolderError, match="was not written by heedful; export the model again"):
        CTranslate2Engine(tmp_path)

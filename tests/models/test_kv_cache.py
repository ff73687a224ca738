"""The pooled cache of the decoder gives the same numbers as the plain one, for any selection of hypotheses."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import SMALL, fresh, shake
from torch import Tensor

from heedful.attention.head_names import Head
from heedful.attention.pruning import switch_off_heads
from heedful.attention.record import AttentionRecord, record_attention
from heedful.config import ModelConfig
from heedful.models import kv_cache
from heedful.models.kv_cache import KVCache, PooledKVCache, RowPool
from heedful.models.transformer import Transformer

CONFIGS = (
    SMALL,
    replace(SMALL, norm="pre", d_k=4, d_v=4, num_heads=1),
    replace(SMALL, decoder_heads=(1, 2), cross_heads=(2, 1)),
)


def model_of(config: ModelConfig) -> Transformer:
    model = fresh(config)
    shake(model)
    return model.eval()


def started(model: Transformer, lengths: list[int], many: int) -> KVCache | PooledKVCache:
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(2, 20, (sum(lengths),), generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_MANY", many)
        return model.start(model.encode(source, torch.tensor(lengths)))


@settings(deadline=None, max_examples=25)
@given(data=st.data(), config=st.sampled_from(CONFIGS), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_both_caches_give_the_same_logits_for_any_selection_of_rows(
    data: st.DataObject, config: ModelConfig, lengths: list[int]
) -> None:
    model = model_of(config)
    with torch.inference_mode():
        plain, fast = started(model, lengths, many=1000), started(model, lengths, many=1)
        assert (type(plain), type(fast)) == (KVCache, PooledKVCache)
        rows = len(lengths)
        for _ in range(5):
            tokens = torch.tensor(data.draw(st.lists(st.integers(2, 19), min_size=rows, max_size=rows)))
            expected, plain = model.step(tokens, plain)
            found, fast = model.step(tokens, fast)
            torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
            chosen = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=6)))
            plain, fast, rows = plain.select(chosen), fast.select(chosen), len(chosen)


@torch.inference_mode()
def test_heads_can_be_recorded_and_switched_off_in_both_caches() -> None:
    model = model_of(SMALL)

    def said(many: int) -> tuple[Tensor, AttentionRecord]:
        state = started(model, [4, 2, 5], many)
        _, state = model.step(torch.tensor([3, 4, 5]), state)
        with record_attention(model) as record:
            logits, _ = model.step(torch.tensor([6, 7, 8]), state)
        return logits, record

    whole, _ = said(many=1)
    with switch_off_heads(model, [Head("decoder", 1, 0), Head("cross", 0, 2)]):
        (expected, seen), (found, also_seen) = said(many=1000), said(many=1)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    assert not torch.allclose(found, whole, atol=1e-3)
    for kind, layer in itertools.product(("decoder", "cross"), range(2)):
        torch.testing.assert_close(also_seen.weights(kind, layer), seen.weights(kind, layer))  # type: ignore[arg-type]


@torch.inference_mode()
def test_a_state_does_not_change_when_others_grow_from_it() -> None:
    model = model_of(SMALL)
    begun = started(model, [4, 2, 5], many=1)
    _, state = model.step(torch.tensor([3, 4, 5]), begun)
    first, _ = model.step(torch.tensor([6, 7, 8]), state)
    model.step(torch.tensor([9, 9, 9]), state)
    _, grown = model.step(torch.tensor([2, 2, 2]), state.select(torch.tensor([2, 0, 1])))
    model.step(torch.tensor([5, 5, 5]), grown)
    again, _ = model.step(torch.tensor([6, 7, 8]), state)
    assert torch.equal(first, again)


def test_gradients_few_sentences_and_windows_get_the_plain_cache() -> None:
    model = model_of(SMALL)
    assert isinstance(started(model, [3, 4], many=1), KVCache)  # with gradients
    with torch.inference_mode():
        assert isinstance(started(model, [3, 4], many=1), PooledKVCache)
        assert isinstance(started(model, [3, 4], many=3), KVCache)
        assert isinstance(started(model_of(replace(SMALL, window=2)), [3, 4], many=1), KVCache)


@given(sizes=st.lists(st.integers(0, 5), max_size=9))
def test_a_pool_holds_all_added_rows_in_order(sizes: list[int]) -> None:
    pool, added = RowPool(3), [torch.zeros(0, 3)]
    seen: list[tuple[Tensor, Tensor]] = []
    for number, size in enumerate(sizes):
        added.append(torch.full((size, 3), float(number)))
        pool.add(added[-1])
        seen.append((pool.rows, pool.rows.clone()))
    assert torch.equal(pool.rows, torch.cat(added))
    assert all(torch.equal(rows, before) for rows, before in seen)

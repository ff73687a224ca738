"""Operations of every family, compared with PyTorch's counter, with plain products and with counts by hand."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_examples import FAMILIES, SMALL, TARGET_TYPES, example, fresh_of_family, logits_of
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heedful.config import ModelConfig
from heedful.models.flops import count_attention_pairs, forward_flops, training_flops
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.masks import causal_mask, window_mask

PAIRS, SOURCE, TARGET = 4, 5, 6
EVEN = (np.full(PAIRS, SOURCE), np.full(PAIRS, TARGET))
WHOLE = {name: config for name, config in FAMILIES.items() if not config.window}


def counted(work: Callable[[], object]) -> int:
    """The count of PyTorch's own counter."""
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def double(config: ModelConfig) -> AnySeq2Seq:
    """A model in float64, which runs no kernels of ours or of oneDNN, because the counter cannot see into those."""
    return fresh_of_family(config).double()


def not_counted(config: ModelConfig) -> int:
    """Operations that PyTorch's counter misses: matrix times vector, here the scores of additive attention."""
    additive = config.family == "recurrent" and config.attention == "additive"
    return 2 * PAIRS * SOURCE * TARGET * config.d_model if additive else 0


def not_needed(config: ModelConfig) -> int:
    """Operations that it counts although the mask hides them: attention to later positions."""
    if config.family not in ("transformer", "gpt", "t5"):
        return 0
    read = SOURCE + TARGET - 1 if config.family == "gpt" else TARGET
    later = PAIRS * read * (read - 1) // 2
    return 2 * later * config.decoder_layers * config.num_heads * (config.d_k + config.d_v)


class TestAgainstPyTorch:
    @pytest.mark.parametrize("config", WHOLE.values(), ids=WHOLE)
    def test_a_forward_pass_has_as_many_operations_as_pytorch_counts(self, config: ModelConfig) -> None:
        model, batch = double(config), example([SOURCE] * PAIRS, [TARGET] * PAIRS)
        with torch.no_grad():
            found = counted(lambda: logits_of(model, batch))
        assert forward_flops(config, TARGET_TYPES, *EVEN) == found + not_counted(config) - not_needed(config)

    @pytest.mark.parametrize("name", ["transformer", "convolutional", "convolutional-narrow"])
    def test_a_backward_pass_has_twice_as_many_operations(self, name: str) -> None:
        config = FAMILIES[name]
        model, batch = double(config), example([SOURCE] * PAIRS, [TARGET] * PAIRS)
        found = counted(lambda: logits_of(model, batch).sum().backward())
        assert training_flops(config, TARGET_TYPES, *EVEN) == found - 3 * not_needed(config)

    def test_a_recurrent_backward_pass_has_twice_as_many_except_for_the_initial_states(self) -> None:
        config = FAMILIES["lstm"]
        model, batch = double(config), example([SOURCE] * PAIRS, [TARGET] * PAIRS)
        found = counted(lambda: logits_of(model, batch).sum().backward())
        # The zero states that the encoder's layers start from need no gradient.
        zeros = 2 * PAIRS * config.encoder_layers * 4 * config.d_model**2
        assert training_flops(config, TARGET_TYPES, *EVEN) == found + zeros


def times(rows: int, inputs: int, outputs: int) -> Tensor:
    return torch.ones(rows, inputs) @ torch.ones(inputs, outputs)


def look(mask: Tensor, heads: int, config: ModelConfig) -> None:
    """Each query of each head with the keys that it may attend to, and their values."""
    for _ in range(heads):
        for seen in mask.sum(1).tolist():
            times(1, config.d_k, seen)
            times(1, seen, config.d_v)


def plain_transformer(config: ModelConfig, n: int, m: int, heads: tuple[list[int], list[int], list[int]]) -> None:
    """All products of one pair, one by one: sentences, heads, queries."""
    d, d_k, d_v, cpu = config.d_model, config.d_k, config.d_v, torch.device("cpu")

    def project(rows: int, *shapes: tuple[int, int]) -> None:
        for inputs, outputs in shapes:
            times(rows, inputs, outputs)

    reading, writing, looking = heads
    reach = config.window or max(n, m)
    for count in reading:
        project(n, *[(d, d_k), (d, d_k), (d, d_v), (d_v, d)] * count, (d, config.d_ff), (config.d_ff, d))
        look(window_mask(n, reach, False, cpu), count, config)
    for own, cross in zip(writing, looking, strict=True):
        project(m, *[(d, d_k), (d, d_k), (d, d_v), (d_v, d)] * own, (d, config.d_ff), (config.d_ff, d))
        look(window_mask(m, reach, True, cpu), own, config)
        project(m, *[(d, d_k), (d_v, d)] * cross)
        project(n, *[(d, d_k), (d, d_v)] * cross)
        look(torch.ones(m, n, dtype=torch.bool), cross, config)
    times(m, d, TARGET_TYPES)


def test_windows_pruned_heads_and_uneven_sentences_are_counted_like_plain_products() -> None:
    heads = ([2, 1], [3, 2, 1], [1, 1, 3])
    config = replace(SMALL, encoder_layers=2, decoder_layers=3, window=2)
    pruned = dict(zip(("encoder_heads", "decoder_heads", "cross_heads"), map(tuple, heads), strict=True))
    config = replace(config, **pruned)  # type: ignore[arg-type]
    lengths = [(1, 4), (7, 2), (3, 9)]
    found = sum(counted(partial(plain_transformer, config, n, m, heads)) for n, m in lengths)
    sources, targets = np.array(lengths, dtype=np.uint16).T
    assert forward_flops(config, TARGET_TYPES, sources, targets) == found


def test_a_small_transformer_by_hand() -> None:
    config = ModelConfig(d_model=2, d_ff=3, num_heads=1, encoder_layers=1, decoder_layers=1)
    # One source token and two target tokens, in multiply-adds.
    encoder = 4 * (2 * 2) + (1 * 1) * 2 * 2 + 2 * (2 * 3)
    decoder = 2 * 4 * (2 * 2) + (1 + 2) * 2 * 2 + 2 * 2 * (2 * 3)
    cross = 2 * 2 * (2 * 2) + 1 * 2 * (2 * 2) + (2 * 1) * 2 * 2
    output = 2 * 2 * 5
    assert forward_flops(config, 5, np.array([1]), np.array([2])) == 2 * (encoder + decoder + cross + output) == 304


def test_small_rivals_by_hand() -> None:
    one = ModelConfig(family="recurrent", d_model=2, encoder_layers=1, decoder_layers=1, cell="gru")
    sizes = (5, np.array([1]), np.array([2]))
    # Three gates of a GRU, each from an input and a state of two; one source token, two target tokens.
    plain = 1 * 3 * (2 + 2) * 2 + 2 * 3 * (2 + 2) * 2
    assert forward_flops(replace(one, attention="none"), *sizes) == 2 * (plain + 20) == 184
    # Both directions, the bridge, keys, a combining layer of 6 x 2, and twice a key of 2 and a value of 4.
    luong = 2 * 24 + 2 * 2 + 4 * 2 + 2 * (24 + 6 * 2) + 2 * (2 + 4)
    assert forward_flops(replace(one, attention="multiplicative"), *sizes) == 2 * (luong + 20) == 328
    # Keys and values are the same; the query is projected, the cell reads 6 numbers and the deep output 8.
    bahdanau = 2 * 24 + 2 * 2 + 4 * 2 + 2 * (2 * 2 + 3 * (6 + 2) * 2 + 8 * 4) + 2 * (2 + 4)
    assert forward_flops(replace(one, attention="additive"), *sizes) == 2 * (bahdanau + 20) == 520
    convolutional = replace(one, family="convolutional", kernel_width=3)
    # Windows of 3 x 2 become 4 numbers; two maps at the ends of each side, two around the attention.
    convs2s = 1 * (6 * 4 + 2 * 4) + 2 * (6 * 4 + 2 * 4 + 2 * 4) + 2 * (2 + 2)
    assert forward_flops(convolutional, *sizes) == 2 * (convs2s + 20) == 280


def test_the_base_model_by_hand() -> None:
    """d_model 512, d_ff 2048, six layers; 25 pieces on each side, a vocabulary of 37 000."""
    square, inner = 512 * 512, 2 * 512 * 2048
    source = 25 * (6 * (4 * square + inner) + 6 * 2 * square) + 6 * 25 * 25 * 1024
    target = 25 * (6 * (6 * square + inner) + 512 * 37_000) + 6 * (25 * 26 // 2 + 25 * 25) * 1024
    lengths = np.full(1000, 25)
    assert training_flops(ModelConfig(), 37_000, lengths, lengths) == 3 * 2 * 1000 * (source + target)


@given(length=st.integers(1, 12), window=st.integers(1, 14))
def test_attention_pairs_are_those_that_the_masks_allow(length: int, window: int) -> None:
    lengths, cpu = np.array([length, 3]), torch.device("cpu")
    near, back = count_attention_pairs(lengths, window), count_attention_pairs(lengths, window, causal=True)
    assert near == sum(int(window_mask(n, window, False, cpu).sum()) for n in (length, 3))
    assert back == sum(int(window_mask(n, window, True, cpu).sum()) for n in (length, 3))
    assert count_attention_pairs(lengths) == length**2 + 9
    assert count_attention_pairs(lengths, causal=True) == int(causal_mask(length, cpu).sum()) + 6


@settings(max_examples=20)
@given(n=st.integers(1, 200))
def test_twice_the_length_doubles_recurrence_and_quadruples_attention(n: int) -> None:
    def cost(config: ModelConfig, length: int) -> int:
        return training_flops(config, TARGET_TYPES, np.array([length]), np.array([length]))

    assert cost(FAMILIES["lstm"], 2 * n) == 2 * cost(FAMILIES["lstm"], n)
    assert count_attention_pairs(np.array([2 * n])) == 4 * count_attention_pairs(np.array([n]))
    # Everything but attention is linear, so it cancels when two short sentences are subtracted from a long one.
    config = FAMILIES["transformer"]
    heads = config.num_heads * (config.d_k + config.d_v)
    more = heads * (config.encoder_layers * 2 * n * n + config.decoder_layers * (n * n + 2 * n * n))
    assert cost(config, 2 * n) - 2 * cost(config, n) == 6 * more

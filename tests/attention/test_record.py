"""Recording attention, and switching off heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import (
    EOS,
    PAD,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    VARIANTS,
    example,
    fresh,
    label,
    logits_of,
    sentences,
    shaken,
)
from torch import Tensor

from heedful.attention.head_names import KINDS, Head, all_heads, find_heads
from heedful.attention.pruning import apply_gates, open_gates, switch_off_heads
from heedful.attention.record import AttentionRecord, force_decode, record_attention
from heedful.config import SearchConfig
from heedful.data.batch import pack
from heedful.decoding.beam import beam_search
from heedful.decoding.step_function import SpecialTokens
from heedful.errors import ConfigError
from heedful.models.kv_cache import KVCache, PooledKVCache
from heedful.models.transformer import Transformer
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.nn.multi_head import split_heads

SOURCES = sentences([3, 7, 5], SOURCE_TYPES)
TARGETS = sentences([6, 2, 4], TARGET_TYPES, seed=4)


@pytest.mark.parametrize("config", VARIANTS, ids=label)
def test_rows_sum_to_one_and_masked_keys_have_no_weight(config: object) -> None:
    model = shaken(config)  # type: ignore[arg-type]
    for number, found in enumerate(force_decode(model, SOURCES, TARGETS)):
        n, m = len(SOURCES[number]), len(TARGETS[number])
        shapes = {"encoder": (3, n, n), "decoder": (3, m, m), "cross": (3, m, n)}
        for kind in KINDS:
            for weights in found.attention.of(kind):
                assert weights.shape == shapes[kind]
                np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
        assert all((np.triu(layer, 1) == 0.0).all() for layer in found.attention.decoder)
        assert len(found.attention.decoder) == len(found.attention.cross) == 2


def test_masked_keys_are_exactly_zero_in_the_record() -> None:
    model, batch = shaken(SMALL), example([3, 7, 5], [6, 2, 4])
    with record_attention(model) as record:
        logits_of(model, batch)
    for kind in ("encoder", "cross"):
        grid = record.weights(kind, 0)
        assert all((grid[i, ..., n:] == 0.0).all() for i, n in enumerate(batch.source_lengths))
    assert (record.weights("decoder", 1).triu(1) == 0.0).all()


def test_weights_are_those_of_equation_1() -> None:
    model = shaken(replace(SMALL, norm="post"))
    layer, source = model.encoder[0], torch.tensor(SOURCES[1])
    assert model.source_positions is not None
    x = model.target_embedding(source) + model.source_positions(torch.arange(7), 7)
    q, k, _ = (split_heads(part[None], 3) for part in layer.attention.query_key_value(x).split((15, 15, 21), -1))
    expected = torch.softmax(q @ k.transpose(-1, -2) / 5**0.5, -1)[0]
    found = force_decode(model, [SOURCES[1]], [TARGETS[1]])[0].attention.encoder[0]
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)


def test_the_attention_of_a_sentence_does_not_depend_on_its_batch() -> None:
    model = shaken(SMALL)
    alone, together = force_decode(model, SOURCES[1:2], TARGETS[1:2])[0], force_decode(model, SOURCES, TARGETS)[1]
    for kind in KINDS:
        for left, right in zip(alone.attention.of(kind), together.attention.of(kind), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)
    np.testing.assert_allclose(alone.log_probs, together.log_probs, atol=1e-5)


class Followed:
    """A state that remembers the history of each row."""

    def __init__(self, state: KVCache | PooledKVCache, paths: list[tuple[int, tuple[int, ...]]]) -> None:
        self.state, self.paths = state, paths

    def select(self, rows: Tensor) -> "Followed":
        return Followed(self.state.select(rows), [self.paths[row] for row in rows.tolist()])


@pytest.mark.parametrize("seed", range(3))
def test_forced_decoding_shows_the_attention_that_the_beam_had(seed: int) -> None:
    model = shaken(SMALL, seed)
    seen: dict[tuple[int, tuple[int, ...]], AttentionRecord] = {}
    rows: dict[tuple[int, tuple[int, ...]], int] = {}

    def step(tokens: Tensor, followed: Followed) -> tuple[Tensor, Followed]:
        paths = [(sentence, (*path, int(t))) for (sentence, path), t in zip(followed.paths, tokens, strict=True)]
        with record_attention(model) as record:
            logits, state = model.step(tokens, followed.state)
        seen.update(dict.fromkeys(paths, record))
        rows.update({path: row for row, path in enumerate(paths)})
        return logits, Followed(state, paths)

    ids, lengths = pack(SOURCES)
    with torch.inference_mode():
        start = Followed(model.start(model.encode(ids, lengths)), [(i, ()) for i in range(3)])
        found = beam_search(step, start, SpecialTokens(PAD, EOS, (PAD,)), lengths + 5, SearchConfig(beam=4), n_best=3)
    for sentence, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            (whole,) = force_decode(model, [SOURCES[sentence]], [hypothesis.tokens])
            fed = (PAD, *hypothesis.tokens[:-1])
            for place in range(len(fed)):
                path = (sentence, fed[: place + 1])
                for layer in range(2):
                    own = seen[path].weights("decoder", layer)[rows[path], :, 0]
                    cross = seen[path].weights("cross", layer)[rows[path], :, 0, : len(SOURCES[sentence])]
                    np.testing.assert_allclose(whole.attention.decoder[layer][:, place, : place + 1], own, atol=1e-5)
                    np.testing.assert_allclose(whole.attention.cross[layer][:, place], cross, atol=1e-5)
            assert whole.log_probs.sum() == pytest.approx(hypothesis.log_prob, abs=1e-4)


def test_the_likeliest_pieces_come_first() -> None:
    model = shaken(SMALL)
    found = force_decode(model, SOURCES, TARGETS, ranks=4)[0]
    batch = example([3], [6])
    expected = logits_of(model, batch).log_softmax(-1).sort(-1, descending=True)
    np.testing.assert_array_equal(found.best, expected.indices[:, :4])
    np.testing.assert_allclose(found.best_log_probs, expected.values[:, :4].detach(), atol=1e-5)


def test_recording_does_not_change_the_loss_and_the_fused_path_returns() -> None:
    model, batch = fresh(SMALL).train(), example([3, 7, 5], [6, 2, 4])
    fused = logits_of(model, batch)
    with record_attention(model) as record:
        plain = logits_of(model, batch)
    torch.testing.assert_close(plain, fused, atol=1e-5, rtol=1e-5)
    assert {key: len(calls) for key, calls in record.calls.items()} == {
        ("encoder", 0): 1,
        **{(kind, layer): 1 for kind in ("decoder", "cross") for layer in (0, 1)},
    }
    logits_of(model, batch)
    assert len(record.calls["encoder", 0]) == 1
    assert not any(attention.instrumented for layers in model.attentions.values() for attention in layers)


def test_reading_an_empty_record_is_an_error() -> None:
    with (
        record_attention(shaken(SMALL)) as record,
        pytest.raises(ConfigError, match="nothing was recorded for layer 2"),
    ):
        record.weights("cross", 1)


# Heads that are switched off


def without_columns(model: Transformer, head: Head) -> Transformer:
    """The same model, with the output matrix set to ignore this head."""
    attention = model.attentions[head.kind][head.layer]
    assert isinstance(attention, SelfAttention | CrossAttention)
    with torch.no_grad():
        attention.output.weight[:, 7 * head.index : 7 * (head.index + 1)] = 0.0
    return model


@pytest.mark.parametrize("name", ["encoder.1.2", "decoder.2.1", "cross.1.3"])
def test_switching_off_a_head_equals_zeroing_its_output_weights(name: str) -> None:
    batch = example([3, 7, 5], [6, 2, 4])
    model = shaken(SMALL)
    with switch_off_heads(model, [Head.parse(name)]), torch.no_grad():
        off = logits_of(model, batch)
        memory = model.encode(batch.source, batch.source_lengths)
        stepped, _ = model.step(torch.full((3,), PAD), model.start(memory))
    with torch.no_grad():
        on = logits_of(model, batch)
        expected = logits_of(without_columns(shaken(SMALL), Head.parse(name)), batch)
    torch.testing.assert_close(off, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(stepped, expected[[0, 6, 8]], atol=1e-5, rtol=1e-5)
    assert (off - on).abs().max() > 1e-3


def test_switching_off_heads_changes_only_their_layers_and_only_temporarily() -> None:
    model = shaken(SMALL)
    with switch_off_heads(model, [Head("cross", 1, 0), Head("cross", 1, 2)]):
        touched = [
            (kind, n) for kind, layers in model.attentions.items() for n, a in enumerate(layers) if a.instrumented
        ]
        assert touched == [("cross", 1)]
        assert model.attentions["cross"][1].gates.tolist() == [0.0, 1.0, 0.0]  # type: ignore[union-attr]
    assert not any(attention.instrumented for layers in model.attentions.values() for attention in layers)


def test_heads_can_be_switched_off_one_after_another() -> None:
    model = shaken(SMALL)
    attention = model.attentions["cross"][1]
    with switch_off_heads(model, [Head("cross", 1, 0)]):
        with switch_off_heads(model, [Head("cross", 1, 2)]):
            assert attention.gates is not None
            assert attention.gates.tolist() == [0.0, 1.0, 0.0]
        assert attention.gates.tolist() == [0.0, 1.0, 1.0]


def test_a_single_string_is_not_a_list_of_heads() -> None:
    with pytest.raises(ConfigError, match=r"give heads as a list of names, not as one string; write \['cross.1.1'\]"):
        find_heads(shaken(SMALL), "cross.1.1")


def test_open_gates_change_nothing_and_have_gradients() -> None:
    model, batch = shaken(SMALL), example([3, 7, 5], [6, 2, 4])
    gates = {place: gate.requires_grad_() for place, gate in open_gates(model).items()}
    with apply_gates(model, gates):
        logits = logits_of(model, batch)
    torch.testing.assert_close(logits, logits_of(model, batch), atol=1e-5, rtol=1e-5)
    logits.square().sum().backward()
    assert all(gate.grad is not None and (gate.grad != 0.0).all() for gate in gates.values())


# Names


def test_all_heads_have_names_that_can_be_read_back() -> None:
    model = shaken(SMALL)
    heads = all_heads(model)
    assert len(heads) == len(set(heads)) == 3 * 5
    assert [str(head) for head in heads[:4]] == ["encoder.1.1", "encoder.1.2", "encoder.1.3", "decoder.1.1"]
    assert find_heads(model, map(str, heads)) == heads


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("encodr.1.1", "unknown head: encodr.1.1; .* encoder, decoder, cross as its kind; did you mean 'encoder'?"),
        ("encoder.0.1", r"unknown head: encoder.0.1; a name is kind.layer.head, counted from 1"),
        ("cross.1", "unknown head: cross.1; a name is kind.layer.head"),
        ("cross.1.x", "unknown head: cross.1.x; a name is kind.layer.head"),
        ("", "unknown head: ; a name is kind.layer.head"),
        ("encoder.2.1", "unknown head: encoder.2.1; encoder attention has layers 1 to 1$"),
        ("cross.2.4", "unknown head: cross.2.4; layer 2 of cross attention has heads 1 to 3$"),
    ],
)
def test_an_unknown_head_is_refused_in_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_heads(shaken(SMALL), [name])

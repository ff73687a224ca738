"""GPT against GPT-2: the facts of OpenAI's code, equality with two other implementations, and texts without an end."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from model_examples import FAMILIES, PAD, TARGET_TYPES, fresh_of_family, shaken_of_family
from torch import Tensor, nn

from heedful.attention.record import record_attention
from heedful.data.batch import pack
from heedful.models.gpt import GPT, Prompts
from heedful.nn.positions import LearnedPositions

SMALL = replace(FAMILIES["gpt"], d_k=0, d_v=0)
TEXTS = [[5, 9, 2, 11, 3, 17, 6], [4, 4, 19], [8, 7, 2, 21, 13]]


def gpt(seed: int = 5, **changes: Any) -> GPT:
    model = shaken_of_family(replace(SMALL, **changes), seed)
    assert isinstance(model, GPT)
    return model


def logits_after_every_token(model: GPT, texts: list[list[int]]) -> list[Tensor]:
    """Each text but its first token is the continuation of that token."""
    source, source_lengths = pack([text[:1] for text in texts])
    target_in, lengths = pack([[PAD, *text[1:]] for text in texts])
    found = model.decode(target_in, lengths, model.encode(source, source_lengths))
    return list(found.split(lengths.tolist()))


def written_out(model: GPT, text: list[int]) -> Tensor:
    """GPT-2 by its equations alone, for one text: `model.py` of OpenAI, without any part of heedful."""
    w = dict(model.named_parameters())
    heads, length = model.config.num_heads, len(text)

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def gelu(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = w["embedding.weight"][text] + w["positions.weight"][:length]
    for layer in range(model.config.decoder_layers):
        block = f"decoder.{layer}"
        q, k, v = linear(norm(x, f"{block}.attention_residual.norm"), f"{block}.attention.query_key_value").chunk(3, -1)
        results = []
        for q_head, k_head, v_head in zip(*(part.chunk(heads, -1) for part in (q, k, v)), strict=True):
            scores = q_head @ k_head.T / math.sqrt(q_head.shape[-1])
            hidden = torch.ones(length, length).triu(1).bool()
            results.append(scores.masked_fill(hidden, -1e10).softmax(-1) @ v_head)
        x = x + linear(torch.cat(results, -1), f"{block}.attention.output")
        inner = gelu(linear(norm(x, f"{block}.feed_forward_residual.norm"), f"{block}.feed_forward.inner"))
        x = x + linear(inner, f"{block}.feed_forward.outer")
    return norm(x, "decoder_norm") @ w["embedding.weight"].T


@torch.no_grad()
def test_logits_equal_those_of_the_equations_written_out() -> None:
    model = gpt()
    for text, logits in zip(TEXTS, logits_after_every_token(model, TEXTS), strict=True):
        torch.testing.assert_close(logits, written_out(model, text), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_logits_and_attention_equal_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    model = gpt()
    config = transformers.GPT2Config(
        vocab_size=TARGET_TYPES,
        n_positions=SMALL.max_positions,
        n_embd=SMALL.d_model,
        n_layer=SMALL.decoder_layers,
        n_head=SMALL.num_heads,
        n_inner=SMALL.d_ff,
        attn_implementation="eager",
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    copy_to_theirs(model, theirs.transformer)
    for text, logits in zip(TEXTS, logits_after_every_token(model, TEXTS), strict=True):
        found = theirs(torch.tensor([text]), output_attentions=True)
        torch.testing.assert_close(logits, found.logits[0], rtol=1e-5, atol=1e-5)
        with record_attention(model) as record:
            logits_after_every_token(model, [text])
        for layer, weights in enumerate(found.attentions):
            torch.testing.assert_close(record.weights("decoder", layer), weights, rtol=1e-5, atol=1e-5)


def copy_to_theirs(model: GPT, theirs: Any) -> None:
    """Their `Conv1D` holds each matrix transposed."""
    assert isinstance(model.positions, LearnedPositions)
    theirs.wte.weight.copy_(model.embedding.weight)
    theirs.wpe.weight.copy_(model.positions.weight)
    theirs.ln_f.load_state_dict(model.decoder_norm.state_dict())
    for ours, block in zip(model.decoder, theirs.h, strict=True):
        block.ln_1.load_state_dict(ours.attention_residual.norm.state_dict())
        block.ln_2.load_state_dict(ours.feed_forward_residual.norm.state_dict())
        for linear, convolution in (
            (ours.attention.query_key_value, block.attn.c_attn),
            (ours.attention.output, block.attn.c_proj),
            (ours.feed_forward.inner, block.mlp.c_fc),
            (ours.feed_forward.outer, block.mlp.c_proj),
        ):
            convolution.weight.copy_(linear.weight.T)
            convolution.bias.copy_(linear.bias)


class TestStart:
    """The weights that training begins with."""

    model = fresh_of_family(replace(SMALL, d_model=120, d_ff=480, num_heads=3, max_positions=128))

    def std(self, name: str) -> float:
        return dict(self.model.named_parameters())[name].std().item()

    def test_tokens_have_standard_deviation_0_02_and_positions_0_01(self) -> None:
        rows = dict(self.model.named_parameters())["embedding.weight"][PAD + 1 :]
        assert rows.std().item() == pytest.approx(0.02, rel=0.05)
        assert self.std("positions.weight") == pytest.approx(0.01, rel=0.05)

    def test_weights_have_0_02_and_those_into_the_residual_stream_less(self) -> None:
        for layer in range(3):
            for name in ("attention.query_key_value", "feed_forward.inner"):
                assert self.std(f"decoder.{layer}.{name}.weight") == pytest.approx(0.02, rel=0.05)
            for name in ("attention.output", "feed_forward.outer"):
                assert self.std(f"decoder.{layer}.{name}.weight") == pytest.approx(0.02 / math.sqrt(6), rel=0.05)

    def test_biases_are_zero_and_norms_are_one(self) -> None:
        for name, parameter in self.model.named_parameters():
            if name.endswith("bias"):
                assert not parameter.any()
            elif parameter.ndim == 1:
                assert (parameter == 1.0).all()

    def test_every_norm_has_epsilon_1e_5(self) -> None:
        norms = [part for part in self.model.modules() if isinstance(part, nn.LayerNorm)]
        assert len(norms) == 2 * 3 + 1
        assert {norm.eps for norm in norms} == {1e-5}

    def test_the_output_is_the_embedding_without_a_bias_and_without_a_factor(self) -> None:
        assert isinstance(self.model, GPT)
        assert self.model.output_bias is None
        with torch.no_grad():
            assert self.model.output_weight is self.model.embedding.weight
            torch.testing.assert_close(self.model.embedding(torch.tensor([3])), self.model.embedding.weight[3:4])


class TestLongTexts:
    @torch.no_grad()
    def test_after_the_last_position_the_second_half_is_read_again(self) -> None:
        model = gpt(max_positions=8)
        text = [5, 9, 2, 11, 3, 17, 6, 4, 12, 7, 15]
        state = model.start(Prompts(torch.tensor(text[:2]), torch.tensor([2])))
        found = []
        for token in (PAD, *text[2:]):
            logits, state = model.step(torch.tensor([token]), state)
            found.append(logits[0])
        expected = [*written_out(model, text[:8])[1:], *written_out(model, text[5:11])[3:]]
        torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_a_model_with_one_position_sees_the_last_token_only(self) -> None:
        model, text = gpt(max_positions=1), [5, 9, 2]
        state = model.start(Prompts(torch.tensor(text[:1]), torch.tensor([1])))
        for number, token in enumerate((PAD, *text[1:])):
            logits, state = model.step(torch.tensor([token]), state)
            torch.testing.assert_close(logits, written_out(model, [text[number]]), rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_of_a_prompt_with_too_many_tokens_the_end_is_read(self) -> None:
        model = gpt(max_positions=4)
        prompts = Prompts(*pack([TEXTS[0], TEXTS[1]]))
        logits, _ = model.step(torch.tensor([PAD, PAD]), model.start(prompts))
        expected = [written_out(model, TEXTS[0][-4:])[-1], written_out(model, TEXTS[1])[-1]]
        torch.testing.assert_close(logits, torch.stack(expected), rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_texts_continue_beyond_the_last_position_as_each_does_alone(self) -> None:
        model, rest = gpt(max_positions=7), [6, 12, 3, 18, 9, 10]
        texts = [TEXTS[0][:6], TEXTS[1], TEXTS[2][:4]]
        together = model.start(Prompts(*pack(texts)))
        alone = [model.start(Prompts(*pack([text]))) for text in texts]
        for token in (PAD, *rest, *rest):
            logits, together = model.step(torch.full((3,), token), together)
            for row in range(3):
                expected, alone[row] = model.step(torch.tensor([token]), alone[row])
                torch.testing.assert_close(logits[row], expected[0], rtol=1e-5, atol=1e-5)


def test_the_loss_of_a_text_is_its_cross_entropy() -> None:
    from heedful.nn.loss import smoothed_loss

    model = gpt().train()
    source, source_lengths = pack([text[:1] for text in TEXTS])
    target_in, lengths = pack([[PAD, *text[1:-1]] for text in TEXTS])
    gold, _ = pack([text[1:] for text in TEXTS])
    features = model.features(target_in, lengths, model.encode(source, source_lengths))
    loss = smoothed_loss(features, model.output_weight, gold, 0.0)
    expected = sum(
        F.cross_entropy(written_out(model, text[:-1]), torch.tensor(text[1:]), reduction="sum") for text in TEXTS
    )
    torch.testing.assert_close(loss.plain, torch.as_tensor(expected), rtol=1e-5, atol=1e-5)

"""The rivals by hand, from their papers' equations: one sentence, one position at a time, with the same weights."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from model_examples import FAMILIES, PAD, SMALL, example, fresh_of_family, logits_of, shaken_of_family
from torch import Tensor

from heedful.config import ModelConfig
from heedful.data.batch import Batch
from heedful.models.convolutional import Convolutional
from heedful.models.recurrent import Recurrent
from heedful.models.seq2seq import AnySeq2Seq
from heedful.nn.attention import SelfAttention, attend, attend_in_blocks
from heedful.nn.layout import Layout

Named = dict[str, Tensor]  # the weights of a part
Carried = tuple[Tensor, ...]
D = SMALL.d_model


def named(model: AnySeq2Seq, prefix: str) -> Named:
    return {name.removeprefix(prefix): p for name, p in model.named_parameters() if name.startswith(prefix)}


def lstm(x: Tensor, carried: Carried, w: Named, suffix: str) -> Carried:
    """Hochreiter and Schmidhuber (1997) with forget gates; gates in PyTorch's order."""
    h, c = carried
    gates = w[f"weight_ih{suffix}"] @ x + w[f"bias_ih{suffix}"] + w[f"weight_hh{suffix}"] @ h + w[f"bias_hh{suffix}"]
    i, f, g, o = gates.split(D)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def gru(x: Tensor, carried: Carried, w: Named, suffix: str) -> Carried:
    """Cho et al. (2014); the reset gate acts on the product, as in PyTorch."""
    (h,) = carried
    of_x = (w[f"weight_ih{suffix}"] @ x + w[f"bias_ih{suffix}"]).split(D)
    of_h = (w[f"weight_hh{suffix}"] @ h + w[f"bias_hh{suffix}"]).split(D)
    r, z = torch.sigmoid(of_x[0] + of_h[0]), torch.sigmoid(of_x[1] + of_h[1])
    n = torch.tanh(of_x[2] + r * of_h[2])
    return ((1 - z) * n + z * h,)


class Hand:
    """The computation of a recurrent model, step by step."""

    def __init__(self, model: Recurrent) -> None:
        self.model, self.config = model, model.config
        self.cell: Callable[[Tensor, Carried, Named, str], Carried] = lstm if self.config.cell == "lstm" else gru
        self.count = 2 if self.config.cell == "lstm" else 1

    def zeros(self) -> Carried:
        return (torch.zeros(D),) * self.count

    def read(self, xs: list[Tensor], w: Named, suffix: str) -> tuple[list[Tensor], Carried]:
        carried, said = self.zeros(), []
        for x in xs:
            carried = self.cell(x, carried, w, suffix)
            said.append(carried[0])
        return said, carried

    def both_ways(self, xs: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        end = torch.zeros(D)
        for number in range(self.config.encoder_layers):
            w = named(self.model, f"encoder.layers.{number}.rnn.")
            forwards, _ = self.read(xs, w, "_l0")
            backwards, (end, *_) = self.read(xs[::-1], w, "_l0_reverse")
            xs = [torch.cat(pair) for pair in zip(forwards, backwards[::-1], strict=True)]
        return xs, end

    def begun(self, end: Tensor) -> list[Carried]:
        w = named(self.model, "decoder.bridge.")
        parts = torch.tanh(w["weight"] @ end + w["bias"]).split(D)
        return [tuple(parts[i : i + self.count]) for i in range(0, len(parts), self.count)]

    def stacked(self, x: Tensor, carried: list[Carried], first: int) -> Tensor:
        """Move the plain layers of the decoder by one position; `first` is the index of their first state."""
        for number in range(len(carried) - first):
            w = named(self.model, f"decoder.layers.{number}.rnn.")
            carried[first + number] = self.cell(x, carried[first + number], w, "_l0")
            x = carried[first + number][0]
        return x

    def plain(self, source: Tensor, target: Tensor) -> Tensor:
        xs, carried = list(source.flip(0)), []
        for number in range(self.config.encoder_layers):
            xs, end = self.read(xs, named(self.model, f"encoder.layers.{number}.rnn."), "_l0")
            carried.append(end)
        return torch.stack([self.stacked(x, carried, 0) for x in target])

    def additive(self, source: Tensor, target: Tensor) -> Tensor:
        annotations, end = self.both_ways(list(source))
        carried, features = self.begun(end), []
        w, cell = named(self.model, "decoder.first.attention."), named(self.model, "decoder.first.cell.")
        out = named(self.model, "decoder.output.")
        for x in target:
            s = carried[0][0]
            fits = [
                w["score"] @ torch.tanh(w["query.weight"] @ s + w["query.bias"] + w["key.weight"] @ h)
                for h in annotations
            ]
            weights = torch.stack(fits).softmax(0)
            context = sum((a * h for a, h in zip(weights, annotations, strict=True)), torch.zeros(2 * D))
            carried[0] = self.cell(torch.cat([x, context]), carried[0], cell, "")
            top = self.stacked(carried[0][0], carried, 1)
            deep = out["weight"] @ torch.cat([top, x, context]) + out["bias"]
            features.append(torch.stack([torch.maximum(deep[2 * i], deep[2 * i + 1]) for i in range(D)]))
        return torch.stack(features)

    def multiplicative(self, source: Tensor, target: Tensor) -> Tensor:
        annotations, end = self.both_ways(list(source))
        carried, features = self.begun(end), []
        general, out = named(self.model, "decoder.general."), named(self.model, "decoder.output.")
        for x in target:
            h = self.stacked(x, carried, 0)
            weights = torch.stack([h @ general["key.weight"] @ one for one in annotations]).softmax(0)
            context = sum((a * one for a, one in zip(weights, annotations, strict=True)), torch.zeros(2 * D))
            features.append(torch.tanh(out["weight"] @ torch.cat([context, h]) + out["bias"]))
        return torch.stack(features)

    def features(self, source: Tensor, target: Tensor) -> Tensor:
        own = {"none": self.plain, "additive": self.additive, "multiplicative": self.multiplicative}
        read = F.embedding(source, self.model.source_embedding.weight, PAD) * D**0.5
        written = F.embedding(target, self.model.target_embedding.weight, PAD) * D**0.5
        return own[self.config.attention](read, written)


def convolved(x: Tensor, w: Named, before: int, after: int) -> Tensor:
    """PyTorch's convolution and gate, on a sentence with zeros around it."""
    rows = w["convolution.linear.weight"]
    kernel = rows.view(len(rows), -1, D).transpose(1, 2)
    out = F.conv1d(F.pad(x.T, (before, after))[None], kernel, w["convolution.linear.bias"])[0].T
    return out[:, :D] * torch.sigmoid(out[:, D:])


def by_convolutions(model: Convolutional, source: Tensor, target: Tensor) -> Tensor:
    """Gehring et al. (2017), as in the authors' code."""
    w, root, width = named(model, ""), math.sqrt(0.5), model.config.kernel_width
    e = F.embedding(source, model.source_embedding.weight, PAD) + w["source_positions.weight"][: len(source)]
    g = F.embedding(target, model.target_embedding.weight, PAD) + w["target_positions.weight"][: len(target)]
    x = e @ w["source_in.weight"].T + w["source_in.bias"]
    for number in range(model.config.encoder_layers):
        x = (convolved(x, named(model, f"encoder.{number}."), width // 2, width // 2) + x) * root
    z = x @ w["source_out.weight"].T + w["source_out.bias"]
    if z.requires_grad:
        z.register_hook(lambda gradient: gradient / (2 * model.config.decoder_layers))
    values = (z + e) * root
    x = g @ w["target_in.weight"].T + w["target_in.bias"]
    for number in range(model.config.decoder_layers):
        own = named(model, f"decoder.{number}.")
        h = convolved(x, own, width - 1, 0)
        d = (h @ own["query.weight"].T + own["query.bias"] + g) * root
        c = (d @ z.T).softmax(-1) @ values * (len(source) * math.sqrt(1.0 / len(source)))
        h = (c @ own["output.weight"].T + own["output.bias"] + h) * root
        x = (h + x) * root
    return x @ w["target_out.weight"].T + w["target_out.bias"]


def by_hand(model: AnySeq2Seq, batch: Batch) -> Tensor:
    sources = batch.source.split(batch.source_lengths.tolist())
    targets = batch.target_in.split(batch.target_lengths.tolist())
    features = []
    for source, target in zip(sources, targets, strict=True):
        if isinstance(model, Recurrent):
            features.append(Hand(model).features(source, target))
        elif isinstance(model, Convolutional):
            features.append(by_convolutions(model, source, target))
    return torch.cat(features) @ model.output_weight.T


RIVALS = {name: config for name, config in FAMILIES.items() if config.family in ("recurrent", "convolutional")}


@pytest.mark.parametrize("config", RIVALS.values(), ids=RIVALS)
def test_logits_and_gradients_equal_those_by_hand(config: ModelConfig) -> None:
    model, batch = shaken_of_family(config), example([4, 9, 1, 7], [6, 2, 8, 5])
    ours, theirs = logits_of(model, batch), by_hand(model, batch)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(8))
    weights = list(model.parameters())
    found = torch.autograd.grad((ours * direction).sum(), weights)
    expected = torch.autograd.grad((theirs * direction).sum(), weights)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [RIVALS["lstm"], RIVALS["lstm-additive"], RIVALS["lstm-multiplicative"]])
def test_forget_gates_start_open(config: ModelConfig) -> None:
    biases = {name: p for name, p in fresh_of_family(config).named_parameters() if "bias_ih" in name}
    edge = D**-0.5  # PyTorch initialises within this range
    for bias in biases.values():
        taken, kept, *others = bias.split(D)
        assert ((kept - 1.0).abs() <= edge).all()
        assert all((gate.abs() <= edge).all() for gate in (taken, *others))
    assert biases


class TestWindow:
    """Restricted self-attention."""

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("window", [1, 2, 3, 20])
    def test_it_is_equation_1_over_the_nearby_keys(self, window: int, causal: bool) -> None:
        lengths = torch.tensor([7, 3, 11, 1])
        layout, generator = Layout.of(lengths), torch.Generator().manual_seed(2)
        q, k, v = (torch.randn(4, 3, 11, width, generator=generator) for width in (5, 5, 6))
        found = attend_in_blocks(q, k, v, layout.mask, window, causal)
        for sentence, length in enumerate(lengths.tolist()):
            for i in range(length):
                last = i if causal else min(i + window, length - 1)
                near = slice(max(0, i - window), last + 1)
                expected, _ = attend(q[sentence, :, i : i + 1], k[sentence, :, near], v[sentence, :, near], None)
                torch.testing.assert_close(found[sentence, :, i : i + 1], expected, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("causal", [False, True])
    def test_a_window_as_wide_as_the_sentence_hides_nothing(self, causal: bool) -> None:
        torch.manual_seed(4)
        wide, whole = (SelfAttention(D, 3, 5, 7, dropout=0.0, window=window) for window in (8, 0))
        whole.load_state_dict(wide.state_dict())
        layout, x = Layout.of(torch.tensor([4, 9])), torch.randn(13, D)
        torch.testing.assert_close(wide(x, layout, causal), whole(x, layout, causal), rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("causal", [False, True])
    def test_blocks_have_the_gradients_of_the_plain_form(self, causal: bool) -> None:
        torch.manual_seed(4)
        attention = SelfAttention(D, 3, 5, 7, dropout=0.0, window=2)
        layout, x = Layout.of(torch.tensor([4, 9, 1])), torch.randn(14, D, requires_grad=True)
        direction, found = torch.randn(14, D), []
        for hook in (None, lambda weights: None):
            attention.weights_hook = hook
            found.append(torch.autograd.grad((attention(x, layout, causal) * direction).sum(), x)[0])
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)

    @torch.no_grad()
    def test_a_word_outside_all_windows_does_not_reach_the_encoders_output(self) -> None:
        model, batch = shaken_of_family(replace(SMALL, window=2)), example([9], [3])
        before = model.encode(batch.source, batch.source_lengths).rows
        source = batch.source.clone()
        source[4] += 1
        changed = (model.encode(source, batch.source_lengths).rows - before).abs().amax(-1) > 1e-6
        assert changed.tolist() == [abs(place - 4) <= 2 for place in range(9)]

    @torch.no_grad()
    def test_a_decoder_caches_no_more_than_its_window(self) -> None:
        model, batch = shaken_of_family(replace(SMALL, window=2)), example([4, 3], [5, 5])
        state = model.start(model.encode(batch.source, batch.source_lengths))
        for _ in range(5):
            _, state = model.step(torch.tensor([3, 4]), state)
        assert {keys.shape[2] for keys in state.keys} == {3}

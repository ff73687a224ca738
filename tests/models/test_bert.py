"""BERT against Google's facts and against `transformers`: every head, padding, starting weights, training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from model_examples import PAD, add_gradients, shake
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heedful.attention.record import record_attention
from heedful.config import ModelConfig
from heedful.data.batch import Batch, pack
from heedful.errors import ConfigError
from heedful.models.bert import BERT, MaskedHead, SequenceHead, TokenHead
from heedful.models.build import build_model
from heedful.models.flops import forward_flops
from heedful.models.seq2seq import require_seq2seq
from heedful.models.size import Vocabulary, model_size
from heedful.nn.layout import Layout
from heedful.nn.positions import LearnedPositions
from heedful.tasks import make_experiment

TYPES = 23
SMALL = ModelConfig(
    family="bert",
    d_model=12,
    d_ff=22,
    num_heads=3,
    encoder_layers=2,
    dropout=0.0,
    activation="gelu",
    positions="learned",
    max_positions=9,
)
TEXTS = [[2, 9, 5, 11, 3, 17, 1], [2, 4, 4, 1], [2, 8, 7, 2, 21, 13, 6, 22, 1]]
KINDS = [[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0, 0, 1, 1, 1, 1]]
HEADS: Mapping[str, ModelConfig] = {
    "masked": SMALL,
    "sequence": replace(SMALL, head="sequence", labels=("a", "b", "c", "d", "e")),
    "tokens": replace(SMALL, head="tokens", labels=("A", "B", "C", "D")),
}


def fresh(config: ModelConfig, seed: int = 5) -> BERT:
    torch.manual_seed(seed)
    model = build_model(config, Vocabulary(TYPES, TYPES, PAD, 1))
    assert isinstance(model, BERT)
    return model


def bert(config: ModelConfig, seed: int = 5) -> BERT:
    """A model in evaluation in which every bias, norm and token type matters."""
    model = fresh(config, seed).eval()
    shake(model)
    with torch.no_grad():
        model.embedding.weight[PAD].zero_()
    return model


def read(model: BERT, texts: list[list[int]], kinds: list[list[int]]) -> list[Tensor]:
    ids, lengths = pack(texts)
    types, _ = pack(kinds)
    return list(model.read(ids, types, Layout.of(lengths)).rows.split(lengths.tolist()))


def answers(model: BERT, texts: list[list[int]], kinds: list[list[int]], places: list[list[int]]) -> list[Tensor]:
    ids, lengths = pack(texts)
    types, _ = pack(kinds)
    asked, counts = pack(places)
    return list(model.decode(asked, counts, model.read(ids, types, Layout.of(lengths))).split(counts.tolist()))


def everywhere(texts: list[list[int]]) -> list[list[int]]:
    return [list(range(len(text))) for text in texts]


def theirs(name: str, model: BERT) -> Any:
    """The model of `transformers` with the same weights."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=TYPES,
        hidden_size=SMALL.d_model,
        num_hidden_layers=SMALL.encoder_layers,
        num_attention_heads=SMALL.num_heads,
        intermediate_size=SMALL.d_ff,
        max_position_embeddings=SMALL.max_positions,
        num_labels=max(2, len(model.config.labels)),
        attn_implementation="eager",
    )
    found = getattr(transformers, name)(config).eval()
    copy_to_theirs(model, found)
    return found


@torch.no_grad()
def copy_to_theirs(model: BERT, found: Any) -> None:
    assert isinstance(model.positions, LearnedPositions)
    base = getattr(found, "bert", found)
    base.embeddings.word_embeddings.weight.copy_(model.embedding.weight)
    base.embeddings.position_embeddings.weight.copy_(model.positions.weight)
    base.embeddings.token_type_embeddings.weight.copy_(model.token_types)
    base.embeddings.LayerNorm.load_state_dict(model.embedding_norm.state_dict())
    for ours, layer in zip(model.encoder, base.encoder.layer, strict=True):
        own = layer.attention.self
        for part, weight, bias in zip(
            (own.query, own.key, own.value),
            ours.attention.query_key_value.weight.chunk(3),
            ours.attention.query_key_value.bias.chunk(3),
            strict=True,
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        layer.attention.output.dense.load_state_dict(ours.attention.output.state_dict())
        layer.attention.output.LayerNorm.load_state_dict(ours.attention_residual.norm.state_dict())
        layer.intermediate.dense.load_state_dict(ours.feed_forward.inner.state_dict())
        layer.output.dense.load_state_dict(ours.feed_forward.outer.state_dict())
        layer.output.LayerNorm.load_state_dict(ours.feed_forward_residual.norm.state_dict())
    match model.head:
        case MaskedHead():
            if hasattr(found, "cls"):
                found.cls.predictions.transform.dense.load_state_dict(model.head.dense.state_dict())
                found.cls.predictions.transform.LayerNorm.load_state_dict(model.head.norm.state_dict())
                found.cls.predictions.bias.copy_(model.head.bias)
                found.cls.predictions.decoder.bias.copy_(model.head.bias)
        case SequenceHead():
            base.pooler.dense.load_state_dict(model.head.pooler.state_dict())
            found.classifier.load_state_dict({"weight": model.head.weight, "bias": model.head.bias})
        case TokenHead():
            found.classifier.load_state_dict({"weight": model.head.weight, "bias": model.head.bias})


def padded(texts: list[list[int]]) -> Tensor:
    longest = max(map(len, texts))
    return torch.tensor([[*text, *[PAD] * (longest - len(text))] for text in texts])


@torch.no_grad()
def run_theirs(found: Any) -> Any:
    """Their model on the padded texts."""
    mask = padded([[1] * len(text) for text in TEXTS])
    return found(
        padded(TEXTS),
        attention_mask=mask,
        token_type_ids=padded(KINDS),
        output_hidden_states=True,
        output_attentions=True,
    )


class TestAgainstTransformers:
    @torch.no_grad()
    def test_every_layer_and_its_attention_are_equal(self) -> None:
        model = bert(SMALL)
        found = run_theirs(theirs("BertModel", model))
        with record_attention(model) as record:
            ours = read(model, TEXTS, KINDS)
        for number, (text, rows) in enumerate(zip(TEXTS, ours, strict=True)):
            torch.testing.assert_close(rows, found.last_hidden_state[number, : len(text)], rtol=1e-5, atol=1e-5)
            for layer, weights in enumerate(found.attentions):
                n = len(text)
                here = record.weights("encoder", layer)[number, :, :n, :n]
                torch.testing.assert_close(here, weights[number, :, :n, :n], rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_hidden_tokens_have_the_same_logits(self) -> None:
        model = bert(SMALL)
        found = run_theirs(theirs("BertForMaskedLM", model)).logits
        for number, logits in enumerate(answers(model, TEXTS, KINDS, everywhere(TEXTS))):
            torch.testing.assert_close(logits, found[number, : len(logits)], rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_a_text_has_the_same_logits(self) -> None:
        model = bert(HEADS["sequence"])
        found = run_theirs(theirs("BertForSequenceClassification", model)).logits
        ours = torch.cat(answers(model, TEXTS, KINDS, [[0]] * len(TEXTS)))
        torch.testing.assert_close(ours, found, rtol=1e-5, atol=1e-5)

    @torch.no_grad()
    def test_each_word_has_the_same_logits(self) -> None:
        model = bert(HEADS["tokens"])
        found = run_theirs(theirs("BertForTokenClassification", model)).logits
        places = [[1, 3, 4], [2], [0, 8]]
        for number, (asked, logits) in enumerate(zip(places, answers(model, TEXTS, KINDS, places), strict=True)):
            torch.testing.assert_close(logits, found[number, asked], rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "relative", "sinusoidal"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_text_is_read_alike_alone_and_among_others(positions: str, pooling: str, norm: str) -> None:
    changes: dict[str, Any] = {"positions": positions, "pooling": pooling, "norm": norm}
    for config in HEADS.values():
        model = bert(replace(config, **changes))
        asked = [[0]] * len(TEXTS) if config.head == "sequence" else everywhere(TEXTS)
        together = answers(model, TEXTS, KINDS, asked)
        for text, kinds, places, logits in zip(TEXTS, KINDS, asked, together, strict=True):
            (alone,) = answers(model, [text], [kinds], [places])
            torch.testing.assert_close(alone, logits, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_the_mean_of_all_positions_is_that_of_the_rows() -> None:
    model = bert(replace(HEADS["sequence"], pooling="mean"))
    assert isinstance(model.head, SequenceHead)
    rows = torch.stack([rows.mean(0) for rows in read(model, TEXTS, KINDS)])
    wanted = model.output(model.head.pooler(rows).tanh())
    torch.testing.assert_close(torch.cat(answers(model, TEXTS, KINDS, [[0]] * 3)), wanted, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_texts_without_types_are_all_of_the_first() -> None:
    model = bert(SMALL)
    ids, lengths = pack(TEXTS)
    first = [[0] * len(text) for text in TEXTS]
    torch.testing.assert_close(model.encode(ids, lengths).rows, torch.cat(read(model, TEXTS, first)))


def test_every_norm_has_epsilon_1e_12() -> None:
    for config in HEADS.values():
        norms = [part for part in fresh(config).modules() if isinstance(part, torch.nn.LayerNorm)]
        assert len(norms) == 1 + 2 * SMALL.encoder_layers + (config.head == "masked")
        assert {norm.eps for norm in norms} == {1e-12}


def test_weights_start_from_a_normal_distribution_cut_off_at_two_deviations() -> None:
    labels = tuple(map(str, range(97)))
    model = fresh(replace(HEADS["sequence"], d_model=120, d_ff=480, max_positions=128, labels=labels))
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            assert bool((weight == 1.0).all())
        elif name.endswith("bias"):
            assert not weight.any()
        else:
            rows = weight[PAD + 1 :] if name == "embedding.weight" else weight
            # A normal distribution cut off at two standard deviations has 0.88 of its deviation.
            assert rows.std().item() == pytest.approx(0.88 * 0.02, rel=0.1)
            assert rows.abs().max().item() <= 0.04
    assert not model.embedding.weight[PAD].any()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["learned", "relative", "sinusoidal"])
@pytest.mark.parametrize("head", HEADS)
def test_the_count_of_weights_is_exact(head: str, positions: str, norm: str) -> None:
    changes: dict[str, Any] = {"positions": positions, "norm": norm}
    config = replace(HEADS[head], **changes)
    assert model_size(config, TYPES, TYPES).total == sum(p.numel() for p in fresh(config).parameters())


@pytest.mark.parametrize("head", HEADS)
def test_a_pass_has_as_many_operations_as_pytorch_counts(head: str) -> None:
    model, asked = fresh(HEADS[head]).double(), 1 if head == "sequence" else 3
    texts, places = [[2, 5, 7, 9, 1]] * 4, [list(range(asked))] * 4
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        answers(model, texts, [[0] * 5] * 4, places)
    assert forward_flops(HEADS[head], TYPES, np.full(4, 5), np.full(4, asked)) == counter.get_total_flops()


@pytest.mark.parametrize("head", HEADS)
def test_every_weight_learns(head: str) -> None:
    """The fused kernels run here; PyTorch's own operators must find the same gradients."""
    found = []
    for slow in (False, True):
        model = fresh(HEADS[head])
        if slow:
            model = model.double()
        asked, counts = pack([[0], [2], [4]] if head != "sequence" else [[0], [0], [0]])
        ids, lengths = pack(TEXTS)
        batch = Batch(ids, lengths, asked, torch.tensor([1, 3, 2]), counts, torch.arange(3))
        add_gradients(model, [batch])
        found.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in found[0].items():
        assert gradient is not None and bool(gradient.any()), name
        torch.testing.assert_close(gradient.double(), found[1][name], rtol=1e-3, atol=1e-6)


def test_the_base_model_has_the_published_number_of_weights() -> None:
    config = make_experiment({"model": {"preset": "bert-base"}}).model
    # Google's checkpoint has 109 482 240 weights with the pooler, which the masked head replaces by one of the same
    # size with a norm and a bias for each piece.
    assert model_size(config, 30_522, 30_522).total == 109_482_240 + 2 * 768 + 30_522


def test_it_writes_no_text() -> None:
    with pytest.raises(ConfigError, match="runs/x is a BERT, which writes no text; use it with: heedful classify"):
        require_seq2seq(fresh(SMALL), "runs/x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sharing": "target"}, "model.sharing is 'target' but model.family is 'bert', which has 'all'"),
        ({"labels": ["a"]}, "model.labels are set but model.head is 'masked'"),
        ({"labels": ["a", "a"], "head": "tokens"}, "model.labels must be different names"),
    ],
)
def test_what_it_does_not_have_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_experiment({"model": {"family": "bert", **changes}})

"""Every recorded step of a rival follows from the steps before it, as far as figure 1 has such parts."""

import numpy as np
import pytest
import torch
from model_examples import FAMILIES, SOURCE_TYPES, TARGET_TYPES, sentences, shaken_of_family

from heedful.attention.record import force_decode
from heedful.attention.rival_steps import record_rival_steps
from heedful.attention.steps import Steps
from heedful.models.convolutional import Convolutional
from heedful.models.recurrent import AdditiveDecoder, MultiplicativeDecoder, Recurrent

SOURCE = sentences([7], SOURCE_TYPES)[0]
TARGET = sentences([5], TARGET_TYPES, seed=4)[0]
RECURRENT = ["lstm", "gru", "lstm-additive", "gru-additive", "lstm-multiplicative", "gru-multiplicative"]
CONVOLUTIONAL = ["convolutional", "convolutional-narrow"]
ATTENTIVE = [*RECURRENT[2:], *CONVOLUTIONAL]


def close(left: np.ndarray, right: np.ndarray) -> None:
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=2e-4)


def array(tensor: torch.Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().numpy()
    return values


def recorded(family: str) -> tuple[Recurrent | Convolutional, Steps]:
    model = shaken_of_family(FAMILIES[family])
    assert isinstance(model, Recurrent | Convolutional)
    return model, record_rival_steps(model, SOURCE, TARGET)


def softmax(rows: np.ndarray) -> np.ndarray:
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return shares


@pytest.mark.parametrize("family", [*RECURRENT, *CONVOLUTIONAL])
def test_embeddings_and_logits_are_products_with_the_matrices(family: str) -> None:
    model, steps = recorded(family)
    close(steps["encoder.embedding"], array(model.source_embedding.weight)[SOURCE])
    close(steps["decoder.embedding"], array(model.target_embedding.weight)[steps["target_in"]])
    for side, embedding in (("encoder", model.source_embedding), ("decoder", model.target_embedding)):
        close(steps[f"{side}.scaled"], steps[f"{side}.embedding"] * embedding.scale)
    close(steps["logits"], steps["decoder.output"] @ array(model.output_weight).T)
    close(np.exp(steps["log_probs"]), softmax(steps["logits"]))
    assert ("encoder.positions" in steps) == (family in CONVOLUTIONAL)


@pytest.mark.parametrize("family", ATTENTIVE)
def test_weights_and_contexts_follow_from_queries_keys_and_values(family: str) -> None:
    model, steps = recorded(family)
    for number in range(1, 1 + len(model.attentions["cross"])):
        name = f"decoder.{number}.cross_attention"
        q, k, v = (steps[f"{name}.{part}"] for part in ("query", "key", "value"))
        if family.endswith("additive"):
            assert isinstance(model, Recurrent)
            assert isinstance(model.decoder, AdditiveDecoder)
            scores = np.tanh(q[:, :, None] + k[:, None]) @ array(model.decoder.attention.score)
        else:
            scores = np.einsum("hqd,hkd->hqk", q, k)
        close(steps[f"{name}.scores"], scores)
        close(steps[f"{name}.weights"], softmax(scores))
        close(steps[f"{name}.heads"], steps[f"{name}.weights"] @ v)
    forced = force_decode(model, [SOURCE], [TARGET])[0]
    close(steps["decoder.1.cross_attention.weights"], forced.attention.cross[0])
    close(steps["log_probs"][np.arange(len(TARGET)), TARGET], forced.log_probs)


@pytest.mark.parametrize("family", RECURRENT[2:])
def test_keys_are_projected_annotations_and_the_output_reads_the_context(family: str) -> None:
    model, steps = recorded(family)
    assert isinstance(model, Recurrent)
    decoder, name = model.decoder, "decoder.1.cross_attention"
    assert isinstance(decoder, AdditiveDecoder | MultiplicativeDecoder)
    close(steps[f"{name}.value"][0], steps["encoder.output"])
    close(steps[f"{name}.key"][0], steps["encoder.output"] @ array(decoder.attention.key.weight).T)
    d, read, context = model.config.d_model, steps[f"{name}.concat"], steps[f"{name}.heads"][0]
    products = read @ array(decoder.output.weight).T + array(decoder.output.bias)
    if isinstance(decoder, AdditiveDecoder):
        close(read[:, d : 2 * d], steps["decoder.scaled"])
        close(read[:, 2 * d :], context)
        close(steps["decoder.output"], products.reshape(len(TARGET), -1, 2).max(-1))
    else:
        close(read[:, : 2 * d], context)
        close(read[:, 2 * d :], steps[f"{name}.query"][0])
        close(steps["decoder.output"], np.tanh(products))


@pytest.mark.parametrize("family", CONVOLUTIONAL)
def test_each_layer_of_a_convolutional_decoder_follows_from_its_input(family: str) -> None:
    model, steps = recorded(family)
    assert isinstance(model, Convolutional)
    half, embedded = 0.5**0.5, steps["decoder.scaled"] + steps["decoder.positions"]
    x = embedded @ array(model.target_in.weight).T + array(model.target_in.bias)
    for number, layer in enumerate(model.decoder, 1):
        name = f"decoder.{number}"
        close(steps[f"{name}.input"], x)
        width, d = layer.convolution.width, x.shape[1]
        padded = np.concatenate([np.zeros((width - 1, d)), x])
        windows = np.stack([padded[place : place + width].ravel() for place in range(len(x))])
        linear = layer.convolution.linear
        content, gate = np.split(windows @ array(linear.weight).T + array(linear.bias), 2, axis=1)
        hidden = content / (1 + np.exp(-gate))
        close(steps[f"{name}.hidden"], hidden)
        query = (hidden @ array(layer.query.weight).T + array(layer.query.bias) + embedded) * half
        close(steps[f"{name}.cross_attention.query"][0], query)
        context = steps[f"{name}.cross_attention.heads"][0] * len(SOURCE) ** 0.5
        close(steps[f"{name}.cross_attention.concat"], context)
        attended = context @ array(layer.output.weight).T + array(layer.output.bias)
        close(steps[f"{name}.cross_attention.output"], attended)
        x = ((attended + hidden) * half + x) * half
        close(steps[f"{name}.output"], x)
    close(steps["decoder.output"], x @ array(model.target_out.weight).T + array(model.target_out.bias))


def test_recording_leaves_no_hook_behind() -> None:
    for family in ("gru-additive", "lstm-multiplicative", "convolutional"):
        model, _ = recorded(family)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

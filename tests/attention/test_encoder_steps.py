"""Every recorded step of BERT and of ViT follows from the steps before it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import SMALL, shake
from step_examples import array, check_layer, close, linear, norm, softmax

from heedful.attention.encoder_steps import record_encoder_steps
from heedful.attention.record import record_answers
from heedful.attention.steps import Steps
from heedful.data.batch import pack
from heedful.models.bert import BERT, MaskedHead, SequenceHead
from heedful.models.vit import ViT
from heedful.nn.positions import LearnedPositions

SOURCE, PLACES = [2, 9, 4, 4, 11, 3, 1], [1, 4, 5]
LABELS = ("a", "b", "c", "d")
_BERT = replace(SMALL, family="bert", encoder_layers=2, activation="gelu", positions="learned", labels=LABELS)
BERTS = {
    "masked": replace(_BERT, head="masked", labels=()),
    "tokens": replace(_BERT, head="tokens"),
    "sequence": replace(_BERT, head="sequence", pooling="cls"),
    "mean": replace(_BERT, head="sequence", pooling="mean", norm="pre", positions="relative", max_distance=3),
}
_VIT = replace(
    SMALL, family="vit", norm="pre", activation="gelu", encoder_layers=2, labels=LABELS,
    image_size=6, patch_size=2, channels=3,
)  # fmt: skip
VITS = {"cls": replace(_VIT, pooling="cls"), "mean": replace(_VIT, pooling="mean")}


def bert(name: str) -> BERT:
    torch.manual_seed(4)
    model = BERT(BERTS[name], 17, 0).eval()
    shake(model)
    return model


def vit(name: str) -> ViT:
    torch.manual_seed(4)
    model = ViT(VITS[name]).eval()
    shake(model)
    return model


def picture() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (6, 6, 3))


def check_layers(model: BERT | ViT, steps: Steps) -> set[str]:
    """From the input of the stack to its output, and what each layer would answer; returns what was checked."""
    x = steps["encoder.input"]
    for number, layer in enumerate(model.encoder, 1):
        x = check_layer(steps, f"encoder.{number}", layer, x)
    close(steps["encoder.output"], norm(model.encoder_norm, x))
    close(steps[f"encoder.{len(model.encoder)}.lens"], steps["log_probs"])
    assert model.output_bias is not None
    close(steps["logits"], steps["head.output"] @ array(model.output_weight).T + array(model.output_bias))
    close(np.exp(steps["log_probs"]), softmax(steps["logits"]))
    own = {name for name in steps if name.startswith(("encoder.1.", "encoder.2."))}
    return own | {"source", "places", "encoder.input", "encoder.output", "head.output", "logits", "log_probs"}


@pytest.mark.parametrize("name", BERTS)
def test_every_step_of_a_bert_follows_from_the_steps_before_it(name: str) -> None:
    model = bert(name)
    places = [0] if isinstance(model.head, SequenceHead) else PLACES
    steps = record_encoder_steps(model, SOURCE, places)
    checked = {"encoder.embedding", "encoder.types", "encoder.summed", "head.input"}
    close(steps["encoder.embedding"], array(model.embedding.weight)[SOURCE])
    close(steps["encoder.types"], np.tile(array(model.token_types)[0], (len(SOURCE), 1)))
    total = steps["encoder.embedding"] + steps["encoder.types"]
    if isinstance(model.positions, LearnedPositions):
        close(steps["encoder.positions"], array(model.positions.weight)[: len(SOURCE)])
        total = total + steps["encoder.positions"]
        checked.add("encoder.positions")
    close(steps["encoder.summed"], total)
    close(steps["encoder.input"], norm(model.embedding_norm, total))
    checked |= check_layers(model, steps)
    output = steps["encoder.output"]
    close(steps["head.input"], output.mean(0, keepdims=True) if name == "mean" else output[places])
    head, rows = model.head, steps["head.input"]
    if isinstance(head, MaskedHead | SequenceHead):
        close(steps["head.dense"], linear(head.dense if isinstance(head, MaskedHead) else head.pooler, rows))
        dense = torch.from_numpy(steps["head.dense"])
        rows = array(torch.nn.functional.gelu(dense) if isinstance(head, MaskedHead) else dense.tanh())
        close(steps["head.active"], rows)
        checked |= {"head.dense", "head.active"}
    close(steps["head.output"], norm(head.norm, rows) if isinstance(head, MaskedHead) else rows)
    assert steps.keys() == checked


@pytest.mark.parametrize("name", VITS)
def test_every_step_of_a_vit_follows_from_the_steps_before_it(name: str) -> None:
    model, pixels = vit(name), picture()
    steps = record_encoder_steps(model, pixels.ravel().tolist(), [0])
    patches = [
        pixels[y : y + 2, x : x + 2].transpose(2, 0, 1).ravel() / 127.5 - 1 for y in (0, 2, 4) for x in (0, 2, 4)
    ]
    close(steps["encoder.patches"], np.stack(patches))
    projected = linear(model.patches, steps["encoder.patches"])
    close(steps["encoder.embedding"], np.concatenate([array(model.class_token)[None], projected]))
    close(steps["encoder.positions"], array(model.positions))
    close(steps["encoder.summed"], steps["encoder.embedding"] + steps["encoder.positions"])
    close(steps["encoder.input"], steps["encoder.summed"])
    checked = check_layers(model, steps)
    checked |= {f"encoder.{part}" for part in ("patches", "embedding", "positions", "summed")}
    output = steps["encoder.output"]
    close(steps["head.input"], output.mean(0, keepdims=True) if name == "mean" else output[:1])
    close(steps["head.output"], steps["head.input"])
    assert steps.keys() == checked | {"head.input"}


def test_the_answers_of_each_layer_are_those_of_a_model_that_ends_there() -> None:
    model = bert("masked")
    steps = record_encoder_steps(model, SOURCE, PLACES)
    shorter = BERT(replace(model.config, encoder_layers=1), 17, 0).eval()
    weights = model.state_dict()
    shorter.load_state_dict({name: weights[name] for name in shorter.state_dict()})
    ids, lengths = pack([SOURCE])
    places, counts = pack([PLACES])
    with torch.inference_mode():
        logits = shorter.decode(places, counts, shorter.encode(ids, lengths))
    close(steps["encoder.1.lens"], array(logits.log_softmax(-1)))


@pytest.mark.parametrize("model", [bert("tokens"), vit("cls")], ids=["bert", "vit"])
def test_recorded_answers_are_the_last_steps_and_leave_no_hook_behind(model: BERT | ViT) -> None:
    source, places = (SOURCE, PLACES) if isinstance(model, BERT) else (picture().ravel().tolist(), [0])
    steps, found = record_encoder_steps(model, source, places), record_answers(model, source, places)
    close(found.log_probs, steps["log_probs"])
    for number, weights in enumerate(found.attention.encoder, 1):
        close(weights, steps[f"encoder.{number}.attention.weights"])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(part.instrumented for layers in model.attentions.values() for part in layers)

"""The same model in ONNX Runtime."""

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import toy
from engine_examples import POST, untrained_run
from model_examples import SMALL, sentences

from heedful.config import ModelConfig
from heedful.decoding.torch_engine import token_log_probs
from heedful.errors import ConfigError, HeedfulError
from heedful.formats.export import export
from heedful.formats.onnx import OnnxCopy, export_onnx
from heedful.text import Tokenizer

ODD_HEADS = replace(SMALL, encoder_heads=(2,), decoder_heads=(1, 3), cross_heads=(3, 2))
VARIANTS = {
    "paper": POST,
    "pre": replace(POST, norm="pre", activation="gelu", sharing="none"),
    "learned": replace(ODD_HEADS, positions="learned", sharing="target", max_positions=9),
    "bias": replace(POST, activation="swish", output_bias=True),
    "relative": replace(POST, norm="pre", positions="relative", max_distance=2),
}


@pytest.fixture
def onnx() -> None:
    for name in ("onnx", "onnxruntime"):
        pytest.importorskip(name, reason="needs onnx and onnxruntime, of heedful[onnx]")


@pytest.mark.usefixtures("onnx")
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_onnx_runtime_gives_the_same_translations(config: ModelConfig, tmp_path: Path) -> None:
    joint = config.sharing == "all"
    run = untrained_run(tmp_path / "run", config, joint=joint)
    proof = export(run, "onnx", tmp_path / "out")
    assert (proof.sentences, proof.same) == (16, 16)
    assert proof.largest < 1e-4
    names = ["tokenizer.json"] if joint else ["tokenizer.source.json", "tokenizer.target.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["README.md", "decoder.onnx", "encoder.onnx", "heedful.json", *names]
    )
    tokenizer = Tokenizer.from_json((tmp_path / "out" / names[-1]).read_text(), names[-1])
    assert tokenizer.to_json() == run.tokenizers().target.to_json()


@pytest.mark.usefixtures("onnx")
def test_the_description_matches_the_graphs(tmp_path: Path) -> None:
    from onnxruntime import InferenceSession

    run = untrained_run(tmp_path / "run")
    ran = toy.run("export", run.path, tmp_path / "out", "--to", "onnx", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["same"] == 16
    about = json.loads((tmp_path / "out" / "heedful.json").read_text())
    assert (about["start"], about["pad"], about["eos"]) == (0, 0, 1)
    assert about["decoder"]["inputs"]["keys.1"] == ["batch", 2, "before", 8]
    for name in ("encoder", "decoder"):
        session = InferenceSession(tmp_path / "out" / f"{name}.onnx", providers=["CPUExecutionProvider"])
        for kind, entries in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
            assert about[name][kind] == {entry.name: list(entry.shape) for entry in entries}


@pytest.mark.usefixtures("onnx")
def test_tokens_can_be_given_one_at_a_time_or_together(tmp_path: Path) -> None:
    """Also, the length of the other sentences changes nothing."""
    run = untrained_run(tmp_path / "run")
    model = run.seq2seq()
    export_onnx(model, run.tokenizers(), run.experiment().search, tmp_path)
    copy = OnnxCopy(tmp_path)
    sources, targets = sentences([4, 9, 1], 60), sentences([6, 3, 8], 60, seed=8)
    together = copy.score(sources, targets)
    for source, target, scores in zip(sources, targets, together, strict=True):
        state = copy._start([source])
        steps = [copy._step(np.array([[token]]), state)[0, 0] for token in [0, *target[:-1]]]
        log_p = [torch.tensor(step).log_softmax(0)[token].item() for step, token in zip(steps, target, strict=True)]
        assert log_p == pytest.approx(scores, abs=1e-4)
    ours = token_log_probs([model], sources, targets)
    for one, other in zip(ours, together, strict=True):
        assert one == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(POST, window=2), "restricted self-attention is not exported to ONNX, but model.window is 2"),
        (replace(POST, family="recurrent"), "only Transformers are exported to ONNX, but this model is a Recurrent"),
    ],
    ids=["window", "recurrent"],
)
def test_other_models_are_refused(config: ModelConfig, message: str, tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", config)
    with pytest.raises(ConfigError, match=message):
        export(run, "onnx", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_packages_are_reported(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    with (
        mock.patch("heedful.formats.onnx.find_spec", return_value=None),
        pytest.raises(
            ConfigError, match=r"needs onnx and onnxruntime, which are not installed; run: pip install 'heedful\[onnx\]"
        ),
    ):
        export(run, "onnx", tmp_path / "out")
    with pytest.raises(ConfigError, match="give the export a folder: heedful export RUN OUT --to onnx"):
        export(run, "onnx")
    with pytest.raises(ConfigError, match="--numbers int8 is for CTranslate2"):
        export(run, "onnx", tmp_path / "out", "int8")


@pytest.mark.usefixtures("onnx")
def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    with (
        mock.patch("heedful.formats.onnx.NORM_EPSILON", 0.5),
        pytest.raises(HeedfulError, match="the converted model does not agree"),
    ):
        export(run, "onnx", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]

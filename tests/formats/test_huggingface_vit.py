"""Imported ViT models give the same probabilities as `transformers`, from the same picture files."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from PIL import Image
from transformers_examples import LABELS, vit_folder

from heedful.classification.picture_classifier import PictureClassifier
from heedful.errors import FolderError
from heedful.formats.import_model import import_model
from heedful.storage.files import load_tensors, save_tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit_folder(tmp_path_factory.mktemp("vit") / "tiny-vit")


@pytest.mark.parametrize(
    "changes",
    [{}, {"num_channels": 1, "layer_norm_eps": 1e-6}, {"hidden_act": "gelu_new", "patch_size": 8}],
    ids=["usual", "grey", "tanh"],
)
def test_log_probabilities_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    proof = import_model(vit_folder(tmp_path / "theirs", **changes), tmp_path / "run")
    assert (proof.sentences, proof.tokens, proof.same) == (16, 48, 16)
    assert proof.largest < 1e-5


def test_a_file_is_classified_as_by_transformers(folder: Path, tmp_path: Path) -> None:
    from transformers import ViTForImageClassification, ViTImageProcessorPil

    import_model(folder, tmp_path / "run")
    pixels = np.random.default_rng(3).integers(0, 256, (23, 31, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    processor = ViTImageProcessorPil(size={"height": 16, "width": 16}, resample=2)
    given = processor(Image.open(tmp_path / "a.png"), return_tensors="pt")
    with torch.inference_mode():
        wanted = ViTForImageClassification.from_pretrained(folder).eval()(**given).logits.softmax(-1)[0].tolist()
    (found,) = PictureClassifier.load(tmp_path / "run").classify([tmp_path / "a.png"])
    assert [found.probabilities[label] for label in LABELS.values()] == pytest.approx(wanted, abs=1e-5)
    ran = toy.run("classify", tmp_path / "run", tmp_path / "a.png")
    assert ran.out.split("\t")[0] == found.label
    assert toy.run("info", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qkv_bias": False}, "has qkv_bias False"),
        ({"hidden_act": "tanh"}, "has hidden_act tanh; heedful knows gelu"),
        ({"architectures": ["ViTModel"]}, "heedful imports ViTForImageClassification"),
        ({"hidden_size": 10**8}, r"holds [\d,]+ values, but config.json describes [\d,]+"),
        ({"hidden_size": "24"}, "model.d_model must be a whole number, but is '24' instead"),
        ({"num_hidden_layers": 2}, r"has an unknown weight vit.encoder.layer.2\.[\w.]+; it belongs"),
        ({"num_hidden_layers": 4}, r"has no weight vit.encoder.layer.3\.[\w.]+; it belongs"),
        ({"patch_size": 5}, "patches of 5 pixels do not divide"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label does not have the ids 0 to 1"),
        ({"id2label": {"0": "a", "1": "b"}}, r"has head_bias of shape \[3\] instead of \[2\]|has head_weight of shape"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FolderError, match=message):
        import_model(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_preparation_of_pictures_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.485, 0.456, 0.406]}))
    with pytest.raises(FolderError, match=r"has image_mean \[0.485, 0.456, 0.406\], but heedful prepares"):
        import_model(copy, tmp_path / "out")


def test_a_weight_of_another_name_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    weights = load_tensors(folder / "model.safetensors")
    save_tensors(copy / "model.safetensors", weights | {"vit.pooler.dense.bias": torch.zeros(24)}, {"format": "pt"})
    with pytest.raises(FolderError, match=r"has an unknown weight vit\.pooler\.dense\.bias"):
        import_model(copy, tmp_path / "out")

"""Imported CLIP models give the vectors of `transformers`, from the same texts and picture files."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from PIL import Image
from transformers_examples import clip_folder

from heedful.data.captions import CaptionEncoder
from heedful.errors import DataError, FolderError
from heedful.formats.import_model import import_model
from heedful.retrieval.finder import Finder
from heedful.storage.files import load_tensors, save_tensors

TEXTS = (
    "A photo of a CAT",
    "don't  stop,\tit's 1234!",
    "Zürich – ÀÉ naïve 日本 🙂",
    "",
    "the sun " * 30,
    "#hash_tag e\u0301",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip_folder(tmp_path_factory.mktemp("clip") / "tiny-clip")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clip") / "run"
    import_model(folder, out)
    return out


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": {"hidden_act": "gelu"}, "vision": {"hidden_act": "gelu", "patch_size": 8}},
        {"text": {"eos_token_id": 2}},  # as in OpenAI's own files: the highest number of a text is its end
    ],
    ids=["usual", "gelu", "old"],
)
def test_vectors_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    proof = import_model(clip_folder(tmp_path / "theirs", **changes), tmp_path / "run")
    assert (proof.sentences, proof.tokens, proof.same) == (16, 2 * 16 * 28, 16)
    assert proof.largest < 1e-5


def test_texts_have_the_ids_of_transformers(folder: Path, run: Path) -> None:
    from transformers import CLIPTokenizer

    theirs, ours = CLIPTokenizer.from_pretrained(folder), Finder.load(run).encoder
    for text in TEXTS:
        wanted = theirs(text, truncation=True, max_length=20)["input_ids"]
        assert ours([text]) == [wanted], text
    assert len(ours([TEXTS[4]])[0]) == 20


def test_the_end_of_a_text_cannot_be_written_in_it(run: Path) -> None:
    encoder = Finder.load(run).encoder
    assert isinstance(encoder, CaptionEncoder)
    (ids,) = encoder(["a <|endoftext|> b"])
    assert ids.count(encoder.tokenizer.eos_id) == 1


def test_a_file_and_a_text_are_read_as_by_transformers(folder: Path, run: Path, tmp_path: Path) -> None:
    from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

    chance = np.random.default_rng(3)
    for number, shape in enumerate(((23, 31, 3), (64, 20, 3), (16, 16, 3))):
        pixels = chance.integers(0, 256, shape).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    model, finder = CLIPModel.from_pretrained(folder).eval(), Finder.load(run)
    names = [tmp_path / f"{number}.png" for number in range(3)]
    processor = CLIPImageProcessorPil.from_pretrained(folder)
    tokens = CLIPTokenizer.from_pretrained(folder)(
        list(TEXTS[:3]), padding=True, truncation=True, max_length=20, return_tensors="pt"
    )
    with torch.inference_mode():
        found = model(**processor([Image.open(name).convert("RGB") for name in names], return_tensors="pt"), **tokens)
    # A picture has whole numbers from 0 to 255 after resizing; rounding differs where a sum is near a half.
    torch.testing.assert_close(finder.encode_pictures(names), found.image_embeds, rtol=0, atol=2e-3)
    torch.testing.assert_close(finder.encode_texts(TEXTS[:3]), found.text_embeds, rtol=1e-5, atol=1e-5)
    ran = toy.run("find", run, "A photo of a CAT", tmp_path)
    assert ran.code == 0, ran.err
    assert [Path(line.split("\t")[1]) for line in ran.out.splitlines()] == [
        names[number] for number in found.logits_per_text[0].argsort(descending=True).tolist()
    ]
    assert toy.run("info", run).code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["CLIPTextModel"]}, "heedful imports CLIPModel"),
        ({"projection_dim": "28"}, "model.projection must be a whole number, but is '28' instead"),
        ({"projection_dim": 30}, r"has projection.weight of shape \[28, 32\] instead of \[30, 32\]"),
        ({"vision_config": 3}, "vision_config is not a table"),
        ({"vision_config": {"hidden_act": "tanh"}}, "has hidden_act tanh for pictures but quick_gelu for texts"),
        ({"vision_config": {"hidden_size": 10**8}}, r"holds [\d,]+ values, but config.json describes [\d,]+"),
        ({"vision_config": {"num_hidden_layers": 1}}, r"has an unknown weight vision_model.encoder.layers.1"),
        ({"text_config": {"num_hidden_layers": 3}}, r"has no weight text_model.encoder.layers.2"),
        ({"vision_config": {"patch_size": 5}}, "patches of 5 pixels do not divide"),
        ({"text_config": {"eos_token_id": 7}}, "a text ends with 7 by config.json, but with"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(FolderError, match=message):
        import_model(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _change_processor(copy: Path) -> None:
    (copy / "preprocessor_config.json").write_text(json.dumps({"resample": 2}))


def _raise_scale(copy: Path) -> None:
    weights = load_tensors(copy / "model.safetensors")
    save_tensors(copy / "model.safetensors", weights | {"logit_scale": torch.tensor(5.0)}, {"format": "pt"})


def _add_weight(copy: Path) -> None:
    weights = load_tensors(copy / "model.safetensors")
    save_tensors(copy / "model.safetensors", weights | {"text_model.bias": torch.zeros(3)}, {"format": "pt"})


def _remove_tokenizer(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()


def _rename_start(copy: Path) -> None:
    path = copy / "tokenizer.json"
    path.write_text(path.read_text().replace('"content": "<|startoftext|>"', '"content": "<start>"'))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (_change_processor, FolderError, "has resample 2, but heedful prepares pictures for CLIP with 3"),
        (_raise_scale, FolderError, "has logit_scale 5, over the logarithm of 100"),
        (_add_weight, FolderError, "has an unknown weight text_model.bias; it belongs to a different model"),
        (_remove_tokenizer, FolderError, "has no tokenizer.json"),
        (_rename_start, DataError, "has no start piece such as <|startoftext|>"),
    ],
)
def test_a_folder_that_differs_elsewhere_is_refused(
    change: Callable[[Path], None], kind: type[Exception], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    change(copy)
    with pytest.raises(kind, match=message.replace("|", r"\|")):
        import_model(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_scale_is_kept(folder: Path, run: Path) -> None:
    theirs, ours = (load_tensors(each / "model.safetensors") for each in (folder, run))
    assert ours["log_scale"].item() == theirs["logit_scale"].item() < math.log(100)

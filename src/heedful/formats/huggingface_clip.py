"""CLIP in Hugging Face's format: read a folder as `transformers` writes it, and prove that both models agree."""

import math
import random
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig
from heedful.data.batch import pack
from heedful.errors import ConfigError, FolderError, HeedfulError
from heedful.formats.huggingface_folder import (
    Imported,
    convert_weights,
    name_rows,
    read_object,
    read_utf8,
    read_weights,
)
from heedful.formats.parity import Proof
from heedful.models.clip import CLIP, MOST_SCALE, PIXEL_MEANS, PIXEL_STDS
from heedful.storage.files import disk_errors
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import make_experiment
from heedful.text import Tokenizer
from heedful.text.tokenizer_allowlist import check_tokenizer_json
from heedful.text.tokenizer_training import complete_tokenizer

_TOLERANCE = 1e-3  # largest difference between numbers of the unit vectors
_PAIRS = 16  # random ones, of the proof
_ACTIVATIONS: dict[str, Activation] = {
    **{"quick_gelu": "quick-gelu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh"},
}
_PICTURES = {
    **{"d_model": "hidden_size", "d_ff": "intermediate_size", "num_heads": "num_attention_heads"},
    **{"encoder_layers": "num_hidden_layers", "image_size": "image_size", "patch_size": "patch_size"},
    "channels": "num_channels",
}
_TEXTS = {
    **{"text_d_model": "hidden_size", "text_d_ff": "intermediate_size", "text_heads": "num_attention_heads"},
    **{"decoder_layers": "num_hidden_layers", "max_positions": "max_position_embeddings"},
}
# The sizes of OpenAI's ViT-B/32, which `transformers` may leave out of the file.
_PICTURE_DEFAULTS = {
    **{"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12},
    **{"image_size": 224, "patch_size": 32, "num_channels": 3},
}
_TEXT_DEFAULTS = {
    **{"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 12},
    "max_position_embeddings": 77,
}
_PARTS = {
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "layer_norm1",
    "feed_forward.inner": "mlp.fc1",
    "feed_forward.outer": "mlp.fc2",
    "feed_forward_residual.norm": "layer_norm2",
}
_FIRST_ID = 2  # in old files, the end of a text, which its model does not look for


def read_clip(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a CLIP model; refuse one that ours cannot represent."""
    if (names := config.get("architectures") or ["CLIPModel"]) != ["CLIPModel"]:
        raise FolderError(f"{folder} is a {names}; heedful imports CLIPModel")
    _check_processor(folder, config)
    weights = read_weights(folder, "CLIPModel")
    table = weights.get("text_model.embeddings.token_embedding.weight")
    if table is None or table.ndim != 2:
        raise FolderError(f"{folder}/model.safetensors has no table of tokens; it belongs to a different model")
    tokenizer = _read_tokenizer(folder, len(table))
    _check_end(folder, config, tokenizer, len(table))
    experiment = _experiment(folder, config, tokenizer)
    tokenizers = Tokenizers(tokenizer, tokenizer)

    def convert(theirs: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        return own_clip_weights(folder, theirs, model, tokenizer.vocabulary_size)

    return Imported(
        experiment, tokenizers, convert_weights(folder, weights, experiment.model, tokenizers.vocabulary, convert)
    )


def _tower(folder: Path, config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, Mapping):
        raise FolderError(f"{folder}/config.json is damaged: {name} is not a table")
    return table


def _check_processor(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse another preparation of pictures than that of the original, which heedful has."""
    path = folder / "preprocessor_config.json"
    if not path.exists():
        return
    processor, size = read_object(path), _tower(folder, config, "vision_config").get("image_size", 224)
    wanted = (
        *(("do_resize", (True,)), ("do_center_crop", (True,)), ("do_rescale", (True,)), ("do_normalize", (True,))),
        ("rescale_factor", (1 / 255,)),
        ("resample", (3,)),
        ("image_mean", (list(PIXEL_MEANS),)),
        ("image_std", (list(PIXEL_STDS),)),
        ("size", (size, {"shortest_edge": size})),
        ("crop_size", (size, {"height": size, "width": size})),
    )
    for key, known in wanted:
        if (value := processor.get(key, known[0])) not in known:
            raise FolderError(
                f"{path} has {key} {value}, but heedful prepares pictures for CLIP with {known[0]}; "
                "train a model of your own with: heedful train --captions FILE"
            )


def _experiment(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> Experiment:
    """The same network as one of ours; a missing or impossible value is named."""
    pictures = {**_PICTURE_DEFAULTS, **_tower(folder, config, "vision_config")}
    texts = {**_TEXT_DEFAULTS, **_tower(folder, config, "text_config")}
    model: dict[str, Any] = {ours: pictures[theirs] for ours, theirs in _PICTURES.items()}
    model |= {ours: texts[theirs] for ours, theirs in _TEXTS.items()}
    for key, usual in (("hidden_act", "quick_gelu"), ("layer_norm_eps", 1e-5), ("attention_dropout", 0.0)):
        if pictures.get(key, usual) != texts.get(key, usual):
            raise FolderError(
                f"{folder} has {key} {pictures.get(key, usual)} for pictures but {texts.get(key, usual)} for texts; "
                "heedful has one for both"
            )
    activation = pictures.get("hidden_act", "quick_gelu")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise FolderError(f"{folder} has hidden_act {activation}; heedful knows {', '.join(_ACTIVATIONS)}")
    model |= {
        "preset": "clip-vit-b-32",
        "activation": _ACTIVATIONS[activation],
        "norm_epsilon": pictures.get("layer_norm_eps", 1e-5),
        "attention_dropout": pictures.get("attention_dropout", 0.0),
        "projection": config.get("projection_dim", 512),
    }
    text = {"kind": "bpe", "vocabulary_size": tokenizer.vocabulary_size}
    try:
        return make_experiment({"name": folder.resolve().name, "task": "captions", "model": model, "text": text})
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error


def _read_tokenizer(folder: Path, rows: int) -> Tokenizer:
    """CLIP's byte-pair encoding, with a padding piece, and a name for each row of the embedding."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise FolderError(f"{folder} has no tokenizer.json; have transformers write it: CLIPTokenizerFast")
    with disk_errors(path):
        data = check_tokenizer_json(read_utf8(path), str(path))
    tokenizer = complete_tokenizer(name_rows(folder, path, data, rows), str(path))
    _ = tokenizer.start_id  # an error here, if it has none
    return tokenizer


def _check_end(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer, rows: int) -> None:
    """Refuse another end of a text than that of the tokenizer, because its features stand for the text."""
    theirs = _tower(folder, config, "text_config").get("eos_token_id", 49_407)
    wanted = rows - 1 if theirs == _FIRST_ID else theirs  # then it is the highest number in the text
    if wanted != tokenizer.eos_id:
        raise FolderError(
            f"{folder}: a text ends with {wanted} by config.json, but with {tokenizer.eos_id} by its tokenizer"
        )


def own_clip_weights(folder: Path, theirs: Mapping[str, Tensor], config: ModelConfig, pieces: int) -> dict[str, Tensor]:
    """Convert CLIP's weights to ours, for a tokenizer that may have a few pieces more."""
    left = {name: tensor for name, tensor in theirs.items() if not name.endswith(".position_ids")}  # of old files
    table = left.pop("text_model.embeddings.token_embedding.weight")
    vision = "vision_model.embeddings"
    found = {
        "class_token": left.pop(f"{vision}.class_embedding"),
        "patches.weight": left.pop(f"{vision}.patch_embedding.weight").flatten(1),
        "patch_positions": left.pop(f"{vision}.position_embedding.weight"),
        "projection.weight": left.pop("visual_projection.weight"),
        "embedding.weight": torch.cat([table, table.new_zeros(pieces - len(table), table.shape[1])]),
        "positions.weight": left.pop("text_model.embeddings.position_embedding.weight"),
        "text_projection.weight": left.pop("text_projection.weight"),
        "log_scale": left.pop("logit_scale"),
    }
    for end in ("weight", "bias"):
        found[f"first_norm.{end}"] = left.pop(f"vision_model.pre_layrnorm.{end}")
        found[f"encoder_norm.{end}"] = left.pop(f"vision_model.post_layernorm.{end}")
        found[f"decoder_norm.{end}"] = left.pop(f"text_model.final_layer_norm.{end}")
        for stack, prefix, layers in (
            ("encoder", "vision_model", config.encoder_layers),
            ("decoder", "text_model", config.decoder_layers),
        ):
            for layer in range(layers):
                block = f"{prefix}.encoder.layers.{layer}"
                projections = [left.pop(f"{block}.self_attn.{name}_proj.{end}") for name in "qkv"]
                found[f"{stack}.{layer}.attention.query_key_value.{end}"] = torch.cat(projections)
                for ours, name in _PARTS.items():
                    found[f"{stack}.{layer}.{ours}.{end}"] = left.pop(f"{block}.{name}.{end}")
    if left:
        raise FolderError(
            f"{folder}/model.safetensors has an unknown weight {min(left)[:80]}; it belongs to a different model"
        )
    if found["log_scale"].numel() == 1 and not found["log_scale"].item() <= math.log(MOST_SCALE) + 1e-4:
        raise FolderError(
            f"{folder} has logit_scale {found['log_scale'].item():.4g}, over the logarithm of {MOST_SCALE:g} that CLIP "
            "has at most"
        )
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def prove_clip(folder: Path, run: RunFolder) -> Proof:
    """Compare the CLIP of a run folder with the folder that it was made from: random pictures and texts."""
    if not find_spec("transformers"):
        raise ConfigError("an import is proven with transformers, which is not installed; install it")
    from transformers import CLIPModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would disturb our own progress bar
    theirs: Any = CLIPModel.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, attn_implementation="eager"
    ).eval()
    model, tokenizer = run.model(), run.tokenizers().source
    if not isinstance(model, CLIP):  # never: for the type checker
        raise TypeError(f"{type(model).__name__} is no CLIP")
    config, size = model.config, model.config.image_size
    generator, chance = torch.Generator().manual_seed(1), random.Random(1)
    pixels = torch.randint(256, (_PAIRS, size, size, 3), generator=generator)
    start, last = tokenizer.start_id, config.max_positions - 2
    special = (tokenizer.pad_id, tokenizer.eos_id, start)
    ids = [number for number in range(theirs.config.text_config.vocab_size) if number not in special]
    texts = [[start, *chance.choices(ids, k=1 + number * last // _PAIRS), tokenizer.eos_id] for number in range(_PAIRS)]
    longest = max(map(len, texts))
    grid = torch.tensor([text + [tokenizer.eos_id] * (longest - len(text)) for text in texts])
    means, stds = (torch.tensor(values)[:, None, None] for values in (PIXEL_MEANS, PIXEL_STDS))
    with torch.inference_mode():
        pictures = model.encode(pixels.flatten(), torch.full((_PAIRS,), pixels[0].numel()))
        ours = torch.cat([pictures, model.encode_texts(*pack(texts))])
        given = {"pixel_values": (pixels.permute(0, 3, 1, 2) / 255 - means) / stds, "input_ids": grid}
        found = theirs(**given, attention_mask=torch.ones_like(grid))
        wanted = torch.cat([found.image_embeds, found.text_embeds])
        same = int((model.compare(pictures, ours[_PAIRS:]).argmax(1) == found.logits_per_image.argmax(1)).sum())
    largest = (ours - wanted).abs().max().item()
    if not largest <= _TOLERANCE:
        raise HeedfulError(
            f"the converted model does not agree: its vectors differ by up to {largest:.2g}, over {_TOLERANCE:g}; "
            "nothing was written"
        )
    return Proof(_PAIRS, ours.numel(), largest, same)

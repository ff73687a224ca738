"""ViT in Hugging Face's format: read a folder as `transformers` writes it, and prove that both models agree."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig
from heedful.errors import ConfigError, FolderError, HeedfulError
from heedful.formats.huggingface_folder import (
    Imported,
    convert_weights,
    read_label_names,
    read_object,
    read_weights,
)
from heedful.formats.parity import Proof
from heedful.models.vit import ViT
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import make_experiment
from heedful.text.tokenizer_training import learn_tokenizer

_TOLERANCE = 1e-3  # largest difference between log-probabilities of a label
_PICTURES = 16  # random ones, of the proof
_ACTIVATIONS: dict[str, Activation] = {
    **{"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"},
    **{"silu": "swish", "swish": "swish"},
}
_SIZES = {
    **{"d_model": "hidden_size", "d_ff": "intermediate_size", "num_heads": "num_attention_heads"},
    **{"encoder_layers": "num_hidden_layers", "image_size": "image_size", "patch_size": "patch_size"},
    "channels": "num_channels",
}
_PARTS = {
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "layernorm_before",
    "feed_forward.inner": "intermediate.dense",
    "feed_forward.outer": "output.dense",
    "feed_forward_residual.norm": "layernorm_after",
}
_PREFIX = "vit."


def read_vit(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a ViT that classifies pictures; refuse one that ours cannot represent."""
    if (names := config.get("architectures") or ["ViTForImageClassification"]) != ["ViTForImageClassification"]:
        raise FolderError(f"{folder} is a {names}; heedful imports ViTForImageClassification")
    if (bias := config.get("qkv_bias", True)) is not True:
        raise FolderError(f"{folder} has qkv_bias {bias}, but ViT as heedful has it has True")
    _check_processor(folder, config)
    weights = read_weights(folder, "ViTForImageClassification")
    experiment = _experiment(folder, config)
    tokenizer = learn_tokenizer(["\n"], experiment.text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    _check_layers(folder, weights, experiment.model)
    return Imported(
        experiment,
        tokenizers,
        convert_weights(folder, weights, experiment.model, tokenizers.vocabulary, own_vit_weights),
    )


def _check_processor(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse another preparation of pictures: heedful stretches them to the size, and 0 to 255 becomes -1 to 1."""
    path = folder / "preprocessor_config.json"
    if not path.exists():
        return
    processor, size = read_object(path), config.get("image_size", 224)
    channels = config.get("num_channels", 3)
    halves = [0.5] * channels if type(channels) is int and channels in (1, 3) else [0.5]
    wanted = (
        ("do_resize", (True,)),
        ("do_rescale", (True,)),
        ("do_normalize", (True,)),
        ("rescale_factor", (1 / 255,)),
        ("resample", (2,)),
        ("image_mean", (halves, 0.5)),
        ("image_std", (halves, 0.5)),
        ("size", (size, {"height": size, "width": size})),
    )
    for key, known in wanted:
        if (value := processor.get(key, known[0])) not in known:
            raise FolderError(
                f"{path} has {key} {value}, but heedful prepares pictures with {known[0]}; "
                "train a model of your own with: heedful train --images FOLDER"
            )


def _experiment(folder: Path, config: Mapping[str, Any]) -> Experiment:
    """The same network as one of ours; a missing or impossible value is named."""
    activation = config.get("hidden_act", "gelu")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise FolderError(f"{folder} has hidden_act {activation}; heedful knows {', '.join(_ACTIVATIONS)}")
    model = {ours: config.get(theirs) for ours, theirs in _SIZES.items()} | {
        "preset": "vit-base",
        "activation": _ACTIVATIONS[activation],
        "dropout": config.get("hidden_dropout_prob", 0.0),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.0),
        "norm_epsilon": config.get("layer_norm_eps", 1e-12),
        "labels": read_label_names(folder, config),
    }
    try:
        return make_experiment({"name": folder.resolve().name, "task": "pictures", "model": model})
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error


def _check_layers(folder: Path, weights: Mapping[str, Tensor], config: ModelConfig) -> None:
    """Refuse weights that would be left over."""
    known = {"classifier.weight", "classifier.bias"}
    known |= {f"{_PREFIX}embeddings.{name}" for name in ("cls_token", "position_embeddings")}
    for end in ("weight", "bias"):
        known |= {f"{_PREFIX}embeddings.patch_embeddings.projection.{end}", f"{_PREFIX}layernorm.{end}"}
        for layer in range(min(config.encoder_layers, len(weights))):
            block = f"{_PREFIX}encoder.layer.{layer}"
            known |= {f"{block}.attention.attention.{name}.{end}" for name in ("query", "key", "value")}
            known |= {f"{block}.{name}.{end}" for name in _PARTS.values()}
    if unknown := sorted(weights.keys() - known):
        raise FolderError(
            f"{folder}/model.safetensors has an unknown weight {unknown[0][:80]}; it belongs to a different model"
        )


def own_vit_weights(theirs: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert ViT's weights to ours: their convolution of patches is a linear map, channel by channel."""
    embeddings = f"{_PREFIX}embeddings"
    found = {
        "class_token": theirs[f"{embeddings}.cls_token"][0, 0],
        "positions": theirs[f"{embeddings}.position_embeddings"][0],
        "patches.weight": theirs[f"{embeddings}.patch_embeddings.projection.weight"].flatten(1),
        "patches.bias": theirs[f"{embeddings}.patch_embeddings.projection.bias"],
        "head_weight": theirs["classifier.weight"],
        "head_bias": theirs["classifier.bias"],
    }
    for end in ("weight", "bias"):
        found[f"encoder_norm.{end}"] = theirs[f"{_PREFIX}layernorm.{end}"]
        for layer in range(config.encoder_layers):
            block = f"{_PREFIX}encoder.layer.{layer}"
            projections = [theirs[f"{block}.attention.attention.{name}.{end}"] for name in ("query", "key", "value")]
            found[f"encoder.{layer}.attention.query_key_value.{end}"] = torch.cat(projections)
            for ours, name in _PARTS.items():
                found[f"encoder.{layer}.{ours}.{end}"] = theirs[f"{block}.{name}.{end}"]
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def prove_vit(folder: Path, run: RunFolder) -> Proof:
    """Compare the ViT of a run folder with the folder that it was made from: random pictures, every label."""
    if not find_spec("transformers"):
        raise ConfigError("an import is proven with transformers, which is not installed; install it")
    from transformers import ViTForImageClassification
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would disturb our own progress bar
    theirs: Any = ViTForImageClassification.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
    model = run.model()
    if not isinstance(model, ViT):  # never: for the type checker
        raise TypeError(f"{type(model).__name__} is no ViT")
    config, size = model.config, model.config.image_size
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (_PICTURES, size, size, config.channels), generator=generator)
    ones = torch.ones(_PICTURES, dtype=torch.int64)
    with torch.inference_mode():
        memory = model.encode(pixels.flatten(), ones * pixels[0].numel())
        ours = model.decode(0 * ones, ones, memory).log_softmax(-1)
        wanted = theirs(pixel_values=pixels.permute(0, 3, 1, 2) / 127.5 - 1.0).logits.log_softmax(-1)
    largest = (ours - wanted).abs().max().item()
    if not largest <= _TOLERANCE:
        raise HeedfulError(
            f"the converted model does not agree: its log-probabilities differ by up to {largest:.2g}, "
            f"over {_TOLERANCE:g}; nothing was written"
        )
    same = int((ours.argmax(-1) == wanted.argmax(-1)).sum())
    return Proof(_PICTURES, ours.numel(), largest, same)

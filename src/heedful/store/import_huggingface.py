"""A Hugging Face Marian folder as one of our models: what `export_huggingface` wrote, and others that are like it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.config import Experiment, ModelConfig, Sharing, TextConfig, Vocabularies, make_experiment
from heedful.errors import ConfigError, FolderError
from heedful.store.files import load_tensors, read_json
from heedful.store.marian import own_weights
from heedful.store.run_folder import Tokenizers, read_tokenizer

_ACTIVATIONS = ("relu", "gelu")


@dataclass(frozen=True, slots=True)
class Imported:
    """All that a run folder is made of."""

    experiment: Experiment
    tokenizers: Tokenizers
    weights: Mapping[str, Tensor]


def import_huggingface(folder: Path) -> Imported:
    """Read the folder; what our models cannot be is refused with a sentence."""
    if not (folder / "config.json").exists():
        raise FolderError(f"{folder} has no config.json; name a folder of a Hugging Face Marian model")
    config = _table(folder / "config.json")
    if config.get("model_type") != "marian":
        raise FolderError(f"{folder} is a model of type {config.get('model_type')}; only marian can be imported")
    if not (folder / "tokenizer.json").exists():
        raise FolderError(f"{folder} has no tokenizer.json, and SentencePiece files cannot be imported")
    weights = load_tensors(folder / "model.safetensors")
    _check(folder, config, weights)
    tokenizers = _tokenizers(folder)
    _check_symbols(folder, config, tokenizers)
    model = _model(config)
    layers = (model.encoder_layers, model.decoder_layers)
    try:
        own = own_weights(weights, model.d_model, layers)
    except KeyError as error:
        raise FolderError(
            f"{folder}/model.safetensors has no weight {error.args[0]}; it is of another model"
        ) from error
    return Imported(_experiment(folder, model, tokenizers), tokenizers, own)


def _table(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise FolderError(f"{path} is damaged: it is not a JSON object")
    return content


def _check(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuse what would come out as another model."""
    wanted = (
        ("scale_embedding", (True,)),
        ("activation_function", _ACTIVATIONS),
        ("decoder_attention_heads", (config.get("encoder_attention_heads"),)),
        ("decoder_ffn_dim", (config.get("encoder_ffn_dim"),)),
        ("decoder_start_token_id", (config.get("pad_token_id"),)),
    )
    for key, known in wanted:
        if (value := config.get(key)) not in known:
            raise FolderError(f"{folder} has {key} {value}, but our models have {' or '.join(map(str, known))}")
    bias = weights.get("final_logits_bias")
    if bias is not None and bias.any():
        raise FolderError(f"{folder} has a bias on the output layer (final_logits_bias), which our models have not")


def _check_symbols(folder: Path, config: Mapping[str, Any], tokenizers: Tokenizers) -> None:
    ours = (tokenizers.target.pad_id, tokenizers.target.eos_id)
    theirs = (config.get("pad_token_id"), config.get("eos_token_id"))
    if ours != theirs:
        raise FolderError(f"{folder}: padding and end are {theirs} in config.json, but {ours} in tokenizer.json")


def _tokenizers(folder: Path) -> Tokenizers:
    source = read_tokenizer(folder / "tokenizer.json")
    target = folder / "target" / "tokenizer.json"
    return Tokenizers(source, read_tokenizer(target) if target.exists() else source)


def _model(config: Mapping[str, Any]) -> ModelConfig:
    sharing: Sharing = "none"
    if config.get("tie_word_embeddings", True):
        sharing = "all" if config.get("share_encoder_decoder_embeddings", True) else "target"
    return ModelConfig(
        d_model=config["d_model"],
        d_ff=config["encoder_ffn_dim"],
        num_heads=config["encoder_attention_heads"],
        encoder_layers=config["encoder_layers"],
        decoder_layers=config["decoder_layers"],
        activation=config["activation_function"],
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        activation_dropout=float(config.get("activation_dropout", 0.0)),
        sharing=sharing,
    )


def _experiment(folder: Path, model: ModelConfig, tokenizers: Tokenizers) -> Experiment:
    vocabularies: Vocabularies = "joint" if tokenizers.joint else "separate"
    text = TextConfig(vocabulary_size=tokenizers.source.vocabulary_size, vocabularies=vocabularies)
    try:
        searched = make_experiment({"search": _search(folder)}).search
    except ConfigError as error:
        raise FolderError(f"{folder}/generation_config.json cannot be used: {error}") from error
    return Experiment(name=folder.resolve().name, model=model, text=text, search=searched)


def _search(folder: Path) -> dict[str, Any]:
    """Our own options, if the folder is ours; else theirs in our words."""
    if not (folder / "generation_config.json").exists():
        return {}
    config = _table(folder / "generation_config.json")
    if isinstance(own := config.get("heedful"), dict):
        return own
    return {
        "beam": config.get("num_beams", 1),
        "alpha": float(config.get("length_penalty", 1.0)),
        "penalty": "power",
    }

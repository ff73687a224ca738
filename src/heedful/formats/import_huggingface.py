"""Read a Hugging Face Marian folder, from `export_huggingface` or from OPUS-MT, as one of our models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig, Sharing, TextConfig, Vocabularies
from heedful.errors import ConfigError, FolderError
from heedful.formats.marian import own_weights
from heedful.storage.files import disk_errors, load_tensors, read_json
from heedful.storage.run_folder import Tokenizers, read_tokenizer
from heedful.tasks import make_experiment
from heedful.text.sentencepiece import sentencepiece_tokenizer

_ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}


@dataclass(frozen=True, slots=True)
class Imported:
    """The contents of a run folder."""

    experiment: Experiment
    tokenizers: Tokenizers
    weights: Mapping[str, Tensor]


def import_huggingface(folder: Path) -> Imported:
    """Read the folder; refuse what our models cannot represent."""
    if not (folder / "config.json").exists():
        raise FolderError(f"{folder} has no config.json; name a folder of a Hugging Face Marian model")
    config = _table(folder / "config.json")
    if config.get("model_type") != "marian":
        raise FolderError(f"{folder} is a model of type {config.get('model_type')}; only marian can be imported")
    weights = _weights(folder)
    _check(folder, config)
    tokenizers = _tokenizers(folder)
    _check_symbols(folder, config, tokenizers)
    bias = weights.get("final_logits_bias")
    model = _model(config, output_bias=bias is not None and bool(bias.any()))
    try:
        own = own_weights(weights, model)
    except KeyError as error:
        raise FolderError(
            f"{folder}/model.safetensors has no weight {error.args[0]}; it belongs to a different model"
        ) from error
    search = _search(folder, config, tokenizers.target.pad_id)
    return Imported(_experiment(folder, model, tokenizers, search), tokenizers, own)


def _table(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise FolderError(f"{path} is damaged: it is not a JSON object")
    return content


def _weights(folder: Path) -> dict[str, Tensor]:
    if not (folder / "model.safetensors").exists() and (folder / "pytorch_model.bin").exists():
        raise FolderError(
            f"{folder} has its weights only in pytorch_model.bin, a pickle, which may run anything when it is loaded; "
            "have transformers write model.safetensors where you trust it: "
            "MarianMTModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    return load_tensors(folder / "model.safetensors")


def _check(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse settings that would give a different model."""
    wanted = (
        ("scale_embedding", (True,)),
        ("activation_function", tuple(_ACTIVATIONS)),
        ("decoder_attention_heads", (config.get("encoder_attention_heads"),)),
        ("decoder_ffn_dim", (config.get("encoder_ffn_dim"),)),
        ("decoder_start_token_id", (config.get("pad_token_id"),)),
    )
    for key, known in wanted:
        if (value := config.get(key)) not in known:
            raise FolderError(f"{folder} has {key} {value}, but our models have {' or '.join(map(str, known))}")


def _check_symbols(folder: Path, config: Mapping[str, Any], tokenizers: Tokenizers) -> None:
    ours = (tokenizers.target.pad_id, tokenizers.target.eos_id)
    theirs = (config.get("pad_token_id"), config.get("eos_token_id"))
    if ours != theirs:
        raise FolderError(f"{folder}: padding and end are {theirs} in config.json, but {ours} in its tokenizer")


def _tokenizers(folder: Path) -> Tokenizers:
    if not (folder / "tokenizer.json").exists():
        return _sentencepiece(folder)
    source = read_tokenizer(folder / "tokenizer.json")
    target = folder / "target" / "tokenizer.json"
    return Tokenizers(source, read_tokenizer(target) if target.exists() else source)


def _sentencepiece(folder: Path) -> Tokenizers:
    """Read the pieces of both sides, numbered by one vocabulary or by two."""
    found = []
    for side in ("source", "target"):
        names = folder / "vocab.json", folder / "target_vocab.json"
        path, vocabulary = folder / f"{side}.spm", names[side == "target" and names[1].exists()]
        for needed in (path, vocabulary):
            if not needed.exists():
                raise FolderError(f"{folder} has neither tokenizer.json nor {needed.name}; copy it there")
        ids = _table(vocabulary)
        if {type(number) for number in ids.values()} != {int}:
            raise FolderError(f"{vocabulary} is damaged: it does not give pieces their ids")
        with disk_errors(path):
            content = path.read_bytes()
        found.append(sentencepiece_tokenizer(content, ids, str(path)))
    return Tokenizers(*found)


def _model(config: Mapping[str, Any], output_bias: bool) -> ModelConfig:
    sharing: Sharing = "none"
    if config.get("tie_word_embeddings", True):
        sharing = "all" if config.get("share_encoder_decoder_embeddings", True) else "target"
    return ModelConfig(
        d_model=config["d_model"],
        d_ff=config["encoder_ffn_dim"],
        num_heads=config["encoder_attention_heads"],
        encoder_layers=config["encoder_layers"],
        decoder_layers=config["decoder_layers"],
        activation=_ACTIVATIONS[config["activation_function"]],
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        activation_dropout=float(config.get("activation_dropout", 0.0)),
        sharing=sharing,
        output_bias=output_bias,
    )


def _experiment(folder: Path, model: ModelConfig, tokenizers: Tokenizers, search: dict[str, Any]) -> Experiment:
    # Two languages may have separate pieces but shared ids.
    vocabularies: Vocabularies = "joint" if tokenizers.joint or model.sharing == "all" else "separate"
    text = TextConfig(vocabulary_size=tokenizers.source.vocabulary_size, vocabularies=vocabularies)
    try:
        searched = make_experiment({"search": search}).search
    except ConfigError as error:
        raise FolderError(f"{folder}/generation_config.json cannot be used: {error}") from error
    return Experiment(name=folder.resolve().name, model=model, text=text, search=searched)


def _search(folder: Path, model: dict[str, Any], pad_id: int) -> dict[str, Any]:
    """Read our own search settings, or translate theirs. Old folders have them in config.json."""
    path = folder / "generation_config.json"
    config = _table(path) if path.exists() else model
    if isinstance(own := config.get("heedful"), dict):
        return own
    if (config.get("bad_words_ids") or [[pad_id]]) != [[pad_id]]:
        raise FolderError(f"{folder} forbids pieces (bad_words_ids), which our search cannot; remove them to import it")
    return {
        "beam": config.get("num_beams", 1),
        "alpha": float(config.get("length_penalty", 1.0)),
        "penalty": "power",
    }

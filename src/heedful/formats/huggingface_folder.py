"""What all folders of Hugging Face models share: JSON objects, weights without pickles, a checked conversion."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Experiment, ModelConfig
from heedful.errors import FolderError, out_of_memory
from heedful.models.build import build_model
from heedful.models.size import Vocabulary, model_size
from heedful.storage.files import load_tensors, read_json
from heedful.storage.run_folder import Tokenizers, check_weights
from heedful.untrusted_files import read_bytes

_MOST_UNNAMED = 4096  # rows of the embedding beyond the pieces of the tokenizer, such as those up to a round number
_MOST_TEXT_BYTES = 64 << 20
_MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True)
class Imported:
    """The contents of a run folder."""

    experiment: Experiment
    tokenizers: Tokenizers
    weights: Mapping[str, Tensor]
    about: Mapping[str, object] = field(default_factory=dict)  # more facts for about.json


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise FolderError(f"{path} is damaged: it is not a JSON object")
    return content


def read_weights(folder: Path, architecture: str) -> dict[str, Tensor]:
    """The tensors of model.safetensors; a folder that has only a pickle is refused."""
    if not (folder / "model.safetensors").exists() and (folder / "pytorch_model.bin").exists():
        raise FolderError(
            f"{folder} has its weights only in pytorch_model.bin, a pickle, which may run anything when it is loaded; "
            "have transformers write model.safetensors where you trust it: "
            f"{architecture}.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    return load_tensors(folder / "model.safetensors")


def read_utf8(path: Path) -> str:
    """The text of a file of the folder."""
    try:
        return read_bytes(path, _MOST_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise FolderError(f"{path} is damaged (it is not UTF-8); copy it again") from error


def read_label_names(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """The names of a classifier's outputs, in their order."""
    names = config.get("id2label")
    if names is None:  # transformers leaves out its default
        return ["LABEL_0", "LABEL_1"]
    if not isinstance(names, dict) or not 0 < len(names) <= _MOST_LABELS:
        raise FolderError(f"{folder}/config.json is damaged: id2label does not name the labels")
    labels = [names.get(str(number)) for number in range(len(names))]
    if not all(isinstance(label, str) for label in labels):
        raise FolderError(f"{folder}/config.json is damaged: id2label does not have the ids 0 to {len(names) - 1}")
    return [str(label) for label in labels]


def name_rows(folder: Path, path: Path, data: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """A checked tokenizer.json, with a name for each row of the embedding."""
    pieces = data["model"]["vocab"]  # by name, or in the order of their ids
    numbers = pieces.values() if isinstance(pieces, dict) else range(len(pieces))
    found = max([*numbers, *(_token_id(token) for token in data["added_tokens"])]) + 1
    if found > rows:
        raise FolderError(
            f"{path} has {found} pieces, but the embedding of {folder} has {rows} rows; it belongs to a different model"
        )
    if rows - found > _MOST_UNNAMED:
        raise FolderError(
            f"the embedding of {folder} has {rows} rows, but {path} has only {found} pieces; "
            "it belongs to a different model"
        )
    flags = {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
    unnamed = [{"id": number, "content": f"<unused-{number}>", **flags} for number in range(found, rows)]
    return {**data, "added_tokens": [*data["added_tokens"], *unnamed]}


def _token_id(token: Mapping[str, Any]) -> int:
    number = token.get("id")
    return number if type(number) is int else -1


def convert_weights(
    folder: Path,
    theirs: Mapping[str, Tensor],
    config: ModelConfig,
    vocabulary: Vocabulary,
    convert: Callable[[Mapping[str, Tensor], ModelConfig], dict[str, Tensor]],
) -> dict[str, Tensor]:
    """Our weights, of which every name and shape is that of the configuration."""
    path = folder / "model.safetensors"
    held, described = sum(x.numel() for x in theirs.values()), model_size(config, vocabulary.source, vocabulary.target)
    if described.total > 2 * held:  # before anything of that size is made
        raise FolderError(
            f"{path} holds {held:,} values, but config.json describes {described.total:,}; "
            "it belongs to a different model"
        )
    try:
        own = convert(theirs, config)
    except KeyError as error:
        raise FolderError(f"{path} has no weight {error.args[0]}; it belongs to a different model") from error
    except (IndexError, RuntimeError) as error:
        if out_of_memory(error):
            raise
        raise FolderError(
            f"{path} has weights of other shapes than config.json; it belongs to a different model"
        ) from error
    with torch.device("meta"):
        check_weights(build_model(config, vocabulary), own, str(path))
    return own

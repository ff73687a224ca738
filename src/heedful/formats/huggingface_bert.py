"""BERT in Hugging Face's format, alone or as the encoder of a sentence-transformers folder.

The class in config.json says what the model is asked about: hidden tokens, a label of a text, or one of each word. A
`BertModel` has no head, and its features are the answer. In a folder with sentence-transformers' `modules.json`, the
encoder alone is read, whatever its class is, and the file says how features become the vector of a text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig, Pooling
from heedful.data.batch import pack
from heedful.errors import ConfigError, FolderError, HeedfulError
from heedful.formats.huggingface_folder import (
    Imported,
    convert_weights,
    name_rows,
    read_label_names,
    read_object,
    read_utf8,
    read_weights,
)
from heedful.formats.parity import Proof, random_sources
from heedful.models.bert import BERT, NORM_EPSILON
from heedful.storage.files import disk_errors, read_json
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import make_experiment
from heedful.text import Tokenizer
from heedful.text.tokenizer import CLS, CONTINUATION, MASK
from heedful.text.tokenizer_allowlist import VERSION, check_tokenizer_json
from heedful.text.tokenizer_training import complete_tokenizer

_TOLERANCE = 1e-3  # largest difference between log-probabilities, or between features, whose size is about 1
_LEAST_POSITIONS = 3  # [CLS], a piece, [SEP]
_LONGEST_PROOF = 60
_TASKS = {
    "BertModel": "embedding",
    "BertForMaskedLM": "masked",
    "BertForPreTraining": "masked",
    "BertForSequenceClassification": "classification",
    "BertForTokenClassification": "tagging",
}
_CLASSES = {task: name for name, task in _TASKS.items() if name != "BertForPreTraining"}
_ACTIVATIONS: dict[str, Activation] = {
    **{"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"},
    **{"silu": "swish", "swish": "swish"},
}
# Settings that would give another network: what they must be, which is also what a missing one means.
_FIXED: Mapping[str, object] = {
    "layer_norm_eps": NORM_EPSILON,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "is_decoder": False,
    "add_cross_attention": False,
}
_SIZES = {
    **{"d_model": "hidden_size", "d_ff": "intermediate_size", "num_heads": "num_attention_heads"},
    **{"encoder_layers": "num_hidden_layers", "max_positions": "max_position_embeddings"},
}
_TABLE, _POSITIONS = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
_PARTS = {
    "attention.query_key_value": [f"attention.self.{name}" for name in ("query", "key", "value")],
    "attention.output": ["attention.output.dense"],
    "attention_residual.norm": ["attention.output.LayerNorm"],
    "feed_forward.inner": ["intermediate.dense"],
    "feed_forward.outer": ["output.dense"],
    "feed_forward_residual.norm": ["output.LayerNorm"],
}
_HEADS = {
    "embedding": {},
    "masked": {
        **{f"dense.{end}": f"cls.predictions.transform.dense.{end}" for end in ("weight", "bias")},
        **{f"norm.{end}": f"cls.predictions.transform.LayerNorm.{end}" for end in ("weight", "bias")},
        "bias": "cls.predictions.bias",
    },
    "classification": {
        **{f"pooler.{end}": f"pooler.dense.{end}" for end in ("weight", "bias")},
        **{end: f"classifier.{end}" for end in ("weight", "bias")},
    },
    "tagging": {end: f"classifier.{end}" for end in ("weight", "bias")},
}
# Weights that files may have but that this task does not read; older files also store the numbers of the positions.
_UNREAD = {
    "embedding": ("pooler.", "cls.", "classifier."),
    "masked": ("pooler.", "cls.seq_relationship."),
    "classification": (),
    "tagging": ("pooler.",),
}
_OWN_TOKENIZERS = ("BertTokenizer", "BertTokenizerFast")
_BERT_WORD = 100  # characters; longer words are unknown
_FOLDER_NAME = re.compile(r"\w[\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _SentenceVectors:
    """How the features of a text become its vector, by default as for models that have not learnt it."""

    pooling: Pooling = "mean"
    unit_length: bool = True
    longest: int = 0  # pieces that are read; 0: as many as there are positions


# Import


def read_bert(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a BERT; refuse one that ours cannot represent."""
    names = config.get("architectures") or ["BertModel"]
    if not isinstance(names, list) or len(names) != 1 or names[0] not in _TASKS:
        raise FolderError(f"{folder} is a {names}; heedful imports {', '.join(_TASKS)}")
    for key, wanted in _FIXED.items():
        if (value := config.get(key, wanted)) != wanted:
            raise FolderError(f"{folder} has {key} {value}, but BERT as heedful has it has {wanted}")
    activation = config.get("hidden_act", "gelu")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise FolderError(f"{folder} has hidden_act {activation}; heedful knows {', '.join(_ACTIVATIONS)}")
    is_sentence_model = (folder / "modules.json").exists()
    task = "embedding" if is_sentence_model else _TASKS[names[0]]
    weights = {_modern_name(name): tensor for name, tensor in read_weights(folder, names[0]).items()}
    table = weights.get(_TABLE)
    if table is None or table.ndim != 2:
        raise FolderError(f"{folder}/model.safetensors has no table {_TABLE}; it belongs to a different model")
    tokenizer = _read_tokenizer(folder, config, len(table))
    vectors = _read_sentence_vectors(folder, config, tokenizer) if is_sentence_model else _SentenceVectors()
    experiment = _experiment(folder, config, task, vectors, tokenizer)
    tokenizers = Tokenizers(tokenizer, tokenizer)

    def convert(theirs: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        return own_bert_weights(folder, theirs, model, task, config["max_position_embeddings"])

    own = convert_weights(folder, weights, experiment.model, tokenizers.vocabulary, convert)
    return Imported(experiment, tokenizers, own, {"compares_texts": True} if is_sentence_model else {})


def _modern_name(name: str) -> str:
    """The name of a weight without the prefix that a model with a head has; Google's names of norms are translated."""
    plain = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        plain = plain.removesuffix(old) + new if plain.endswith(old) else plain
    return plain


def _experiment(
    folder: Path, config: Mapping[str, Any], task: str, vectors: _SentenceVectors, tokenizer: Tokenizer
) -> Experiment:
    """The same network as one of ours; a missing or impossible value is named."""
    model = {ours: config.get(theirs) for ours, theirs in _SIZES.items()} | {
        "preset": "bert-base",
        "activation": _ACTIVATIONS[config.get("hidden_act", "gelu")],
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "attention_dropout": config.get("attention_probs_dropout_prob", 0.1),
    }
    match task:
        case "embedding":
            model |= {"pooling": vectors.pooling, "unit_length": vectors.unit_length}
        case "classification" | "tagging":
            model |= {"labels": _read_labels(folder, config)}
    if vectors.longest and type(model["max_positions"]) is int:
        model["max_positions"] = min(vectors.longest, model["max_positions"])
    text = {"kind": "wordpiece", "vocabulary_size": tokenizer.vocabulary_size}
    try:
        experiment = make_experiment({"name": folder.resolve().name, "task": task, "model": model, "text": text})
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error
    if experiment.model.max_positions < _LEAST_POSITIONS:
        raise FolderError(f"{folder} reads {experiment.model.max_positions} pieces of a text; it needs at least 3")
    return experiment


def _read_labels(folder: Path, config: Mapping[str, Any]) -> list[str]:
    if (kind := config.get("problem_type")) not in (None, "single_label_classification"):
        raise FolderError(f"{folder} has problem_type {kind}, but a classifier of heedful finds one label of several")
    if len(labels := read_label_names(folder, config)) < 2:
        raise FolderError(f"{folder} has one output, which is a score and no label; heedful imports two or more labels")
    return labels


def own_bert_weights(
    folder: Path, theirs: Mapping[str, Tensor], config: ModelConfig, task: str, positions: int
) -> dict[str, Tensor]:
    """Convert BERT's weights to ours, which hold the three projections of attention as one matrix."""
    left = {name: tensor for name, tensor in theirs.items() if not name.endswith("position_ids")}
    if task == "masked":
        _pop_copy(folder, left, "cls.predictions.decoder.weight", _TABLE)
        _pop_copy(folder, left, "cls.predictions.decoder.bias", "cls.predictions.bias")
    table = left.pop(_POSITIONS)
    found = {
        "embedding.weight": left.pop(_TABLE),
        # The vector of a text takes its first pieces alone.
        "positions.weight": table[: config.max_positions] if len(table) == positions else table,
        "token_types": left.pop("embeddings.token_type_embeddings.weight"),
        **{f"head.{ours}": left.pop(name) for ours, name in _HEADS[task].items()},
    }
    for end in ("weight", "bias"):
        found[f"embedding_norm.{end}"] = left.pop(f"embeddings.LayerNorm.{end}")
        for layer in range(config.encoder_layers):
            for ours, parts in _PARTS.items():
                tensors = [left.pop(f"encoder.layer.{layer}.{part}.{end}") for part in parts]
                found[f"encoder.{layer}.{ours}.{end}"] = torch.cat(tensors)
    if unknown := [name for name in left if not name.startswith(_UNREAD[task])]:
        raise FolderError(
            f"{folder}/model.safetensors has an unknown weight {unknown[0][:80]}; it belongs to a different model"
        )
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def _pop_copy(folder: Path, weights: dict[str, Tensor], copy: str, original: str) -> None:
    """Leave out a weight that is stored twice; refuse one that differs."""
    if not (found := weights.pop(copy, weights[original])).equal(weights[original]):
        raise FolderError(
            f"{folder}/model.safetensors has a {copy} of {list(found.shape)} that is not its {original}, "
            "but BERT's output is its embedding"
        )


# Tokenizer


def _read_tokenizer(folder: Path, config: Mapping[str, Any], rows: int) -> Tokenizer:
    """The WordPiece tokenizer of the folder, with a name for each row of the embedding."""
    options = read_object(path) if (path := folder / "tokenizer_config.json").exists() else {}
    kind = options.get("tokenizer_class") or config.get("tokenizer_class") or _OWN_TOKENIZERS[0]
    path = folder / "tokenizer.json"
    with disk_errors(path):
        if path.exists():
            data = check_tokenizer_json(read_utf8(path), str(path))
        elif (path := folder / "vocab.txt").exists():
            if kind not in _OWN_TOKENIZERS:
                raise FolderError(f"{folder} has the tokenizer {kind}, but no tokenizer.json; save it as a fast one")
            data = check_tokenizer_json(json.dumps(_wordpiece(path, options)), str(path))
        else:
            raise FolderError(f"{folder} has neither tokenizer.json nor vocab.txt; copy one of them there")
    if data["model"]["type"] != "WordPiece":
        raise FolderError(f"{path} is {data['model']['type']}, but heedful imports BERT with WordPiece only")
    if kind in _OWN_TOKENIZERS:  # transformers takes the rest of tokenizer.json from the options of this class
        data |= _bert_pipeline(folder, options, data["model"]["vocab"])
    tokenizer = complete_tokenizer(name_rows(folder, path, data, rows), str(path))
    if tokenizer.vocabulary_size != rows:
        raise FolderError(f"{path} does not name the padding or the end of a text, such as [PAD] and [SEP]")
    if tokenizer.cls_id >= rows:
        raise FolderError(f"{path} has no piece {CLS}, which is in front of every text")
    return tokenizer


def _wordpiece(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json from Google's list of pieces, one a line."""
    lines = re.split(r"\r\n|\r|\n", read_utf8(path))
    pieces = lines[:-1] if lines[-1] == "" else lines
    if len(set(pieces)) < len(pieces):
        raise FolderError(f"{path} is damaged: a piece is in it twice; copy it again")
    ids = {piece: number for number, piece in enumerate(pieces)}
    specials = [_special(options, role) for role in ("unk", "sep", "pad", "cls", "mask")]
    return {
        "version": VERSION,
        "added_tokens": [{"id": ids[name], "content": name, "special": True} for name in specials if name in ids],
        "model": {"type": "WordPiece", "vocab": ids},
    }


def _special(options: Mapping[str, Any], role: str) -> str:
    """The special piece with this role."""
    match options.get(f"{role}_token"):
        case str(name) | {"content": str(name)}:
            return name
    return MASK if role == "mask" else f"[{role.upper()}]"


def _bert_pipeline(folder: Path, options: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """What `BertTokenizer` does with these options: how it cleans and splits a text, and its WordPiece model."""
    switches: dict[str, bool | None] = {}
    for name, default in (("do_lower_case", True), ("tokenize_chinese_chars", True), ("strip_accents", None)):
        if type(value := options.get(name, default)) is not bool and value is not default:
            raise FolderError(f"{folder}/tokenizer_config.json has {name} {value}, which must be true or false")
        switches[name] = value
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": switches["tokenize_chinese_chars"],
            "strip_accents": switches["strip_accents"],
            "lowercase": switches["do_lower_case"],
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": False},
        "model": {
            "type": "WordPiece",
            "unk_token": _special(options, "unk"),
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": _BERT_WORD,
            "vocab": vocabulary,
        },
    }


# The files of sentence-transformers


def _read_sentence_vectors(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> _SentenceVectors:
    """How a sentence-transformers folder makes the vector of a text; refuse what ours cannot do."""
    modules = read_json(folder / "modules.json")
    if not isinstance(modules, list) or not modules:
        raise FolderError(f"{folder}/modules.json is damaged: it does not list modules")
    kinds = [_module(folder, module, "type").rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise FolderError(
            f"{folder}/modules.json has the modules {', '.join(kinds)}; heedful imports Transformer, Pooling, Normalize"
        )
    paths = [_module(folder, module, "path") for module in modules]
    if paths[0] or not _FOLDER_NAME.fullmatch(paths[1]):
        raise FolderError(
            f"{folder}/modules.json has the modules in {str(paths[:2])[:80]}; "
            "heedful needs the Transformer in the folder itself, and the Pooling in one inside it"
        )
    _refuse_prompt(folder)
    settings = _read_optional(folder / "sentence_bert_config.json")
    if settings.get("do_lower_case") is True and tokenizer.encode("AB") != tokenizer.encode("ab"):
        raise FolderError(f"{folder}/sentence_bert_config.json has do_lower_case, but its tokenizer keeps capitals")
    longest = settings.get("max_seq_length")
    if longest is None:  # then as many as the tokenizer gives
        longest = _read_optional(folder / "tokenizer_config.json").get("model_max_length", 0)
        longest = longest if type(longest) is int else 0  # an endless number is written with an exponent
    if type(longest) is not int or longest < 0:
        raise FolderError(f"{folder}/sentence_bert_config.json has max_seq_length {longest}, which is no length")
    return _SentenceVectors(_read_pooling(folder / paths[1] / "config.json"), len(kinds) == 3, longest)


def _module(folder: Path, module: object, key: str) -> str:
    """The type or the path of a module."""
    match module:
        case {**fields} if isinstance(value := fields.get(key), str):
            return value
    raise FolderError(f"{folder}/modules.json is damaged: a module has no {key}")


def _read_optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}


def _refuse_prompt(folder: Path) -> None:
    """Refuse words in front of every text; those that a user asks for are the user's."""
    settings = _read_optional(folder / "config_sentence_transformers.json")
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is not None and (not isinstance(prompts, dict) or prompts.get(name)):
        raise FolderError(
            f"{folder}/config_sentence_transformers.json puts the prompt {str(name)[:80]!r} in front of every text, "
            "which heedful does not; set default_prompt_name to null, and write the prompt into your texts"
        )


def _read_pooling(path: Path) -> Pooling:
    """Which features are the summary of a text."""
    settings = read_object(path)
    chosen = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    if isinstance(mode := settings.get("pooling_mode"), str):  # since version 5
        chosen = [mode]
    match [mode for mode in chosen if mode != "include_prompt"]:
        case ["mean"] | ["mean_tokens"]:
            return "mean"
        case ["cls"] | ["cls_token"]:
            return "cls"
        case others:
            raise FolderError(f"{path} has the pooling {', '.join(others) or 'none'}; heedful knows mean and cls")


# Proof


def prove_bert(folder: Path, run: RunFolder) -> Proof:
    """Compare the BERT of a run folder with the folder that it was made from: random pieces, every answer."""
    if not find_spec("transformers"):
        raise ConfigError("an import is proven with transformers, which is not installed; install it")
    import transformers

    transformers.utils.logging.disable_progress_bar()  # it would disturb our own progress bar
    task, model = run.experiment().task, run.model()
    if not isinstance(model, BERT):  # never: for the type checker
        raise TypeError(f"{type(model).__name__} is no BERT")
    theirs: Any = getattr(transformers, _CLASSES[task]).from_pretrained(
        folder, local_files_only=True, use_safetensors=True, attn_implementation="eager"
    )
    theirs.eval().float()
    tokenizer = run.tokenizers().source
    ids = [number for number in range(tokenizer.vocabulary_size) if number != tokenizer.pad_id]
    texts = random_sources(ids, min(_LONGEST_PROOF, model.config.max_positions))
    with torch.inference_mode():
        ours, wanted = _answers(model, texts), [_their_answers(theirs, text, task) for text in texts]
        differences = [(one - other).abs().max() for one, other in zip(ours, wanted, strict=True)]
        largest = torch.stack(differences).max().item()
        if task == "embedding":
            same = sum(a == b for a, b in zip(_nearest(ours), _nearest(wanted), strict=True))
        else:
            pairs = zip(ours, wanted, strict=True)
            same = sum(one.argmax(-1).equal(other.argmax(-1)) for one, other in pairs)
    compared: Literal["features", "log-probabilities"] = "features" if task == "embedding" else "log-probabilities"
    if not largest <= _TOLERANCE:
        raise HeedfulError(
            f"the converted model does not agree: its {compared} differ by up to {largest:.2g}, "
            f"over {_TOLERANCE:g}; nothing was written"
        )
    return Proof(len(texts), sum(map(len, ours)), largest, same, compared=compared)


def _answers(model: BERT, texts: Sequence[Sequence[int]]) -> list[Tensor]:
    """Our features at each place of each text, or the log-probabilities at each that the head is asked about."""
    memory = model.encode(*pack(texts))
    if model.config.head == "none":
        return list(memory.rows.split([len(text) for text in texts]))
    places, counts = pack([[0] if model.config.head == "sequence" else range(len(text)) for text in texts])
    return list(model.decode(places, counts, memory).log_softmax(-1).split(counts.tolist()))


def _their_answers(theirs: Any, text: Sequence[int], task: str) -> Tensor:
    output = theirs(input_ids=torch.tensor([text]))
    if task == "embedding":
        features: Tensor = output.last_hidden_state[0]
        return features
    logits: Tensor = output.logits.view(-1, output.logits.shape[-1])
    return logits.log_softmax(-1)


def _nearest(features: Sequence[Tensor]) -> list[int]:
    """For each text, the other one whose mean features point most in the same direction."""
    vectors = F.normalize(torch.stack([rows.mean(0) for rows in features]))
    nearest: list[int] = (vectors @ vectors.T).fill_diagonal_(-torch.inf).argmax(-1).tolist()
    return nearest

"""GPT-2 in Hugging Face's format: read a folder as `transformers` writes it, and write one that it loads.

Their `Conv1D` holds each matrix transposed. They have no padding piece, but our embedding has a row for it: it gets an
output bias so low that its probability is zero, which leaves the probabilities of all others as they are.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig, SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, FolderError
from heedful.formats.huggingface_folder import (
    Imported,
    convert_weights,
    name_rows,
    read_object,
    read_utf8,
    read_weights,
)
from heedful.formats.parity import Proof, prove, random_sources
from heedful.models.gpt import GPT
from heedful.models.seq2seq import require_seq2seq
from heedful.models.transformer import d_key, d_value
from heedful.nn.positions import LearnedPositions
from heedful.storage.files import disk_errors, save_tensors, write_atomically
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import make_experiment
from heedful.text import Tokenizer
from heedful.text.tokenizer_allowlist import check_tokenizer_json
from heedful.text.tokenizer_training import complete_tokenizer

_TOLERANCE = 1e-3  # largest difference between log-probabilities of a token
IMPOSSIBLE = -1e4  # the output bias of a piece that the original lacks; e to this power is 0
LEAST_POSITIONS = 24  # so that the proof has room for a prompt and a continuation
_ACTIVATIONS: dict[str, Activation] = {
    **{"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"},
    **{"silu": "swish", "swish": "swish"},
}
# Settings that would give another network: what they must be, which is also what a missing one means.
_FIXED: Mapping[str, object] = {
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
_SIZES = {"d_model": "n_embd", "num_heads": "n_head", "decoder_layers": "n_layer", "max_positions": "n_positions"}
_LINEAR = {
    "attention.query_key_value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.inner": "mlp.c_fc",
    "feed_forward.outer": "mlp.c_proj",
}
_NORMS = {"attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2"}
_PREFIX = "transformer."


# Import


def read_gpt(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a GPT-2 model; refuse one that ours cannot represent."""
    for key, wanted in _FIXED.items():
        if (value := config.get(key, wanted)) != wanted:
            raise FolderError(f"{folder} has {key} {value}, but GPT-2 as heedful has it has {wanted}")
    activation = config.get("activation_function", "gelu_new")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise FolderError(f"{folder} has activation_function {activation}; heedful knows {', '.join(_ACTIVATIONS)}")
    weights = read_weights(folder, "GPT2LMHeadModel")
    table = weights.get(f"{_PREFIX}wte.weight", weights.get("wte.weight"))
    if table is None or table.ndim != 2:
        raise FolderError(f"{folder}/model.safetensors has no table wte.weight; it belongs to a different model")
    tokenizer = _read_tokenizer(folder, len(table))
    _check_end(folder, config, tokenizer, len(table))
    experiment = _experiment(folder, config, _ACTIVATIONS[activation], tokenizer)
    if experiment.model.max_positions < LEAST_POSITIONS:
        raise FolderError(
            f"{folder} has n_positions {experiment.model.max_positions}; heedful needs at least {LEAST_POSITIONS} "
            "to prove that a model is unchanged"
        )
    tokenizers = Tokenizers(tokenizer, tokenizer)

    def convert(theirs: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        return own_gpt_weights(folder, theirs, model, tokenizer.vocabulary_size)

    own = convert_weights(folder, weights, experiment.model, tokenizers.vocabulary, convert)
    return Imported(experiment, tokenizers, own)


def _experiment(folder: Path, config: Mapping[str, Any], activation: Activation, tokenizer: Tokenizer) -> Experiment:
    """The same network as one of ours; a missing or impossible value is named."""
    model = {ours: config.get(theirs) for ours, theirs in _SIZES.items()}
    inner = config.get("n_inner")
    width = model["d_model"]
    model |= {
        "preset": "gpt-2",
        "d_ff": 4 * width if inner is None and type(width) is int else inner,
        "activation": activation,
        "dropout": config.get("resid_pdrop", 0.1),
        "attention_dropout": config.get("attn_pdrop", 0.1),
        "output_bias": True,
    }
    text = {"kind": "bpe", "vocabulary_size": tokenizer.vocabulary_size}
    tables = {"name": folder.resolve().name, "task": "completion", "model": model, "text": text}
    try:
        return make_experiment(tables)
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error


def _read_tokenizer(folder: Path, rows: int) -> Tokenizer:
    """The byte-level BPE of the folder, with a padding piece, and a name for each row of the embedding."""
    path = folder / "tokenizer.json"
    with disk_errors(path):
        if path.exists():
            data = check_tokenizer_json(read_utf8(path), str(path))
        else:
            path = folder / "vocab.json"
            data = check_tokenizer_json(json.dumps(_byte_level_bpe(folder)), str(path))
    return complete_tokenizer(name_rows(folder, path, data, rows), str(path))


def _byte_level_bpe(folder: Path) -> dict[str, Any]:
    """OpenAI's two files as one tokenizer.json: the ids of all pieces, and the merges, one a line."""
    for name in ("vocab.json", "merges.txt"):
        if not (folder / name).exists():
            raise FolderError(f"{folder} has neither tokenizer.json nor {name}; copy it there")
    vocabulary = read_object(folder / "vocab.json")
    lines = read_utf8(folder / "merges.txt").split("\n")
    merges = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys():
            raise FolderError(
                f"{folder}/merges.txt is damaged: {' '.join(merge)[:80]!r} is not two pieces of vocab.json"
            )
    options = folder / "tokenizer_config.json"
    prefix = read_object(options).get("add_prefix_space", False) if options.exists() else False
    level = {"type": "ByteLevel", "add_prefix_space": prefix is True, "trim_offsets": True, "use_regex": True}
    specials = [name for name in ("<|endoftext|>",) if name in vocabulary]
    return {
        "version": "1.0",
        "added_tokens": [{"id": vocabulary[name], "content": name, "special": True} for name in specials],
        "normalizer": None,
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }


def _check_end(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer, rows: int) -> None:
    """Refuse another end of text than that of the tokenizer; a model without one may name an id that it lacks."""
    theirs = config.get("eos_token_id")
    if type(theirs) is int and theirs < rows and theirs != tokenizer.eos_id:
        raise FolderError(
            f"{folder}: the end of a text is {theirs} in config.json, but {tokenizer.eos_id} in its tokenizer"
        )


def own_gpt_weights(folder: Path, theirs: Mapping[str, Tensor], config: ModelConfig, pieces: int) -> dict[str, Tensor]:
    """Convert GPT-2's weights to ours, for a tokenizer that may have a few pieces more."""
    left = {name.removeprefix(_PREFIX): tensor for name, tensor in theirs.items()}
    table = left.pop("wte.weight")
    if (output := left.pop("lm_head.weight", table)).shape != table.shape or not output.equal(table):
        raise FolderError(f"{folder}/model.safetensors has an lm_head of its own, but GPT-2's output is its embedding")
    more = pieces - len(table)
    found = {
        "embedding.weight": torch.cat([table, table.new_zeros(more, table.shape[1])]),
        "positions.weight": left.pop("wpe.weight"),
        "own_bias": torch.cat([torch.zeros(len(table)), torch.full((more,), IMPOSSIBLE)]),
    }
    for end in ("weight", "bias"):
        found[f"decoder_norm.{end}"] = left.pop(f"ln_f.{end}")
        for layer in range(config.decoder_layers):
            for ours, name in _NORMS.items():
                found[f"decoder.{layer}.{ours}.{end}"] = left.pop(f"h.{layer}.{name}.{end}")
            for ours, name in _LINEAR.items():
                tensor = left.pop(f"h.{layer}.{name}.{end}")
                found[f"decoder.{layer}.{ours}.{end}"] = tensor.T if end == "weight" else tensor
    # Older files also store the mask of the attention.
    unknown = [name for name in left if not name.endswith((".attn.bias", ".attn.masked_bias"))]
    if unknown:
        raise FolderError(
            f"{folder}/model.safetensors has an unknown weight {unknown[0][:80]}; it belongs to a different model"
        )
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


# Export


def export_gpt(model: GPT, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a GPT and its tokenizer into an existing folder, as `GPT2LMHeadModel` reads them."""
    rows = _require_gpt2(model, tokenizer)
    config = model.config
    activation = next(theirs for theirs, ours in _ACTIVATIONS.items() if ours == config.activation)
    described: dict[str, object] = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "dtype": "float32",
        "vocab_size": rows,
        **{theirs: getattr(config, ours) for ours, theirs in _SIZES.items()},
        "n_inner": config.d_ff,
        "activation_function": activation,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "bos_token_id": tokenizer.eos_id,
        "eos_token_id": tokenizer.eos_id,
    }
    write_atomically(folder / "config.json", json.dumps(described, indent=1) + "\n")
    save_tensors(folder / "model.safetensors", dict(_gpt2_weights(model, rows)), {"format": "pt"})
    write_atomically(folder / "tokenizer.json", tokenizer.to_plain_json())
    end = tokenizer.piece_at(tokenizer.eos_id)
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end,
        "model_max_length": config.max_positions,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # "</s>" in a text is ordinary text
    }
    write_atomically(folder / "tokenizer_config.json", json.dumps(options, indent=1) + "\n")


def _require_gpt2(model: GPT, tokenizer: Tokenizer) -> int:
    """The rows of the embedding to write; refuse a model that GPT2LMHeadModel cannot represent."""
    config = model.config
    width = config.d_model // config.num_heads
    wanted = (
        ("positions", config.positions, "learned"),
        ("d_k", d_key(config), width),
        ("d_v", d_value(config), width),
        ("decoder_heads", config.decoder_heads, ()),
    )
    for key, value, theirs in wanted:
        if value != theirs:
            raise ConfigError(f"a Hugging Face GPT-2 model has model.{key} {theirs}, but this one has {value}")
    rows, bias = tokenizer.vocabulary_size, model.output_bias
    if bias is None:
        return rows
    while rows and bias[rows - 1] <= IMPOSSIBLE / 2:  # pieces that were added to an imported model
        rows -= 1
    if bias[:rows].any():
        raise ConfigError("a Hugging Face GPT-2 model has no output bias, but this one has been trained with one")
    return rows


def _gpt2_weights(model: GPT, rows: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(model.positions, LearnedPositions):
        yield f"{_PREFIX}wpe.weight", model.positions.weight.detach().clone()
    ours = {name: parameter.detach() for name, parameter in model.named_parameters()}
    yield f"{_PREFIX}wte.weight", ours["embedding.weight"][:rows].clone()
    for end in ("weight", "bias"):
        yield f"{_PREFIX}ln_f.{end}", ours[f"decoder_norm.{end}"].clone()
        for layer in range(model.config.decoder_layers):
            for own, name in (*_NORMS.items(), *_LINEAR.items()):
                tensor = ours[f"decoder.{layer}.{own}.{end}"]
                yield f"{_PREFIX}h.{layer}.{name}.{end}", (tensor.T if tensor.ndim == 2 else tensor).contiguous()


# Proof


def prove_gpt(folder: Path, run: RunFolder) -> Proof:
    """Compare the GPT of a run folder with the folder that it was made from, or that was made from it."""
    model, tokenizer = require_seq2seq(run.model(), str(run.path)), run.tokenizers().target
    theirs = GPT2Copy(folder, tokenizer.eos_id)
    ids = [number for number in range(theirs.rows) if number not in (tokenizer.pad_id, tokenizer.eos_id)]
    # A continuation is at most 20 tokens longer than its prompt; see `prove`.
    longest = min(60, (run.experiment().model.max_positions - 20) // 2)
    end = tokenizer.eos_id if tokenizer.eos_id < theirs.rows else 0  # any token: theirs has no end
    return prove(TorchEngine(model, tokenizer.eos_id), theirs, random_sources(ids, longest), end, _TOLERANCE)


class GPT2Copy:
    """A folder loaded by `transformers`, for comparison: one prompt at a time, greedy search."""

    def __init__(self, folder: Path, eos_id: int) -> None:
        if not find_spec("transformers"):
            raise ConfigError("a conversion is proven with transformers, which is not installed; install it")
        from transformers import GPT2LMHeadModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would disturb our own progress bar
        self._model: Any = GPT2LMHeadModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
        self._eos_id = eos_id
        self.rows: int = self._model.config.vocab_size

    @torch.inference_mode()
    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The continuation of each prompt by `generate`, as a list of one; beam and penalty are ignored."""
        found = []
        for source in sources:
            limit, ids = len(source) + search.max_extra, torch.tensor([source])
            options = {
                "eos_token_id": self._eos_id,
                "pad_token_id": self._eos_id,
                "attention_mask": ids.new_ones(ids.shape),
            }
            given = self._model.generate(
                ids, num_beams=1, do_sample=False, max_length=None, max_new_tokens=limit, **options
            )
            tokens = tuple(given[0, len(source) :].tolist())
            found.append([Hypothesis(tokens, 0.0, 0.0, finished=tokens[-1] == self._eos_id)])
        return found

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of every token of each target."""
        found = []
        for source, target in zip(sources, targets, strict=True):
            logits = self._model(input_ids=torch.tensor([[*source, *target[:-1]]])).logits[0, len(source) - 1 :]
            found.append(logits.log_softmax(dim=1).gather(1, torch.tensor(target)[:, None])[:, 0].tolist())
        return found

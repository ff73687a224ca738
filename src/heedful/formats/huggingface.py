"""Models in Hugging Face's Marian format: write a folder that plain `transformers` loads, and import one.

Marian's positions are the paper's, with all sines before all cosines. So the dimensions of the residual stream are
reordered everywhere, which does not change what a model computes. Marian's layer normalisation has an epsilon of 1e-5,
ours of 1e-6, which changes the fifth digit at most.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.config import Activation, Experiment, ModelConfig, SearchConfig, Sharing, TextConfig, Vocabularies
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError, FolderError
from heedful.formats.huggingface_folder import Imported, convert_weights, read_object, read_weights
from heedful.formats.parity import Proof, prove, samples
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import Transformer, d_key, d_value
from heedful.nn.attention import CrossAttention, SelfAttention
from heedful.storage.files import disk_errors, save_tensors, write_atomically
from heedful.storage.head_padding import PaddedHeads, pad_heads
from heedful.storage.run_folder import RunFolder, Tokenizers, read_tokenizer
from heedful.tasks import make_experiment
from heedful.text import Tokenizer
from heedful.text.sentencepiece import sentencepiece_tokenizer
from heedful.translation.translator import Translator
from heedful.untrusted_files import read_bytes

POSITIONS = 1024  # size of the table of positions, which Marian computes when it loads a model
_TOLERANCE = 1e-3  # largest difference between log-probabilities of a token
_ACTIVATIONS: dict[str, Activation] = {
    **{"relu": "relu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu-tanh", "swish": "swish", "silu": "swish"},
}
_MOST_PIECE_BYTES = 64 << 20
_LAYER = re.compile(r"model\.(?P<side>encoder|decoder)\.layers\.(?P<number>[0-9]{1,9})\.")
_TABLE = "embed_tokens.weight"
_NORMS = {"attention": "self_attn_layer_norm", "cross_attention": "encoder_attn_layer_norm"}


# Export


def export_huggingface(model: AnySeq2Seq, tokenizers: Tokenizers, search: SearchConfig, folder: Path) -> None:
    """Write the model, its tokenizers and its search settings into an existing folder."""
    transformer = _require_marian(model)
    _write_json(folder / "config.json", _marian_config(transformer, tokenizers))
    _write_json(folder / "generation_config.json", _generation_config(search, tokenizers))
    save_tensors(folder / "model.safetensors", marian_weights(transformer), {"format": "pt"})
    _write_tokenizer(folder, tokenizers.source)
    if not tokenizers.joint:
        (folder / "target").mkdir()
        _write_tokenizer(folder / "target", tokenizers.target)


def _require_marian(model: AnySeq2Seq) -> Transformer:
    """Refuse models that MarianMTModel cannot represent."""
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"a Hugging Face Marian model is a Transformer, but this one is a {type(model).__name__}; "
            "there is no export for it"
        )
    config = model.config
    width = config.d_model // config.num_heads
    wanted = (
        ("norm", config.norm, "post"),
        ("positions", config.positions, "sinusoidal"),
        ("window", config.window, 0),
        ("d_k", d_key(config), width),
        ("d_v", d_value(config), width),
    )
    for key, value, theirs in wanted:
        if value != theirs:
            raise ConfigError(
                f"a Hugging Face Marian model has model.{key} {theirs}, but this one has {value}; export it "
                "--to ctranslate2, or train one with: --set model.norm=post --set model.positions=sinusoidal"
                + (f" --set model.{key}={theirs}" if key not in ("norm", "positions") else "")
            )
    return model


def _marian_config(model: Transformer, tokenizers: Tokenizers) -> dict[str, object]:
    ours, vocabulary = model.config, tokenizers.vocabulary
    config: dict[str, object] = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "dtype": "float32",
        "vocab_size": vocabulary.source,
        "decoder_vocab_size": vocabulary.target,
        "share_encoder_decoder_embeddings": ours.sharing == "all",
        "tie_word_embeddings": ours.sharing != "none",
        "d_model": ours.d_model,
        "max_position_embeddings": POSITIONS,
        "activation_function": next(theirs for theirs, same in _ACTIVATIONS.items() if same == ours.activation),
        "scale_embedding": True,
        "dropout": ours.dropout,
        "attention_dropout": ours.attention_dropout,
        "activation_dropout": ours.activation_dropout,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "decoder_start_token_id": vocabulary.pad_id,
        "forced_eos_token_id": None,
    }
    for side, layers in (("encoder", ours.encoder_layers), ("decoder", ours.decoder_layers)):
        config |= {
            f"{side}_layers": layers,
            f"{side}_ffn_dim": ours.d_ff,
            f"{side}_attention_heads": ours.num_heads,
        }
    return config


def _generation_config(search: SearchConfig, tokenizers: Tokenizers) -> dict[str, object]:
    """The generation config. The hub's length penalty is a power of the length, so ours is stored under its own key."""
    target = tokenizers.target
    return {
        "num_beams": search.beam,
        "length_penalty": search.alpha,
        "max_length": POSITIONS // 2,
        "bad_words_ids": [[target.pad_id]],
        "pad_token_id": target.pad_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.pad_id,
        "heedful": dataclasses.asdict(search),
    }


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    write_atomically(folder / "tokenizer.json", tokenizer.to_plain_json())
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": tokenizer.piece_at(tokenizer.pad_id),
        "eos_token": tokenizer.piece_at(tokenizer.eos_id),
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # "</s>" in a text is ordinary text
    }
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, content: dict[str, object]) -> None:
    write_atomically(path, json.dumps(content, indent=1) + "\n")


class MarianCopy:
    """An exported folder loaded by `transformers`, for comparison: one sentence at a time, greedy search."""

    def __init__(self, folder: Path, eos_id: int) -> None:
        if not find_spec("transformers"):
            raise ConfigError("the export is proven with transformers, which is not installed; install it")
        from transformers import MarianMTModel
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would disturb our own progress bar
        self._model: Any = MarianMTModel.from_pretrained(folder, local_files_only=True, use_safetensors=True).eval()
        self._eos_id = eos_id

    @torch.inference_mode()
    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The translation by `generate`, as a list of one; beam and penalty are ignored."""
        found = []
        # Marian can end an output at its maximum length by force. Our outputs are ended behind theirs (see `prove`).
        forced = self._model.generation_config.forced_eos_token_id is not None
        for source in sources:
            limit = len(source) + search.max_extra + forced
            ids = torch.tensor([source])
            given = self._model.generate(ids, num_beams=1, do_sample=False, max_length=None, max_new_tokens=limit)
            tokens = tuple(given[0, 1:].tolist())
            found.append([Hypothesis(tokens, 0.0, 0.0, finished=tokens[-1] == self._eos_id)])
        return found

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of every token of each target, including EOS."""
        found = []
        for source, target in zip(sources, targets, strict=True):
            wanted = torch.tensor([target])
            logits = self._model(input_ids=torch.tensor([source]), labels=wanted).logits
            found.append(logits[0].log_softmax(dim=1).gather(1, wanted[0].unsqueeze(1))[:, 0].tolist())
        return found


# Import


def read_marian(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a Marian model; refuse one that ours cannot represent."""
    weights = read_weights(folder, "MarianMTModel")
    _check_config(folder, config)
    tokenizers = _read_tokenizers(folder)
    _check_symbols(folder, config, tokenizers)
    bias = weights.get("final_logits_bias")
    model = _model_config(folder, config, output_bias=bias is not None and bool(bias.any()))
    _check_layers(folder, weights, model)
    own = convert_weights(folder, weights, model, tokenizers.vocabulary, own_weights)
    search = _read_search(folder, config, tokenizers.target.pad_id)
    return Imported(_experiment(folder, model, tokenizers, search), tokenizers, own)


def prove_marian(folder: Path, run: RunFolder) -> Proof:
    """Compare a run folder with the Marian model that it was made from."""
    translator = Translator.on_device(run, torch.device("cpu"))
    eos_id = translator.tokenizers.target.eos_id
    return prove(translator.engine, MarianCopy(folder, eos_id), samples(run, translator), eos_id, _TOLERANCE)


def _check_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse settings that would give a different model."""
    wanted = (
        ("scale_embedding", (True,)),
        ("activation_function", tuple(_ACTIVATIONS)),
        ("decoder_attention_heads", (config.get("encoder_attention_heads"),)),
        ("decoder_ffn_dim", (config.get("encoder_ffn_dim"),)),
        ("decoder_start_token_id", (config.get("pad_token_id"),)),
        ("forced_eos_token_id", (None, config.get("eos_token_id"))),
    )
    for key, known in wanted:
        if (value := config.get(key)) not in known:
            raise FolderError(f"{folder} has {key} {value}, but our models have {' or '.join(map(str, known))}")


def _check_layers(folder: Path, weights: Mapping[str, Tensor], config: ModelConfig) -> None:
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
    for name in weights:
        if (found := _LAYER.match(name)) and int(found["number"]) >= layers[found["side"]]:
            raise FolderError(
                f"{folder}/model.safetensors has an unknown weight {name[:80]}; it belongs to a different model"
            )


def _check_symbols(folder: Path, config: Mapping[str, Any], tokenizers: Tokenizers) -> None:
    ours = (tokenizers.target.pad_id, tokenizers.target.eos_id)
    theirs = (config.get("pad_token_id"), config.get("eos_token_id"))
    if ours != theirs:
        raise FolderError(f"{folder}: padding and end are {theirs} in config.json, but {ours} in its tokenizer")


def _read_tokenizers(folder: Path) -> Tokenizers:
    if not (folder / "tokenizer.json").exists():
        return _read_sentencepiece(folder)
    source = read_tokenizer(folder / "tokenizer.json")
    target = folder / "target" / "tokenizer.json"
    return Tokenizers(source, read_tokenizer(target) if target.exists() else source)


def _read_sentencepiece(folder: Path) -> Tokenizers:
    """Read the pieces of both sides, numbered by one vocabulary or by two."""
    found = []
    for side in ("source", "target"):
        names = folder / "vocab.json", folder / "target_vocab.json"
        path, vocabulary = folder / f"{side}.spm", names[side == "target" and names[1].exists()]
        for needed in (path, vocabulary):
            if not needed.exists():
                raise FolderError(f"{folder} has neither tokenizer.json nor {needed.name}; copy it there")
        ids = read_object(vocabulary)
        if {type(number) for number in ids.values()} != {int}:
            raise FolderError(f"{vocabulary} is damaged: it does not give pieces their ids")
        with disk_errors(path):
            content = read_bytes(path, _MOST_PIECE_BYTES)
        found.append(sentencepiece_tokenizer(content, ids, str(path)))
    return Tokenizers(*found)


def _model_config(folder: Path, config: Mapping[str, Any], output_bias: bool) -> ModelConfig:
    """The same network as one of ours; a missing or impossible value is named."""
    sharing: Sharing = "none"
    if config.get("tie_word_embeddings", True):
        sharing = "all" if config.get("share_encoder_decoder_embeddings", True) else "target"
    model = {
        "d_model": config.get("d_model"),
        "d_ff": config.get("encoder_ffn_dim"),
        "num_heads": config.get("encoder_attention_heads"),
        "encoder_layers": config.get("encoder_layers"),
        "decoder_layers": config.get("decoder_layers"),
        "activation": _ACTIVATIONS[config["activation_function"]],
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "activation_dropout": config.get("activation_dropout", 0.0),
        "sharing": sharing,
        "output_bias": output_bias,
    }
    try:
        return make_experiment({"model": model, "text": {"vocabularies": "joint"}}).model
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error


def _experiment(folder: Path, model: ModelConfig, tokenizers: Tokenizers, search: dict[str, Any]) -> Experiment:
    # Two languages may have separate pieces but shared ids.
    vocabularies: Vocabularies = "joint" if tokenizers.joint or model.sharing == "all" else "separate"
    text = TextConfig(vocabulary_size=tokenizers.source.vocabulary_size, vocabularies=vocabularies)
    try:
        searched = make_experiment({"search": search}).search
    except ConfigError as error:
        raise FolderError(f"{folder}/generation_config.json cannot be used: {error}") from error
    return Experiment(name=folder.resolve().name, model=model, text=text, search=searched)


def _read_search(folder: Path, model: Mapping[str, Any], pad_id: int) -> dict[str, Any]:
    """Read our own search settings, or translate theirs. Old folders have them in config.json."""
    path = folder / "generation_config.json"
    config = read_object(path) if path.exists() else model
    if isinstance(own := config.get("heedful"), dict):
        return own
    if (config.get("bad_words_ids") or [[pad_id]]) != [[pad_id]]:
        raise FolderError(f"{folder} forbids pieces (bad_words_ids), which heedful cannot; remove them to import it")
    return {
        "beam": config.get("num_beams", 1),
        "alpha": config.get("length_penalty", 1.0),
        "penalty": "power",
    }


# Weights


@dataclass(frozen=True, slots=True)
class DimensionOrder:
    """An order of the dimensions of the residual stream."""

    indices: Tensor

    def rows(self, tensor: Tensor) -> Tensor:
        """Reorder the rows of a tensor that writes to the residual stream."""
        return tensor.index_select(0, self.indices)

    def columns(self, tensor: Tensor) -> Tensor:
        """Reorder the columns of a tensor that reads from the residual stream."""
        return tensor.index_select(1, self.indices)


def to_marian(d_model: int) -> DimensionOrder:
    """The order of Marian: all sines, then all cosines."""
    return DimensionOrder(torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)]))


def from_marian(d_model: int) -> DimensionOrder:
    """The reverse order: alternating sines and cosines."""
    return DimensionOrder(to_marian(d_model).indices.argsort())


def marian_weights(model: Transformer) -> dict[str, Tensor]:
    """All weights of a post-norm model whose heads have Marian's width, named as in MarianMTModel."""
    order, config = to_marian(model.config.d_model), model.config
    heads = PaddedHeads(config.num_heads, config.d_model // config.num_heads)
    found = dict(_tables(model, order))
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            prefix = f"model.{side}.layers.{number}"
            for name, part in layer.named_children():
                found |= {f"{prefix}.{theirs}": tensor for theirs, tensor in _part_weights(name, part, order, heads)}
    return {name: tensor.detach().float().contiguous() for name, tensor in found.items()}


def _tables(model: Transformer, order: DimensionOrder) -> Iterator[tuple[str, Tensor]]:
    match model.config.sharing:
        case "all":
            yield "model.shared.weight", order.columns(model.target_embedding.weight)
        case "target" | "none":
            yield "model.encoder.embed_tokens.weight", order.columns(model.source_embedding.weight)
            yield "model.decoder.embed_tokens.weight", order.columns(model.target_embedding.weight)
    if model.config.sharing == "none":
        yield "lm_head.weight", order.columns(model.output_weight)
    bias = model.output_bias
    yield "final_logits_bias", torch.zeros(1, len(model.output_weight)) if bias is None else bias[None]


def _part_weights(
    name: str, part: torch.nn.Module, order: DimensionOrder, heads: PaddedHeads
) -> Iterator[tuple[str, Tensor]]:
    """The weights of one part of a layer."""
    weights = dict(part.named_parameters())
    match name:
        case "attention":
            yield from _attention_weights("self_attn", part, order, heads)
        case "cross_attention":
            yield from _attention_weights("encoder_attn", part, order, heads)
        case "feed_forward":
            yield "fc1.weight", order.columns(weights["inner.weight"])
            yield "fc1.bias", weights["inner.bias"]
            yield "fc2.weight", order.rows(weights["outer.weight"])
            yield "fc2.bias", order.rows(weights["outer.bias"])
        case _:  # a residual connection with its norm
            theirs = _NORMS.get(name.removesuffix("_residual"), "final_layer_norm")
            yield f"{theirs}.weight", order.rows(weights["norm.weight"])
            yield f"{theirs}.bias", order.rows(weights["norm.bias"])


def _attention_weights(
    theirs: str, part: torch.nn.Module, order: DimensionOrder, heads: PaddedHeads
) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(part, SelfAttention | CrossAttention):
        raise TypeError(f"{type(part).__name__} is not an attention layer of a Transformer")
    count = part.num_heads
    for name, weight, bias in zip("qkv", *_projections(part), strict=True):
        yield f"{theirs}.{name}_proj.weight", order.columns(pad_heads(weight, count, heads))
        yield f"{theirs}.{name}_proj.bias", pad_heads(bias, count, heads)
    yield f"{theirs}.out_proj.weight", order.rows(pad_heads(part.output.weight.T, count, heads).T)
    yield f"{theirs}.out_proj.bias", order.rows(part.output.bias)


def _projections(part: SelfAttention | CrossAttention) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The weights and the biases of queries, keys and values."""
    if isinstance(part, SelfAttention):
        joint, sizes = part.query_key_value, list(part.sizes)
        return joint.weight.split(sizes), joint.bias.split(sizes)
    joint, sizes = part.key_value, list(part.sizes)
    return (part.query.weight, *joint.weight.split(sizes)), (part.query.bias, *joint.bias.split(sizes))


def own_weights(theirs: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert Marian's weights to ours."""
    order = from_marian(config.d_model)
    found = dict(_own_tables(theirs, config, order))
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            prefix = f"model.{side}.layers.{number}."
            layer = {name.removeprefix(prefix): x for name, x in theirs.items() if name.startswith(prefix)}
            found |= {f"{side}.{number}.{name}": x for name, x in _own_layer(layer, side == "decoder", order)}
    return {name: tensor.float() for name, tensor in found.items()}


def _own_tables(
    theirs: Mapping[str, Tensor], config: ModelConfig, order: DimensionOrder
) -> Iterator[tuple[str, Tensor]]:
    # A file stores shared tables once, under one of these names.
    source, target, output = (f"model.encoder.{_TABLE}", f"model.decoder.{_TABLE}", "lm_head.weight")
    names = {"all": ("model.shared.weight", target, source, output), "target": (target, output), "none": (target,)}
    known = [name for name in names[config.sharing] if name in theirs]
    yield "target_embedding.weight", order.columns(theirs[known[0] if known else target])
    if config.sharing != "all":
        yield "own_source.weight", order.columns(theirs[source])
    if config.sharing == "none":
        yield "own_output.weight", order.columns(theirs[output])
    if config.output_bias:
        yield "own_bias", theirs["final_logits_bias"][0]


def _own_layer(layer: Mapping[str, Tensor], crosses: bool, order: DimensionOrder) -> Iterator[tuple[str, Tensor]]:
    for end in ("weight", "bias"):

        def reader(name: str, ending: str = end) -> Tensor:
            """A weight that reads from the residual stream, reordered; a bias as it is."""
            tensor = layer[f"{name}.{ending}"]
            return order.columns(tensor) if ending == "weight" else tensor

        def writer(name: str, ending: str = end) -> Tensor:
            """A weight or bias that writes to the residual stream, reordered."""
            return order.rows(layer[f"{name}.{ending}"])

        yield f"attention.query_key_value.{end}", torch.cat([reader(f"self_attn.{x}_proj") for x in "qkv"])
        yield f"attention.output.{end}", writer("self_attn.out_proj")
        yield f"attention_residual.norm.{end}", writer("self_attn_layer_norm")
        if crosses:
            yield f"cross_attention.query.{end}", reader("encoder_attn.q_proj")
            yield f"cross_attention.key_value.{end}", torch.cat([reader(f"encoder_attn.{x}_proj") for x in "kv"])
            yield f"cross_attention.output.{end}", writer("encoder_attn.out_proj")
            yield f"cross_attention_residual.norm.{end}", writer("encoder_attn_layer_norm")
        yield f"feed_forward.inner.{end}", reader("fc1")
        yield f"feed_forward.outer.{end}", writer("fc2")
        yield f"feed_forward_residual.norm.{end}", writer("final_layer_norm")

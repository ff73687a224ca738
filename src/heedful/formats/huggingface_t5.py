"""T5 in Hugging Face's format: read a folder as `transformers` writes it."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import Activation, Experiment, ModelConfig, SearchConfig, Sharing
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, FolderError
from heedful.formats.huggingface_folder import Imported, convert_weights, name_rows, read_utf8, read_weights
from heedful.formats.parity import Proof, prove, random_sources
from heedful.models.seq2seq import require_seq2seq
from heedful.models.size import T5_BUCKETS
from heedful.storage.files import disk_errors, load_tensors
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks import make_experiment
from heedful.text import Tokenizer
from heedful.text.tokenizer_allowlist import check_tokenizer_json

_TOLERANCE = 1e-3  # largest difference between log-probabilities of a token
_ACTIVATIONS: Mapping[str, Activation] = {"relu": "relu", "gated-gelu": "gated-gelu-tanh"}
# Settings that would give another network: what they must be, which is also what a missing one means.
_FIXED: Mapping[str, object] = {
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": T5_BUCKETS,
    "is_encoder_decoder": True,
}
_SIZES = {"d_model": "d_model", "d_k": "d_kv", "d_v": "d_kv", "d_ff": "d_ff", "num_heads": "num_heads"}
_OUTPUT = "lm_head.weight"
_TABLE = "shared.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # of the table, in older files


def read_t5(folder: Path, config: Mapping[str, Any]) -> Imported:
    """Read the folder of a T5 model, version 1.0 or 1.1; refuse one that ours cannot represent."""
    for key, wanted in _FIXED.items():
        if (value := config.get(key, wanted)) != wanted:
            raise FolderError(f"{folder} has {key} {value}, but T5 as heedful has it has {wanted}")
    activation = config.get("feed_forward_proj", "relu")
    if type(activation) is not str or activation not in _ACTIVATIONS:
        raise FolderError(f"{folder} has feed_forward_proj {activation}; heedful knows {', '.join(_ACTIVATIONS)}")
    weights = read_weights(folder, "T5ForConditionalGeneration")
    table = weights.get(_TABLE)
    if table is None or table.ndim != 2:
        raise FolderError(f"{folder}/model.safetensors has no table {_TABLE}; it belongs to a different model")
    own_output = not weights.get(_OUTPUT, table).equal(table)
    if own_output == _scales_output(config):
        raise FolderError(
            f"{folder} has {'an output layer of its own' if own_output else 'one matrix for embeddings and output'}, "
            f"but its config.json says that results are {'' if own_output else 'not '}scaled for the other kind; "
            "T5 1.0 shares one matrix and scales, T5 1.1 does neither"
        )
    tokenizer = _read_tokenizer(folder, len(table))
    _check_special(folder, config, tokenizer)
    experiment = _experiment(folder, config, _ACTIVATIONS[activation], "inputs" if own_output else "all", tokenizer)
    tokenizers = Tokenizers(tokenizer, tokenizer)

    def convert(theirs: Mapping[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
        return own_t5_weights(folder, theirs, model)

    own = convert_weights(folder, weights, experiment.model, tokenizers.vocabulary, convert)
    return Imported(experiment, tokenizers, own)


def _scales_output(config: Mapping[str, Any]) -> bool:
    """Whether the decoder's result is multiplied by 1 / sqrt(d_model); older versions name only the shared matrix."""
    return config.get("scale_decoder_outputs", config.get("tie_word_embeddings")) is not False


def _read_tokenizer(folder: Path, rows: int) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.exists():
        raise FolderError(
            f"{folder} has no tokenizer.json; have transformers write it: T5Tokenizer.from_pretrained(FOLDER)"
            ".save_pretrained(FOLDER)"
        )
    with disk_errors(path):
        data = check_tokenizer_json(read_utf8(path), str(path))
    return Tokenizer.from_json(json.dumps(name_rows(folder, path, data, rows)), str(path))


def _check_special(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Refuse other ids of the start, the padding and the end than those of the tokenizer."""
    wanted = (
        ("pad_token_id", tokenizer.pad_id),
        ("eos_token_id", tokenizer.eos_id),
        ("decoder_start_token_id", tokenizer.pad_id),
    )
    for key, ours in wanted:
        if (theirs := config.get(key, ours)) != ours:
            raise FolderError(f"{folder} has {key} {theirs} in config.json, but {ours} by its tokenizer")


def _experiment(
    folder: Path, config: Mapping[str, Any], activation: Activation, sharing: Sharing, tokenizer: Tokenizer
) -> Experiment:
    """The same network as one of ours; a missing or impossible value is named."""
    dropout = config.get("dropout_rate", 0.1)
    decoder_layers = config.get("num_decoder_layers")
    model = {ours: config.get(theirs) for ours, theirs in _SIZES.items()} | {
        "preset": "t5-small",
        "encoder_layers": config.get("num_layers"),
        "decoder_layers": config.get("num_layers") if decoder_layers is None else decoder_layers,
        "max_distance": config.get("relative_attention_max_distance", 128),
        "activation": activation,
        "sharing": sharing,
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), dropout),
    }
    text = {"kind": "unigram", "vocabulary_size": tokenizer.vocabulary_size}
    try:
        return make_experiment({"name": folder.resolve().name, "model": model, "text": text})
    except ConfigError as error:
        raise FolderError(f"{folder}/config.json cannot be used: {error}") from error


def own_t5_weights(folder: Path, theirs: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert T5's weights to ours, which hold the projections of one input as one matrix."""
    left = {name: tensor for name, tensor in theirs.items() if name not in _COPIES}
    found = {"target_embedding.weight": left.pop(_TABLE)}
    output = left.pop(_OUTPUT, None)
    if config.sharing == "inputs" and output is not None:
        found["own_output.weight"] = output
    inner = ("wi_0", "wi_1") if config.activation == "gated-gelu-tanh" else ("wi",)
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        found[f"{stack}_norm.weight"] = left.pop(f"{stack}.final_layer_norm.weight")
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found[f"{stack}.0.attention.bias.weight"] = left.pop(bias)
        for number in range(layers):
            ours, block = f"{stack}.{number}", f"{stack}.block.{number}.layer"
            last = 2 if stack == "decoder" else 1
            joined = {
                "attention.query_key_value": [f"0.SelfAttention.{part}" for part in "qkv"],
                "attention.output": ["0.SelfAttention.o"],
                "attention_residual.norm": ["0.layer_norm"],
                "feed_forward.inner": [f"{last}.DenseReluDense.{part}" for part in inner],
                "feed_forward.outer": [f"{last}.DenseReluDense.wo"],
                "feed_forward_residual.norm": [f"{last}.layer_norm"],
            }
            if stack == "decoder":
                joined |= {
                    "cross_attention.query": ["1.EncDecAttention.q"],
                    "cross_attention.key_value": ["1.EncDecAttention.k", "1.EncDecAttention.v"],
                    "cross_attention.output": ["1.EncDecAttention.o"],
                    "cross_attention_residual.norm": ["1.layer_norm"],
                }
            for own, parts in joined.items():
                found[f"{ours}.{own}.weight"] = torch.cat([left.pop(f"{block}.{part}.weight") for part in parts])
    # Older files also have a bias by distance in the attention to the source, which nothing reads.
    unknown = [name for name in left if not name.endswith("EncDecAttention.relative_attention_bias.weight")]
    if unknown:
        raise FolderError(
            f"{folder}/model.safetensors has an unknown weight {unknown[0][:80]}; it belongs to a different model"
        )
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def prove_t5(folder: Path, run: RunFolder) -> Proof:
    """Compare the T5 of a run folder with the folder that it was made from."""
    model, tokenizer = require_seq2seq(run.model(), str(run.path)), run.tokenizers().target
    theirs = T5Copy(folder, tokenizer.pad_id, tokenizer.eos_id)
    special = (tokenizer.pad_id, tokenizer.eos_id)
    ids = [number for number in range(tokenizer.vocabulary_size) if number not in special]
    sources = [[*source, tokenizer.eos_id] for source in random_sources(ids)]
    return prove(TorchEngine(model, tokenizer.eos_id), theirs, sources, tokenizer.eos_id, _TOLERANCE)


class T5Copy:
    """A folder loaded by `transformers`, for comparison: one text at a time, greedy search that never writes PAD."""

    def __init__(self, folder: Path, pad_id: int, eos_id: int) -> None:
        if not find_spec("transformers"):
            raise ConfigError("a conversion is proven with transformers, which is not installed; install it")
        from transformers import T5ForConditionalGeneration
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()  # it would disturb our own progress bar
        self._model: Any = T5ForConditionalGeneration.from_pretrained(
            folder, local_files_only=True, use_safetensors=True
        ).eval()
        self._model.float()
        weights = load_tensors(folder / "model.safetensors")
        if _OUTPUT in weights:  # some versions load it as the embedding, whatever the file says
            self._model.lm_head.weight = nn.Parameter(weights[_OUTPUT].float())
        self._pad_id, self._eos_id = pad_id, eos_id

    @torch.inference_mode()
    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The output for each source by `generate`, as a list of one; beam and penalty are ignored."""
        found = []
        for source in sources:
            ids = torch.tensor([source])
            given = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                num_beams=1,
                do_sample=False,
                max_length=None,
                max_new_tokens=len(source) + search.max_extra,
                suppress_tokens=[self._pad_id],
                use_cache=False,  # theirs fails if the decoder has more layers than the encoder
            )
            tokens = tuple(given[0, 1:].tolist())
            found.append([Hypothesis(tokens, 0.0, 0.0, finished=tokens[-1] == self._eos_id)])
        return found

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of every token of each target."""
        found = []
        for source, target in zip(sources, targets, strict=True):
            read = torch.tensor([[self._pad_id, *target[:-1]]])
            logits = self._model(input_ids=torch.tensor([source]), decoder_input_ids=read).logits[0]
            found.append(logits.log_softmax(dim=1).gather(1, torch.tensor(target)[:, None])[:, 0].tolist())
        return found

"""Write a folder that plain `transformers` loads: a MarianMTModel and its tokenizer."""

import dataclasses
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from heedful.config import SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError
from heedful.formats.marian import marian_weights
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import Transformer, d_key, d_value
from heedful.storage.files import save_tensors, write_atomically
from heedful.storage.run_folder import Tokenizers
from heedful.text import Tokenizer

POSITIONS = 1024  # size of the table of positions, which Marian computes when it loads a model


def export_huggingface(model: AnySeq2Seq, tokenizers: Tokenizers, search: SearchConfig, folder: Path) -> None:
    """Write the model, its tokenizers and its search settings into an existing folder."""
    transformer = _checked(model)
    _write_json(folder / "config.json", _config(transformer, tokenizers))
    _write_json(folder / "generation_config.json", _generation(search, tokenizers))
    save_tensors(folder / "model.safetensors", marian_weights(transformer), {"format": "pt"})
    _write_tokenizer(folder, tokenizers.source)
    if not tokenizers.joint:
        (folder / "target").mkdir()
        _write_tokenizer(folder / "target", tokenizers.target)


def _checked(model: AnySeq2Seq) -> Transformer:
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
                f"a Hugging Face Marian model has model.{key} {theirs}, but this one has {value}; "
                "export it --to ctranslate2, or train one with what Marian has"
            )
    return model


def _config(model: Transformer, tokenizers: Tokenizers) -> dict[str, object]:
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
        "activation_function": ours.activation,
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


def _generation(search: SearchConfig, tokenizers: Tokenizers) -> dict[str, object]:
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
        for source in sources:
            limit = len(source) + search.max_extra
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

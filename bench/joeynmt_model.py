"""Convert a Transformer of heedful to JoeyNMT: the same weights under other names.

Arguments: run folder, new folder.

Both have the paper's positions, with sines and cosines in turn, and layer normalisation with an epsilon of 1e-6, so
only the names change. JoeyNMT has four special pieces at the start; heedful has two. So its BOS is its PAD, from
which our decoder starts, and its UNK is an ordinary piece, because nothing is unknown.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import Transformer, d_key, d_value
from heedful.nn.positions import sinusoids
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.text import Tokenizer

_POSITIONS = 5000  # rows of its table
_NORMS = {
    "encoder": {"attention": "layer_norm", "feed_forward": "feed_forward.layer_norm"},
    "decoder": {
        **{"attention": "x_layer_norm", "cross_attention": "dec_layer_norm"},
        "feed_forward": "feed_forward.layer_norm",
    },
}
_ATTENTIONS = {
    "encoder": {"attention": "src_src_att"},
    "decoder": {"attention": "trg_trg_att", "cross_attention": "src_trg_att"},
}
_PROJECTIONS = {  # the projections that one matrix of ours holds, in order
    "query_key_value": ("q_layer", "k_layer", "v_layer"),
    "query": ("q_layer",),
    "key_value": ("k_layer", "v_layer"),
    "output": ("output_layer",),
}


def write_joeynmt(model: AnySeq2Seq, tokenizers: Tokenizers, folder: Path) -> None:
    """Write weights, vocabularies, configuration and our tokenizers into an existing folder."""
    transformer = _checked(model)
    source, target = map(_order, (tokenizers.source, tokenizers.target))
    weights = joeynmt_weights(transformer, source, target)
    torch.save({"model_state": weights}, folder / "best.ckpt")
    for name, tokenizer, order in (("src", tokenizers.source, source), ("trg", tokenizers.target, target)):
        pieces = [tokenizer.piece_at(number) for number in order]
        (folder / f"{name}.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "config.yaml").write_text(json.dumps(_config(transformer.config, tokenizers.target)), encoding="utf-8")
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        (folder / f"tokenizer.{side}.json").write_text(tokenizer.to_json(), encoding="utf-8")


def joeynmt_weights(model: Transformer, source: Sequence[int], target: Sequence[int]) -> dict[str, Tensor]:
    """All weights under its names; `source` and `target` are the orders of our ids."""
    found = {
        "src_embed.lut.weight": model.source_embedding.weight[list(source)],
        "trg_embed.lut.weight": model.target_embedding.weight[list(target)],
        "decoder.output_layer.weight": model.output_weight[list(target)],
    }
    for side in ("encoder", "decoder"):
        found[f"{side}.pe.pe"] = sinusoids(torch.arange(_POSITIONS), model.config.d_model)[None]
    for name, weight in model.named_parameters():
        side, *path = name.split(".")
        if side in ("encoder", "decoder"):
            number, *rest = path
            found |= {f"{side}.layers.{number}.{theirs}": x for theirs, x in _layer(side, rest, weight)}
        elif side in ("encoder_norm", "decoder_norm"):  # pre-norm has one more norm at the end
            found[f"{side.removesuffix('_norm')}.layer_norm.{path[0]}"] = weight
    return {name: weight.detach().clone() for name, weight in found.items()}


def _layer(side: str, path: Sequence[str], weight: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What one weight of a layer is called: `attention.query_key_value.bias` has three names."""
    part, own, end = path
    if part.endswith("_residual"):
        yield f"{_NORMS[side][part.removesuffix('_residual')]}.{end}", weight
    elif part == "feed_forward":
        yield f"feed_forward.pwff_layer.{'0' if own == 'inner' else '3'}.{end}", weight
    else:
        names = _PROJECTIONS[own]
        for name, one in zip(names, weight.chunk(len(names)), strict=True):
            yield f"{_ATTENTIONS[side][part]}.{name}.{end}", one


def _checked(model: AnySeq2Seq) -> Transformer:
    if not isinstance(model, Transformer):
        raise ConfigError(f"only a Transformer is given to JoeyNMT, not a {type(model).__name__}")
    config = model.config
    width = config.d_model // config.num_heads
    if config.positions != "sinusoidal" or config.window or (d_key(config), d_value(config)) != (width, width):
        raise ConfigError("JoeyNMT has no learned positions, restricted self-attention or heads of other widths")
    return model


def _order(tokenizer: Tokenizer) -> list[int]:
    """Our ids in the order of its vocabulary: UNK, PAD (and BOS), EOS, the others."""
    special = [tokenizer.pad_id, tokenizer.eos_id]
    unknown, *others = (number for number in range(tokenizer.vocabulary_size) if number not in special)
    return [unknown, *special, *others]


def _config(ours: ModelConfig, tokenizer: Tokenizer) -> dict[str, object]:
    """Its YAML, which may be JSON."""
    unknown, pad, eos = (tokenizer.piece_at(number) for number in _order(tokenizer)[:3])
    symbols = {
        **{"unk_token": unknown, "pad_token": pad, "bos_token": pad, "eos_token": eos},
        **{"unk_id": 0, "pad_id": 1, "bos_id": 1, "eos_id": 2},
    }

    def stack(layers: int) -> dict[str, object]:
        return {
            **{"type": "transformer", "num_layers": layers, "num_heads": ours.num_heads, "dropout": 0.0},
            **{"hidden_size": ours.d_model, "ff_size": ours.d_ff, "layer_norm": ours.norm},
            **{"activation": ours.activation, "embeddings": {"embedding_dim": ours.d_model, "scale": True}},
        }

    sides = {
        side: {"lang": lang, "level": "word", "voc_file": f"{side}.txt"}
        for side, lang in (("src", "source"), ("trg", "target"))
    }
    return {
        **{"name": "raced", "use_cuda": False, "model_dir": "."},
        "data": {**sides, "special_symbols": symbols, "dataset_type": "plain", "test": "none"},
        "testing": {"return_prob": "none"},
        "training": {"batch_size": 1},
        "model": {
            **{"encoder": stack(ours.encoder_layers), "decoder": stack(ours.decoder_layers)},
            **{"tied_embeddings": ours.sharing == "all", "tied_softmax": ours.sharing != "none"},
        },
    }


def main() -> None:
    run, out = RunFolder.open(Path(sys.argv[1])), Path(sys.argv[2])
    try:
        out.mkdir()
        write_joeynmt(run.seq2seq(), run.tokenizers(), out)
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

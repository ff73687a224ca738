"""Write a Transformer as two ONNX graphs, with everything a program needs to translate with them."""

import dataclasses
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import SearchConfig
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError, extra
from heedful.formats.onnx_graph import POSITIONS, decoder_graph, encoder_graph
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import Transformer
from heedful.storage.files import write_atomically
from heedful.storage.run_folder import Tokenizers, tokenizer_files

README = """# A Transformer for ONNX Runtime

- `encoder.onnx`: `source_ids` and `source_mask` (batch x source; the mask is 1 for a token, 0 for what fills up the
  row) to `source_keys.N` and `source_values.N` of each layer N of the decoder.
- `decoder.onnx`: those, `source_mask`, `target_ids` (batch x target) and `keys.N`, `values.N` to `logits` (batch x
  target x vocabulary) and `new_keys.N`, `new_values.N`. It takes one token at a time or many: the new keys and values
  go in as `keys.N` and `values.N` with the next ones. At first these have length 0, and the token is `start`.
- `heedful.json`: the ids of `start`, `eos` and `pad`, which no output may have (set its logit to minus infinity); the
  inputs and outputs with their shapes; the search of the model; how many pieces a text may have.
- the tokenizers, for the library `tokenizers`. A source ends in `eos`, which they add.
"""


def export_onnx(model: AnySeq2Seq, tokenizers: Tokenizers, search: SearchConfig, folder: Path) -> None:
    """Write the model, its tokenizers and its search settings into an existing folder."""
    transformer = _checked(model)
    import onnx

    described: dict[str, object] = {}
    for name, graph in (("encoder", encoder_graph(transformer)), ("decoder", decoder_graph(transformer))):
        onnx.checker.check_model(graph, full_check=True)
        write_atomically(folder / f"{name}.onnx", graph.SerializeToString())
        described[name] = {"inputs": _shapes(graph.graph.input), "outputs": _shapes(graph.graph.output)}
    for file, tokenizer in tokenizer_files(tokenizers).items():
        write_atomically(folder / file, tokenizer.to_plain_json())
    target = tokenizers.target
    symbols = {"start": target.pad_id, "eos": target.eos_id, "pad": target.pad_id, "longest": POSITIONS}
    content = symbols | described | {"search": dataclasses.asdict(search)}
    write_atomically(folder / "heedful.json", json.dumps(content, indent=1) + "\n")
    write_atomically(folder / "README.md", README)


def _checked(model: AnySeq2Seq) -> Transformer:
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"only Transformers are exported to ONNX, but this model is a {type(model).__name__}; "
            "translate with the model as it is"
        )
    if model.config.window:
        raise ConfigError(
            f"restricted self-attention is not exported to ONNX, but model.window is {model.config.window}; "
            "translate with the model as it is"
        )
    if not (find_spec("onnx") and find_spec("onnxruntime")):
        raise ConfigError(f"the export needs onnx and onnxruntime, which are not installed; {extra('onnx')}")
    return model


def _shapes(values: Sequence[Any]) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in values
    }


class OnnxCopy:
    """An exported folder in ONNX Runtime, for comparison; greedy search."""

    def __init__(self, folder: Path) -> None:
        from onnxruntime import InferenceSession

        self._encoder, self._decoder = (
            InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
            for name in ("encoder", "decoder")
        )
        self._about = json.loads((folder / "heedful.json").read_text(encoding="utf-8"))

    def decode(self, sources: Sequence[Sequence[int]], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        """The greedy translation of each sentence, as a list of one; beam and penalty are ignored."""
        start, eos = self._about["start"], self._about["eos"]
        state = self._start(sources)
        limits = [len(source) + search.max_extra for source in sources]
        found: list[list[int]] = [[] for _ in sources]
        tokens = np.full((len(sources), 1), start)
        for length in range(1, max(limits) + 1):
            logits = self._step(tokens, state)[:, -1]
            logits[:, self._about["pad"]] = -np.inf
            tokens = logits.argmax(axis=1, keepdims=True)
            for several, limit, token in zip(found, limits, tokens[:, 0].tolist(), strict=True):
                if several[-1:] != [eos] and length <= limit:
                    several.append(token)
            if all(several[-1] == eos or length >= limit for several, limit in zip(found, limits, strict=True)):
                break
        return [[Hypothesis(tuple(several), 0.0, 0.0, finished=several[-1] == eos)] for several in found]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of every token of each target, including EOS."""
        shifted = _filled([[self._about["start"], *target[:-1]] for target in targets], self._about["pad"])
        logits = self._step(shifted, self._start(sources)).astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return [row[np.arange(len(target)), target].tolist() for row, target in zip(logits, targets, strict=False)]

    def _start(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The decoder's inputs besides tokens."""
        mask = _filled([[1] * len(source) for source in sources], 0)
        given = {"source_ids": _filled(sources, self._about["pad"]), "source_mask": mask}
        names = [output.name for output in self._encoder.get_outputs()]
        state = {"source_mask": mask} | dict(zip(names, self._encoder.run(names, given), strict=True))
        for entry in self._decoder.get_inputs():
            if entry.name.startswith(("keys.", "values.")):
                _, heads, _, width = entry.shape
                state[entry.name] = np.zeros((len(sources), heads, 0, width), np.float32)
        return state

    def _step(self, tokens: Any, state: dict[str, Any]) -> Any:
        """Run the decoder on these tokens, update the state, and return the logits."""
        names = [output.name for output in self._decoder.get_outputs()]
        logits, *new = self._decoder.run(names, state | {"target_ids": tokens})
        state |= {name.removeprefix("new_"): value for name, value in zip(names[1:], new, strict=True)}
        return logits


def _filled(rows: Sequence[Sequence[int]], value: int) -> Any:
    """Pad rows of unequal length to a matrix."""
    longest = max(map(len, rows))
    return np.array([[*row, *[value] * (longest - len(row))] for row in rows], dtype=np.int64)

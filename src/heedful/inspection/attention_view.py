"""The attention inside a translation, for the page, as JSON and as NumPy arrays."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from heedful.attention.forced_decoding import START_PIECE, ForcedDecoding, HeadWeights
from heedful.attention.head_names import KINDS
from heedful.config import SearchConfig
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer import Tokenizer
from heedful.translation.pipeline import TokenizedText
from heedful.translation.result import Alternative, Inspection
from heedful.translation.translator import Translator

_STEPS = 65535  # 16 bits per weight: precise enough to read, and half the size of a float

Layers = Callable[[Sequence[HeadWeights]], object]


@dataclass(frozen=True, slots=True)
class AttentionViewer:
    """A trained model whose attention can be viewed."""

    run: Path
    translator: Translator
    search: SearchConfig
    known: dict[str, str] = field(default_factory=dict)  # cache: the last text and its translation with all heads on

    def look(self, text: str | TokenizedText, off: Sequence[str] = (), n_best: int = 1) -> Inspection:
        """Translate a text with some heads switched off, and record the attention."""
        with self.translator.switch_off_heads(off):
            return self.translator.inspect(text, search=self.search, n_best=n_best)

    def baseline(self, text: str) -> str:
        """The translation with all heads on; the last one is cached."""
        if text not in self.known:
            self.known.clear()
            self.known[text] = self.translator.translate([text], search=self.search)[0].text
        return self.known[text]

    def page(self, look: Inspection, off: Sequence[str] = (), live: bool = False) -> dict[str, object]:
        """The data that the page shows, including the translation with all heads on if some are off."""
        baseline = self.baseline(look.translation.source) if off else None
        about = {"roles": self.roles(), "off": list(dict.fromkeys(off)), "baseline": baseline, "live": live}
        return self._document(look, packed) | about

    def numbers(self, look: Inspection) -> dict[str, object]:
        """The same data with the weights as nested lists: layers x heads x queries x keys."""
        return self._document(look, listed)

    def roles(self) -> Mapping[str, object]:
        """The role of each head, as last measured; empty if never measured."""
        folder = RunFolder(self.run)
        match folder.about():
            case {"heads": {"model": str(note), "roles": dict(roles)}} if note == folder.note():
                return roles
        return {}

    def keep_roles(self, roles: Mapping[str, object]) -> None:
        """Store the role of each head with a fingerprint of the weights."""
        folder = RunFolder(self.run)
        folder.write_about({"heads": {"model": folder.note(), "roles": roles}})

    def _document(self, look: Inspection, layers: Layers) -> dict[str, object]:
        return document(look, self.translator.tokenizers.target, str(self.run), layers)


def document(look: Inspection, target: Tokenizer, model: str, layers: Layers) -> dict[str, object]:
    """Texts, pieces, probabilities and all attention weights; `layers` encodes the weights of one attention."""
    translation = look.translation
    pairs = zip(translation.alternatives, look.inside, strict=True)
    return {
        "format": 1,
        "model": model,
        "source": {"text": translation.source, "pieces": list(translation.source_pieces)},
        "encoder": layers(look.inside[0].attention.encoder),
        "inputs_start": START_PIECE,
        "hypotheses": [_hypothesis(alternative, inside, target, layers) for alternative, inside in pairs],
    }


def _hypothesis(
    alternative: Alternative, inside: ForcedDecoding, target: Tokenizer, layers: Layers
) -> dict[str, object]:
    return {
        "text": alternative.text,
        "score": alternative.score,
        "log_prob": alternative.log_prob,
        "finished": alternative.finished,
        "pieces": list(alternative.pieces),
        "tokens": _tokens(inside, target),
        "decoder": layers(inside.attention.decoder),
        "cross": layers(inside.attention.cross),
    }


def _tokens(inside: ForcedDecoding, target: Tokenizer) -> list[dict[str, object]]:
    """The probability of each piece, and the most probable alternatives."""
    return [
        {
            "probability": _share(own),
            "alternatives": [
                {"piece": piece, "probability": _share(log_prob)}
                for piece, log_prob in zip(target.pieces(best.tolist()), log_probs, strict=True)
            ],
        }
        for own, best, log_probs in zip(inside.log_probs, inside.best, inside.best_log_probs, strict=True)
    ]


def _share(log_prob: float) -> float:
    return round(float(np.exp(log_prob)), 6)


def packed(layers: Sequence[HeadWeights]) -> list[dict[str, object]]:
    """Encode weights for the page: 16 bits each, in base64."""
    return [
        {
            "heads": weights.shape[0],
            "queries": weights.shape[1],
            "keys": weights.shape[2],
            "weights": base64.b64encode(np.rint(weights * _STEPS).astype("<u2").tobytes()).decode(),
        }
        for weights in layers
    ]


def listed(layers: Sequence[HeadWeights]) -> list[object]:
    """Encode weights as nested lists: layers x heads x queries x keys."""
    return [np.round(weights.astype(np.float64), 6).tolist() for weights in layers]


def arrays(look: Inspection) -> bytes:
    """Arrays of the best translation for an .npz file: `encoder.1`, `decoder.1`, `cross.1`, ..., and the pieces."""
    attention, translation = look.inside[0].attention, look.translation
    named = {f"{kind}.{number}": weights for kind in KINDS for number, weights in enumerate(attention.of(kind), 1)}
    file = io.BytesIO()
    np.savez_compressed(
        file,
        allow_pickle=False,
        source_pieces=np.array(translation.source_pieces),
        target_pieces=np.array(translation.pieces),
        log_probs=look.inside[0].log_probs,
        **named,
    )
    return file.getvalue()

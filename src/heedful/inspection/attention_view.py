"""The attention inside a translation, as JSON and as NumPy arrays."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from heedful.attention.head_names import KINDS
from heedful.attention.record import START_PIECE, Attention, ForcedDecoding, HeadWeights
from heedful.config import SearchConfig
from heedful.errors import ConfigError
from heedful.inspection.markup import visible
from heedful.models.predictor import AnyPredictor
from heedful.storage.run_folder import RunFolder
from heedful.text.constraints import Constraints
from heedful.text.tokenizer import Tokenizer
from heedful.translation.pipeline import TokenizedText
from heedful.translation.result import Alternative, Look
from heedful.translation.span_filler import SpanFiller
from heedful.translation.translator import Translator

_STEPS = 65535  # 16 bits per weight: precise enough to read, and half the size of a float

EncodeWeights = Callable[[Sequence[HeadWeights]], object]  # the weights of one kind of attention, layer by layer


@dataclass(frozen=True, slots=True)
class HeadsView:
    """One text and every head of the model that read it, in all forms that `heedful heads` writes."""

    text: str  # what the model wrote
    baseline: str | None  # what it writes with all heads on, if some are off
    page: Callable[[], Mapping[str, object]]  # the data of the page
    plain: Callable[[], Mapping[str, object]]  # the same for other programs
    arrays: Callable[[], bytes]  # an .npz file
    draw: Callable[[Literal["png", "svg"]], bytes]


@dataclass(frozen=True, slots=True)
class AttentionViewer:
    """A trained model whose attention can be viewed."""

    run: Path
    translator: Translator
    search: SearchConfig
    constraints: Constraints = field(default_factory=Constraints)
    _baselines: dict[str, str] = field(default_factory=dict)  # the last text and its translation with all heads on

    @property
    def name(self) -> str:
        """The name of the run folder or built-in model; pages are passed on, and paths tell where somebody works."""
        return self.run.resolve().name

    def look(
        self, text: str | TokenizedText, off: Sequence[str] = (), n_best: int = 1, translation: str | None = None
    ) -> Look:
        """Record the attention of a given translation, or translate the text if some heads are off or none is given."""
        if not self.translator.model.attentions:
            raise ConfigError("this model has no attention, so there are no heads to see; it can only translate")
        with self.translator.switch_off_heads(off):
            return self.translator.look(
                text,
                search=self.search,
                n_best=n_best,
                constraints=self.constraints,
                translation=None if off else translation,
            )

    def translate(self, text: str) -> str:
        """The translation that `heedful translate` gives, whichever engine finds it."""
        if isinstance(self.translator, SpanFiller):
            return self.translator.fill(text, self.search).text
        found = self.translator.translate([text], search=self.search, constraints=self.constraints)
        return found[0].text

    def rank_heads(self, text: str, translation: str) -> dict[str, float]:
        """How much log-probability the translation loses without each head, by names such as `cross.2.1`."""
        translator = self.translator
        target = translator.encode_target(translation)
        return rank_heads(translator.model, translator.encode([text])[0], target)

    def view(self, text: str, off: Sequence[str] = (), n_best: int = 1, live: bool = False) -> HeadsView:
        """The translation that `heedful translate` gives, or that of the model without some heads."""
        is_searched = bool(off) or not text.strip() or isinstance(self.translator, SpanFiller)
        look = self.look(text, off, n_best, None if is_searched else self.translate(text))
        translation = look.translation
        return HeadsView(
            text=translation.text,
            baseline=self.baseline(text) if off else None,
            page=lambda: self.document(look, off, live, ranked=True),
            plain=lambda: self.plain_document(look),
            arrays=lambda: make_npz(look),
            draw=lambda form: draw_heads(look.inside[0].attention, translation.source_pieces, translation.pieces, form),
        )

    def baseline(self, text: str) -> str:
        """The translation with all heads on, by the engine that also translates without them; the last is cached."""
        if text not in self._baselines:
            self._baselines.clear()
            with self.translator.switch_off_heads([]):
                if isinstance(self.translator, SpanFiller):
                    self._baselines[text] = self.translate(text)
                else:
                    found = self.translator.translate(
                        [text], search=self.search, constraints=self.constraints, split_sentences=False
                    )
                    self._baselines[text] = found[0].text
        return self._baselines[text]

    def document(
        self, look: Look, off: Sequence[str] = (), live: bool = False, ranked: bool = False
    ) -> dict[str, object]:
        """The data of the page, including the translation with all heads on if some are off.

        With `ranked`, it says what the translation loses without each head, which takes a pass for each.
        """
        baseline = self.baseline(look.translation.source) if off else None
        about = {"roles": self.roles(), "off": list(dict.fromkeys(off)), "baseline": baseline, "live": live}
        if ranked and not off:
            about["costs"] = self.rank_heads(look.translation.source, look.translation.text)
        return self._document(look, pack_weights) | about

    def plain_document(self, look: Look) -> dict[str, object]:
        """The same data for other programs, with the weights as nested lists: layers x heads x queries x keys."""
        return self._document(look, list_weights)

    def roles(self) -> Mapping[str, object]:
        """The role of each head, as last measured; empty if never measured."""
        return read_roles(self.run)

    def keep_roles(self, roles: Mapping[str, object]) -> None:
        """Store the role of each head with a fingerprint of the weights."""
        folder = RunFolder(self.run)
        folder.write_about({"heads": {"weights": folder.weights_id, "roles": roles}})

    def _document(self, look: Look, encode: EncodeWeights) -> dict[str, object]:
        translation, target = look.translation, self.translator.tokenizers.target
        pairs = zip(translation.alternatives, look.inside, strict=True)
        return {
            "format": 1,
            "model": self.name,
            "source": {"text": translation.source, "pieces": list(translation.source_pieces)},
            "encoder": encode(look.inside[0].attention.encoder),
            "inputs_start": START_PIECE,
            "hypotheses": [_hypothesis(alternative, inside, target, encode) for alternative, inside in pairs],
        }


def draw_heads(attention: Attention, read: Sequence[str], written: Sequence[str], form: Literal["png", "svg"]) -> bytes:
    """All heads as a picture."""
    from heedful.inspection.drawing import draw_attention  # matplotlib is needed for nothing else

    return draw_attention(attention, read, written, form)


def read_roles(run: Path) -> dict[str, dict[str, str]]:
    """The stored role of each head of a run folder; empty if it was measured on other weights, or never."""
    folder = RunFolder(run)
    match folder.about():
        case {"heads": {"weights": str(weights), "roles": dict(roles)}} if weights and weights == folder.weights_id:
            return roles
    return {}


def rank_heads(
    model: AnyPredictor, source: Sequence[int], target: Sequence[int], places: Sequence[int] | None = None
) -> dict[str, float]:
    """How much log-probability the target loses without each head, by names such as `cross.2.1`.

    A model without a decoder is asked about `places`; others read the target, one place later.
    """
    import torch

    from heedful.attention.head_names import all_heads
    from heedful.attention.importance import ablate_heads
    from heedful.data.batch import Batch, pack

    target_in, _ = pack([[model.pad_id, *target[:-1]] if places is None else places])
    batch = Batch(*pack([source]), target_in, *pack([target]), torch.zeros(1, dtype=torch.int64))
    rises = ablate_heads(model, [batch.to(next(model.parameters()).device)], all_heads(model))
    return {str(head): round(rise * len(target), 4) for head, rise in rises.items()}


def _hypothesis(
    alternative: Alternative, inside: ForcedDecoding, target: Tokenizer, encode: EncodeWeights
) -> dict[str, object]:
    return {
        "text": alternative.text,
        "score": alternative.score,
        "log_prob": alternative.log_prob,
        "finished": alternative.finished,
        "pieces": list(alternative.pieces),
        "tokens": describe_tokens(inside, target),
        "decoder": encode(inside.attention.decoder),
        "cross": encode(inside.attention.cross),
    }


def describe_tokens(inside: ForcedDecoding, target: Tokenizer) -> list[dict[str, object]]:
    """The probability of each piece, and the most probable alternatives."""
    return [
        {
            "probability": _share(own),
            "alternatives": [
                {"piece": piece, "probability": _share(log_prob)}
                for piece, log_prob in zip(visible(target.pieces(best.tolist())), log_probs, strict=True)
            ],
        }
        for own, best, log_probs in zip(inside.log_probs, inside.best, inside.best_log_probs, strict=True)
    ]


def _share(log_prob: float) -> float:
    return round(float(np.exp(log_prob)), 6)


def pack_weights(layers: Sequence[HeadWeights]) -> list[dict[str, object]]:
    """Weights as the page takes them: 16 bits each, in base64."""
    return [
        {
            "heads": weights.shape[0],
            "queries": weights.shape[1],
            "keys": weights.shape[2],
            "weights": base64.b64encode(np.rint(weights * _STEPS).astype("<u2").tobytes()).decode(),
        }
        for weights in layers
    ]


def list_weights(layers: Sequence[HeadWeights]) -> list[object]:
    """Weights as nested lists: layers x heads x queries x keys."""
    return [np.round(weights.astype(np.float64), 6).tolist() for weights in layers]


def make_npz(look: Look) -> bytes:
    """An .npz file of the best translation: `encoder.1`, `decoder.1`, `cross.1`, ..., and the pieces."""
    return pack_npz(look.inside[0], look.translation.source_pieces, look.translation.pieces)


def pack_npz(inside: ForcedDecoding, source_pieces: Sequence[str], target_pieces: Sequence[str]) -> bytes:
    """The same from what was read and written; kinds that the model does not have are left out."""
    attention = inside.attention
    named = {f"{kind}.{number}": weights for kind in KINDS for number, weights in enumerate(attention.of(kind), 1)}
    file = io.BytesIO()
    np.savez_compressed(
        file,
        allow_pickle=False,
        source_pieces=np.array(source_pieces),
        target_pieces=np.array(target_pieces),
        log_probs=inside.log_probs,
        **named,
    )
    return file.getvalue()

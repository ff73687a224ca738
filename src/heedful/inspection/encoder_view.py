"""The attention inside a model without a decoder, with what it answers, in every form that `heedful heads` writes."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from heedful.attention.head_names import find_heads
from heedful.attention.pruning import switch_off_heads
from heedful.classification.answer_look import AnsweringModel, AnswerLook, AskedInput
from heedful.classification.classifier import Classifier
from heedful.classification.mask_filler import MaskFiller
from heedful.classification.picture_classifier import PictureClassifier
from heedful.config import Device
from heedful.config.experiment import Head, Pooling
from heedful.errors import ConfigError
from heedful.inspection.attention_view import (
    EncodeWeights,
    HeadsView,
    list_weights,
    pack_weights,
    rank_heads,
    read_roles,
)
from heedful.inspection.markup import visible
from heedful.models.vit import ViT
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

_TITLES: dict[Head, str] = {"sequence": "Label", "tokens": "Tags", "masked": "Hidden words"}
_RANKS = 5  # of the likeliest answers


@dataclass(frozen=True, slots=True)
class EncoderViewer:
    """A model that labels texts or pictures, tags words or finds hidden ones, whose attention can be viewed."""

    run: Path
    reader: AnsweringModel
    picture: str = ""  # the only one that a page may ask about: a page names no files
    _baselines: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run folder; pages are passed on, and paths tell where somebody works."""
        return self.run.resolve().name

    def view(self, text: str, off: Sequence[str] = (), n_best: int = 1, live: bool = False) -> HeadsView:
        """What the model answers with some heads off or none."""
        if n_best > 1:
            raise ConfigError("--n-best goes with a model that writes text; leave it out here")
        model = self.reader.model
        with switch_off_heads(model, find_heads(model, off)):
            look = self.reader.look(self.picture or text)
        whole = self._describe(self.reader.look(self.picture or text)) if off else None

        def make_page() -> dict[str, object]:
            about: dict[str, object] = {"off": list(dict.fromkeys(off)), "baseline": whole, "live": live}
            if not off:
                question = look.question
                about["costs"] = rank_heads(model, question.source, look.answer_ids, question.places)
            return self._document(look, pack_weights) | {"roles": read_roles(self.run)} | about

        def draw(form: Literal["png", "svg"]) -> bytes:
            from heedful.inspection.drawing import draw_attention, draw_picture_attention

            if look.question.pixels is None:
                return draw_attention(look.inside.attention, look.question.pieces, (), form)
            # The class token's row if the head reads it, else the mean of all rows, as the page shows first.
            rows = [
                layer[:, 0] if model.config.pooling == "cls" else layer.mean(1)
                for layer in look.inside.attention.encoder
            ]
            return draw_picture_attention([each[:, 1:] for each in rows], look.question.pixels, form)

        return HeadsView(
            text=self._describe(look),
            baseline=whole,
            page=make_page,
            plain=lambda: self._document(look, list_weights),
            arrays=lambda: _pack_npz(look),
            draw=draw,
        )

    def _describe(self, look: AnswerLook) -> str:
        """The answers, with their probability if there is only one."""
        spelled = self.reader.spell(look.question, look.answer_ids)
        return spelled if len(look.answers) > 1 else f"{spelled} ({100 * np.exp(look.log_prob):.1f} %)"

    def _document(self, look: AnswerLook, encode: EncodeWeights) -> dict[str, object]:
        question, inside = look.question, look.inside
        tokens = [
            {
                "probability": _share(row[own]),
                "alternatives": [
                    {"piece": name, "probability": _share(row[number])}
                    for number, name in zip(best, visible(self.reader.name_answers(best)), strict=True)
                ],
            }
            for row, own in zip(inside.log_probs, look.answer_ids, strict=True)
            for best in [np.argsort(-row, kind="stable")[:_RANKS].tolist()]
        ]
        answer = {
            "text": self._describe(look),
            "log_prob": look.log_prob,
            "finished": True,
            "pieces": visible(look.answers),
            "asked": visible(question.asked),
            "tokens": tokens,
            "decoder": [],
            "cross": [],
        }
        picture: dict[str, object] = {}
        if question.pixels is not None:
            picture["picture"] = describe_picture(question, self.reader.model.config.pooling)
        name = Path(question.text).name if picture else question.text  # not where somebody's files are
        return {
            "format": 1,
            "model": self.name,
            "source": {"text": name, "pieces": visible(question.pieces)},
            "encoder": encode(inside.attention.encoder),
            "inputs_start": "",
            "titles": [
                "Picture" if picture else "Text",
                "Label" if isinstance(self.reader.model, ViT) else _TITLES[self.reader.model.config.head],
            ],
            "hypotheses": [answer],
            **picture,
        }


def load_answering_model(run: RunFolder, device: Device) -> Classifier | PictureClassifier | MaskFiller:
    """The model of a run without a decoder."""
    task = find_task(run.experiment().task)
    if task.reads_pictures:
        return PictureClassifier.from_run(run, device)
    return MaskFiller.from_run(run, device) if task.encoder == "masked" else Classifier.from_run(run, device)


def describe_picture(question: AskedInput, pooling: Pooling) -> dict[str, object]:
    """A picture as a page shows it: as a PNG file, and the number of its patches in each direction.

    `from` is whose weights are shown first: the class token's if the head reads it, else the mean of all (-1).
    """
    if question.pixels is None:
        raise ValueError("the question is not about a picture")
    png = base64.b64encode(make_png(question.pixels)).decode()
    return {"png": png, "across": round((len(question.pieces) - 1) ** 0.5), "from": 0 if pooling == "cls" else -1}


def make_png(pixels: np.ndarray) -> bytes:
    """The pixels that a model sees, grey or in colour, as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return file.getvalue()


def _share(log_prob: float) -> float:
    return round(float(np.exp(log_prob)), 6)


def _pack_npz(look: AnswerLook) -> bytes:
    """An .npz file: `encoder.1`, `encoder.2`, ..., the pieces, the answers, and the log-probabilities of all."""
    named = {f"encoder.{number}": weights for number, weights in enumerate(look.inside.attention.encoder, 1)}
    file = io.BytesIO()
    np.savez_compressed(
        file,
        allow_pickle=False,
        source_pieces=np.array(look.question.pieces),
        answers=np.array(look.answers),
        log_probs=look.inside.log_probs,
        **named,
    )
    return file.getvalue()

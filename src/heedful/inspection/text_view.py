"""The attention inside a continuation, in every form that `heedful heads` writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.attention.head_names import find_heads
from heedful.attention.pruning import switch_off_heads
from heedful.completion.completer import Completer, TextLook
from heedful.config import SearchConfig
from heedful.inspection.attention_view import (
    EncodeWeights,
    HeadsView,
    describe_tokens,
    draw_heads,
    list_weights,
    pack_npz,
    pack_weights,
    rank_heads,
    read_roles,
)
from heedful.inspection.markup import visible


@dataclass(frozen=True, slots=True)
class TextViewer:
    """A model that continues texts, whose attention can be viewed: one kind of it, over prompt and continuation."""

    run: Path
    completer: Completer
    search: SearchConfig
    length: int | None = None  # of a continuation; None: as `Completer.look` chooses

    @property
    def name(self) -> str:
        """The name of the run folder; pages are passed on, and paths tell where somebody works."""
        return self.run.resolve().name

    def view(self, text: str, off: Sequence[str] = (), n_best: int = 1, live: bool = False) -> HeadsView:
        """Continue a prompt, with some heads off or none, in `n_best` ways."""
        model = self.completer.model
        with switch_off_heads(model, find_heads(model, off)):
            look = self._look(text, n_best)
        baseline = self._look(text, 1).completion.continuations[0].text if off else None

        def make_page() -> dict[str, object]:
            about: dict[str, object] = {"off": list(dict.fromkeys(off)), "baseline": baseline, "live": live}
            if not off:
                source, target = self.completer.encode(text), look.targets[0]
                about["costs"] = rank_heads(model, source, target)
            return self._document(look, pack_weights) | {"roles": read_roles(self.run)} | about

        first = look.completion.continuations[0]
        return HeadsView(
            text=first.text,
            baseline=baseline,
            page=make_page,
            plain=lambda: self._document(look, list_weights),
            arrays=lambda: pack_npz(look.inside[0], look.prompt_pieces, look.pieces[0]),
            draw=lambda form: draw_heads(
                look.inside[0].attention, visible(look.prompt_pieces), visible(look.pieces[0]), form
            ),
        )

    def _look(self, text: str, n: int) -> TextLook:
        return self.completer.look(text, n=n, length=self.length, search=self.search)

    def _document(self, look: TextLook, encode: EncodeWeights) -> dict[str, object]:
        hypotheses = [
            {
                "text": continuation.text,
                "log_prob": continuation.log_prob,
                "finished": continuation.finished,
                "pieces": visible(pieces),
                "read": visible([*look.prompt_pieces, *pieces[:-1]]),
                "tokens": describe_tokens(inside, self.completer.tokenizer),
                "decoder": encode(inside.attention.decoder),
                "cross": [],
            }
            for continuation, pieces, inside in zip(
                look.completion.continuations, look.pieces, look.inside, strict=True
            )
        ]
        return {
            "format": 1,
            "model": self.name,
            "source": {"text": look.completion.prompt, "pieces": visible(look.prompt_pieces)},
            "encoder": [],
            "inputs_start": "",
            "hypotheses": hypotheses,
        }

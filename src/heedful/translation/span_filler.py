"""The `SpanFiller`: a model that has learnt from plain text to write the spans that are left out of a text."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from heedful.config import Device, SearchConfig
from heedful.data.spans import SENTINELS, find_sentinels
from heedful.decoding.hypothesis import Hypothesis
from heedful.errors import ConfigError, DataError
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text.constraints import Constraints
from heedful.text.marks import encode_with_marks
from heedful.translation.engines import load_torch_engine, only_torch
from heedful.translation.pipeline import DecodedText, TokenizedText, TranslationOptions
from heedful.translation.result import Look, Translation
from heedful.translation.translator import MAX_INSPECTED_PIECES, Translator


class SpanFiller(Translator):
    """A translator from a text with <extra_id_0>, <extra_id_1>, ... in place of spans to these spans."""

    @classmethod
    def open(cls, run: RunFolder, device: Device = "auto") -> "SpanFiller":
        """Load a run folder that is already open."""
        from heedful.device import choose_device

        experiment = run.experiment()
        task = find_task(experiment.task)
        if not task.denoises:
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which restores no spans; "
                "train one with: heedful train --text book.txt --objective spans"
            )
        engine = load_torch_engine(run, choose_device(device))
        return cls(only_torch(engine), run.tokenizers(), experiment.search, task)

    @property
    def _marks(self) -> dict[str, int]:
        return dict(zip(SENTINELS, find_sentinels(self.tokenizers.source), strict=True))

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts with their ids; each has at least one span left out."""
        return [TokenizedText(text, self._encode(text)) for text in texts]

    def _encode(self, text: str) -> list[int]:
        ids, marks = encode_with_marks(self.tokenizers.source, text, self._marks), set(self._marks.values())
        if not marks.intersection(ids):
            raise DataError(
                f"the text has no {SENTINELS[0]}; write {SENTINELS[0]}, then {SENTINELS[1]}, in place of each span "
                "that the model shall write"
            )
        return ids

    def encode_target(self, text: str) -> list[int]:
        """The ids of spans, each behind its mark."""
        return encode_with_marks(self.tokenizers.target, text, self._marks)

    def spell(self, tokens: Iterable[int]) -> str:
        """The spans with their marks."""
        names = {number: mark for mark, number in self._marks.items()}
        tokenizer, parts = self.tokenizers.target, list[str]()
        held: list[int] = []
        for token in [*tokens, tokenizer.eos_id]:
            if token in names or token == tokenizer.eos_id:
                space = " " if held and parts and tokenizer.pieces(held[:1])[0].startswith("▁") else ""
                parts.append(space + tokenizer.decode(held))
                parts.append((" " if any(parts) else "") + names.get(token, ""))
                held = []
            else:
                held.append(token)
        return "".join(parts).strip()

    def look(
        self,
        text: str | TokenizedText,
        *,
        search: SearchConfig | None = None,
        n_best: int = 1,
        constraints: Constraints | None = None,
        translation: str | None = None,
    ) -> Look:
        """Write the spans that are left out of a text, and look inside; given spans take the place of the likeliest."""
        from heedful.attention.record import force_decode

        options = TranslationOptions(search or self.search, n_best, self._encoder(constraints))
        (encoded,) = self._pipeline.encode([self.tokenize([text])[0] if isinstance(text, str) else text], options)
        found = list(self._pipeline.decode_for_inspection(encoded, options).hypotheses)
        if translation is not None:
            tokens = self.encode_target(translation)
            log_prob = sum(self._pipeline.engines.torch.score([encoded.source], [tokens])[0])
            given = Hypothesis(tuple(tokens), log_prob, log_prob)
            found = [given, *(one for one in found if one.tokens != given.tokens)][:n_best]
        if max(map(len, (encoded.source, *(one.tokens for one in found)))) > MAX_INSPECTED_PIECES:
            raise DataError(f"the text has over {MAX_INSPECTED_PIECES} pieces, which cannot be shown; shorten it")
        targets = [list(one.tokens) for one in found]
        inside = force_decode(self.model, [encoded.source] * len(targets), targets)
        shown = self._pipeline.finish(encoded, DecodedText(tuple(found)), options.search)
        spelled = tuple(
            replace(alternative, text=self.spell(one.tokens))
            for alternative, one in zip(shown.alternatives, found, strict=True)
        )
        shown = replace(shown, text=spelled[0].text, alternatives=spelled)
        return Look(shown, tuple(inside), *self._look_later(encoded.source, targets[0], options.search))

    def fill(self, text: str, search: SearchConfig | None = None) -> Translation:
        """The spans that are left out of a text."""
        return self.look(text, search=search).translation

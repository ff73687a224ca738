"""The translators of the benchmark, each in its own process: heedful, CTranslate2, Hugging Face and JoeyNMT.

Arguments: the name of a translator, a file with its job, and `tune`, `race` or `once`. Their libraries are imported
late, because each translator has to start without the others'.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from contender import Lap, serve, take_output

if TYPE_CHECKING:
    from heedful.translation.engines import EngineChoice

Setting = dict[str, int | str | bool]


class Translated(NamedTuple):
    """A translation and its number of pieces, with EOS."""

    text: str
    pieces: int


Translate = Callable[[Sequence[str]], list[Translated]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of a translator; all get the same, except for the format of the model."""

    model: str
    source: str  # a file, one text a line
    report: str  # the file for the outputs
    beam: int = 4
    alpha: float = 0.6
    extra: int = 50  # an output has at most source length + this many pieces, if the translator has such a limit
    limit: int = 0  # every output has exactly this many pieces; 0: the model decides
    together: int = 0  # texts per call; 0: all
    texts: int = 0  # only the first texts; 0: all
    trial: float = 2.0  # seconds for which each setting is tried, at least
    settings: Sequence[Setting] = field(default_factory=lambda: [{}])  # `race` uses the first

    def write(self, path: Path) -> None:
        """Write it as JSON for the other process."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Job":
        """Read the result of `write`."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def lines(self) -> list[str]:
        """The texts."""
        return read_lines(Path(self.source))[: self.texts or None]


Make = Callable[[Job, Setting], Translate]


def read_lines(path: Path) -> list[str]:
    """The lines of a file, split only at line feeds."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def compete(make: Make) -> None:
    """Do what the command line says."""
    path, action = sys.argv[-2:]
    job = Job.read(Path(path))
    match action:
        case "tune":
            answers = take_output()
            print(json.dumps([seconds_of(make(job, setting), job) for setting in job.settings]), file=answers)
        case "once":
            answers = take_output()
            print(make(job, job.settings[0])(job.lines()[:1])[0].text, file=answers, flush=True)
        case "race":
            serve(laps(make(job, job.settings[0]), job))
        case _:
            sys.exit(f"unknown action: {action}")


def seconds_of(translate: Translate, job: Job) -> float:
    """The time for all texts: the fastest of several passes, without one-time costs."""
    texts = job.lines()
    translate(texts[:2])
    best, spent = float("inf"), 0.0
    while spent < job.trial or not spent:
        began = time.perf_counter()
        for start in range(0, len(texts), job.together or len(texts)):
            translate(texts[start : start + (job.together or len(texts))])
        seconds = time.perf_counter() - began
        best, spent = min(best, seconds), spent + seconds
    return best


def laps(translate: Translate, job: Job) -> Callable[[float], Lap]:
    """Laps that translate all texts again and again until the time is up; the last outputs are reported."""
    texts = job.lines()
    together = job.together or len(texts)
    translate(texts[:2])
    turns: list[float] = []  # seconds of every call in all laps

    def lap(seconds: float) -> Lap:
        done, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds or not done:
            found: list[Translated] = []
            for start in range(0, len(texts), together):
                before = time.perf_counter()
                found += translate(texts[start : start + together])
                turns.append(time.perf_counter() - before)
            done += len(found)
        pieces = sum(one.pieces for one in found)
        report = {"texts": [one.text for one in found], "pieces": pieces, "turns": turns}
        Path(job.report).write_text(json.dumps(report), encoding="utf-8")
        return Lap(done, spent)

    return lap


def heedful(job: Job, setting: Setting) -> Translate:
    """Heedful's library. Settings: engine, and threads if they are not its own choice."""
    from heedful import Translator

    if "threads" in setting:
        import torch

        torch.set_num_threads(int(setting["threads"]))
    translator = Translator.load(job.model, engine=cast("EngineChoice", setting["engine"]))

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = translator.translate(texts, beam=job.beam, split_sentences=False)
        return [Translated(one.text, len(one.alternatives[0].pieces) if one.alternatives else 0) for one in found]

    return translate


def ctranslate2(job: Job, setting: Setting) -> Translate:
    """CTranslate2 as its documentation shows it, with `tokenizers` around it; it makes the batches itself.

    Settings: inter_threads, intra_threads, max_batch_size, batch_type.
    """
    from ctranslate2 import Translator

    source, target = read_tokenizers(Path(job.model))
    ids = target.get_vocab(with_added_tokens=True)
    translator = Translator(
        str(Path(job.model) / "ctranslate2"),
        inter_threads=setting["inter_threads"],
        intra_threads=setting["intra_threads"],
    )
    options = {"max_batch_size": setting.get("max_batch_size", 0), "batch_type": setting.get("batch_type", "examples")}
    if job.limit:
        options["max_decoding_length"] = job.limit

    def translate(texts: Sequence[str]) -> list[Translated]:
        results = translator.translate_batch(
            pieces_of(source, texts), beam_size=job.beam, length_penalty=job.alpha, **options
        )
        best = [result.hypotheses[0] for result in results]
        decoded = target.decode_batch([[ids[piece] for piece in one] for one in best])
        return [Translated(text, len(one) + (not job.limit)) for text, one in zip(decoded, best, strict=True)]

    return translate


def huggingface(job: Job, setting: Setting) -> Translate:
    """`MarianMTModel.generate` as its documentation shows it, in batches of texts of similar length.

    Settings: batch (texts), threads, early_stopping.
    """
    import torch
    from transformers import AutoTokenizer, MarianMTModel

    torch.set_num_threads(int(setting["threads"]))
    folder = Path(job.model)
    source = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    separate = folder / "target"
    target = AutoTokenizer.from_pretrained(separate, local_files_only=True) if separate.is_dir() else source
    model = MarianMTModel.from_pretrained(folder, local_files_only=True).eval()
    options = {"num_beams": job.beam, "length_penalty": job.alpha, "max_length": None}
    options["early_stopping"] = bool(setting.get("early_stopping", False))

    def some(texts: list[str]) -> list[Translated]:
        inputs = source(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        limit = job.limit or inputs["input_ids"].shape[1] + job.extra
        outputs = model.generate(**inputs, **options, max_new_tokens=limit)[:, 1:]
        pieces = (outputs != model.config.pad_token_id).sum(1).tolist()
        return [*map(Translated, target.batch_decode(outputs, skip_special_tokens=True), pieces)]

    @torch.inference_mode()
    def translate(texts: Sequence[str]) -> list[Translated]:
        found: dict[int, Translated] = {}
        lengths = source(list(texts), return_attention_mask=False, return_token_type_ids=False)["input_ids"]
        for batch in by_length(lengths, int(setting["batch"])):
            found |= dict(zip(batch, some([texts[index] for index in batch]), strict=True))
        return [found[index] for index in range(len(texts))]

    return translate


def joeynmt(job: Job, setting: Setting) -> Translate:
    """JoeyNMT's `predict`, which its `translate` command calls, with our tokenizer around it.

    It gets the pieces of a text with spaces between them, the longest texts first, so that batches are even. It runs in
    the environment that `peers.py` made. Settings: batch (texts), threads.
    """
    import torch
    from joeynmt.hub_interface import _from_pretrained
    from joeynmt.prediction import predict

    torch.set_num_threads(int(setting["threads"]))
    source, target = read_tokenizers(Path(job.model))
    ids = target.get_vocab(with_added_tokens=True)
    model, data, args = _from_pretrained(Path(job.model))
    options = args.test._replace(batch_size=int(setting["batch"]), beam_size=job.beam, beam_alpha=job.alpha)
    options = options._replace(max_output_length=job.limit or -1)  # -1: one and a half times the source

    def search(lines: Sequence[str]) -> list[list[str]]:
        data.reset_cache()
        for line in lines:
            data.set_item(line)
        given = {"device": args.device, "n_gpu": 0, "normalization": "none", "autocast": args.autocast}
        return predict(model, data, args=options, **given)[3]

    def translate(texts: Sequence[str]) -> list[Translated]:
        pieces = [one[:-1] for one in pieces_of(source, texts)]
        order = [index for (index,) in by_length(pieces, 1) if pieces[index]]  # it refuses empty texts
        found = search([" ".join(pieces[index]) for index in order])
        decoded = target.decode_batch([[ids[piece] for piece in one] for one in found])
        made = dict(zip(order, map(Translated, decoded, map(len, found)), strict=True))
        return [made.get(index, Translated("", 0)) for index in range(len(texts))]

    return translate


def read_tokenizers(folder: Path) -> tuple[Any, Any]:
    """The tokenizers of source and target in a run folder."""
    from tokenizers import Tokenizer

    if (joint := folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(joint))
        return tokenizer, tokenizer
    source, target = (Tokenizer.from_file(str(folder / f"tokenizer.{side}.json")) for side in ("source", "target"))
    return source, target


def pieces_of(tokenizer: Any, texts: Sequence[str]) -> list[list[str]]:
    """The pieces of each text, with EOS; via ids, which is the fastest way."""
    found = tokenizer.encode_batch_fast(list(texts))
    names = {number: str(tokenizer.id_to_token(number)) for encoding in found for number in encoding.ids}
    return [[names[number] for number in encoding.ids] for encoding in found]


def by_length(sources: Sequence[Sequence[object]], size: int) -> list[list[int]]:
    """Batches of this size, with sources of similar length together."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    return [order[start : start + size] for start in range(0, len(order), size)]


TRANSLATORS: dict[str, Make] = {
    "heedful": heedful,
    "ctranslate2": ctranslate2,
    "huggingface": huggingface,
    "joeynmt": joeynmt,
}

if __name__ == "__main__":
    compete(TRANSLATORS[sys.argv[1]])

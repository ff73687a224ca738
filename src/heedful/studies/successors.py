"""The descendants: what each changed against the paper, and what that gains over doing without it on the same data."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.config import merge
from heedful.data.labels import find_label_kind
from heedful.data.pairs import read_passages
from heedful.errors import ConfigError, FolderError, did_you_mean
from heedful.models.size import model_size
from heedful.storage.files import read_json, write_atomically
from heedful.storage.run_folder import RunFolder
from heedful.studies import synthetic
from heedful.studies.study import Cell, StudyInterrupted, StudyPlan, StudyResult, Table
from heedful.training.prepare import match_files
from heedful.training.train import resume, train

_TITLE = "Successors: what each changed, and what it gains"
_RECIPE = "docs/how-to/studies.md"
_LONGEST = 1000  # characters of a line
Tables = Mapping[str, Any]  # of a recipe


@dataclass(frozen=True, slots=True)
class Descendant:
    """A model, its main changes against the paper, and the trainings that show what one of them gains."""

    name: str  # of its table in a recipe, and of its rows
    title: str
    changed: str
    gain: str  # the change whose gain is measured
    instead: str  # what the other training has in its place
    train: "Callable[[Rows], TwoTrainings]"


@dataclass(frozen=True, slots=True)
class TwoTrainings:
    """The figures of two trainings, the descendant, and all trainings that this took."""

    metric: str
    instead: float | None
    with_it: float | None
    model: RunFolder
    trained: tuple[RunFolder, ...]


class Rows:
    """Trains rows by their tables; each has its own run folder, and a finished one is kept."""

    def __init__(self, plan: StudyPlan, tables: Tables) -> None:
        self._plan = plan
        self._tables = tables

    def tables(self, name: str) -> Tables:
        """The settings and data of this row."""
        found: Tables = self._tables.get(name, {})
        return found

    def train(self, name: str, *layers: Tables) -> RunFolder:
        """Train a row, or resume it, unless it is finished; a signal saves it and raises `StudyInterrupted`."""
        plan, asked = self._plan, merge({"seed": 1}, *layers)
        if came := plan.interrupted():
            raise StudyInterrupted(came)
        run = RunFolder(plan.folder / "rows" / name)
        _check_same(run.path.with_suffix(".json"), asked)
        if "finished" in run.about():
            plan.report.say(f"{name}: already trained")
            return run
        plan.report.say(f"{name}: training in {run.path}")
        common: Any = {"reporter": plan.report, "stop_requested": plan.interrupted}
        begun = (run.path / "experiment.toml").exists()
        result = resume(run.path, **common) if begun else train(out=run.path, settings=asked, **common)
        if result.interrupted:
            raise StudyInterrupted(result.reason)
        return run

    def split_lines(self, names: Sequence[str]) -> Mapping[str, str]:
        """The lines of texts as files: nine tenths to train on and the last to validate on, and each with its next."""
        folder = self._plan.folder / "corpus" / "lines"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [line for name in names for line in read_passages(Path(name))]
        cut = len(lines) * 9 // 10
        parts = {"train": lines[:cut], "valid": lines[cut:]}
        parts |= {"source": lines[: cut - 1], "target": lines[1:cut]}
        parts |= {"valid-source": lines[cut:-1], "valid-target": lines[cut + 1 :]}
        for part, some in parts.items():
            write_atomically(folder / part, "".join(f"{line}\n" for line in some))
        return {part: str(folder / part) for part in parts}


def _check_same(file: Path, asked: Tables) -> None:
    """Refuse to show a kept row as one of other settings."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(asked, indent=1))
    elif read_json(file) != json.loads(json.dumps(asked)):
        raise FolderError(
            f"{file.with_suffix('')} was trained with other settings than now; choose another --out, or remove that "
            f"folder and {file.name} to train the row again"
        )


def _train_gpt(rows: Rows) -> TwoTrainings:
    tables = rows.tables("gpt")
    parts = rows.split_lines(_names(tables, "gpt", "text"))
    characters = {"text": {"kind": "characters"}}
    text = {"data": {**tables.get("data", {}), "folder": "", "text": parts["train"], "valid_text": parts["valid"]}}
    gpt = rows.train("gpt", {"task": "completion"}, tables, characters, text)
    # The encoder-decoder with figure 1's parts and about as many layers, trained like the GPT: a line is the source of
    # the next one.
    model, half = gpt.experiment().model, max(1, gpt.experiment().model.decoder_layers // 2)
    network = {key: getattr(model, key) for key in ("d_model", "d_ff", "num_heads", "dropout")}
    paper = {"preset": "paper", **network, "encoder_layers": half, "decoder_layers": half}
    pairs = {key: parts[key.replace("_", "-")] for key in ("source", "target", "valid_source", "valid_target")} | {
        "max_length": _LONGEST
    }
    train = asdict(gpt.experiment().train) | {"validate_bleu": False, "best_by": "loss"}
    lines = rows.train("gpt-lines", {"task": "translation", "model": paper, "data": pairs, "train": train}, characters)
    return TwoTrainings("bits per character", _bits(lines), _bits(gpt), gpt, (lines, gpt))


def _bits(run: RunFolder) -> float | None:
    """The loss of a model of characters, in bits."""
    found = run.validation()
    return math.log2(found.perplexity) if found else None


def _train_bert(rows: Rows) -> TwoTrainings:
    files = _names(rows.tables("bert"), "bert", "source")
    tables = merge({"task": find_label_kind(files)}, rows.tables("bert"))
    return _train_after(rows, "bert", "masked", tables)


def _train_t5(rows: Rows) -> TwoTrainings:
    return _train_after(rows, "t5", "denoising", merge({"task": "translation"}, rows.tables("t5")))


def _train_after(rows: Rows, name: str, objective: str, tables: Tables) -> TwoTrainings:
    """A row that starts from nothing, and one that has read plain text before."""
    before = f"{name}-pretraining"
    pretrained = rows.train(before, {"task": objective}, rows.tables(before))
    alone = rows.train(f"{name}-from-nothing", tables)
    # Network and vocabulary are those of the pre-training, but for the dropout.
    kept = {key: value for key, value in tables.get("model", {}).items() if key == "dropout"}
    others = {key: value for key, value in tables.items() if key not in ("model", "text")}
    taught = rows.train(name, others, {"model": kept, "train": {"init": str(pretrained.path)}})
    return _compare_scores(alone, taught, pretrained)


def _train_vit(rows: Rows) -> TwoTrainings:
    tables = merge({"task": "pictures"}, rows.tables("vit"))
    patches = rows.train("vit", tables)
    side = patches.experiment().model.image_size
    return _compare_scores(
        rows.train("vit-one-patch", tables, {"model": {"image_size": side, "patch_size": side}}), patches
    )


def _compare_scores(instead: RunFolder, run: RunFolder, *others: RunFolder) -> TwoTrainings:
    """Compare the validations of two trainings for the same task."""
    theirs, ours = instead.validation(), run.validation()
    scores = (theirs.score if theirs else None, ours.score if ours else None)
    return TwoTrainings(ours.metric if ours else "", *scores, run, (instead, run, *others))


DESCENDANTS = (
    Descendant(
        "gpt",
        "GPT-2",
        "the decoder alone; norm in front, GELU, learned positions",
        "reading plain text as it is",
        "figure 1, which reads a line and writes the next",
        _train_gpt,
    ),
    Descendant(
        "bert",
        "BERT",
        "the encoder alone, asked about places of its text",
        "finding hidden words of plain text first",
        "the labels alone",
        _train_bert,
    ),
    Descendant(
        "t5",
        "T5",
        "RMS norm, no biases, distances instead of positions",
        "restoring spans of plain text first",
        "the pairs alone",
        _train_t5,
    ),
    Descendant(
        "vit",
        "ViT",
        "the encoder alone, on the patches of a picture",
        "attention between patches",
        "the whole picture as one patch",
        _train_vit,
    ),
)


def run_successors(plan: StudyPlan) -> StudyResult:
    """Train every descendant with and without one of its changes; finished trainings are kept."""
    tables = _make_tables(plan)
    rows = Rows(plan, tables)
    shown = [_show(each, each.train(rows)) for each in DESCENDANTS if each.name in tables]
    columns = (
        *("model", "changed against the paper", "gain of", "instead of", "measured", "instead", "with it"),
        *("parameters", "minutes"),
    )
    notes = (
        "Both trainings of a model have the same data, updates and seed. The figures are of the weights that each "
        "keeps, on the part of the data that chose them: macro F1, BLEU of greedy translations, or bits per character, "
        "of which fewer are better. Minutes are of both trainings and of pre-training.",
    )
    return StudyResult(_TITLE, (Table(_TITLE, columns, tuple(shown), notes, _make_caveat(plan)),))


def _make_caveat(plan: StudyPlan) -> str:
    caveat = "Each row is one training with one seed, so a small difference may be chance."
    if plan.scale != "smoke":
        return caveat
    return (
        f"{caveat} At this scale tiny models learn an artificial language and three shapes for seconds, which "
        "were made so that the changes can matter; the figures say nothing about real text or pictures."
    )


def _show(each: Descendant, found: TwoTrainings) -> tuple[Cell, ...]:
    vocabulary = found.model.tokenizers().vocabulary
    size = model_size(found.model.experiment().model, vocabulary.source, vocabulary.target).total
    minutes = sum(map(_minutes, found.trained))
    described = (each.title, each.changed, each.gain, each.instead, found.metric)
    return (*described, found.instead, found.with_it, size, minutes)


def _minutes(run: RunFolder) -> float:
    match run.about().get("finished"):
        case {"minutes": float(minutes)}:
            return minutes
    return 0.0


def _make_tables(plan: StudyPlan) -> Tables:
    """The tables of all rows: those of the recipe, and at smoke scale those of made-up data below them."""
    given = plan.recipe or {}
    known = [name for each in DESCENDANTS for name in (each.name, f"{each.name}-pretraining")]
    for name, table in given.items():
        if name not in known or not isinstance(table, Mapping):
            raise ConfigError(
                f"study successors has a table for each model, but {name} is none of {', '.join(known)}"
                f"{did_you_mean(name, known)}; {_RECIPE} has an example"
            )
    if plan.scale == "smoke":
        return merge(_make_smoke_tables(plan.folder / "corpus"), given)
    if plan.scale == "paper":
        raise ConfigError("study successors has the scales smoke and laptop; the originals took weeks of many GPUs")
    if not given:
        raise ConfigError(f"study successors --scale laptop needs a recipe that names data; {_RECIPE} has one")
    return given


def _names(tables: Tables, row: str, key: str) -> list[str]:
    """The files of a key of [data]."""
    data = tables.get("data", {})
    names = data.get(key, ()) if isinstance(data, Mapping) else ()
    names = [names] if isinstance(names, str) else names
    if not names:
        raise ConfigError(f"{row}.data.{key} names no file; {_RECIPE} has an example")
    return [str(path) for name in names for path in match_files(Path(str(data.get("folder", ""))), name)]


_SENTENCES, _TAGGED, _PAIRS, _VALID = 2000, 5, 600, 150
_PICTURES = 600
_NETWORK = {"d_model": 64, "d_ff": 128, "num_heads": 4, "dropout": 0.05}
_STACKS = {**_NETWORK, "encoder_layers": 1, "decoder_layers": 1}


def _make_smoke_tables(folder: Path) -> Tables:
    """Write a small corpus of each kind, and the tables of trainings of seconds."""
    plain, valid = synthetic.pairs(_SENTENCES, 0), synthetic.pairs(_VALID, 1)
    few = synthetic.pairs(_PAIRS, 2)
    if not (folder / "t10k-labels-idx1-ubyte").exists():  # the last file to be written
        folder.mkdir(parents=True, exist_ok=True)
        for name, some in (("plain", plain), ("few", few), ("valid", valid)):
            write_atomically(folder / f"{name}.en", "".join(f"{pair.source}\n" for pair in some))
            write_atomically(folder / f"{name}.xx", "".join(f"{pair.target}\n" for pair in some))
        synthetic.write_tags(folder / "few.tags", [pair.source for pair in few[:_TAGGED]])
        synthetic.write_tags(folder / "valid.tags", [pair.source for pair in valid])
        synthetic.write_shapes(folder, "train", _PICTURES, 3)
        synthetic.write_shapes(folder, "t10k", _VALID, 4)
    english, both = str(folder / "plain.en"), [str(folder / "plain.en"), str(folder / "plain.xx")]
    words: Tables = {"text": {"kind": "words", "vocabulary_size": 600, "bpe_dropout": 0.0}}
    pairs = {"source": "few.en", "target": "few.xx", "valid_source": "valid.en", "valid_target": "valid.xx"}
    tags = {"source": "few.tags", "valid_source": "valid.tags"}
    return {
        "gpt": {
            "data": {"text": english},
            "model": {**_NETWORK, "decoder_layers": 2, "max_positions": 64},
            "train": _plan_training(200, 1024),
        },
        "bert-pretraining": {
            "data": {"text": english},
            "model": {**_NETWORK, "encoder_layers": 2, "max_positions": 64},
            "train": _plan_training(750, 1024),
            **words,
        },
        "bert": {
            "data": {"folder": str(folder), **tags},
            "model": {**_NETWORK, "encoder_layers": 2, "max_positions": 64},
            "train": _plan_training(100, 128),
            **words,
        },
        "t5-pretraining": {
            "data": {"text": both},
            "model": {"preset": "t5", **_STACKS},
            "train": _plan_training(750, 1024),
            **words,
        },
        "t5": {
            "data": {"folder": str(folder), **pairs},
            "model": {"preset": "t5", **_STACKS},
            "train": _plan_training(600, 512),
            **words,
        },
        "vit": {
            "data": {"images": str(folder), "valid_images": str(folder / "t10k-images-idx3-ubyte"), "shift": 0},
            "model": {**_NETWORK, "encoder_layers": 2, "patch_size": 4},
            "train": _plan_training(200, 64 * synthetic.PICTURE_SIDE**2),
        },
    }


def _plan_training(steps: int, batch: int) -> Tables:
    return {
        **{"max_steps": steps, "batch_tokens": batch, "warmup_steps": steps // 10, "threads": 1, "patience": 0},
        **{"validate_every": steps // 2, "save_every": steps // 2, "dropout_warmup": 0},
    }

"""Train the rows of a table, score them, and count what their training cost; or only list them, in a dry run."""

import json
import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import Experiment, differences, dump_experiment
from heedful.data.batch import Batching, epoch_batches
from heedful.data.corpus import Corpus
from heedful.device import choose_device, use_threads
from heedful.errors import ConfigError, FolderError, HeedfulError, counted
from heedful.evaluation.evaluate import evaluate_translator
from heedful.metrics import Score
from heedful.models.flops import training_flops
from heedful.models.size import model_size
from heedful.storage.files import read_json, write_atomically
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.studies.rows import CorpusFacts, TableRow
from heedful.studies.study import StudyInterrupted, StudyPlan, StudyResult, Table
from heedful.tasks import Question, ScoringOptions, find_task
from heedful.training import run as training_run
from heedful.training.events import STOP_SIGNALS, Event, Finished, StepDone, Validated
from heedful.training.model_selection import compute_validation_loss
from heedful.translation.translator import Translator

# Keys that say where a row is trained; they do not change its result.
_PLACE = ("train.threads", "train.device", "train.timeout_minutes")
_SECONDS_BETWEEN_LOOKS = 0.2


def row_folder(row: TableRow, plan: StudyPlan) -> Path:
    """The run folder of a row."""
    return plan.folder / "rows" / row.name


def train_row(row: TableRow, plan: StudyPlan) -> RunFolder:
    """Train the row in its own run folder, or resume it, unless it is finished.

    A signal saves a checkpoint and raises `StudyInterrupted`.
    """
    if came := plan.interrupted():
        raise StudyInterrupted(came)
    run = RunFolder(row_folder(row, plan))
    if (run.path / "experiment.toml").exists():
        _check_same(run, row)
        if "finished" in run.about():
            plan.report.say(f"{row.name}: already trained")
            return run
    plan.report.say(f"{row.name}: training in {run.path}")
    if plan.processes > 1:
        _train_elsewhere(row, plan)
    else:
        _follow(_events(run, row, plan), row, plan)
    return run


def command(row: TableRow, plan: StudyPlan) -> str:
    """The command that trains this row alone, from the recipe that `write_recipe` writes."""
    parts = [*_launcher(plan), *_arguments(row, plan)]
    return shlex.join(parts)


def write_recipe(row: TableRow, plan: StudyPlan) -> Path:
    """Write the complete experiment of a row as a recipe."""
    path = plan.folder / "recipes" / f"{row.name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, dump_experiment(row.experiment))
    return path


def _check_same(run: RunFolder, row: TableRow) -> None:
    for key, before, now in differences(run.experiment(), row.experiment):
        if key not in _PLACE:
            raise FolderError(
                f"{run.path} was trained with {key} = {before}, but now it is {now}; "
                "choose another --out, or remove that folder to train the row again"
            )


def _events(run: RunFolder, row: TableRow, plan: StudyPlan) -> Iterator[Event]:
    train = row.experiment.train
    if (run.path / "experiment.toml").exists():
        here = {"threads": train.threads, "device": train.device, "timeout_minutes": train.timeout_minutes}
        return training_run.resume_run(run.path, {"train": here}, plan.report, plan.interrupted)
    RunFolder.create(run.path)
    total = sum(1 for _ in find_task(row.experiment.task).read_pairs(row.experiment.data))
    return training_run.start_run(run, row.experiment, total, plan.report, plan.interrupted)


def _follow(events: Iterator[Event], row: TableRow, plan: StudyPlan) -> None:
    reason = ""
    for event in events:
        match event:
            case StepDone():
                plan.report.progress(f"training {row.name}", event.step, row.experiment.train.max_steps)
            case Validated():
                score = "" if event.score is None else f", {event.metric} {event.score:.2f}"
                plan.report.say(f"{row.name}, step {event.step}: perplexity {event.perplexity:.2f}{score}")
            case Finished():
                reason = event.reason
    if reason in STOP_SIGNALS:
        raise StudyInterrupted(reason)


def _launcher(plan: StudyPlan) -> list[str]:
    if plan.processes == 1:
        return ["heedful"]
    return ["torchrun", "--standalone", "--nproc-per-node", str(plan.processes), "-m", "heedful"]


def _arguments(row: TableRow, plan: StudyPlan) -> list[str]:
    folder = row_folder(row, plan)
    if (folder / "experiment.toml").exists():
        return ["train", "--resume", str(folder)]
    return ["train", str(plan.folder / "recipes" / f"{row.name}.toml"), "--out", str(folder)]


def _train_elsewhere(row: TableRow, plan: StudyPlan) -> None:
    """Train with torchrun in separate processes, such as one for each GPU."""
    write_recipe(row, plan)
    launcher = [sys.executable, "-m", "torch.distributed.run", *_launcher(plan)[1:]]
    # In their own process group, Ctrl-C reaches them only once; a second signal would stop them before they save.
    with subprocess.Popen([*launcher, *_arguments(row, plan)], start_new_session=True) as child:  # noqa: S603
        try:
            while child.poll() is None and not plan.interrupted():
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            came = plan.interrupted()
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
    if came:
        raise StudyInterrupted(came)
    if "finished" not in RunFolder(row_folder(row, plan)).about():
        raise HeedfulError(
            f"the training of {row.name} ended with exit code {child.returncode}; see above. "
            "The same command resumes it"
        )


_FILE = "scored.json"


@dataclass(frozen=True, slots=True)
class RowScores:
    """Outputs in the order of the test set, their scores, and the validation perplexity per piece."""

    outputs: tuple[str, ...]
    scores: tuple[Score, ...]
    perplexity: float | None

    def score(self, metric: str) -> Score:
        """The score of this metric."""
        return next(score for score in self.scores if score.metric == metric)


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The cost of a training, read from its log."""

    parameters: int
    flops: float
    tokens_per_second: float
    curve: tuple[tuple[float, float], ...]  # (FLOPs so far, validation score)


def read_test_questions(study: str, experiment: Experiment) -> list[Question]:
    """Read the test set that the recipe names."""
    data = experiment.data
    if not data.test_source:
        raise ConfigError(f"study {study} needs a test set, but the recipe names none; set data.test_source")
    return find_task(experiment.task).read_questions(data.test_source, [data.test_target] if data.test_target else [])


def read_validation_questions(run: RunFolder) -> list[Question]:
    """Read the validation pairs as a test set, as in Table 3 of the paper."""
    return find_task(run.experiment().task).make_questions(read_valid_pairs(run))


def score_row(run: RunFolder, asked: Sequence[Question], plan: StudyPlan) -> RowScores:
    """Translate and score the test set with the run's model, or read the scores of an earlier run."""
    experiment = run.experiment()
    key = sha256(repr((asked, experiment.search, experiment.evaluate)).encode()).hexdigest()
    if kept := _kept(run, key):
        return kept
    plan.report.say(f"{run.path.name}: scoring on {counted(len(asked), 'sentence')}")
    use_threads(experiment.train.threads)
    translator = Translator.on_device(run, choose_device(experiment.train.device))
    scoring = ScoringOptions(experiment.evaluate.tokenize, experiment.data.target_language)
    found = evaluate_translator(translator, asked, experiment.search, scoring, plan.report)
    scored = RowScores(found.outputs, found.scores, _perplexity(run, translator))
    write_atomically(run.path / _FILE, json.dumps({"of": key, **asdict(scored)}, indent=1, ensure_ascii=False))
    return scored


def count_training_cost(run: RunFolder) -> TrainingCost:
    """Count FLOPs over the actual sentence lengths of an epoch, times the number of epochs."""
    model, vocabulary = run.experiment().model, run.tokenizers().vocabulary
    source, target = Corpus(run.data / "train-0").lengths()
    a_token = training_flops(model, vocabulary.target, source, target) / (int(source.sum()) + int(target.sum()))
    steps = run.read_events("StepDone")
    tokens = np.cumsum([step["tokens"] for step in steps])
    seconds = sum(step["tokens"] / step["tokens_per_second"] for step in steps)
    so_far = {step["step"]: float(a_token * count) for step, count in zip(steps, tokens, strict=True)}
    return TrainingCost(
        model_size(model, vocabulary.source, vocabulary.target).total,
        float(a_token * tokens[-1]),
        float(tokens[-1] / seconds),
        tuple(
            (so_far[look["step"]], look["score"])
            for look in run.read_events("Validated")
            if look["score"] is not None and look["step"] in so_far
        ),
    )


def _perplexity(run: RunFolder, translator: Translator) -> float | None:
    if not (run.data / "valid").exists():
        return None
    corpus = Corpus(run.data / "valid")
    return math.exp(compute_validation_loss(translator.model, corpus, run.experiment().train.batch_tokens))


def _kept(run: RunFolder, key: str) -> RowScores | None:
    if not (run.path / _FILE).exists():
        return None
    found: Any = read_json(run.path / _FILE)
    match found:
        case {"of": str(of), "outputs": list(outputs), "scores": list(scores), "perplexity": perplexity}:
            known = RowScores(tuple(outputs), tuple(Score(**score) for score in scores), perplexity)
            return known if of == key else None
    raise FolderError(f"{run.path / _FILE} is damaged; delete it, and the row will be scored again")


SMOKE_NOTE = (
    "Smoke scale trains tiny models for seconds on artificial sentences. It shows that everything runs, but its "
    "figures mean nothing."
)

# Shared by all smoke trainings, which take a few seconds on one thread.
SMOKE: Mapping[str, Any] = {
    "text": {"kind": "words", "vocabulary_size": 600},
    "train": {
        "batch_tokens": 1024,
        "schedule": "cosine",
        "learning_rate": 0.004,
        "clip_norm": 1.0,
        "average_checkpoints": 1,
        "validate_bleu": False,
        "threads": 1,
    },
    "search": {"beam": 2, "max_extra": 5},
    "evaluate": {"tokenize": "none"},
}


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """A trained row with its scores and cost."""

    row: TableRow
    run: RunFolder
    scored: RowScores
    effort: TrainingCost


def finish_rows(
    rows: Iterable[TableRow], asked: Callable[[RunFolder], Sequence[Question]], plan: StudyPlan
) -> list[FinishedRow]:
    """Train and score the rows one after another, so that an interruption loses little."""
    done = []
    for row in rows:
        run = train_row(row, plan)
        done.append(FinishedRow(row, run, score_row(run, asked(run), plan), count_training_cost(run)))
    return done


def pick_bleu(scored: RowScores, plan: StudyPlan) -> Score:
    """The paper's BLEU at paper scale, and the recipe's otherwise."""
    return scored.score("BLEU (paper)" if plan.scale == "paper" else "BLEU")


def format_interval(score: Score) -> str:
    """The 95 % interval as text."""
    return f"{score.low:.2f} to {score.high:.2f}"


def make_caveat(plan: StudyPlan) -> str:
    """The warning before a table at smoke scale; empty at other scales."""
    return SMOKE_NOTE if plan.scale == "smoke" else ""


def smoke_data(plan: StudyPlan) -> dict[str, str]:
    """The files of the small language, in the study's folder."""
    sides = (("source", "en"), ("target", "xx"))
    parts = (("", "train"), ("valid_", "valid"), ("test_", "test"))
    files = {f"{part}{side}": f"{name}.{suffix}" for part, name in parts for side, suffix in sides}
    return {"folder": str(plan.folder / "data"), **files}


_SENTENCE = 28  # approximate number of pieces in a sentence of WMT 2014


def dry_run(title: str, rows: Sequence[TableRow], material: CorpusFacts, plan: StudyPlan) -> StudyResult:
    """List the rows, their cost and the command of each, and write the recipes that the commands name."""
    costs = [_cost(row, material) for row in rows]
    table = Table(
        title,
        ("row", "parameters", "steps", "tokens", "training FLOPs"),
        tuple((row.name, *cost) for row, cost in zip(rows, costs, strict=True)),
        (_note(material),),
    )
    for row in rows:
        write_recipe(row, plan)
    commands = Table(
        "The command of each row", ("row", "command"), tuple((row.name, command(row, plan)) for row in rows)
    )
    return StudyResult(f"{title}: a dry run", (table, commands))


def _cost(row: TableRow, material: CorpusFacts) -> tuple[int, int, float, float]:
    """Count parameters, steps, tokens on both sides, and FLOPs."""
    model, train = row.experiment.model, row.experiment.train
    size = model_size(model, material.source, material.target).total
    if material.lengths is None:
        pairs = train.max_steps * train.batch_tokens / _SENTENCE
        one = np.array([_SENTENCE])
        return size, train.max_steps, 2.0 * pairs * _SENTENCE, pairs * training_flops(model, material.target, one, one)
    source, target = material.lengths
    batches = len(epoch_batches(source, target, Batching(train.batch_tokens, row.experiment.seed), 0))
    epochs = train.max_steps / batches
    tokens = epochs * (int(source.sum()) + int(target.sum()))
    return size, train.max_steps, tokens, epochs * training_flops(model, material.target, source, target)


def _note(material: CorpusFacts) -> str:
    counted = f"The vocabularies have {material.source} source and {material.target} target pieces."
    if material.lengths is None:
        return (
            f"The text is not on this machine. FLOPs assume full batches of sentences with {_SENTENCE} pieces on each "
            f"side, and sizes assume text.vocabulary_size. {counted}"
        )
    return f"FLOPs are counted over the actual lengths of all {len(material.lengths[0])} pairs. {counted}"

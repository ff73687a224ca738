"""Train the rows of a table, score them, and count what their training cost."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from heedful.config import Experiment
from heedful.data.corpus import Corpus
from heedful.device import choose_device, use_threads
from heedful.errors import ConfigError, FolderError
from heedful.evaluation.evaluate import evaluate_translator
from heedful.metrics import Score
from heedful.models.flops import training_flops
from heedful.models.size import model_size
from heedful.storage.files import read_json, write_atomically
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.studies.row_training import train_row
from heedful.studies.rows import TableRow
from heedful.studies.study import StudyPlan
from heedful.tasks import Question, ScoringOptions, find_task
from heedful.training.model_selection import compute_validation_loss
from heedful.translation.translator import Translator

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
        raise ConfigError(f"study {study} scores a test set, but the recipe names none; set data.test_source")
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
    plan.report.say(f"{run.path.name}: scoring on {len(asked)} sentences")
    use_threads(experiment.train.threads)
    translator = Translator.on_device(run, choose_device(experiment.train.device))
    scoring = ScoringOptions(experiment.evaluate.tokenize, experiment.data.target_language)
    found = evaluate_translator(translator, asked, experiment.search, scoring, plan.report)
    scored = RowScores(found.outputs, found.scores, _perplexity(run, translator))
    write_atomically(run.path / _FILE, json.dumps({"of": key, **asdict(scored)}, indent=1, ensure_ascii=False))
    return scored


def count_training_cost(run: RunFolder) -> TrainingCost:
    """Count FLOPs over the real sentence lengths of an epoch, times the number of epochs."""
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
    raise FolderError(f"{run.path / _FILE} is damaged; remove it, and the row is scored again")


SMOKE_NOTE = (
    "Smoke scale trains tiny models for seconds on artificial sentences: it shows that everything runs; its figures "
    "mean nothing."
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
    """Choose the paper's BLEU at paper scale, and the recipe's otherwise."""
    return scored.score("BLEU (paper)" if plan.scale == "paper" else "BLEU")


def format_interval(score: Score) -> str:
    """Write the 95 % interval."""
    return f"{score.low:.2f} to {score.high:.2f}"


def make_notes(plan: StudyPlan, *more: str) -> tuple[str, ...]:
    """Notes below a table, with a warning at smoke scale."""
    return (SMOKE_NOTE, *more) if plan.scale == "smoke" else more


def smoke_data(plan: StudyPlan) -> dict[str, str]:
    """The files of the small language, in the study's folder."""
    sides = (("source", "en"), ("target", "xx"))
    parts = (("", "train"), ("valid_", "valid"), ("test_", "test"))
    files = {f"{part}{side}": f"{name}.{suffix}" for part, name in parts for side, suffix in sides}
    return {"folder": str(plan.folder / "data"), **files}

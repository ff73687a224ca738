"""The rows of a table, trained and scored one after another."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.metrics.score import Score
from heedful.storage.run_folder import RunFolder
from heedful.studies.experiments import Row
from heedful.studies.plan import Plan
from heedful.studies.row_scores import Effort, Scored, effort, score_row
from heedful.studies.row_training import train_row
from heedful.tasks.choose import Question

SMOKE_NOTE = (
    "Smoke trains tiny models for seconds on made-up sentences: it shows that all works, its figures mean nothing."
)

# What all smoke trainings have in common: a few seconds on one thread.
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
class Done:
    """A row, how good it is and what it took."""

    row: Row
    run: RunFolder
    scored: Scored
    effort: Effort


def done_rows(rows: Iterable[Row], asked: Callable[[RunFolder], Sequence[Question]], plan: Plan) -> list[Done]:
    """Each row is trained and scored before the next one begins, so that an interruption loses little."""
    done = []
    for row in rows:
        run = train_row(row, plan)
        done.append(Done(row, run, score_row(run, asked(run), plan), effort(run)))
    return done


def bleu_of(scored: Scored, plan: Plan) -> Score:
    """The paper's own kind of BLEU where its numbers stand beside it, else what the recipe says."""
    return scored.score("BLEU (paper)" if plan.scale == "paper" else "BLEU")


def interval(score: Score) -> str:
    """In which the value lies with 95 % certainty."""
    return f"{score.low:.2f} to {score.high:.2f}"


def notes(plan: Plan, *more: str) -> tuple[str, ...]:
    """What to say below a table."""
    return (SMOKE_NOTE, *more) if plan.scale == "smoke" else more


def smoke_data(plan: Plan) -> dict[str, str]:
    """The files of the small language, in the study's folder."""
    sides = (("source", "en"), ("target", "xx"))
    parts = (("", "train"), ("valid_", "valid"), ("test_", "test"))
    files = {f"{part}{side}": f"{name}.{suffix}" for part, name in parts for side, suffix in sides}
    return {"folder": str(plan.folder / "data"), **files}

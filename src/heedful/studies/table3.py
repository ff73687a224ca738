"""Table 3: variations of the architecture, one row for each change of the base model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from heedful.config import PRESETS, Experiment, ModelConfig, merge
from heedful.studies.row_training import (
    SMOKE,
    FinishedRow,
    dry_run,
    finish_rows,
    format_interval,
    make_caveat,
    pick_bleu,
    read_validation_questions,
    smoke_data,
)
from heedful.studies.rows import TableRow, collect_corpus_facts, load_experiment, make_row, select_rows
from heedful.studies.study import Cell, Scale, StudyPlan, StudyResult, Table
from heedful.studies.synthetic import write_corpus

_TITLE = "Table 3: variations of the architecture"
_SMOKE_SIZES = (60, 8, 8)
_PREFIX = "table3-"
FACTORS: Mapping[Scale, Fraction] = {"smoke": Fraction(1, 16), "laptop": Fraction(1, 4), "paper": Fraction(1)}
_WIDTHS = ("d_model", "d_ff", "d_k", "d_v")
_BIG_STEPS = 3  # relative to the other rows

# Perplexity per word-piece and BLEU on newstest2013, parameters in millions where the paper prints them.
_PAPER: Mapping[str, tuple[float, float, int | None]] = {
    "base": (4.92, 25.8, 65),
    "A-h1": (5.29, 24.9, None),
    "A-h4": (5.00, 25.5, None),
    "A-h16": (4.91, 25.8, None),
    "A-h32": (5.01, 25.4, None),
    "B-dk16": (5.16, 25.1, 58),
    "B-dk32": (5.01, 25.4, 60),
    "C-N2": (6.11, 23.7, 36),
    "C-N4": (5.19, 25.3, 50),
    "C-N8": (4.88, 25.5, 80),
    "C-d256": (5.75, 24.5, 28),
    "C-d1024": (4.66, 26.0, 168),
    "C-ff1024": (5.12, 25.4, 53),
    "C-ff4096": (4.75, 26.2, 90),
    "D-dropout0": (5.77, 24.6, None),
    "D-dropout0.2": (4.95, 25.5, None),
    "D-smoothing0": (4.67, 25.3, None),
    "D-smoothing0.2": (5.47, 25.7, None),
    "E-learned": (4.92, 25.7, None),
    "big": (4.33, 26.4, 213),
}


def table3(plan: StudyPlan) -> StudyResult:
    """Train and score all rows, each scaled by the same factor."""
    if plan.scale == "smoke":
        write_corpus(plan.folder / "data", _SMOKE_SIZES, clauses=(1,))
    experiment = load_experiment("table3", plan, _smoke(plan), "recipes/multi30k-de-en.toml")
    found = collect_corpus_facts(experiment, plan)
    rows = select_rows(scaled_rows(experiment, FACTORS[plan.scale]), plan)
    if plan.dry_run:
        return dry_run(_TITLE, rows, found, plan)
    done = finish_rows(rows, read_validation_questions, plan)
    return StudyResult(_TITLE, (_table(done, plan),))


def scaled_rows(experiment: Experiment, factor: Fraction) -> Iterator[TableRow]:
    """Make all rows: the paper's network with its widths scaled by `factor`; the rest comes from the recipe."""
    for name in _PAPER:
        preset = name if name in PRESETS else _PREFIX + name
        changes = PRESETS[preset]
        network: dict[str, Any] = asdict(ModelConfig()) | {"preset": preset} | dict(changes.get("model", {}))
        network["sharing"] = experiment.model.sharing  # depends on the recipe's vocabularies
        for key in _WIDTHS:
            network[key] = int(network[key] * factor)
        # Section 6.2: no checkpoint averaging here, not even for big.
        train: dict[str, Any] = {**changes.get("train", {}), "average_checkpoints": 1, "ema_decay": 0.0}
        if name == "big":
            train["max_steps"] = _BIG_STEPS * experiment.train.max_steps
        yield make_row(name, experiment, {"model": network, "train": train})


def _smoke(plan: StudyPlan) -> dict[str, Any]:
    train = {"max_steps": 6, "warmup_steps": 2, "batch_tokens": 256, "validate_every": 1000, "save_every": 1000}
    return merge(SMOKE, {"data": smoke_data(plan), "train": train})


def _table(done: Sequence[FinishedRow], plan: StudyPlan) -> Table:
    columns = (
        *("row", "PPL", "BLEU", "95 % interval", "parameters"),
        *("the paper's PPL", "its BLEU", "its parameters (M)"),
    )
    rows: list[tuple[Cell, ...]] = []
    for one in done:
        score = pick_bleu(one.scored, plan)
        ours = (one.scored.perplexity, score.value, format_interval(score), one.effort.parameters)
        rows.append((one.row.name, *ours, *_PAPER[one.row.name]))
    return Table(
        _TITLE,
        columns,
        tuple(rows),
        (
            f"Widths (d_model, d_ff, d_k, d_v) are {FACTORS[plan.scale]} of the paper's. Heads, layers, dropout and "
            "smoothing are the paper's, and there is no averaging. Everything else comes from the recipe. "
            f"Big trains {_BIG_STEPS} times as long, as in the paper.",
            "Perplexity per piece and BLEU are measured on the validation pairs; in the paper, on newstest2013.",
        ),
        make_caveat(plan),
    )

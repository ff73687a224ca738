"""Why each part of the Transformer is there: the rest is trained without it, on the same data by the same loop."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import Experiment, make_experiment, merge
from heedful.errors import ConfigError
from heedful.progress import Reporter
from heedful.storage.files import MANIFEST, sha256
from heedful.studies import synthetic
from heedful.studies.ablation_list import PARTS, POSITIONS, WHOLE, Part
from heedful.studies.ablation_measures import Material
from heedful.studies.ablation_row import Row
from heedful.studies.ablation_training import make_row
from heedful.studies.charts import Series, can_draw, lines
from heedful.studies.corpus_facts import prepared_text
from heedful.studies.experiments import check_recipe
from heedful.studies.outcome import Cell, Outcome, Table
from heedful.studies.plan import Plan
from heedful.training.prepare import Prepared, resolve_files

# One layer a side learns the small language in seconds. One thread: small matrices gain nothing from more, and the
# numbers are the same on every number of cores.
_SMOKE: dict[str, Any] = {
    "text": {"kind": "words", "vocabulary_size": 1000},
    "model": {
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.05,
    },
    "train": {
        "batch_tokens": 250,
        "max_steps": 600,
        "schedule": "cosine",
        "learning_rate": 0.006,
        "warmup_steps": 50,
        "clip_norm": 1.0,
        "threads": 1,
    },
    "search": {"max_extra": 10},
    "evaluate": {"tokenize": "none"},
}
_SMOKE_PAIRS = (6000, 200, 0)  # to train on, for validation, for a test
_SMOKE_CLAUSES = (1, 1, 1, 2)  # of a sentence
_SMOKE_ORDERS = ("the cat sees the dog", "the dog sees the cat")
_FEW_PIECES = 5  # the order of fewer shows little
_FACTORS = (0.5, 1.0, 1.25, 1.5, 2.0)  # of the longest source in training, where the scores by length are cut

Rows = Sequence[tuple[Part, Row]]


def parts(plan: Plan) -> Outcome:
    """One row for each part taken out or changed; rows that are there already are not trained again."""
    base = _experiment(plan)
    everything = _prepared(plan.folder / "data", base, plan.report)
    # The shorter half: what is longer was never seen.
    source, target = everything.train[0].lengths()
    longest = int(np.median(np.maximum(source, target)))
    short = replace(base, data=replace(base.data, max_length=longest))
    shorter = _prepared(plan.folder / "data-short", short, plan.report)
    limits = _limits(longest, everything)
    orders = _orders(plan, everything)
    chosen = [part for part in (WHOLE, *PARTS) if part is WHOLE or part.differs(base)]
    total = len(chosen) + len(POSITIONS)

    def row(number: int, part: Part, experiment: Experiment, prepared: Prepared, folder: Path) -> tuple[Part, Row]:
        plan.report.say(f"row {number} of {total}: {part.changed} ({part.name})")
        material = Material(prepared, sha256(folder / "data" / MANIFEST), orders, limits)
        return part, make_row(part, experiment, material, plan.folder / "rows" / f"{part.name}.json", plan)

    rows = [row(number, part, base, everything, plan.folder / "data") for number, part in enumerate(chosen, 1)]
    carried = [
        row(number, part, short, shorter, plan.folder / "data-short")
        for number, part in enumerate(POSITIONS, len(rows) + 1)
    ]
    tables = (_table(rows), _laws(rows), _lengths(carried, longest))
    return Outcome("Why each part is there", tables, _pictures(rows, carried, longest))


def _experiment(plan: Plan) -> Experiment:
    """What the whole model is, and how it is trained."""
    if plan.scale == "smoke":
        corpus = plan.folder / "corpus"
        synthetic.write_corpus(corpus, _SMOKE_PAIRS, _SMOKE_CLAUSES)
        names = {"source": "train.en", "target": "train.xx", "valid_source": "valid.en", "valid_target": "valid.xx"}
        data = {key: str(corpus / name) for key, name in names.items()}
        experiment = make_experiment(merge(_SMOKE, plan.recipe or {}, {"data": data}))
    elif plan.recipe is None:
        raise ConfigError(
            f"study parts --scale {plan.scale} needs a recipe; give one, such as recipes/multi30k-en-de.toml"
        )
    else:
        experiment = make_experiment(plan.recipe)
        experiment = replace(experiment, data=resolve_files(experiment.data))
    check_recipe("parts", experiment, "recipes/multi30k-en-de.toml")
    return experiment


def _prepared(folder: Path, experiment: Experiment, report: Reporter) -> Prepared:
    prepared = prepared_text(folder, experiment, report)
    if not prepared.valid:
        raise ConfigError("study parts needs validation pairs; set data.valid_source, or data.hold_out to a number")
    return prepared


def _limits(longest: int, prepared: Prepared) -> tuple[int, ...]:
    """Where scores by length are cut, the longest validation sentence included."""
    most = max(map(len, prepared.tokenizers.source.encode_all([pair.source for pair in prepared.valid_pairs])))
    return tuple(sorted({round(factor * longest) for factor in _FACTORS if factor * longest < most} | {most}))


def _orders(plan: Plan, prepared: Prepared) -> tuple[list[int], list[int]]:
    """The same pieces in two orders: two sentences of the small language, or one of the user's and its reverse."""
    tokenizer = prepared.tokenizers.source
    if plan.scale == "smoke":
        first, second = map(tokenizer.encode, _SMOKE_ORDERS)
        return first, second
    known = tokenizer.encode_all([pair.source for pair in prepared.valid_pairs])
    shortest = min((ids for ids in known if len(ids) > _FEW_PIECES), key=len, default=known[0])
    *pieces, end = shortest
    return shortest, [*reversed(pieces), end]


def _table(rows: Rows) -> Table:
    (_, whole), *_ = rows
    shown = tuple(
        (
            part.name,
            part.changed,
            row.training_loss,
            row.validation_loss,
            row.perplexity,
            row.bleu,
            row.exact,
            part.verdict(row, whole),
        )
        for part, row in rows
    )
    columns = ("row", "changed", "training loss", "validation loss", "perplexity", "BLEU", "exact %", "what broke")
    return Table(
        "The parts",
        columns,
        shown,
        (
            f"All rows: the same data, loop, seed and {whole.steps} updates. Losses are per target token; the training "
            "loss is that of the last tenth of the updates, above the least that label smoothing allows. BLEU and "
            "exact sentences are of greedy translations of the validation pairs.",
            "One seed a row: differences of a few points may be chance.",
        ),
    )


def _laws(rows: Rows) -> Table:
    """What the sentences on word order and on padding rest on."""
    first, second = (text for text, _ in rows[0][1].orders)
    shown: list[tuple[Cell, ...]] = []
    for part, row in rows:
        if part.name in ("whole", "no-positions", "no-padding-mask"):
            (_, one), (_, other) = row.orders
            batches = (row.together_changed, row.alone_bleu, row.together_bleu)
            shown.append((part.name, row.orders_differ, one, other, *batches))
    columns = ("row", "memory differs by", f"'{first}'", f"'{second}'", "changed %", "BLEU alone", "BLEU together")
    note = (
        "Memory: the same pieces in two orders, the encoder's output compared piece by piece. Changed: translations "
        "that are others in one batch with a longer sentence than among others of their length."
    )
    return Table("Word order, and neighbours in a batch", columns, tuple(shown), (note,))


def _lengths(rows: Rows, longest: int) -> Table:
    limits = [(int(limit), int(count)) for limit, count, _ in rows[0][1].by_length]
    columns = ("positions", *(f"up to {limit} ({count} sentences)" for limit, count in limits))
    shown: list[tuple[Cell, ...]] = [(part.changed, *(score for _, _, score in row.by_length)) for part, row in rows]
    note = f"Trained on the pairs of at most {longest} pieces a side alone; BLEU by the length of the source in pieces."
    return Table("Past the lengths seen in training", columns, tuple(shown), (note,))


def _pictures(rows: Rows, carried: Rows, longest: int) -> dict[str, bytes]:
    if not can_draw():
        return {}
    curves = [Series(part.name, *_points(row)) for part, row in rows]
    lengths = [
        Series(part.changed, [limit for limit, *_ in row.by_length], [score for *_, score in row.by_length])
        for part, row in carried
    ]
    return {
        "curves.svg": lines("Learning without a part", "update", "validation loss", curves, log_y=True),
        "lengths.svg": lines(f"Trained up to {longest} pieces", "source pieces, up to", "BLEU", lengths),
    }


def _points(row: Row) -> tuple[list[float], list[float]]:
    known = [(step, loss) for step, loss in row.curve if step is not None and loss is not None]
    return [step for step, _ in known], [loss for _, loss in known]

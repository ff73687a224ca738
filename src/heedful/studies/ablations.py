"""Show what each part of the Transformer is for: train it without the part, on the same data by the same loop."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import Experiment, merge
from heedful.errors import ConfigError, counted
from heedful.progress import Reporter
from heedful.storage.files import MANIFEST, sha256
from heedful.studies import ablation_changes as changes
from heedful.studies import synthetic
from heedful.studies.ablation_training import Ablation, AblationData, AblationResult, Settings, make_row
from heedful.studies.charts import Series, can_draw, lines
from heedful.studies.rows import check_recipe, prepare_text
from heedful.studies.study import Cell, StudyPlan, StudyResult, Table
from heedful.tasks import make_experiment
from heedful.training.prepare import Prepared, resolve_files


def explain_complete(row: AblationResult, _: AblationResult) -> str:
    """Describe the complete model, which all others are compared with."""
    return f"{row.exact:.0f} % of the translations equal the reference"


def explain_compared(row: AblationResult, reference: AblationResult) -> str:
    """Describe the change in BLEU. One seed shows nothing smaller than a collapse."""
    now, before = row.bleu, reference.bleu
    if row.stopped:
        return f"training stopped: {row.stopped}; BLEU {now:.1f} against {before:.1f}"
    if now < before / 2:
        return f"it barely learns: BLEU {now:.1f} against {before:.1f}"
    return f"no clear effect with one seed: BLEU {now:.1f} against {before:.1f}"


def explain_positions(row: AblationResult, reference: AblationResult) -> str:
    """Say whether the encoder still knows the word order."""
    (first, one), (second, other) = row.orders
    same = "the same translation" if one == other else "different translations"
    moved = _number(row.orders_differ)
    return (
        f"{explain_compared(row, reference)}; '{first}' and '{second}' give the same memory up to {moved} "
        f"(complete: {_number(reference.orders_differ)}) and {same}"
    )


def explain_look_ahead(row: AblationResult, reference: AblationResult) -> str:
    """Say whether the model learned to copy the answer."""
    losses = (
        f"training loss {_number(row.training_loss)} (complete: {_number(reference.training_loss)}), validation loss "
        f"{_number(row.validation_loss)} (complete: {_number(reference.validation_loss)})"
    )
    if _less(row.validation_loss, reference.validation_loss) and row.bleu < reference.bleu / 2:
        return f"{losses}, but BLEU {row.bleu:.1f}: it learned to copy the answer"
    return f"{losses}; {explain_compared(row, reference)}"


def explain_padding(row: AblationResult, reference: AblationResult) -> str:
    """Say whether a translation depends on its neighbours in the batch."""
    changed = (
        f"{row.together_changed:.0f} % of the translations change in a batch with a longer sentence "
        f"(complete: {reference.together_changed:.0f} %)"
    )
    if row.together_changed <= reference.together_changed:
        return f"{changed}; {explain_compared(row, reference)}"
    return f"{changed}: BLEU {row.together_bleu:.1f}, against {row.alone_bleu:.1f} among sentences of equal length"


def explain_dropout(row: AblationResult, reference: AblationResult) -> str:
    """Say whether the model memorised the training text."""
    gap = (
        f"validation loss {_number(row.validation_loss)}, training loss {_number(row.training_loss)} "
        f"(complete: {_number(reference.validation_loss)} and {_number(reference.training_loss)})"
    )
    return f"{explain_compared(row, reference)}; {gap}"


def explain_smoothing(row: AblationResult, reference: AblationResult) -> str:
    """Compare perplexity and BLEU: the paper says that smoothing hurts the first and helps the second."""
    perplexity = f"perplexity {_number(row.perplexity)} against {_number(reference.perplexity)}"
    return f"{perplexity}; {explain_compared(row, reference)}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2g}"


def _less(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value < other


def _model(**values: object) -> Settings:
    return lambda _: {"model": values}


def _no_warmup(base: Experiment) -> Mapping[str, Any]:
    """Keep the learning rate after the warm-up as it was, and start at its peak."""
    config = base.train
    factor = max(1, config.warmup_steps) ** 0.5 if config.schedule == "inverse-sqrt" else 1.0
    return {"train": {"warmup_steps": 0, "learning_rate": factor * config.learning_rate}}


COMPLETE = Ablation("complete", "nothing", verdict=explain_complete)

ABLATIONS = (
    Ablation(
        "no-positions",
        "no positional encoding",
        change=changes.without_positions,
        verdict=explain_positions,
    ),
    Ablation("no-scale", "no 1/sqrt(d_k)", change=changes.without_scale, verdict=explain_compared),
    Ablation(
        "keys-as-queries",
        "one projection for queries and keys",
        change=changes.with_keys_as_queries,
        verdict=explain_compared,
    ),
    Ablation("no-residuals", "no residual connections", change=changes.without_residuals, verdict=explain_compared),
    Ablation("no-norm", "no layer norm", change=changes.without_norm, verdict=explain_compared),
    Ablation("pre-norm", "norm before each sub-layer", settings=_model(norm="pre"), verdict=explain_compared),
    Ablation("post-norm", "norm after each sub-layer", settings=_model(norm="post"), verdict=explain_compared),
    Ablation(
        "no-feed-forward", "no feed-forward network", change=changes.without_feed_forward, verdict=explain_compared
    ),
    Ablation(
        "one-head", "a single head of full width", settings=_model(num_heads=1, d_k=0, d_v=0), verdict=explain_compared
    ),
    Ablation(
        "no-look-ahead-mask",
        "the decoder sees later positions",
        change=changes.without_look_ahead_mask,
        verdict=explain_look_ahead,
    ),
    Ablation(
        "no-padding-mask",
        "padding is attended to",
        kind=changes.PaddedTransformer,
        verdict=explain_padding,
    ),
    Ablation("no-warm-up", "no warm-up: the rate starts at its peak", settings=_no_warmup, verdict=explain_compared),
    Ablation(
        "no-dropout",
        "no dropout",
        settings=_model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0),
        verdict=explain_dropout,
    ),
    Ablation(
        "no-label-smoothing",
        "no label smoothing",
        settings=lambda _: {"train": {"label_smoothing": 0.0}},
        verdict=explain_smoothing,
    ),
    Ablation(
        "untied",
        "separate source, target and output matrices",
        settings=_model(sharing="none"),
        verdict=explain_compared,
    ),
)

# These are trained on the shorter half of the pairs only.
POSITIONS = (
    Ablation("short-sinusoidal", "sinusoidal", settings=_model(positions="sinusoidal"), verdict=explain_compared),
    Ablation("short-learned", "learned", settings=_model(positions="learned"), verdict=explain_compared),
    Ablation("short-none", "none", change=changes.without_positions, verdict=explain_compared),
)


# One layer on each side learns the small language in seconds. One thread is enough for small matrices, and gives the
# same numbers on any number of cores.
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
_SMOKE_PAIRS = (6000, 200, 0)  # for training, validation and test
_SMOKE_CLAUSES = (1, 1, 1, 2)  # numbers of clauses in a sentence
_SMOKE_ORDERS = ("the cat sees the dog", "the dog sees the cat")
_FEW_PIECES = 5  # a shorter sentence says little about word order
_FACTORS = (0.5, 1.0, 1.25, 1.5, 2.0)  # boundaries of the length ranges, relative to the longest training source

Rows = Sequence[tuple[Ablation, AblationResult]]


def run_ablations(plan: StudyPlan) -> StudyResult:
    """Train one row for each part that is removed or changed; finished rows are not trained again."""
    base = _experiment(plan)
    everything = _prepared(plan.folder / "data", base, plan.report)
    # Training on these never sees a longer sentence.
    source, target = everything.train[0].lengths()
    longest = int(np.median(np.maximum(source, target)))
    short = replace(base, data=replace(base.data, max_length=longest))
    shorter = _prepared(plan.folder / "data-short", short, plan.report)
    limits = _limits(longest, everything)
    orders = _orders(plan, everything)
    chosen = [part for part in (COMPLETE, *ABLATIONS) if part is COMPLETE or part.differs(base)]
    total = len(chosen) + len(POSITIONS)

    def row(
        number: int, part: Ablation, experiment: Experiment, prepared: Prepared, folder: Path
    ) -> tuple[Ablation, AblationResult]:
        plan.report.say(f"row {number} of {total}: {part.changed} ({part.name})")
        material = AblationData(prepared, sha256(folder / "data" / MANIFEST), orders, limits)
        return part, make_row(part, experiment, material, plan.folder / "rows" / f"{part.name}.json", plan)

    rows = [row(number, part, base, everything, plan.folder / "data") for number, part in enumerate(chosen, 1)]
    carried = [
        row(number, part, short, shorter, plan.folder / "data-short")
        for number, part in enumerate(POSITIONS, len(rows) + 1)
    ]
    tables = (_table(rows), _laws(rows), _lengths(carried, longest))
    return StudyResult("Ablations: what each part is for", tables, _pictures(rows, carried, longest))


def _experiment(plan: StudyPlan) -> Experiment:
    """The experiment of the complete model."""
    if plan.scale == "smoke":
        corpus = plan.folder / "corpus"
        synthetic.write_corpus(corpus, _SMOKE_PAIRS, _SMOKE_CLAUSES)
        names = {"source": "train.en", "target": "train.xx", "valid_source": "valid.en", "valid_target": "valid.xx"}
        data = {key: str(corpus / name) for key, name in names.items()}
        experiment = make_experiment(merge(_SMOKE, plan.recipe or {}, {"data": data}))
    elif plan.recipe is None:
        raise ConfigError(
            f"study ablations --scale {plan.scale} needs a recipe; give one, such as recipes/multi30k-en-de.toml"
        )
    else:
        experiment = make_experiment(plan.recipe)
        experiment = replace(experiment, data=resolve_files(experiment.data))
    check_recipe("ablations", experiment, "recipes/multi30k-en-de.toml")
    return experiment


def _prepared(folder: Path, experiment: Experiment, report: Reporter) -> Prepared:
    prepared = prepare_text(folder, experiment, report)
    if not prepared.valid:
        raise ConfigError("study ablations needs validation pairs; set data.valid_source, or data.hold_out to a number")
    return prepared


def _limits(longest: int, prepared: Prepared) -> tuple[int, ...]:
    """Boundaries of the length ranges, up to the longest validation sentence."""
    most = max(map(len, prepared.tokenizers.source.encode_all([pair.source for pair in prepared.valid_pairs])))
    return tuple(sorted({round(factor * longest) for factor in _FACTORS if factor * longest < most} | {most}))


def _orders(plan: StudyPlan, prepared: Prepared) -> tuple[list[int], list[int]]:
    """The same pieces in two orders: two sentences of the small language, or one of yours and its reverse."""
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
    columns = ("row", "changed", "training loss", "validation loss", "perplexity", "BLEU", "exact %", "effect")
    return Table(
        "Ablations",
        columns,
        shown,
        (
            f"All rows use the same data, training loop, seed and {whole.steps} updates. Losses are per target token. "
            "The training loss is the mean of the last tenth of the updates, minus the minimum under label smoothing. "
            "BLEU and exact matches are of greedy translations of the validation pairs.",
        ),
        "Each row is one training with one seed, so only a collapse is called an effect: less than half the BLEU of "
        "the complete model. Other differences may be chance, in either direction, and a small model says little "
        "about parts that keep deep models trainable, such as norms and residual connections.",
    )


def _laws(rows: Rows) -> Table:
    """The figures behind the verdicts on word order and padding."""
    first, second = (text for text, _ in rows[0][1].orders)
    shown: list[tuple[Cell, ...]] = []
    for part, row in rows:
        if part.name in ("complete", "no-positions", "no-padding-mask"):
            (_, one), (_, other) = row.orders
            batches = (row.together_changed, row.alone_bleu, row.together_bleu)
            shown.append((part.name, row.orders_differ, one, other, *batches))
    columns = ("row", "memory differs by", f"'{first}'", f"'{second}'", "changed %", "BLEU alone", "BLEU together")
    note = (
        "Memory: the encoder outputs for the same pieces in two orders, compared piece by piece. Changed: translations "
        "that differ between a batch with a longer sentence and a batch of sentences of equal length."
    )
    return Table("Word order, and neighbours in the batch", columns, tuple(shown), (note,))


def _lengths(rows: Rows, longest: int) -> Table:
    limits = [(int(limit), int(count)) for limit, count, _ in rows[0][1].by_length]
    columns = ("positions", *(f"up to {limit} ({counted(count, 'sentence')})" for limit, count in limits))
    shown: list[tuple[Cell, ...]] = [(part.changed, *(score for _, _, score in row.by_length)) for part, row in rows]
    note = f"Trained only on pairs with at most {longest} pieces on each side. BLEU by length of the source in pieces."
    return Table("Beyond the lengths seen in training", columns, tuple(shown), (note,))


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


def _points(row: AblationResult) -> tuple[list[float], list[float]]:
    known = [(step, loss) for step, loss in row.curve if step is not None and loss is not None]
    return [step for step, _ in known], [loss for _, loss in known]

"""Show what each part of the Transformer is for: train it without the part, on the same data by the same loop."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import numpy as np

from heedful.config import Experiment, merge
from heedful.errors import ConfigError, counted
from heedful.progress import Reporter
from heedful.storage.files import MANIFEST, sha256
from heedful.studies import ablation_changes as changes
from heedful.studies import synthetic
from heedful.studies.ablation_training import Ablation, AblationData, AblationResult, Seeds, Settings, make_row
from heedful.studies.charts import Series, can_draw, lines
from heedful.studies.rows import check_recipe, prepare_text
from heedful.studies.study import Cell, StudyPlan, StudyResult, Table
from heedful.tasks import make_experiment
from heedful.training.prepare import Prepared, resolve_files

_ENOUGH_SEEDS = 3  # two seeds of each row are apart by chance once in three times


def explain_complete(rows: Seeds, _: Seeds) -> str:
    """Describe the complete model, which all others are compared with."""
    equal = f"{mean([row.exact for row in rows]):.0f} % of the translations equal the reference"
    return equal if len(rows) == 1 else f"{equal}; BLEU {_range(rows)}"


def explain_compared(rows: Seeds, complete: Seeds) -> str:
    """Describe the change in BLEU.

    One or two seeds show nothing smaller than a collapse. More seeds show a difference if all of them are on one side
    of all seeds of the complete model.
    """
    now, before = [row.bleu for row in rows], [row.bleu for row in complete]
    figures = f"BLEU {_range(rows)} against {_range(complete)}"
    several = len(rows) >= _ENOUGH_SEEDS
    stopped = [row.stopped for row in rows if row.stopped]
    if stopped:
        some = "" if len(stopped) == len(rows) else f" with {len(stopped)} of {len(rows)} seeds"
        return f"training stopped{some}: {stopped[0]}; {figures}"
    if max(now) < min(before) / 2:
        return f"it barely learns: {figures}"
    if several and max(now) < min(before):
        return f"worse with all {len(rows)} seeds: {figures}"
    if several and min(now) > max(before):
        return f"better with all {len(rows)} seeds: {figures}"
    return f"no clear effect with {'one seed' if len(rows) == 1 else counted(len(rows), 'seed')}: {figures}"


def explain_positions(rows: Seeds, complete: Seeds) -> str:
    """Say whether the encoder still knows the word order."""
    (first, _), (second, _) = rows[0].orders
    same = sum(one == other for (_, one), (_, other) in (row.orders for row in rows))
    if same == len(rows):
        translations = "the same translation"
    else:
        translations = "different translations" + (f" with {len(rows) - same} of {len(rows)} seeds" if same else "")
    return (
        f"{explain_compared(rows, complete)}; '{first}' and '{second}' give the same memory up to "
        f"{_mean(rows, 'orders_differ')} (complete: {_mean(complete, 'orders_differ')}) and {translations}"
    )


def explain_look_ahead(rows: Seeds, complete: Seeds) -> str:
    """Say whether the model learned to copy the answer."""
    losses = (
        f"training loss {_mean(rows, 'training_loss')} (complete: {_mean(complete, 'training_loss')}), validation loss "
        f"{_mean(rows, 'validation_loss')} (complete: {_mean(complete, 'validation_loss')})"
    )
    lower = all(_less(row.validation_loss, other.validation_loss) for row in rows for other in complete)
    if lower and max(row.bleu for row in rows) < min(other.bleu for other in complete) / 2:
        return f"{losses}, but BLEU {_range(rows)}: it learned to copy the answer"
    return f"{losses}; {explain_compared(rows, complete)}"


def explain_padding(rows: Seeds, complete: Seeds) -> str:
    """Say whether a translation depends on its neighbours in the batch."""
    changed = (
        f"{mean([row.together_changed for row in rows]):.0f} % of the translations change in a batch with a longer "
        f"sentence (complete: {mean([other.together_changed for other in complete]):.0f} %)"
    )
    if min(row.together_changed for row in rows) <= max(other.together_changed for other in complete):
        return f"{changed}; {explain_compared(rows, complete)}"
    together, alone = mean([row.together_bleu for row in rows]), mean([row.alone_bleu for row in rows])
    return f"{changed}: BLEU {together:.1f}, against {alone:.1f} among sentences of equal length"


def explain_dropout(rows: Seeds, complete: Seeds) -> str:
    """Say whether the model memorised the training text."""
    gap = (
        f"validation loss {_mean(rows, 'validation_loss')}, training loss {_mean(rows, 'training_loss')} "
        f"(complete: {_mean(complete, 'validation_loss')} and {_mean(complete, 'training_loss')})"
    )
    return f"{explain_compared(rows, complete)}; {gap}"


def explain_smoothing(rows: Seeds, complete: Seeds) -> str:
    """Compare perplexity and BLEU: the paper says that smoothing hurts the first and helps the second."""
    perplexity = f"perplexity {_mean(rows, 'perplexity')} against {_mean(complete, 'perplexity')}"
    return f"{perplexity}; {explain_compared(rows, complete)}"


Measurement = Literal["training_loss", "validation_loss", "perplexity", "orders_differ", "bleu", "exact"]


def mean_over_seeds(rows: Seeds, name: Measurement) -> float | None:
    """The mean of a measurement; None if it is not finite for one of the seeds."""
    values: list[float | None] = [getattr(row, name) for row in rows]
    finite = [value for value in values if value is not None]
    return mean(finite) if len(finite) == len(values) else None


def _mean(rows: Seeds, name: Measurement) -> str:
    value = mean_over_seeds(rows, name)
    return "not finite" if value is None else f"{value:.2g}"


def _range(rows: Seeds) -> str:
    """The BLEU of one seed, or the lowest and the highest of several."""
    low, high = min(row.bleu for row in rows), max(row.bleu for row in rows)
    return f"{low:.1f}" if len(rows) == 1 else f"{low:.1f} to {high:.1f}"


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

Rows = Sequence[tuple[Ablation, Seeds]]


def run_ablations(plan: StudyPlan) -> StudyResult:
    """Train one row for each part that is removed or changed, with each seed; finished trainings are kept."""
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
    ) -> tuple[Ablation, Seeds]:
        plan.report.say(f"row {number} of {total}: {part.changed} ({part.name})")
        material = AblationData(prepared, sha256(folder / "data" / MANIFEST), orders, limits)
        results = []
        for seed in range(plan.seeds):
            file = f"{part.name}{f'-seed{seed + 1}' if seed else ''}.json"
            seeded = replace(experiment, seed=experiment.seed + seed)
            results.append(make_row(part, seeded, material, plan.folder / "rows" / file, plan))
        return part, results

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
    (_, complete), *_ = rows
    measured: tuple[Measurement, ...] = ("training_loss", "validation_loss", "perplexity", "bleu", "exact")
    shown = tuple(
        (
            part.name,
            part.changed,
            *(mean_over_seeds(results, name) for name in measured),
            part.verdict(results, complete),
        )
        for part, results in rows
    )
    columns = ("row", "changed", "training loss", "validation loss", "perplexity", "BLEU", "exact %", "effect")
    seeds = len(complete)
    return Table(
        "Ablations",
        columns,
        shown,
        (
            f"All rows use the same data, training loop, {'seed' if seeds == 1 else 'seeds'} and {complete[0].steps} "
            f"updates. {'' if seeds == 1 else f'Figures are means of {seeds} seeds. '}Losses are per target token. "
            "The training loss is the mean of the last tenth of the updates, minus the minimum under label smoothing. "
            "BLEU and exact matches are of greedy translations of the validation pairs.",
        ),
        f"{_seeds_caveat(seeds)} A small model says little about parts that help deep models and long trainings, such "
        "as norms and dropout: it may do better without them.",
    )


def _seeds_caveat(seeds: int) -> str:
    """Say which differences this number of seeds can show."""
    if seeds < _ENOUGH_SEEDS:
        return (
            f"Each row is {'one training with one seed' if seeds == 1 else f'{seeds} trainings with different seeds'}, "
            "so only a collapse is called an effect: less than half the BLEU of the complete model. Other differences "
            "may be chance, in either direction; --seeds 5 shows more."
        )
    # Of all ways to order the scores of two rows, two have one row above the other.
    chance = math.comb(2 * seeds, seeds) // 2
    return (
        f"Each row is {seeds} trainings with different seeds. It is called worse than the complete model only if each "
        "of its trainings has a lower BLEU than each of the complete model, and better only if each has a higher one. "
        f"By chance alone, this happens to about one row of {chance}. Other differences are not called an effect."
    )


def _laws(rows: Rows) -> Table:
    """The figures behind the verdicts on word order and padding."""
    first, second = (text for text, _ in rows[0][1][0].orders)
    shown: list[tuple[Cell, ...]] = []
    for part, (row, *_) in rows:
        if part.name in ("complete", "no-positions", "no-padding-mask"):
            (_, one), (_, other) = row.orders
            batches = (row.together_changed, row.alone_bleu, row.together_bleu)
            shown.append((part.name, row.orders_differ, one, other, *batches))
    columns = ("row", "memory differs by", f"'{first}'", f"'{second}'", "changed %", "BLEU alone", "BLEU together")
    note = (
        "Memory: the encoder outputs for the same pieces in two orders, compared piece by piece. Changed: translations "
        "that differ between a batch with a longer sentence and a batch of sentences of equal length."
        f"{_of_the_first_seed(rows)}"
    )
    return Table("Word order, and neighbours in the batch", columns, tuple(shown), (note,))


def _lengths(rows: Rows, longest: int) -> Table:
    limits = [(int(limit), int(count)) for limit, count, _ in rows[0][1][0].by_length]
    columns = ("positions", *(f"up to {limit} ({counted(count, 'sentence')})" for limit, count in limits))
    shown: list[tuple[Cell, ...]] = [
        (part.changed, *(score for *_, score in row.by_length)) for part, (row, *_) in rows
    ]
    note = (
        f"Trained only on pairs with at most {longest} pieces on each side. BLEU by length of the source in pieces."
        f"{_of_the_first_seed(rows)}"
    )
    return Table("Beyond the lengths seen in training", columns, tuple(shown), (note,))


def _of_the_first_seed(rows: Rows) -> str:
    return "" if len(rows[0][1]) == 1 else " The figures are those of the first seed."


def _pictures(rows: Rows, carried: Rows, longest: int) -> dict[str, bytes]:
    """Learning curves and scores by length, of the first seed."""
    if not can_draw():
        return {}
    curves = [Series(part.name, *_points(row)) for part, (row, *_) in rows]
    lengths = [
        Series(part.changed, [limit for limit, *_ in row.by_length], [score for *_, score in row.by_length])
        for part, (row, *_) in carried
    ]
    return {
        "curves.svg": lines("Learning without a part", "update", "validation loss", curves, log_y=True),
        "lengths.svg": lines(f"Trained up to {longest} pieces", "source pieces, up to", "BLEU", lengths),
    }


def _points(row: AblationResult) -> tuple[list[float], list[float]]:
    known = [(step, loss) for step, loss in row.curve if step is not None and loss is not None]
    return [step for step, _ in known], [loss for _, loss in known]

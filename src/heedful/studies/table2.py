"""Table 2: quality and training cost of the Transformer and its rivals, on one corpus at equal size."""

from collections.abc import Iterator, Mapping, Sequence

from heedful.config import PRESETS, RIVAL_RATE, Experiment, merge
from heedful.device import choose_device, use_threads
from heedful.metrics.breakdown import LENGTHS, make_buckets, partial_bleu
from heedful.studies import charts as chart
from heedful.studies.row_training import (
    SMOKE,
    FinishedRow,
    dry_run,
    finish_rows,
    format_interval,
    make_caveat,
    pick_bleu,
    read_test_questions,
    smoke_data,
)
from heedful.studies.rows import (
    CorpusFacts,
    TableRow,
    collect_corpus_facts,
    load_experiment,
    make_rival_row,
    make_row,
    select_rows,
)
from heedful.studies.speed import measure_training_speed
from heedful.studies.study import Cell, Scale, StudyPlan, StudyResult, Table
from heedful.studies.synthetic import write_corpus
from heedful.studies.tuning import tune_rows
from heedful.tasks import Question

_TITLE = "Table 2: quality and training cost"
_SMOKE_SIZES = (300, 20, 40)
_RIVALS = ("lstm", "gru", "bahdanau", "luong", "convs2s")
_NAMES = {
    "transformer": "Transformer",
    "transformer-big": "Transformer (big)",
    "lstm": "LSTM",
    "gru": "GRU",
    "bahdanau": "GRU, additive attention",
    "luong": "LSTM, multiplicative attention",
    "convs2s": "ConvS2S",
}
# BLEU on newstest2014 en-de and training FLOPs of the same system, or of the closest one in the paper.
_PAPER: dict[str, tuple[str, float, float]] = {
    "transformer": ("Transformer (base)", 27.3, 3.3e18),
    "transformer-big": ("Transformer (big)", 28.4, 2.3e19),
    "luong": ("GNMT + RL", 24.6, 2.3e19),
    "convs2s": ("ConvS2S", 25.16, 9.6e18),
}
# From public notebooks on Multi30k de-en: test2016, lower-cased words, greedy search.
_SMALL = {"transformer": 36.52, "lstm": 13.8, "gru": 20.6, "bahdanau": 28.3, "convs2s": 34.14}
_SPEED_LENGTHS: Mapping[Scale, tuple[int, ...]] = {
    "smoke": (8, 32),
    "laptop": (10, 20, 40, 80, 160),
    "paper": (10, 20, 40, 80, 160),
}
_SPEED_REPEATS: Mapping[Scale, int] = {"smoke": 2, "laptop": 9, "paper": 9}


def table2(plan: StudyPlan) -> StudyResult:
    """Train, score and compare the Transformer and its rivals."""
    if plan.scale == "smoke":
        write_corpus(plan.folder / "data", _SMOKE_SIZES)
    experiment = load_experiment("table2", plan, _smoke(plan), "recipes/multi30k-de-en.toml")
    found = collect_corpus_facts(experiment, plan)
    rows = select_rows(_rows(experiment, found, plan), plan)
    if plan.dry_run:
        return dry_run(_TITLE, rows, found, plan)
    asked = read_test_questions("table2", experiment)
    tuning = tune_rows(rows, found, plan) if plan.tune else None
    done = finish_rows(tuning.rows if tuning else rows, lambda _: asked, plan)
    tables = (_quality(done, plan), _speed(rows, experiment, found, plan), _by_length(done, asked))
    more = (tuning.table(_NAMES),) if tuning else ()
    return StudyResult(_TITLE, (*tables, *more), _pictures(done, tables[1], tables[2]))


def _smoke(plan: StudyPlan) -> dict[str, object]:
    model = {"preset": "modern", "d_model": 64, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    train = {"max_steps": 40, "warmup_steps": 10, "validate_every": 20, "save_every": 40, "validate_bleu": True}
    return merge(SMOKE, {"data": smoke_data(plan), "model": model, "train": train})


def _rows(experiment: Experiment, found: CorpusFacts, plan: StudyPlan) -> Iterator[TableRow]:
    yield make_row("transformer", experiment, {})
    if plan.scale == "paper":
        yield make_row("transformer-big", experiment, merge(PRESETS["big"], {"model": {"preset": "big"}}))
    for name in _RIVALS:
        yield make_rival_row(name, name, experiment, found)


def _quality(done: Sequence[FinishedRow], plan: StudyPlan) -> Table:
    columns = (
        *("model", "parameters", "training FLOPs", "tokens/s", "BLEU", "95 % interval"),
        *("the paper's", "its BLEU", "its FLOPs", "notebooks on Multi30k de-en"),
    )
    rows: list[tuple[Cell, ...]] = []
    for one in done:
        name, score = one.row.name, pick_bleu(one.scored, plan)
        rows.append(
            (
                *(_NAMES[name], one.effort.parameters, one.effort.flops, round(one.effort.tokens_per_second)),
                *(score.value, format_interval(score)),
                *_PAPER.get(name, (None, None, None)),
                _SMALL.get(name),
            )
        )
    first, equal, tuned, last = _NOTES
    return Table(_TITLE, columns, tuple(rows), (first, tuned if plan.tune else equal, last), make_caveat(plan))


_NOTES = (
    "FLOPs are counted: all matrix products, forward and backward, over the actual lengths of the corpus, times the "
    "number of epochs. The paper multiplies seconds, GPUs and the speed of a GPU instead.",
    f"A rival has the recipe's data, text, batches, steps, dropout and search, and as many parameters as the "
    f"Transformer. Only its learning rate is its own, {RIVAL_RATE} at the peak. If the recipe has the paper's "
    "schedule, that rate also falls with the square root of the step. A rival's gradients are always clipped.",
    "A rival has the recipe's data, text, batches and search, and as many parameters as the Transformer. Optimizer, "
    "learning rate and dropout of every model were chosen on the validation set out of the same grid, and all models "
    "had the same processor time; see the table of the tuning.",
    "The paper's BLEU is for newstest2014, English to German. The notebooks' BLEU is for Multi30k test2016, with "
    "lower-cased words and greedy search. So compare only within a column.",
)


def _speed(rows: Sequence[TableRow], experiment: Experiment, found: CorpusFacts, plan: StudyPlan) -> Table:
    """Measure training speed side by side; the figure in a run's log depends on the load of the machine."""
    train, lengths = experiment.train, _SPEED_LENGTHS[plan.scale]
    plan.report.say(f"measuring training speed on sentences of {', '.join(map(str, lengths))} pieces")
    use_threads(train.threads)
    models = {row.name: row.experiment.model for row in rows}
    vocabulary, budget = max(found.source, found.target), train.batch_tokens // plan.processes
    device = choose_device(train.device)
    speed = measure_training_speed(models, lengths, vocabulary, budget, _SPEED_REPEATS[plan.scale], device)

    def ratio(name: str, length: int) -> float | None:
        ours = speed.get(("transformer", length))
        return ours / speed[name, length] if ours else None

    return Table(
        "Training speed against sentence length",
        (
            "model",
            *(f"tokens/s at {length}" for length in lengths),
            *(f"Transformer / this at {length}" for length in lengths),
        ),
        tuple(
            (
                _NAMES[name],
                *(round(speed[name, length]) for length in lengths),
                *(ratio(name, length) for length in lengths),
            )
            for name in models
        ),
        (
            f"Medians of complete training steps with about {budget} tokens on each side, on sentences of one length "
            f"in pieces; the models take turns, on {'one CPU thread' if device.type == 'cpu' else device.type}.",
        ),
    )


def _by_length(done: Sequence[FinishedRow], asked: Sequence[Question]) -> Table:
    lengths = [len(question.source.split()) for question in asked]
    references = list(zip(*(question.references for question in asked), strict=True))
    rows: list[tuple[Cell, ...]] = []
    for bucket in make_buckets(lengths, LENGTHS):
        mean = sum(lengths[place] for place in bucket.places) / len(bucket.places)
        scores = (
            partial_bleu(bucket.places, one.scored.outputs, references, one.row.experiment.evaluate.tokenize)
            for one in done
        )
        rows.append((bucket.name, len(bucket.places), mean, *scores))
    columns = ("words of the source", "sentences", "mean words", *(_NAMES[one.row.name] for one in done))
    note = "BLEU on the test set by the length of the source; values from few sentences are uncertain."
    return Table("BLEU by sentence length", columns, tuple(rows), (note,))


def _pictures(done: Sequence[FinishedRow], speed: Table, by_length: Table) -> dict[str, bytes]:
    if not chart.can_draw():
        return {}
    names = [_NAMES[one.row.name] for one in done]
    words = _column(by_length, 2)
    lengths = [chart.Series(name, words, _column(by_length, 3 + place)) for place, name in enumerate(names)]
    pieces = [float(column.rpartition(" ")[2]) for column in speed.columns if column.startswith("tokens/s")]
    speeds = [chart.Series(str(row[0]), pieces, _numbers(row[1 : 1 + len(pieces)])) for row in speed.rows]
    curves = [chart.Series(name, *_axes(one)) for name, one in zip(names, done, strict=True)]
    title, flops = "Validation BLEU against training FLOPs", "training FLOPs so far"
    return {
        "by-flops.svg": chart.lines(title, flops, "BLEU (greedy)", curves),
        "speed.svg": chart.lines(speed.title, "pieces of a sentence", "tokens/s", speeds, log_x=True, log_y=True),
        "by-length.svg": chart.lines(by_length.title, "words of the source", "BLEU", lengths),
    }


def _column(table: Table, place: int) -> list[float]:
    return _numbers([row[place] for row in table.rows])


def _numbers(cells: Sequence[Cell]) -> list[float]:
    return [float(cell) for cell in cells if isinstance(cell, int | float)]


def _axes(one: FinishedRow) -> tuple[list[float], list[float]]:
    return [flops for flops, _ in one.effort.curve], [score for _, score in one.effort.curve]

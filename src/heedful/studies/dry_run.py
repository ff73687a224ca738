"""List what a study would train, without training it."""

from collections.abc import Sequence

import numpy as np

from heedful.data.batch import Batching, epoch_batches
from heedful.models.flops import training_flops
from heedful.models.size import model_size
from heedful.studies.corpus_facts import CorpusFacts
from heedful.studies.row_training import command, write_recipe
from heedful.studies.rows import TableRow
from heedful.studies.study import StudyPlan, StudyResult, Table

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
    """Count parameters, steps, tokens of both sides, and FLOPs."""
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
    counted = f"Models are sized for {material.source} and {material.target} pieces of source and target."
    if material.lengths is None:
        return (
            f"The text is not here: FLOPs are of full batches of sentences of {_SENTENCE} pieces a side, and the sizes "
            f"of text.vocabulary_size. {counted}"
        )
    return f"FLOPs are counted over the real lengths of all {len(material.lengths[0])} pairs. {counted}"

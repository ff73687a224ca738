"""Denoising: a passage without some of its spans in, those spans out.

A model learns it from plain text (`heedful.data.spans`) before it learns something else from pairs.
"""

from heedful.data.pairs import read_table
from heedful.tasks.completion import COMPLETION
from heedful.tasks.task import Task

DENOISING = Task(
    name="denoising",
    read_file=read_table,
    score=COMPLETION.score,
    quick_score=COMPLETION.quick_score,
    quick_metric="accuracy",
    # The loss says how well spans are restored; few of them are restored word for word.
    defaults={"train": {"validate_bleu": False}},
    files="one",
    denoises=True,
)

"""Completion: the beginning of a text in, its continuation out.

A model learns it from plain text, as one stream of tokens (`heedful.data.text`). Pairs of a prompt and the text that
follows it are only for asking about a model: a file of them has lines of prompt, tab, continuation.
"""

from collections.abc import Sequence

from heedful.config.experiment import BleuTokens
from heedful.data.pairs import read_table
from heedful.metrics import Score
from heedful.tasks.task import References, ScoringOptions, Task


def _score(outputs: Sequence[str], references: References, options: ScoringOptions) -> list[Score]:
    """Accuracy of whole continuations, and the character error rate."""
    from heedful.metrics.edit_distance import score_characters  # imports NumPy, which translating does not need

    return score_characters(outputs, references, options.resamples)


def _quick_score(outputs: Sequence[str], references: References, tokenize: BleuTokens) -> Score:
    return _score(outputs, references, ScoringOptions(resamples=1))[0]


COMPLETION = Task(
    name="completion",
    read_file=read_table,
    score=_score,
    quick_score=_quick_score,
    quick_metric="accuracy",
    # Every continuation of a text is different, so samples tell more than the likeliest one, which repeats itself.
    defaults={
        "model": {"preset": "gpt"},
        "train": {"validate_bleu": False},
        "search": {"method": "sample", "temperature": 0.8, "top_p": 0.95, "max_extra": 300},
    },
    files="one",
    pipeline_tag="text-generation",
    aligns_words=False,
    continues_text=True,
)

"""Into how many pieces a vocabulary cuts a word: whether it fits a text."""

from collections.abc import Iterable
from itertools import islice

from heedful.data.pairs import Pair
from heedful.storage.run_folder import Tokenizers
from heedful.tasks import Task
from heedful.text import Tokenizer

_PAIRS = 1000


def count_pieces_per_word(tokenizers: Tokenizers, task: Task, pairs: Iterable[Pair]) -> dict[str, float]:
    """For each side, over the first pairs."""
    seen = [task.symbols(pair) for pair in islice(pairs, _PAIRS)]
    sides = {
        "source": (tokenizers.source, [pair.source for pair in seen]),
        "target": (tokenizers.target, [pair.target for pair in seen]),
    }
    return {side: round(_mean(tokenizer, texts), 3) for side, (tokenizer, texts) in sides.items()}


def _mean(tokenizer: Tokenizer, texts: list[str]) -> float:
    pieces = sum(len(ids) - 1 for ids in tokenizer.encode_all(texts))  # without the end of the sentence
    return pieces / max(1, sum(len(text.split()) for text in texts))

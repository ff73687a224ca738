"""The baseline for labelled texts: logistic regression on the words and pairs of words of a text.

    .venv/bin/python bench/bag_of_words.py TRAIN.tsv TEST.tsv [--valid VALID.tsv]

It knows nothing of order beyond two words. The weight of its penalty is chosen by accuracy on the validation texts, or
on every tenth training text. The scores are those of `heedful evaluate`.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.labels import read_labels
from heedful.data.pairs import Pair
from heedful.metrics.label_scores import LabelReport, report_labels

_PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3)
_STEPS = 120
_LEAST = 2  # times that a word or pair occurs in training
_WORD = re.compile(r"\w+|[^\w\s]")


class BagOfWords:
    """A linear model of the presence of words and pairs of words."""

    def __init__(self, pairs: Sequence[Pair], penalty: float) -> None:
        counts = Counter(feature for pair in pairs for feature in find_features(pair.source))
        known = [feature for feature, count in counts.items() if count >= _LEAST]
        self._numbers = {feature: number for number, feature in enumerate(known)}
        self.labels = tuple(sorted({pair.target for pair in pairs}))
        self._weights = torch.zeros(len(known) + 1, len(self.labels), requires_grad=True)  # the last row is the bias
        gold = torch.tensor([self.labels.index(pair.target) for pair in pairs])
        features = self._encode([pair.source for pair in pairs])
        optimizer = torch.optim.LBFGS([self._weights], max_iter=_STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = F.cross_entropy(self._logits(features), gold) + penalty * self._weights[:-1].square().sum()
            value.backward()
            return value

        optimizer.step(loss)

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> list[str]:
        """The likeliest label of each text."""
        return [self.labels[number] for number in self._logits(self._encode(texts)).argmax(-1).tolist()]

    def _encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """The numbers of all features end to end, and where each text begins."""
        rows = [
            [self._numbers[one] for one in find_features(text) if one in self._numbers] + [len(self._numbers)]
            for text in texts
        ]
        starts = torch.tensor([0, *map(len, rows)]).cumsum(0)[:-1]
        return torch.tensor([number for row in rows for number in row]), starts

    def _logits(self, features: tuple[Tensor, Tensor]) -> Tensor:
        return F.embedding_bag(features[0], self._weights, features[1], mode="sum")


def find_features(text: str) -> set[str]:
    """The words of a text in lower case, and the pairs of neighbours."""
    words = _WORD.findall(text.lower())
    return {*words, *(f"{one} {other}" for one, other in pairwise(words))}


def choose_model(train: Sequence[Pair], valid: Sequence[Pair]) -> BagOfWords:
    """The model with the penalty that is best on the validation texts."""
    models = [BagOfWords(train, penalty) for penalty in _PENALTIES]
    return max(models, key=lambda model: score(model, valid).scores[0].value)


def score(model: BagOfWords, pairs: Sequence[Pair]) -> LabelReport:
    """The scores of a model on these texts."""
    found = model.predict([pair.source for pair in pairs])
    names = sorted({*model.labels, *(pair.target for pair in pairs)})
    texts = [([names.index(pair.target)], [names.index(ours)]) for pair, ours in zip(pairs, found, strict=True)]
    return report_labels(texts, names)


def main() -> None:
    """Print accuracy and macro F1 of the baseline."""
    parser = argparse.ArgumentParser()
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--valid", type=Path)
    given = parser.parse_args()
    train = list(read_labels(given.train))
    valid = list(read_labels(given.valid)) if given.valid else train[::10]
    if not given.valid:
        train = [pair for number, pair in enumerate(train) if number % 10]
    report = score(choose_model(train, valid), list(read_labels(given.test)))
    for one in report.scores:
        sys.stdout.write(f"{one.metric} {one.value:.2f} ({one.low:.2f} to {one.high:.2f})\n")


if __name__ == "__main__":
    main()

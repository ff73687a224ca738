r"""What required terms do to translations: how often they are used, and what that costs.

.venv/bin/python bench/terms.py en-de --train train.en train.de --test test.en test.de

Terms are chosen automatically. A dictionary of words that often occur together is counted in the training pairs. A test
sentence gets one of its words with a translation that the reference has and the free translation lacks ("right terms"),
and the same word with the translation of another word ("wrong terms"). Every row gives up terms at another loss, the
difference of the mean log-probabilities of the pieces without and with the term; `inf` always uses them.
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from heedful.data.pairs import read_lines
from heedful.metrics.bleu import bleu
from heedful.text.constraints import MAX_LOSS, Constraints, Term, find_missing
from heedful.translation.result import Translation
from heedful.translation.translator import Translator

LOSSES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.5, inf)
SHORTEST = 4  # letters of a term, so that it is no article
COUNT, DICE = 5, 0.15  # of two words in the training pairs, at least
CANDIDATES = 4  # translations of a word, at most

Dictionary = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """A sentence, its reference, its free translation, and two terms for one of its words."""

    source: str
    reference: str
    free: Translation
    right: Term
    wrong: Term


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a name or a folder")
    parser.add_argument("--train", nargs=2, type=Path, required=True, metavar="FILE", help="to count the dictionary in")
    parser.add_argument("--test", nargs=2, type=Path, required=True, metavar="FILE", help="sentences and references")
    parser.add_argument("--most", type=int, default=300, help="sentences with a term, at most (default: 300)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    dictionary = count_dictionary(*(list(read_lines(path)) for path in options.train))
    translator = Translator.load(options.model)
    sources, references = (list(read_lines(path)) for path in options.test)
    cases = choose_cases(sources, references, translator.translate(sources), dictionary, options.most)
    rows = measure(translator, cases)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{options.model}: {len(cases)} of {len(sources)} sentences; BLEU without terms: {rows[0]['free']:.1f}\n")
    print("| given up at a loss over | right terms used | BLEU | wrong terms used | BLEU |\n|---|---|---|---|---|")
    for row in rows:
        mark = " (default)" if row["loss"] == MAX_LOSS else ""
        shares = (f"{row[f'{kind} used']:.0f} % | {row[f'{kind} BLEU']:.1f}" for kind in ("right", "wrong"))
        print(f"| {row['loss']}{mark} | {' | '.join(shares)} |")


def count_dictionary(sources: Sequence[str], targets: Sequence[str]) -> Dictionary:
    """The words that most often occur in the same pairs as a word, by Dice's coefficient."""
    left, right, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for source, target in zip(sources, targets, strict=True):
        words = {word for word in find_words(source) if word.islower()}, set(find_words(target))
        left.update(words[0])
        right.update(words[1])
        both.update((one, other) for one in words[0] for other in words[1])
    found: dict[str, list[tuple[float, str]]] = {}
    for (one, other), number in both.items():
        dice = 2 * number / (left[one] + right[other])
        if number >= COUNT and dice >= DICE:
            found.setdefault(one, []).append((dice, other))
    return {one: [other for _, other in sorted(own, reverse=True)[:CANDIDATES]] for one, own in found.items()}


def find_words(text: str) -> list[str]:
    """The words of a text that can be terms."""
    return [word for word in re.findall(r"[^\W\d_]+", text) if len(word) >= SHORTEST]


def choose_cases(
    sources: Sequence[str], references: Sequence[str], free: Sequence[Translation], dictionary: Dictionary, most: int
) -> list[Case]:
    """The sentences that a term could improve, each with a right and a wrong one."""
    chance = random.Random(1)
    every = sorted({other for own in dictionary.values() for other in own})
    cases = []
    for source, reference, translation in zip(sources, references, free, strict=True):
        words = set(find_words(reference))
        pairs = [(one, other) for one in find_words(source) for other in dictionary.get(one, ()) if other in words]
        terms = [term for term in (Term(*pair) for pair in pairs) if find_missing(translation.text, [term])]
        if terms:
            right = chance.choice(terms)
            others = [other for other in every if other not in dictionary[right.source] and other not in words]
            cases.append(Case(source, reference, translation, right, Term(right.source, chance.choice(others))))
    return cases[:most]


def measure(translator: Translator, cases: Sequence[Case]) -> list[dict[str, float]]:
    """For each loss, how many terms are used, and BLEU."""
    references = [case.reference for case in cases]
    free = _bleu([case.free.text for case in cases], references)
    rows: list[dict[str, float]] = [{"loss": loss, "free": free} for loss in LOSSES]
    for kind in ("right", "wrong"):
        terms = [getattr(case, kind) for case in cases]
        held = [
            translator.translate([case.source], constraints=Constraints({term.source: term.target}, max_loss=inf))[0]
            for case, term in zip(cases, terms, strict=True)
        ]
        for row in rows:
            outputs = [
                one if mean_log_prob(case.free) - mean_log_prob(one) <= row["loss"] else case.free
                for case, one in zip(cases, held, strict=True)
            ]
            used = sum(not find_missing(one.text, [term]) for one, term in zip(outputs, terms, strict=True))
            row[f"{kind} used"] = 100 * used / len(cases)
            row[f"{kind} BLEU"] = _bleu([one.text for one in outputs], references)
    return rows


def mean_log_prob(translation: Translation) -> float:
    """Of the pieces of a translation, over all its sentences."""
    best = translation.alternatives[0]
    return best.log_prob / max(1, len(best.pieces))


def _bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    return bleu(outputs, [references], "13a")


if __name__ == "__main__":
    main()

"""The error of word alignments, on an artificial language pair whose alignment is known.

    .venv/bin/python bench/alignment_error.py --steps 1500 --pairs 6000

It trains a small model on a language pair of three hundred words, each of several pieces. Adjectives change places with
their nouns, adverbs move to the front, some verbs become two separate words, one article is dropped, and some pairs of
words become one. Then it prints the alignment error on unseen sentences: of every head and average, of the prediction
difference, and of the aligner that is chosen without any known alignment.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from heedful.attention.aligner import (
    WordPair,
    align_words,
    choose_aligner,
    list_aligners,
    make_word_pair,
    prediction_difference,
    strongest_links,
)
from heedful.metrics.alignment import Link, alignment_score
from heedful.translation.translator import Translator

_SETTINGS = (
    *("model.preset=modern", "model.d_model=64", "model.d_ff=128", "model.num_heads=4", "model.dropout=0.1"),
    *("model.encoder_layers=3", "model.decoder_layers=3", "text.kind=bpe", "text.vocabulary_size=500"),
    *("train.threads=1", "train.batch_tokens=1024", "train.warmup_steps=200", "train.learning_rate=0.005"),
    *("train.validate_every=500", "train.save_every=500"),
)
_TESTED = 200  # sentences
_CHOSEN_ON = 50


@dataclass(frozen=True, slots=True)
class Entry:
    """A dictionary entry: one or two source words, and up to two target words."""

    source: tuple[str, ...]
    target: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence, its translation, and the links between their words."""

    source: str
    target: str
    sure: frozenset[Link]
    possible: frozenset[Link]  # links of the second of two source words that become one


Phrase = list[tuple[int, Entry]]  # entries with their position in the source


class Language:
    """A dictionary and the rules of word order."""

    def __init__(self, seed: int = 7) -> None:
        words = _new_words(random.Random(seed))

        def entries(count: int, source: int = 1, target: int = 1) -> list[Entry]:
            made = [[next(words) for _ in range(source + target)] for _ in range(count)]
            return [Entry(tuple(each[:source]), tuple(each[source:])) for each in made]

        self.nouns, self.adjectives, self.adverbs = entries(130), entries(60), entries(30)
        self.verbs = [*entries(40), *entries(20, target=2)]
        self.articles = [*entries(1, target=0), *entries(2)]
        self.prepositions = [*entries(10), *entries(5, source=2)]

    def example(self, chance: random.Random) -> Example:
        """A random sentence of one clause."""
        source: list[str] = []

        def say(*entries: Entry) -> Phrase:
            phrase = []
            for entry in entries:
                phrase.append((len(source), entry))
                source.extend(entry.source)
            return phrase

        def noun_phrase(*before: Entry) -> Phrase:
            adjectives = chance.sample(self.adjectives, chance.choice((0, 0, 1, 1, 2)))
            said = say(*before, chance.choice(self.articles), *adjectives, chance.choice(self.nouns))
            start = len(said) - len(adjectives) - 1
            return [*said[:start], said[-1], *said[start:-1]]  # the noun before its adjectives

        subject = noun_phrase()
        verb = say(chance.choice(self.verbs))
        rest = noun_phrase()
        for _ in range(chance.randint(0, 2)):
            rest += noun_phrase(chance.choice(self.prepositions))
        adverb = say(*chance.sample(self.adverbs, chance.randint(0, 1)))  # comes first in the target
        return _example(source, [*adverb, *subject, *verb, *rest], verb[0])


def _example(source: Sequence[str], phrase: Phrase, verb: tuple[int, Entry]) -> Example:
    """Derive the links from the positions; the second word of a verb goes to the end."""
    place, entry = verb
    said = [(start, word) for start, each in phrase for word in each.target[:1]]
    said += [(place, word) for word in entry.target[1:]]
    two = {start for start, each in phrase if len(each.source) > 1}
    return Example(
        " ".join(source),
        " ".join(word for _, word in said),
        frozenset((start, number) for number, (start, _) in enumerate(said)),
        frozenset((start + 1, number) for number, (start, _) in enumerate(said) if start in two),
    )


def _new_words(chance: random.Random) -> Iterator[str]:
    """Words of two to four syllables, each once."""
    seen: set[str] = set()
    while True:
        count = chance.randint(2, 4)
        word = "".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(count))
        if word not in seen:
            seen.add(word)
            yield word


def trained(folder: Path, pairs: int, steps: int) -> Translator:
    """A model of the language, trained with the command line."""
    language, chance = Language(), random.Random(1)
    examples = [language.example(chance) for _ in range(pairs)]
    for side in ("source", "target"):
        text = "".join(getattr(example, side) + "\n" for example in examples)
        (folder / f"train.{side}").write_text(text, encoding="utf-8")
    options = [part for setting in (*_SETTINGS, f"train.max_steps={steps}") for part in ("--set", setting)]
    files = ["--source", str(folder / "train.source"), "--target", str(folder / "train.target")]
    command = [sys.executable, "-m", "heedful", "train", *files, "--out", str(folder / "run"), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Translator.load(folder / "run", "cpu")


def pairs_of(translator: Translator, examples: Sequence[Example]) -> list[WordPair]:
    """The examples as ids."""
    source, target = translator.tokenizers.source, translator.tokenizers.target
    return [make_word_pair(source, target, example.source, target.encode(example.target)) for example in examples]


def report(translator: Translator) -> Iterator[str]:
    """The error of every aligner, as the rows of a table."""
    language, chance = Language(), random.Random(2)
    examples = [language.example(chance) for _ in range(_TESTED + _CHOSEN_ON)]
    tested, other = examples[:_TESTED], examples[_TESTED:]
    model, pairs = translator.model, pairs_of(translator, tested)

    def error(found: Sequence[Sequence[Link]]) -> str:
        sure, possible = [example.sure for example in tested], [example.possible for example in tested]
        score = alignment_score([set(each) for each in found], sure, possible)
        return f"{100.0 * score.error_rate:5.1f}"

    yield "| read from | the row that produced it | the row after it |\n|---|---|---|"
    found = [(str(aligner), error(align_words(model, aligner, pairs))) for aligner in list_aligners(model)]
    for (name, before), (_, after) in zip(found[::2], found[1::2], strict=True):
        yield f"| {name} | {before} | {after} |"
    yield f"\nprediction difference: {error([strongest_links(prediction_difference(model, pair)) for pair in pairs])}"
    began = time.perf_counter()
    choice = choose_aligner(model, pairs_of(translator, other))
    seconds = time.perf_counter() - began
    chosen = error(align_words(model, choice.aligner, pairs))
    yield f"chosen on {_CHOSEN_ON} other sentences in {seconds:.1f} s: {choice.aligner}: {chosen}"
    yield f"(it agrees with the prediction difference on {100.0 * choice.agreement:.1f} % of {choice.words} words)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--pairs", type=int, default=6000)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        translator = trained(Path(folder), options.pairs, options.steps)
        for line in report(translator):
            print(line)


if __name__ == "__main__":
    main()

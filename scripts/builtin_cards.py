"""Write the cards of the models in src/heedful/builtin: what they learnt from, their scores, what they are weak at.

    .venv/bin/python scripts/builtin_cards.py

Run it after `heedful evaluate` has noted their scores in their folders.
"""

import sys
from pathlib import Path

from heedful.storage.files import write_atomically
from heedful.storage.model_names import built_in_models
from heedful.storage.run_folder import RunFolder
from heedful.text.language_names import language_name
from heedful.training.model_card import model_card

_ENDING = """
## Data and licence

It began as one model for English with French and German, in all four directions, {way}.
All are sentences of [tatoeba.org](https://tatoeba.org), by its contributors, under
[CC-BY 2.0 France](https://creativecommons.org/licenses/by/2.0/fr/). The model is given away under the same terms:
who passes it on names Tatoeba and heedful, links to the terms, and says what was changed.

## What it is weak at

Tatoeba's sentences are short and of everyday life. Expect less of longer sentences, and of news, law, medicine or
technology, whose words it has hardly met. It sees one sentence at a time: who "it" or "you" is, it has to guess. Single
words and greetings often go wrong, above all without a capital and the usual sign at the end ("Hello!" is understood,
"hello" is not). Names, numbers and negations, and all that something depends on, have to be checked. It may repeat the
prejudices of its text.

Where it is not sure, `heedful translate` says so. To teach it your words: `heedful train --init {name}`."""

_INTO_ENGLISH = "went on with both into\nEnglish, and at last with pairs of {source} and English alone"
_FROM_ENGLISH = "and went on with pairs of\nEnglish and {target} alone"


def main() -> None:
    """Write them all."""
    folder = Path(__file__).resolve().parent.parent / "src/heedful/builtin"
    models = built_in_models(folder)
    for name, path in models.items():
        write_atomically(path / "README.md", card(name, path))
    print(f"cards: {', '.join(models) or 'there is no model'}")
    sys.exit(0 if models else 1)


def card(name: str, path: Path) -> str:
    """The card of one model."""
    source, target = map(language_name, name.split("-"))
    way = (_INTO_ENGLISH if name.endswith("-en") else _FROM_ENGLISH).format(source=source, target=target)
    text = model_card(RunFolder.open(path), name, _ENDING.format(way=way, name=name))
    return text.replace("---\n", "---\nlicense: cc-by-2.0\n", 1)


if __name__ == "__main__":
    main()

"""Write the cards of the models in src/heedful/builtin: their data, their scores and their weaknesses.

    .venv/bin/python scripts/builtin_cards.py

Run it after `heedful evaluate` has saved their scores in their folders.
"""

import sys
from pathlib import Path

from heedful.storage.files import write_atomically
from heedful.storage.model_card import make_model_card
from heedful.storage.model_names import built_in_models
from heedful.storage.run_folder import RunFolder
from heedful.text.languages import language_name

_ENDING = """
## Data and licence

The model started as one model
{way}. It learnt from

- everyday sentences of [tatoeba.org](https://tatoeba.org), by its contributors, under
  [CC-BY 2.0 France](https://creativecommons.org/licenses/by/2.0/fr/);
- messages and help texts of LibreOffice 7.4, by The Document Foundation and its translators, under
  [MPL 2.0](https://www.mozilla.org/MPL/2.0/);
- messages of Django, Wagtail, django-oscar and Sphinx (BSD), django-allauth and Spyder (MIT), by their translators;
- names of countries, languages, days, months and units from Unicode's CLDR (Unicode licence);
- 284 greetings, signs and questions of travellers, written for heedful;
- words and variants that a script made from these: without punctuation, apostrophes or accents, in capitals, mistyped,
  abbreviated, several in one line.

The model is distributed under CC-BY 2.0: if you pass it on, name Tatoeba, The Document Foundation and heedful, link to
the terms, and say what you changed. `test` above are sentences of Tatoeba, `software-test` are texts of LibreOffice.
None of them is in the training text.

## Weaknesses

The model knows everyday sentences and the language of programs. It is weak at long sentences, and at news, law,
medicine and everything else whose words it has hardly seen. It sees one sentence at a time, so it has to guess who "it"
or "you" is. Single words are guesses too, if they have several meanings. Check names, numbers, negations and anything
that matters. The model may repeat the prejudices of its text.

`heedful translate` flags translations of low confidence. To teach the model your vocabulary, use
`heedful train --init {name}`."""

_INTO_ENGLISH = "from German, French and Spanish into English, and continued with {source} alone"
_FROM_ENGLISH = "from English into German, French and Spanish, and continued with {target} alone"


def main() -> None:
    folder = Path(__file__).resolve().parent.parent / "src/heedful/builtin"
    models = built_in_models(folder)
    for name, path in models.items():
        write_atomically(path / "README.md", card(name, path))
    print(f"cards: {', '.join(models) or 'there is no model'}")
    sys.exit(0 if models else 1)


def card(name: str, path: Path) -> str:
    """Return the card of one model."""
    source, target = map(language_name, name.split("-"))
    way = (_INTO_ENGLISH if name.endswith("-en") else _FROM_ENGLISH).format(source=source, target=target)
    text = make_model_card(RunFolder.open(path), ending=_ENDING.format(way=way, name=name))
    return text.replace("---\n", "---\nlicense: cc-by-2.0\n", 1)


if __name__ == "__main__":
    main()

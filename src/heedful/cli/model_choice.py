"""The model to translate with: the one that is named, or a built-in one for the language of the text."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.cli import console
from heedful.errors import ConfigError, did_you_mean

_LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model by its name or folder; or, if there is none, the requested languages."""

    name: str
    source: str
    target: str

    def find_folder(self, beginning: Callable[[], Iterable[str]]) -> Path:
        """The folder of the model; `beginning` is called only if the language must be detected."""
        from heedful.storage.model_names import built_in_models, find_model

        if self.name:
            return find_model(self.name)
        from heedful.translation.direction import choose_direction

        known = built_in_models()
        texts = () if self.source and self.target else beginning()
        found = choose_direction(known, texts, self.source, self.target, _read_locale())
        if found.reason:
            console.say(found.reason)
        return known[found.name]


def split_arguments(arguments: Sequence[str], source: str, target: str) -> tuple[ModelChoice, list[str]]:
    """The model and the texts: the first argument is a model if it is a folder or the name of a built-in model.

    If it only looks like one, it is a mistake and not a text: nobody wants to translate the name of a folder. A single
    word before other arguments is a mistake, too: a misspelt name, or a sentence without quotes.
    """
    from heedful.storage.model_names import built_in_models, find_model, is_model, looks_like_model
    from heedful.text.language_names import language_code

    first, *texts = arguments or [""]
    if not is_model(first) and not looks_like_model(first):
        if texts and len(first.split()) == 1:
            near = did_you_mean(first, built_in_models()) or "; heedful models lists the models"
            raise ConfigError(f"{first} is neither a run folder nor a built-in model; put a sentence in quotes{near}")
        return ModelChoice("", language_code(source), language_code(target)), list(arguments)
    for option, given in (("--from", source), ("--to", target)):
        if given:
            raise ConfigError(
                f"{option} {given} chooses a built-in model, but you named {first}; leave out one of them"
            )
    find_model(first)  # fail before waiting for standard input
    return ModelChoice(first, "", ""), texts


def _read_locale() -> str:
    """The user's language, in two letters."""
    return next((value for name in _LOCALE_VARIABLES if (value := os.environ.get(name))), "")[:2]

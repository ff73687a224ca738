"""Choose the model: the one that is named, or a built-in one for the language of the text."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.cli import console
from heedful.errors import ConfigError, did_you_mean

_LOCALES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model by name or folder, or the languages to choose one by."""

    named: str
    source: str
    target: str

    def model(self, beginning: Callable[[], Iterable[str]]) -> Path:
        """The folder of the model; `beginning` is read only if the language of the text is needed."""
        from heedful.storage.model_names import built_in_models, find_model

        if self.named:
            return find_model(self.named)
        from heedful.translation.direction import choose_direction

        known = built_in_models()
        texts = () if self.source and self.target else beginning()
        found = choose_direction(known, texts, self.source, self.target, _locale())
        if found.why:
            console.say(found.why)
        return known[found.name]


def split_arguments(arguments: Sequence[str], source: str, target: str) -> tuple[ModelChoice, list[str]]:
    """Split arguments into the model and the texts: the first is a model if it is a folder or a built-in name.

    If it only looks like that, it is a mistake and not a text: nobody wants the name of a folder translated. With more
    arguments a single word is taken for a mistake, too; or it is a sentence without quotes, word by word.
    """
    from heedful.storage.model_names import built_in_models, find_model, is_model, looks_like_model
    from heedful.text.language_names import language_code

    first, *texts = arguments or [""]
    if not is_model(first) and not looks_like_model(first):
        if texts and len(first.split()) == 1:
            near = did_you_mean(first, built_in_models()) or "; heedful models lists the models"
            raise ConfigError(f"{first} is no run folder and no built-in model; a sentence goes in quotes{near}")
        return ModelChoice("", language_code(source), language_code(target)), list(arguments)
    for option, given in (("--from", source), ("--to", target)):
        if given:
            raise ConfigError(f"{option} {given} chooses a built-in model, but {first} is named; leave one of them out")
    find_model(first)  # before standard input is waited for
    return ModelChoice(first, "", ""), texts


def _locale() -> str:
    """The language of who asks, in two letters."""
    return next((value for name in _LOCALES if (value := os.environ.get(name))), "")[:2]

"""Which built-in model translates a text where none is named: by the languages asked for and what the text is in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.text.language_detection import Detector, known_languages
from heedful.text.language_names import language_name

_USUAL = "fr"  # what English becomes if nothing says otherwise: of the languages here, most people speak it
_CERTAIN = 0.9


@dataclass(frozen=True, slots=True)
class Direction:
    """A model by its name, and a sentence on why it was taken; empty where both languages were given."""

    name: str
    why: str = ""


def choose_direction(
    names: Iterable[str], texts: Iterable[str], source: str = "", target: str = "", locale: str = ""
) -> Direction:
    """One of the models of these names (`en-de`) for these texts; `locale` is the language of who asks."""
    pairs = [(name.partition("-")[0], name.partition("-")[2]) for name in names]
    if not pairs:
        raise ConfigError("no model is named, and none is built in; name a run folder")
    sources, targets = (sorted(set(side)) for side in zip(*pairs, strict=True))
    _check("--from", source, sources)
    _check("--to", target, targets)
    found, doubt = (source, "") if source else _detected(" ".join(texts), sources)
    reasons = [] if source else [f"the text seems to be {language_name(found)}{doubt}"]
    possible = [other for one, other in pairs if one == found]
    if not target:
        target, reason = _usual(possible, locale)
        reasons += [reason] if reason else []
    _check_pair(found, target, possible, guessed=not source)
    name = f"{found}-{target}"
    return Direction(name, f"{name}: {'; '.join(reasons)}" if reasons else "")


def _check(option: str, code: str, known: Sequence[str]) -> None:
    if code and code not in known:
        there = ", ".join(f"{one} ({language_name(one)})" for one in known)
        near = did_you_mean(code, known)
        raise ConfigError(f"{option} {code}: no built-in model has that language; there are {there}{near}")


def _detected(text: str, known: Sequence[str]) -> tuple[str, str]:
    """The language of a text, and what to say where that is not certain."""
    if not any(character.isalpha() for character in text):
        raise DataError("there are no letters to tell the language of the text by; name it by --from, say --from en")
    detector = Detector(known_languages())
    (best, share), *_ = detector.detect(text, known)
    if not detector.fits(text, best):
        languages = ", ".join(map(language_name, known))
        raise DataError(
            f"the text seems to be in no language of the built-in models ({languages}); "
            "if it is in one of them, name it by --from"
        )
    return best, "" if share >= _CERTAIN else ", which is not certain: --from tells"


def _usual(possible: Sequence[str], locale: str) -> tuple[str, str]:
    """What to translate into where nobody said, and why if there was a choice."""
    if len(possible) == 1:
        return possible[0], ""
    chosen = locale if locale in possible else _USUAL if _USUAL in possible else possible[0]
    others = ", ".join(f"--to {code} for {language_name(code)}" for code in possible if code != chosen)
    because = ", as your locale says" if chosen == locale else ""
    return chosen, f"it becomes {language_name(chosen)}{because}; {others}"


def _check_pair(source: str, target: str, possible: Sequence[str], *, guessed: bool) -> None:
    if target in possible:
        return
    ours, theirs = language_name(source), language_name(target)
    if source == target:
        way = "name its language by --from if it is another one" if guessed else "--from and --to are the same"
        raise ConfigError(f"the text {'seems to be' if guessed else 'is'} {ours} already; {way}")
    raise ConfigError(
        f"no built-in model translates from {ours} to {theirs}; from {ours} there are "
        f"{', '.join(f'--to {code}' for code in possible)}; what comes out can be translated once more"
    )

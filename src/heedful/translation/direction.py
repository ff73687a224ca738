"""Choose a built-in model if none is named, by the requested languages and the language of the text.

If no model translates between two languages, two models translate through English.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.errors import ConfigError, DataError, did_you_mean
from heedful.text.languages import CODE, NOISE, Detection, Detector, known_languages, language_name, match_language

PIVOT = "en"  # the language that two models can share
_DEFAULT_TARGET = "fr"  # for English texts, if the locale names no language that a model writes


@dataclass(frozen=True, slots=True)
class Direction:
    """A pair of languages, the names of the models for it, and the reason for the choice.

    There are no models if the text is already in the target language. The reason is empty if both languages were given
    and one model translates between them.
    """

    name: str
    models: tuple[str, ...]
    reason: str = ""


def find_pivots(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of languages that only two of the models in a row, which share English, can translate between."""
    direct = list(dict.fromkeys(pairs))
    sources = [source for source, target in direct if target == PIVOT]
    targets = [target for source, target in direct if source == PIVOT]
    both = ((source, target) for source in sources for target in targets if source != target)
    return [pair for pair in both if pair not in direct]


def choose_direction(
    names: Iterable[str], texts: Iterable[str], source: str = "", target: str = "", locale: str = ""
) -> Direction:
    """The model for these texts, out of `names` such as `en-de`; `locale` is the user's language."""
    pairs = [(name.partition("-")[0], name.partition("-")[2]) for name in names]
    if not pairs:
        raise ConfigError("you named no model, and none is built in; name a run folder")
    sources, targets = (sorted(set(side)) for side in zip(*pairs, strict=True))
    source, target = match_language(source, sources), match_language(target, targets)
    _check_language("--from", source, sources)
    _check_language("--to", target, targets)
    found, doubt = (source, "") if source else _detect_language("\n".join(texts), sources, target)
    if found == target and not source:
        already = f"the text seems to be {language_name(found)} already, so it is returned as it is"
        return Direction(f"{found}-{target}", (), f"{already}; if it is in another language, name that with --from")
    reasons = [] if source else [f"the text seems to be {language_name(found)}{doubt}"]
    direct = [other for one, other in pairs if one == found]
    through = [other for one, other in find_pivots(pairs) if one == found]
    if not target:
        # Only the user's own language is worth two models.
        target, reason = _choose_target(direct + [code for code in through if code == locale], locale)
        reasons += [reason] if reason else []
    _check_pair(found, target, direct + through)
    name = f"{found}-{target}"
    models = (name,) if target in direct else (f"{found}-{PIVOT}", f"{PIVOT}-{target}")
    if target in through:
        reasons.append(f"through {language_name(PIVOT)}, with {' and '.join(models)}")
    return Direction(name, models, f"{name}: {'; '.join(reasons)}" if reasons else "")


def _check_language(option: str, code: str, known: Sequence[str]) -> None:
    if code and code not in known:
        there = ", ".join(f"{one} ({language_name(one)})" for one in known)
        near = did_you_mean(code, known)
        raise ConfigError(f"{option} {code}: no built-in model has this language; available: {there}{near}")


def _detect_language(text: str, known: Sequence[str], target: str) -> tuple[str, str]:
    """The language of a text, and a remark if it is uncertain."""
    if not any(character.isalpha() for character in text):
        raise DataError("the text has no letters to detect its language by; name the language, such as --from en")
    found = Detector(known_languages()).detect(text, known)
    source = found.choose_source(target)
    if not source:
        languages = ", ".join(map(language_name, known))
        raise DataError(
            f"the text {_describe(found)}; the built-in models translate {languages}; if it is in one of them, name it "
            "with --from"
        )
    sure = found.recognition == "sure" and source == found.shares[0][0]
    return source, "" if sure else ", which is not certain; name the language with --from"


def _describe(found: Detection) -> str:
    """What a text seems to be that is in none of the possible languages."""
    if found.other == NOISE:
        return "is in no language that heedful knows"
    return f"seems to be {'program code' if found.other == CODE else language_name(found.other)}"


def _choose_target(possible: Sequence[str], locale: str) -> tuple[str, str]:
    """The language to translate into by default, and the reason if there was a choice."""
    if len(possible) == 1:
        return possible[0], ""
    chosen = locale if locale in possible else _DEFAULT_TARGET if _DEFAULT_TARGET in possible else possible[0]
    others = ", ".join(f"--to {code} for {language_name(code)}" for code in possible if code != chosen)
    because = ", the language of your locale" if chosen == locale else ""
    return chosen, f"translating into {language_name(chosen)}{because}; {others}"


def _check_pair(source: str, target: str, possible: Sequence[str]) -> None:
    if target in possible:
        return
    ours, theirs = language_name(source), language_name(target)
    if source == target:
        raise ConfigError(f"the text is {ours} already; --from and --to are the same")
    raise ConfigError(
        f"no built-in model translates from {ours} to {theirs}; from {ours} you can choose "
        f"{', '.join(f'--to {code}' for code in possible)}"
    )

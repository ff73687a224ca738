"""Files that were translated, until they are fetched: in memory, for a while, and not too many."""

import secrets
from dataclasses import dataclass
from time import monotonic
from urllib.parse import quote

from heedful.serve.http_errors import Refused

_SECONDS = 600.0
_ROOM = 64 << 20  # bytes of all of them


@dataclass(frozen=True, slots=True)
class Result:
    """A file, and when it is thrown away."""

    name: str
    content: bytes
    until: float

    @property
    def disposition(self) -> str:
        """A browser keeps it as a file, and does not show it."""
        return f"attachment; filename*=UTF-8''{quote(self.name, safe='')}"


class Results:
    """By names that nobody can guess."""

    def __init__(self) -> None:
        self._kept: dict[str, Result] = {}

    def add(self, name: str, content: bytes) -> str:
        """Keep a file; give the end of its address."""
        now = monotonic()
        self._kept = {key: result for key, result in self._kept.items() if result.until > now}
        while self._kept and sum(len(one.content) for one in self._kept.values()) + len(content) > _ROOM:
            del self._kept[next(iter(self._kept))]  # the oldest
        key = secrets.token_urlsafe(24)
        self._kept[key] = Result(name, content, now + _SECONDS)
        return f"{key}/{quote(name, safe='')}"

    def get(self, key: str) -> Result:
        """The file of this key."""
        result = self._kept.get(key)
        if result is None or result.until <= monotonic():
            raise Refused(404, "there is no such file, or it was kept for ten minutes and is gone; translate it again")
        return result


def translated_name(name: str, language: str) -> str:
    """strings.po becomes strings.de.po; it is only shown, and never a path."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(character for character in last if character.isprintable())[-100:] or "file"
    stem, dot, end = clean.rpartition(".")
    return f"{stem}.{language}.{end}" if dot else f"{clean}.{language}"

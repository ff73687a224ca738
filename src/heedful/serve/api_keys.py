"""API keys: known by their hashes alone, each with its own number of requests a minute.

A key is 32 random bytes, so that a plain hash of it says nothing: there is nothing to guess.
"""

import hashlib
import json
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from heedful.errors import ConfigError
from heedful.serve.http_errors import Refused

_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class Key:
    """Whose it is, its hash, and how often it may be used."""

    name: str
    sha256: str
    per_minute: int


class Keys:
    """The keys of a file; without one, everybody may ask."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, Key] = {}
        self._left: dict[str, tuple[float, float]] = {}  # hash: requests that are left, and when that was so
        self.renew()

    @property
    def needed(self) -> bool:
        """Whether a request must have one."""
        return self._path is not None

    def renew(self) -> None:
        """Read the file again."""
        if self._path:
            self._known = {key.sha256: key for key in read_keys(self._path)}

    def admit(self, given: str | None) -> None:
        """Let a request in, or refuse it in LibreTranslate's words."""
        if not self.needed:
            return
        if not given:
            raise Refused(400, "Please contact the server operator to get an API key")
        key = self._known.get(_hashed(given))
        if key is None:
            raise Refused(403, "Invalid API key")
        now = monotonic()
        left, then = self._left.get(key.sha256, (float(key.per_minute), now))
        left = min(key.per_minute, left + (now - then) * key.per_minute / 60)
        if left < 1:
            retry = (1 - left) * 60 / key.per_minute
            raise Refused(429, f"Slowdown: {key.per_minute} per 1 minute", retry)
        self._left[key.sha256] = left - 1, now


def read_keys(path: Path) -> list[Key]:
    """All keys of a file."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [Key(str(entry["name"]), str(entry["sha256"]), max(1, int(entry["per_minute"]))) for entry in entries]
    except OSError as error:
        raise ConfigError(f"--keys {path}: {error.strerror}; make a key with: heedful key {path} NAME") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"--keys {path} is not a file that heedful key has written; make another") from error


def add_key(path: Path, name: str, per_minute: int) -> str:
    """Make a key and note its hash; the key itself is known to the caller alone. One of the same name is replaced."""
    from heedful.storage.files import write_atomically

    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name for a key; take up to 64 letters, digits, dots or dashes")
    key = secrets.token_urlsafe(32)
    others = [other for other in read_keys(path) if other.name != name] if path.exists() else []
    entries = [asdict(entry) for entry in (*others, Key(name, _hashed(key), per_minute))]
    write_atomically(path, json.dumps(entries, indent=1) + "\n")
    return key


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()

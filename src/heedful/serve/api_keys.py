"""API keys: only their hashes are stored, each with its own limit of requests per minute.

A key is 32 random bytes, too many to guess, so a plain hash protects it.
"""

import hashlib
import json
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from heedful.errors import ConfigError
from heedful.serve.http_errors import RequestError

_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The owner's name, the hash of the key, and its limit."""

    name: str
    sha256: str
    per_minute: int


class ApiKeys:
    """The keys of a file; without a file, no key is needed."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._keys: dict[str, ApiKey] = {}
        self._quotas: dict[str, tuple[float, float]] = {}  # hash: requests left, and the time of that count
        self.reload()

    @property
    def required(self) -> bool:
        """Whether requests need a key."""
        return self._path is not None

    def reload(self) -> None:
        """Read the file again."""
        if self._path:
            self._keys = {key.sha256: key for key in read_keys(self._path)}

    def accepts(self, given: str | None) -> bool:
        """Whether this key is known, or none is needed."""
        return not self.required or (bool(given) and _hash_key(given or "") in self._keys)

    def admit(self, given: str | None) -> None:
        """Count a request against its key; refuse it in LibreTranslate's words if the key is missing or used up.

        A refused client is disconnected, because its body may not have been read.
        """
        if not self.required:
            return
        if not given:
            raise RequestError(400, "Please contact the server operator to get an API key", close=True)
        key = self._keys.get(_hash_key(given))
        if key is None:
            raise RequestError(403, "Invalid API key", close=True)
        now = monotonic()
        left, then = self._quotas.get(key.sha256, (float(key.per_minute), now))
        left = min(key.per_minute, left + (now - then) * key.per_minute / 60)
        if left < 1:
            retry = (1 - left) * 60 / key.per_minute
            raise RequestError(429, f"Slowdown: {key.per_minute} per 1 minute", retry, close=True)
        self._quotas[key.sha256] = left - 1, now


def read_keys(path: Path) -> list[ApiKey]:
    """All keys of a file."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [ApiKey(str(entry["name"]), str(entry["sha256"]), max(1, int(entry["per_minute"]))) for entry in entries]
    except OSError as error:
        raise ConfigError(f"--keys {path}: {error.strerror}; make a key with: heedful key {path} NAME") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"--keys {path} was not written by heedful key; make a new file with that command") from error


def add_key(path: Path, name: str, per_minute: int) -> str:
    """Create a key, store its hash, and return it: it cannot be read again. A key of the same name is replaced."""
    from heedful.storage.files import write_atomically

    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a key; use up to 64 letters, digits, dots and dashes")
    key = secrets.token_urlsafe(32)
    others = [other for other in read_keys(path) if other.name != name] if path.exists() else []
    entries = [asdict(entry) for entry in (*others, ApiKey(name, _hash_key(key), per_minute))]
    write_atomically(path, json.dumps(entries, indent=1) + "\n")
    return key


def _hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()

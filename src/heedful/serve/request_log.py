"""What the server logs: a line a request, with its id and never with its text."""

import json
import logging
import sys
from datetime import UTC, datetime

LOG = logging.getLogger("heedful.serve")
_FIELDS = ("request", "method", "path", "status", "ms")


def log_to_stderr(structured: bool) -> None:
    """Lines for people, or one JSON object a line; also what uvicorn has to say, if it is a warning."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if structured else _Plain())
    for name, level in (("heedful.serve", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(str(value) for value in _fields(record).values())
        error = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_time(record)} {record.getMessage()}{' ' + fields if fields else ''}{error}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        known = {"time": _time(record), "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(known | _fields(record) | error)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: vars(record)[name] for name in _FIELDS if name in vars(record)}

"""The log, with one line per request and never its text."""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

CURRENT_REQUEST: ContextVar[str] = ContextVar("request")  # the id that log records of other libraries get
_FIELDS = ("request", "method", "path", "status", "ms")  # of a log record


def log_to_stderr(structured: bool) -> None:
    """Log to standard error, as plain lines or as one JSON object per line; of other libraries, warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if structured else _PlainFormatter())
    logging.getLogger().handlers = [handler]
    # The reader of forms warns of every malformed one, which is the client's mistake and answered with 400.
    levels = {"heedful.serve": logging.INFO, "uvicorn": logging.WARNING, "python_multipart": logging.CRITICAL}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(str(value) for value in _read_fields(record).values())
        error = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return f"{_format_time(record)} {record.getMessage()}{' ' + fields if fields else ''}{error}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        known = {"time": _format_time(record), "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(known | _read_fields(record) | error)


def _format_time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _read_fields(record: logging.LogRecord) -> dict[str, object]:
    current = {} if (request := CURRENT_REQUEST.get(None)) is None else {"request": request}
    return current | {name: vars(record)[name] for name in _FIELDS if name in vars(record)}

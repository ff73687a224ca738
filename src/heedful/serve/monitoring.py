"""The log, with one line per request and never its text, and the metrics for Prometheus."""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from heedful.serve.batcher import Batcher

CURRENT_REQUEST: ContextVar[str] = ContextVar("request")  # the id that log records of other libraries get
_FIELDS = ("request", "method", "path", "status", "ms")  # of a log record


class ServiceMetrics:
    """The metrics of one server. No label contains anything that a client can make up."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter("heedful_requests", "Requests", ["path", "status"], registry=own)
        self._seconds = Histogram("heedful_request_seconds", "Time to the end of a response", ["path"], registry=own)
        self._batches = Histogram(
            "heedful_batch_pieces", "Sentences in a batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128), registry=own
        )
        self._work = Histogram("heedful_batch_seconds", "Time to translate a batch", registry=own)
        self._characters = Counter("heedful_characters", "Characters translated", ["model"], registry=own)
        self._queue = Gauge("heedful_queue_pieces", "Tokens waiting to be translated", registry=own)
        self._busy = Gauge("heedful_workers_busy", "Workers that are translating", registry=own)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Record a finished request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, size: int, seconds: float) -> None:
        """Record a finished batch."""
        self._batches.observe(size)
        self._work.observe(seconds)

    def count_characters(self, model: str, characters: int) -> None:
        """Record the characters of a request that was translated."""
        self._characters.labels(model).inc(characters)

    def watch(self, batcher: Batcher) -> None:
        """Report the queue of this batcher from now on."""
        self._queue.set_function(lambda: batcher.queued_cost)
        self._busy.set_function(lambda: batcher.busy)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


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

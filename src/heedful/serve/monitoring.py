"""What Prometheus is told. No label has anything in it that a client can make up."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from heedful.serve.batcher import Batcher


class Metrics:
    """Numbers of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._requests = Counter("heedful_requests", "Requests", ["path", "status"], registry=own)
        self._seconds = Histogram("heedful_request_seconds", "Time to the end of an answer", ["path"], registry=own)
        self._batches = Histogram(
            "heedful_batch_pieces", "Sentences in a batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128), registry=own
        )
        self._work = Histogram("heedful_batch_seconds", "Time that a batch takes", registry=own)
        self._characters = Counter("heedful_characters", "Characters that were translated", ["model"], registry=own)
        self._queue = Gauge("heedful_queue_pieces", "Pieces of text that wait", registry=own)
        self._busy = Gauge("heedful_workers_busy", "Workers that translate", registry=own)

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request has ended."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """A batch is done."""
        self._batches.observe(size)
        self._work.observe(seconds)

    def translated(self, model: str, characters: int) -> None:
        """A request has been translated."""
        self._characters.labels(model).inc(characters)

    def watch(self, batcher: Batcher) -> None:
        """Show what waits here, whenever it is asked for."""
        self._queue.set_function(lambda: batcher.cost)
        self._busy.set_function(lambda: batcher.busy)

    def shown(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)

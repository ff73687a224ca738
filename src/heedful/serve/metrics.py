"""The metrics for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from heedful.serve.batcher import Batcher


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

"""What one request, and all of them together, may cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The defaults suit one machine with a few users."""

    body: int = 1 << 20  # bytes of a request
    texts: int = 1000  # of a request
    characters: int = 50_000  # of a request
    sentences: int = 2000  # of a request
    pieces: int = 1000  # of one sentence, as the model reads it
    alternatives: int = 10
    file: int = 10 << 20  # bytes of a request that brings a file
    file_characters: int = 500_000  # of its text
    seconds: float = 60.0  # until a request is answered or given up
    arriving: float = 15.0  # seconds until a request has arrived
    queue: int = 100_000  # pieces that may wait; who comes then is refused at once

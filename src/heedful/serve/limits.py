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
    files: int = 8  # at once; all of them are in memory, many times as large as they came
    file_characters: int = 500_000  # of its text
    file_passages: int = 50_000  # such as paragraphs
    file_elements: int = 300_000  # of which it is made
    seconds: float = 60.0  # until a request is answered or given up
    arriving: float = 15.0  # seconds until a request has arrived
    queue: int = 100_000  # pieces that may wait; who comes then is refused at once

    @property
    def file_seconds(self) -> float:
        """A file is longer than a text, and has longer: for all of it, from reading to writing."""
        return 5 * self.seconds

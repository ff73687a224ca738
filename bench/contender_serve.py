"""heedful translates for clients over HTTP: a server, and clients that each wait for an answer and ask again.

Arguments: a run folder, a file of texts, the number of clients, texts in a request, where to report what was answered
and which share of all processors' time the clients and the server had.
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from asking import ask, requests_of
from contender import Lap, serve
from contender_translate import read_lines
from load_generator import serving
from usage import processor_seconds

_WARM_UP = 2.0  # seconds


def main() -> None:
    run, source, clients, together, report = sys.argv[1:]
    requests = requests_of(read_lines(Path(source)), int(together))
    found: dict[int, set[str]] = {}
    shares: dict[str, list[float]] = {"clients": [], "server": []}
    with TemporaryDirectory() as folder, serving(Path(run), Path(folder)) as server:

        def lap(seconds: float) -> Lap:
            worker, before = server.worker, processor_seconds(server.worker)
            asked = ask(server.port, int(clients), requests, seconds)
            all_there_was = asked.seconds * (os.cpu_count() or 1)
            shares["clients"].append(asked.processor_seconds / all_there_was)
            shares["server"].append((processor_seconds(worker) - before) / all_there_was)
            for number, several in asked.translations().items():
                found[number] = found.get(number, set()) | several
            texts = {number: sorted(several) for number, several in found.items()}
            Path(report).write_text(json.dumps({"texts": texts, "shares": shares}), encoding="utf-8")
            return Lap(asked.texts, asked.seconds)

        ask(server.port, int(clients), requests, _WARM_UP)
        serve(lap)


if __name__ == "__main__":
    main()

"""heedful translates for clients over HTTP: a server, and clients that each wait for an answer and ask again.

Arguments: a run folder, a file of texts, the number of clients, texts in a request.
"""

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from contender import Lap, serve
from contender_translate import read_lines
from served import Client, load_server, serving, translate_request


def main() -> None:
    run, source, clients, together = sys.argv[1:]
    texts, size = read_lines(Path(source)), int(together)
    requests = [(size, translate_request(texts[n : n + size])) for n in range(0, len(texts) - size + 1, size)]
    with TemporaryDirectory() as folder, serving(Path(run), Path(folder)) as server, asyncio.Runner() as runner:

        def lap(seconds: float) -> Lap:
            asking = [Client(server.port) for _ in range(int(clients))]
            began = time.perf_counter()
            load = runner.run(load_server(asking, requests, seconds))
            for client in asking:  # between two laps it would be closed from the other side
                client.close()
            if load.hung or set(load.answers) != {200}:
                raise SystemExit(f"answers {load.answers}, {load.hung} without")
            return Lap(load.texts, time.perf_counter() - began)

        lap(2.0)
        serve(lap)


if __name__ == "__main__":
    main()

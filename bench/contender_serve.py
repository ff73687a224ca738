"""heedful translates for clients over HTTP: a server, and clients that each wait for an answer and ask again.

Arguments: a run folder, a file of texts, the number of clients, texts in a request, a folder for the log.
"""

import asyncio
import sys
import time
from pathlib import Path

from contender import Lap, serve
from contender_translate import read_lines
from served import Client, load_server, serving, translate_request


def main() -> None:
    run, source, clients, together, folder = sys.argv[1:]
    texts, size = read_lines(Path(source)), int(together)
    requests = [(size, translate_request(texts[n : n + size])) for n in range(0, len(texts) - size + 1, size)]
    with serving(Path(run), Path(folder)) as server, asyncio.Runner() as runner:
        asking = [Client(server.port) for _ in range(int(clients))]

        def lap(seconds: float) -> Lap:
            began = time.perf_counter()
            load = runner.run(load_server(asking, requests, seconds))
            if load.hung or set(load.answers) != {200}:
                raise SystemExit(f"answers {load.answers}, {load.hung} without")
            return Lap(load.texts, time.perf_counter() - began)

        lap(2.0)
        serve(lap)


if __name__ == "__main__":
    main()

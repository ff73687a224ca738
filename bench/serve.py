"""Measure `heedful serve`: throughput, latency, overload, malformed requests, memory, a killed worker and a clean stop.

    .venv/bin/python bench/serve.py RUN --source test.en

All traffic stays on this machine. Only ratios and counts are comparable between machines.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from load_generator import Client, Hung, Server, load_server, post, raw_post, serving, translate_request
from malformed import malformed
from race import Contender, python, race, resident_bytes
from translation_contenders import Job, read_lines

from heedful.serve.api_keys import add_key
from heedful.serve.service import ServiceLimits
from heedful.storage.run_folder import RunFolder

_CLIENTS = 64
_TOGETHER = (1, 16)  # texts in a request
_ALONE = 200  # texts that are sent one at a time
_FLOOD, _FLOOD_TEXTS, _WARM = 1000, 20, 0.25  # connections, texts in a request, share of the time that warms up
_KILLS, _BETWEEN = 3, 12.0  # seconds
_STALLED = 8  # uploads
_DESCRIPTORS, _CONNECTED = 512, 8.0  # seconds
_LARGE = {"attention": 10, "glossaries": 2, "unbroken text": 4, "unbroken, wide beam": 4}  # requests that need memory
_IDLE = 15.0  # seconds, in which freed memory is returned at least once
_LONG, _SHORT, _PAUSE = 20, 40, 0.25  # long requests, short ones, seconds between these


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the server.")
    parser.add_argument("run", type=Path, help="a run folder, best with its CTranslate2 export")
    parser.add_argument("--source", type=Path, required=True, help="texts, one per line")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="only these checks; repeatable")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each contender in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flood-seconds", type=float, default=60.0)
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--together", type=int, action="append", help="texts in a request, for throughput; repeatable")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in options.only or CHECKS:
        with TemporaryDirectory() as folder:
            print(json.dumps({name: CHECKS[name](options, Path(folder))}), flush=True)


def throughput(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Many clients at once, compared with the same texts and search in one process without a server."""
    source, report = str(options.source.resolve()), folder / "offline.json"
    own = RunFolder.open(options.run).experiment().search
    job = Job(
        model=str(options.run.resolve()),
        source=source,
        report=str(report),
        beam=own.beam,
        settings=[{"engine": "auto"}],
    )
    job.write(folder / "job.json")
    sizes = {f"{_CLIENTS} clients, {size} a request": size for size in options.together or _TOGETHER}
    clients = [
        Contender(
            name,
            "heedful",
            python("serving_contender.py", job.model, source, _CLIENTS, size, folder / f"served-{size}.json"),
        )
        for name, size in sizes.items()
    ]
    offline = Contender(
        "offline", "heedful", python("translation_contenders.py", "heedful", folder / "job.json", "race")
    )
    results, failed = race([offline, *clients], folder, options.seconds, options.rounds)
    speeds = {result.contender.name: [lap.speed for lap in result.laps] for result in results}
    served = {name: json.loads((folder / f"served-{size}.json").read_text()) for name, size in sizes.items()}
    texts = json.loads(report.read_text())["texts"]
    return {
        "beam": own.beam,
        "texts_per_second": {name: round(statistics.median(several), 1) for name, several in speeds.items()},
        "of_offline": {name: _ratios(several, speeds["offline"]) for name, several in speeds.items()},
        "rounds": {name: [round(speed, 1) for speed in several] for name, several in speeds.items()},
        "elsewhere": {result.contender.name: round(statistics.median(result.elsewhere), 3) for result in results},
        "share_of_processors": {name: _medians(one["shares"]) for name, one in served.items()},
        "different_from_offline": {name: _differ(one["texts"], texts) for name, one in served.items()},
        "failed": failed,
    }


def _ratios(speeds: Sequence[float], offline: Sequence[float]) -> dict[str, float]:
    """Ratios within each round, because the speed of the machine changes between rounds."""
    ratios = [speed / other for speed, other in zip(speeds, offline, strict=True)]
    cuts = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
    return {name: round(value, 3) for name, value in cuts.items()}


def _medians(shares: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(statistics.median(several), 3) for name, several in shares.items()}


def _differ(found: dict[str, list[str]], expected: Sequence[str]) -> int:
    """The number of texts that were translated differently at least once than without a server."""
    return sum(several != [expected[int(number)]] for number, several in found.items())


def latency(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One short text at a time, alternately by an idle server and by the engine in this process."""
    from heedful import Translator

    texts = sorted(read_lines(options.source), key=len)[:_ALONE]
    random.Random(options.seed).shuffle(texts)
    translator = Translator.load(options.run)
    times: dict[str, list[float]] = {"engine": [], "server": []}
    with serving(options.run, folder) as server, asyncio.Runner() as runner:
        client = Client(server.port)
        for text in [*texts[:10], *texts]:
            began = time.perf_counter()
            translator.translate([text])
            between = time.perf_counter()
            answer = runner.run(client.send(translate_request([text])))
            times["engine"].append(between - began)
            times["server"].append(time.perf_counter() - between)
            assert answer.status == 200, answer
    found = {name: _percentiles(values[10:]) for name, values in times.items()}
    return {**found, "p95_ratio": round(found["server"]["p95"] / found["engine"]["p95"], 2)}


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50": round(1e3 * cuts[49], 2), "p95": round(1e3 * cuts[94], 2)}


def flood(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """More connections and more work from each than the server can do."""
    texts = read_lines(options.source)
    starts = range(0, len(texts) - _FLOOD_TEXTS, _FLOOD_TEXTS)
    requests = [(_FLOOD_TEXTS, translate_request(texts[start : start + _FLOOD_TEXTS])) for start in starts]
    seconds = options.flood_seconds
    with serving(options.run, folder) as server:
        worker = server.worker

        async def all_at_once() -> tuple[Any, list[int]]:
            clients = [Client(server.port, 2 * seconds) for _ in range(_FLOOD)]
            await asyncio.gather(*(client.connect() for client in clients))
            watching = asyncio.create_task(_watch(worker, seconds))
            load = await load_server(clients, requests, seconds)
            return load, await watching

        load, memory = asyncio.run(all_at_once())
        warm = memory[int(len(memory) * _WARM)]
        return {
            "answers": {str(status): count for status, count in sorted(load.answers.items())},
            "no_answer": load.answers.get(0, 0) + load.hung,
            "same_worker": server.worker == worker,
            "megabytes": [round(size / 1e6) for size in memory[:: max(1, len(memory) // 12)]],
            "growth_after_warm_up": round(max(memory[int(len(memory) * _WARM) :]) / warm - 1, 4),
            "exit_code": server.terminate(),
        }


async def _watch(pid: int, seconds: float) -> list[int]:
    """The memory of this process, every second."""
    sizes = []
    for _ in range(int(seconds)):
        sizes.append(resident_bytes(pid))
        await asyncio.sleep(1.0)
    return sizes


def malformed_requests(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every malformed request must get an answer below 500, and a good one the same answer as before."""

    async def all_of_them(server: Server) -> tuple[Counter[str], list[str], bool]:
        good = translate_request(read_lines(options.source)[:5])
        before = await Client(server.port).send(good)
        answers, bad = await _send_malformed(server.port, options.malformed, options.seed)
        same = before.status == 200 and (await Client(server.port).send(good)).body == before.body
        return answers, bad, same

    with serving(options.run, folder) as server:
        worker = server.worker
        answers, bad, same = asyncio.run(all_of_them(server))
        return {
            "answers": dict(sorted(answers.items())),
            "bad": bad[:20],
            "bad_in_all": len(bad),
            "good_as_before": same,
            "same_worker": server.worker == worker,
        }


async def _send_malformed(port: int, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Send malformed requests from many clients; count the answers by status, and list those that must not be."""
    chance = random.Random(seed)
    todo = [malformed(chance) for _ in range(count)]
    answers: Counter[str] = Counter()
    bad: list[str] = []

    async def work() -> None:
        while todo:
            kind, parts = todo.pop()
            client = Client(port, 60.0)
            try:
                answer = await client.send(*parts)
            except Hung:
                bad.append(f"{kind} hung: {parts[0][:200]!r}")
                continue
            client.close()
            answers[f"{answer.status}" if answer.status else "closed"] += 1
            if answer.status >= 500:
                bad.append(f"{kind} {answer.status} {answer.body[:100]!r}: {parts[0][:200]!r}")

    await asyncio.gather(*(work() for _ in range(_CLIENTS)))
    return answers, bad


def memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The memory of the worker in megabytes: at the start, after each kind of attack, and when it is idle again."""
    requests = _long_requests(read_lines(options.source))
    sizes: dict[str, int] = {}

    async def measure(server: Server) -> dict[str, Any]:
        def note(name: str) -> None:
            sizes[name] = round(resident_bytes(server.worker) / 1e6)

        worker = server.worker
        await Client(server.port).send(translate_request(["a"]))
        note("at the start")
        answers, _ = await _send_malformed(server.port, options.malformed, options.seed)
        note("malformed requests")
        for name, count in _LARGE.items():
            for request in requests[name][:count]:
                answers[str((await Client(server.port, 600.0).send(request)).status)] += 1
            note(name)
        await asyncio.sleep(_IDLE)
        note(f"after {_IDLE:.0f} idle seconds")
        answered = dict(sorted(answers.items()))
        return {"megabytes": sizes, "answers": answered, "same_worker": server.worker == worker}

    with serving(options.run, folder) as server:
        return asyncio.run(measure(server))


def short_behind_long(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Twenty long requests of each kind, and the slowest answers to short ones that arrive after them, in seconds."""
    texts = read_lines(options.source)
    short = translate_request([min(texts, key=len)])
    found = {}

    async def measure(server: Server, requests: Sequence[bytes]) -> dict[str, Any]:
        assert (await Client(server.port).send(short)).status == 200
        clients = [Client(server.port, 600.0) for _ in requests]
        answers = [asyncio.create_task(client.send(request)) for client, request in zip(clients, requests, strict=True)]
        await asyncio.sleep(0.5)
        client, slowest, statuses = Client(server.port, 600.0), {"short": 0.0, "health": 0.0}, Counter[int]()
        for _ in range(_SHORT):
            await asyncio.sleep(_PAUSE)
            for name, request in (("short", short), ("health", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")):
                began = time.perf_counter()
                statuses[(await client.send(request)).status] += 1
                slowest[name] = max(slowest[name], time.perf_counter() - began)
        for task, client in zip(answers, clients, strict=True):
            task.cancel()
            client.close()
        early = Counter(task.result().status for task in answers if task.done() and not task.cancelled())
        rounded = {name: round(seconds, 2) for name, seconds in slowest.items()}
        return {**rounded, "statuses": dict(statuses), "answered_before": dict(early)}

    for name, requests in _long_requests(texts).items():
        with serving(options.run, folder) as server:
            found[name] = asyncio.run(measure(server, requests))
    return found


def _long_requests(texts: Sequence[str]) -> dict[str, list[bytes]]:
    """Requests that take long, each for a reason of its own."""
    limits = ServiceLimits()
    texts = [text for text in texts if len(text) < 200]
    count = min(limits.texts, (limits.characters - 2000) // (sum(map(len, texts)) // len(texts) + 1))
    many = [texts[number % len(texts)] for number in range(count)]
    unbroken = "xq" * (limits.pieces // 2 - 10)
    page = "".join(f"<p>{text.replace(' ', ' <b>', 1)}</b></p>" for text in many[:100])
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "unbroken text": ("/translate", {"q": unbroken, "source": "xx", "target": "yy"}),
        "many texts": ("/translate", {"q": many, "source": "xx", "target": "yy"}),
        "ten alternatives": ("/translate", {"q": many, "source": "xx", "target": "yy", "alternatives": 10}),
        "HTML": ("/translate", {"q": page, "source": "xx", "target": "yy", "format": "html"}),
        "wide beam": ("/v1/translate", {"text": many, "beam": 32, "n_best": 10}),
        "unbroken, wide beam": ("/v1/translate", {"text": unbroken[:120], "beam": 32, "n_best": 10}),
        "diverse": ("/v1/translate", {"text": many[:100], "n_best": 10, "diverse": True}),
        "alignments": ("/v1/translate", {"text": many[:200], "alignments": True}),
        "attention": ("/v1/attention", {"text": unbroken[:190], "n_best": 10}),
        "scores": ("/v1/score", {"texts": many[: count // 2], "translations": many[: count // 2]}),
    }
    requests = {name: [post(path, body)] * _LONG for name, (path, body) in bodies.items()}
    glossaries = [{"a": f"wort{number}"} for number in range(_LONG)]  # each makes a job of its own
    requests["glossaries"] = [post("/v1/translate", {"text": many[:200], "glossary": each}) for each in glossaries]
    requests["everything"] = [several[0] for several in requests.values()] * 2
    return requests


def keyless_uploads(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Uploads without a key that stall before their end, and then the uploads of a client that has a key."""
    keys = folder / "keys.json"
    key = add_key(keys, "bench", per_minute=1000)
    kind = b"multipart/form-data; boundary=x"
    stalled = raw_post("/translate_file", b"x" * (ServiceLimits().file - 1), kind=kind)[:-1]
    fields = {"source": "xx", "target": "yy"}
    with serving(options.run, folder, "--keys", str(keys)) as server:

        async def measure() -> dict[str, Any]:
            clients = [Client(server.port) for _ in range(_STALLED)]
            tasks = [asyncio.create_task(client.send(stalled)) for client in clients]
            await asyncio.sleep(3.0)
            found: dict[str, Any] = {}
            for name, sent, header in (
                ("key in the header", fields, b"Authorization: Bearer " + key.encode()),
                ("key in the form", fields | {"api_key": key}, b"Accept: */*"),
            ):
                parts = [f'--x\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in sent.items()]
                parts.append(
                    '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na\r\n--x--\r\n'
                )
                answer = await Client(server.port).send(
                    raw_post("/translate_file", "".join(parts).encode(), header, kind=kind)
                )
                found[name] = answer.status
            for task, client in zip(tasks, clients, strict=True):
                task.cancel()
                client.close()
            return {**found, "megabytes": round(resident_bytes(server.worker) / 1e6)}

        return asyncio.run(measure())


def many_connections(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """More idle connections than the server has descriptors: does it still answer, and what does it log?"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))  # the server inherits it
    count = _DESCRIPTORS + 200
    with ExitStack() as stack:
        server = stack.enter_context(serving(options.run, folder))
        script = f"""
import socket, time
kept = []
for _ in range({count}):
    try:
        kept.append(socket.create_connection(("127.0.0.1", {server.port}), 5))
    except OSError:
        pass
time.sleep({_CONNECTED})
"""
        for _ in range(2):
            stack.callback(subprocess.Popen([sys.executable, "-c", script]).kill)

        async def measure() -> Counter[int]:
            statuses = Counter[int]()
            for _ in range(int(_CONNECTED)):
                await asyncio.sleep(1.0)
                client = Client(server.port, 5.0)
                try:
                    statuses[(await client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")).status] += 1
                except Hung:
                    statuses[-1] += 1
                client.close()
            return statuses

        statuses = asyncio.run(measure())
        return {"statuses": dict(statuses), "log_bytes": server.log.stat().st_size}


def killed(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Kill the worker while clients send requests: seconds until the next answer."""
    requests = [(1, translate_request([text])) for text in read_lines(options.source)]

    async def once(server: Server) -> float:
        clients = [Client(server.port) for _ in range(_CLIENTS)]
        loading = asyncio.create_task(load_server(clients, requests, _BETWEEN))
        await asyncio.sleep(1.0)
        os.kill(server.worker, signal.SIGKILL)
        began = time.perf_counter()
        while (await Client(server.port).send(requests[0][1])).status != 200:
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began
        await loading
        return seconds

    with serving(options.run, folder) as server:
        return {"seconds_until_an_answer": [round(asyncio.run(once(server)), 2) for _ in range(_KILLS)]}


def ended(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Send SIGTERM while clients send requests. The log has all accepted ones; each must have been answered."""
    requests = [(1, translate_request([text])) for text in read_lines(options.source)]
    rounds = []
    for _ in range(_KILLS):
        with serving(options.run, folder, "--json-log") as server:

            async def until_ended(server: Server) -> tuple[dict[int, int], int]:
                clients = [Client(server.port) for _ in range(_CLIENTS)]
                loading = asyncio.create_task(load_server(clients, requests, 3.0))
                await asyncio.sleep(1.0 + random.random())
                code = await asyncio.to_thread(server.terminate)
                return (await loading).answers, code

            answers, code = asyncio.run(until_ended(server))
            logged = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
            accepted = Counter(line["status"] for line in logged if line.get("path") == "/translate")
            lost = accepted.total() - answers.get(200, 0) - answers.get(503, 0)
            rounds.append(
                {"accepted": accepted.total(), "answered": answers.get(200, 0), "lost": lost, "exit_code": code}
            )
    return {"rounds": rounds, "lost": sum(one["lost"] for one in rounds)}


CHECKS = {
    "latency": latency,
    "throughput": throughput,
    "flood": flood,
    "short_behind_long": short_behind_long,
    "keyless_uploads": keyless_uploads,
    "malformed": malformed_requests,
    "memory": memory,
    "killed": killed,
    "ended": ended,
    "many_connections": many_connections,  # the last one: it lowers a limit of this process
}

if __name__ == "__main__":
    main()

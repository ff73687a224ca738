"""The attacks of bench/serve.py: large requests stay within the limits, and bad answers to malformed ones are found."""

import asyncio
import json

import pytest

import serve
from heedful.serve.service import ServiceLimits

TEXTS = ["A short text.", "Another text that has a few more words in it."]


def test_large_requests_are_accepted_by_the_limits() -> None:
    """A request that is refused for its size would measure nothing."""
    requests, limits = serve._long_requests(TEXTS), ServiceLimits()
    assert set(serve._LARGE) <= set(requests)
    for name, count in serve._LARGE.items():
        assert len(requests[name]) >= count
    for request in (request for several in requests.values() for request in several):
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        given = body.get("q") or body.get("text") or body.get("texts")
        texts = [given] if isinstance(given, str) else given
        assert len(texts) <= limits.texts
        assert sum(map(len, texts)) <= limits.characters


@pytest.mark.parametrize(("status", "is_bad"), [(400, False), (500, True), (503, True)])
def test_an_answer_of_500_or_more_to_a_malformed_request_is_bad(status: int, is_bad: bool) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def attack() -> tuple[int, int]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            answers, bad = await serve._send_malformed(server.sockets[0].getsockname()[1], 30, seed=1)
        return answers[f"{status}"], len(bad)

    answered, bad = asyncio.run(attack())
    assert answered > 0
    assert bad == (answered if is_bad else 0)

"""Requests that no client should send: fuzzed bodies, heads, encodings and sizes, and random bytes."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from load_generator import raw_post, translate_request

_PATHS = ("/translate", "/detect", "/translate_file", "/v1/translate", "/v1/score", "/v1/attention")
_FIELDS = (
    *("q", "source", "target", "format", "alternatives", "api_key", "text", "texts", "model", "n_best", "confidence"),
    *("alignments", "glossary", "beam", "prefix", "diverse", "stream", "translation", "pairs", "off", "file", "heads"),
)
_ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1.5,
        1e308,
        10**30,
        "",
        " ",
        "\x00",
        "\ud800",
        "a" * 5000,
        "\U0001f600" * 50,
        "\u202e<script>",
    ),
    *(
        "\u202e<script>",
        [],
        {},
        [[]],
        [None],
        [1, "a"],
        {"a": {"b": []}},
        "xx",
        "yy",
        "auto",
        "html",
        "<a href='x' <b></a>",
    ),
    "../../etc",
)
_KINDS = (b"application/json", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"text/plain")
_ENCODINGS = (b"gzip", b"br", b"deflate", b"identity, gzip", b"\xff")
_CHARSETS = (b"utf-16", b"utf-7", b"latin-1", b"nothing", b"\xfe")

Make = Callable[[random.Random], Sequence[bytes]]


def malformed(chance: random.Random) -> tuple[str, Sequence[bytes]]:
    """A malformed request: its kind, and the parts in which it is sent."""
    make = chance.choice(_MAKERS)
    return make.__name__.strip("_"), make(chance)


def _odd_fields(chance: random.Random) -> list[bytes]:
    """Fields of wrong types, and missing, unknown and repeated fields."""
    fields = {name: chance.choice(_ODD) for name in chance.sample(_FIELDS, chance.randint(0, 8))}
    body = json.dumps(fields).encode()
    if chance.random() < 0.2:
        body = body[:-1] + b',"q":"a","q":[]}'
    return [raw_post(chance.choice(_PATHS), body)]


def _broken_json(chance: random.Random) -> list[bytes]:
    """JSON that is truncated, deeply nested, or contains NaN or invalid text."""
    good = json.dumps({"q": "a b c", "source": "xx", "target": "yy"}).encode()
    depth = chance.choice((10, 1000, 100_000))
    bodies = (
        good[: chance.randint(0, len(good) - 1)],
        b"[" * depth,
        b'{"q":' * depth + b"1" + b"}" * depth,
        b'{"q": NaN, "source": Infinity}',
        b'{"q": "\xff\xfe", "source": "xx", "target": "yy"}',
        b'{"q": "\\ud800", "source": "xx", "target": "yy"}',
        b"\xef\xbb\xbf" + good,
        good.decode().encode("utf-16"),
        b'{"n_best": ' + b"9" * 10_000 + b"}",
        chance.randbytes(chance.randint(1, 2000)),
    )
    return [raw_post(chance.choice(_PATHS), chance.choice(bodies))]


def _broken_form(chance: random.Random) -> list[bytes]:
    """Forms with wrong escapes, boundaries and file names."""
    part = b'--x\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n\r\n%s\r\n'
    name = chance.choice((b"../../etc/passwd", b"a\x00.txt", b"x.docx", b"x.po", b"x.html", b"\xff", b""))
    bodies = (
        (b"q=%zz&source=%ff%fe&target=%00", _KINDS[1]),
        (b"&".join(b"q=a" for _ in range(5000)), _KINDS[1]),
        (b"&=" * 3000, _KINDS[1]),
        (part % (b"file", name, chance.randbytes(300)), _KINDS[2]),
        (part % (b"file", name, chance.randbytes(300)) + b"--x--\r\n", _KINDS[2]),
        ((part % (b"q", b"", b"a")) * 2000 + b"--x--", _KINDS[2]),
        (chance.randbytes(500), b"multipart/form-data"),
        (b"--x\r\n" + chance.randbytes(300), _KINDS[2]),
    )
    body, kind = chance.choice(bodies)
    return [raw_post(chance.choice(("/translate", "/detect", "/translate_file")), body, kind=kind)]


def _odd_encoding(chance: random.Random) -> list[bytes]:
    """A body with a false media type, charset or encoding."""
    kind = chance.choice(_KINDS) + b"; charset=" + chance.choice(_CHARSETS)
    field = b"Content-Encoding: " + chance.choice(_ENCODINGS)
    return [raw_post(chance.choice(_PATHS), chance.randbytes(200), field, kind=kind)]


def _odd_head(chance: random.Random) -> list[bytes]:
    """Unusual methods, paths, versions and header fields."""
    methods = (b"GET", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"HEADS", b"get", b"\xff")
    paths = (
        *(
            b"/../../etc/passwd",
            b"/%2e%2e/%2e%2e/etc/passwd",
            b"/translate%00",
            b"/%ff%fe",
            b"//",
            b"*",
            b"/?" + b"a" * 9000,
        ),
        *(
            b"http://elsewhere/translate",
            b"/download_file/../x",
            b"/static/../../x.py",
            b"/v1/models/" + b"a" * 3000,
            b"/#",
        ),
    )
    fields = (
        *(b"X: " + b"a" * 70_000, b"Content-Length: -1", b"Content-Length: x", b"Content-Length: 99999999999999999999"),
        *(
            b": empty",
            b"Bad Name: x",
            b"Cookie: " + chance.randbytes(50).replace(b"\n", b""),
            b"Host: \xff",
            b"X\x00: 1",
        ),
        *(b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Transfer-Encoding: nothing", b"Expect: 100-continue"),
        *(
            b"Range: bytes=0-9999999999",
            b"Upgrade: websocket\r\nConnection: Upgrade",
            b"Upgrade: h2c\r\nConnection: Upgrade",
            b"X-Request-ID: " + b"a" * 5000,
        ),
        *(
            b"Authorization: Bearer \xff\xff",
            b"Authorization: Basic ====",
            b"Origin: http://elsewhere",
            b"Accept: \x01",
        ),
    )
    line = chance.choice(methods) + b" " + chance.choice(paths) + b" HTTP/1." + chance.choice((b"0", b"1", b"9"))
    return [b"\r\n".join([line, b"Host: localhost", *chance.sample(fields, chance.randint(0, 3)), b"", b""])]


def _wrong_size(chance: random.Random) -> list[bytes]:
    """Bodies that are too long, chunked, longer than declared, or followed by endless trailers."""
    size = chance.choice((60_000, 200_000, 1_100_000))
    choices = (
        [translate_request(["a " * (size // 2)])],
        [translate_request(["a"] * (size // 50))],
        [raw_post("/translate", b'{"q": [' + b"1," * (min(size, 1_000_000) // 2) + b"1]}")],
        [raw_post("/translate", b"x" * 10) + b"y" * size],
        [b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"ffffffff\r\n" + b"x" * 1000],
        [b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\nabc\r\n"],
        [b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n" * (size // 6)],
    )
    return chance.choice(choices[:4] if chance.random() < 0.95 else choices)


def _no_request(chance: random.Random) -> list[bytes]:
    """Random bytes."""
    line = chance.choice((b"", b"GET", b"\x16\x03\x01", b"POST / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n\r\n"))
    return [line + chance.randbytes(chance.randint(1, 500)) + b"\r\n\r\n"]


_MAKERS: tuple[Make, ...] = (
    *(_odd_fields, _odd_fields, _broken_json, _broken_form, _odd_encoding, _odd_head, _wrong_size, _no_request),
)

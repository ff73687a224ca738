"""The body of a request: of bounded size and time, and with nothing in it that no text or number can be."""

import asyncio
import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from heedful.serve.limits import Limits
from heedful.serve.refusal import Refused

Body = TypeVar("Body", bound=BaseModel)

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 2000


async def read_body(request: Request, kind: type[Body], limits: Limits) -> Body:
    """A request of this kind, or a refusal that says what is wrong and repeats nothing of it."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await content_of(request, limits.body, limits.arriving)
    if media == _FORM:
        fields, strict = _form(content), False
    elif media == "application/json":
        fields, strict = _json(content), True
    else:
        raise Refused(415, f"Invalid request: a request is application/json or {_FORM}")
    try:
        return kind.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise Refused(400, f"Invalid request: {_sentence(error)}") from None


async def content_of(request: Request, most: int, seconds: float) -> bytes:
    """The bytes of a body, if they are not too many and do not take too long."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 12 or int(length) > most):
        raise _too_large(most)
    content = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                content += chunk
                if len(content) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise Refused(408, "the request did not arrive in time", close=True) from None
    except ClientDisconnect:
        raise Refused(400, "the client has gone", close=True) from None
    return bytes(content)


def _too_large(most: int) -> Refused:
    return Refused(413, f"Invalid request: a request has at most {most} bytes", close=True)


def _json(content: bytes) -> Any:
    """Standard JSON only: neither NaN nor numbers without end, and strings that are text."""
    try:
        value = json.loads(content.decode(), parse_constant=_no_number, parse_float=_number)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError):
        raise Refused(400, "Invalid request: the body is not JSON") from None
    return value


def _number(digits: str) -> float:
    if not isfinite(value := float(digits)):
        raise ValueError
    return value


def _no_number(_: str) -> float:
    raise ValueError


def _form(content: bytes) -> dict[str, Any]:
    """A field that comes several times is a list."""
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refused(400, "Invalid request: the body is not a form in UTF-8") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _sentence(error: ValidationError) -> str:
    """What is wrong first, without the value: it may be large, or not the client's own."""
    first: Mapping[str, Any] = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    name = str(place[0]) if place else "the body"
    if first["type"] == "missing" or (first["type"] == "string_too_short" and len(place) == 1):
        return f"missing {name} parameter"
    return f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}"

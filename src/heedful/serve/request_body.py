"""The body of a request: of bounded size and time, and with nothing in it that no text or number can be."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from math import isfinite
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect, Request

from heedful.serve.http_errors import Refused
from heedful.serve.limits import Limits

Body = TypeVar("Body", bound=BaseModel)

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
PARTS = "multipart/form-data"
_MOST_FIELDS = 2000


async def read_body(request: Request, kind: type[Body], limits: Limits) -> Body:
    """A request of this kind, or a refusal that says what is wrong and repeats nothing of it."""
    media = media_of(request)
    content = await content_of(request, limits.body, limits.arriving)
    if media == _JSON:
        return _read(_json(content), kind, limits, strict=True)
    if media == _FORM:
        return _read(_by_name(_form(content)), kind, limits)
    raise Refused(415, f"Invalid request: a request is {_JSON} or {_FORM}")


async def read_values(request: Request, kind: type[Body], limits: Limits) -> Body:
    """The same of JSON, or of what stands in the address and in a form of either kind; the address comes first."""
    media = media_of(request)
    content = await content_of(request, limits.body, limits.arriving)
    if media == _JSON:
        return _read(_json(content), kind, limits, strict=True)
    if media == _FORM:
        sent = _form(content)
    elif media == PARTS:
        form = await read_parts(request, content)
        sent = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    elif not content:
        sent = []
    else:
        raise Refused(415, f"Invalid request: a request is {_JSON}, {_FORM} or {PARTS}")
    asked = _by_name(_form(request.scope["query_string"]))
    return _read(_by_name(sent) | asked, kind, limits)


def media_of(request: Request) -> str:
    """What its body is said to be."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _read(fields: Any, kind: type[Body], limits: Limits, *, strict: bool = False) -> Body:
    """What has too many items is not looked at: each that is wrong would have its own error."""
    known = [value for name, value in fields.items() if name in kind.model_fields] if isinstance(fields, dict) else []
    size = max((len(value) for value in known if isinstance(value, list | dict)), default=0)
    if size > limits.texts:
        raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({limits.texts})")
    try:
        return kind.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise Refused(400, f"Invalid request: {_sentence(error, kind, fields)}") from None


async def content_of(
    request: Request, most: int, seconds: float, count: Callable[[int], None] = lambda _: None
) -> bytes:
    """The bytes of a body, if they are not too many and do not take too long; `count` hears how many each time."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 12 or int(length) > most):
        raise _too_large(most)
    content = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                content += chunk
                count(len(chunk))
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


def _form(content: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Refused(400, f"Invalid request: a form is in UTF-8 and has at most {_MOST_FIELDS} fields") from None


async def read_parts(request: Request, content: bytes, *, files: int = 0) -> FormData:
    """A form whose parts are apart, all of it in memory."""
    from python_multipart.multipart import parse_options_header
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":  # some of those that Python knows take for ever
        raise Refused(415, f"Invalid request: {PARTS} is in UTF-8 only")
    size = len(content) + 1
    parser = MultiPartParser(request.headers, stream(), max_files=files, max_fields=_MOST_FIELDS, max_part_size=size)
    parser.spool_max_size = size
    try:
        return await parser.parse()
    except (MultiPartException, LookupError, ValueError) as error:
        wanted = f"with at most {files} files" if files else "without files"
        raise Refused(400, f"Invalid request: the body is not a form in parts {wanted}") from error


def _by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A field that comes several times is a list."""
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _sentence(error: ValidationError, kind: type[BaseModel], fields: Any) -> str:
    """What is wrong first, without the value: it may be large, or not the client's own."""
    first: Mapping[str, Any] = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    name = str(place[0]) if place else "the body"
    needed = [field for field, facts in kind.model_fields.items() if facts.is_required()]
    if name in needed and fields.get(name) in (None, "", []):
        return f"missing {name} parameter"
    return f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}"

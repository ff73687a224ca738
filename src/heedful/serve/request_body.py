"""Read the body of a request once, within limits of size and time, and validate it.

FastAPI's own reading takes bodies of any size for any time, accepts NaN and half surrogate pairs, which then fail
inside, and repeats the input in its errors. So the routes get their body from the dependencies `Body` and `Parameters`.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from math import isfinite
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData
from starlette.requests import ClientDisconnect

from heedful.serve.http_errors import RequestError
from heedful.serve.service import ArrivingBodies, Service, ServiceDependency, ServiceLimits

Schema = TypeVar("Schema", bound=BaseModel)

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_MOST_FIELDS = 2000
_LONGEST_NAME = 200  # characters of the name of a file


class Body(Generic[Schema]):
    """A dependency: the body of a request, as JSON or as a simple form. The API key is checked before it is read."""

    def __init__(self, schema: type[Schema]) -> None:
        self._schema = schema

    async def __call__(self, request: Request, service: ServiceDependency) -> Schema:
        service.admit(request)
        return await read_body(request, self._schema, service.limits, service.bodies(request))


class Parameters(Generic[Schema]):
    """A dependency: the parameters of a request, as JSON, or from the query and a form; the query has precedence."""

    def __init__(self, schema: type[Schema]) -> None:
        self._schema = schema

    async def __call__(self, request: Request, service: ServiceDependency) -> Schema:
        limits = service.limits
        media = media_type_of(request)
        content = await read_content(request, limits.body, service.bodies(request))
        if media == _JSON:
            return validate_fields(_parse_json(content), self._schema, limits, strict=True)
        if media == _FORM:
            sent = _parse_form(content)
        elif media == MULTIPART:
            form = await parse_multipart(request, content)
            sent = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        elif not content:
            sent = []
        else:
            raise RequestError(415, f"Invalid request: the body must be {_JSON}, {_FORM} or {MULTIPART}")
        query = _group_by_name(_parse_form(request.scope["query_string"]))
        return validate_fields(_group_by_name(sent) | query, self._schema, limits)


async def read_body(request: Request, schema: type[Schema], limits: ServiceLimits, bodies: ArrivingBodies) -> Schema:
    """The validated body, or a `RequestError` that says what is wrong and repeats nothing of the body."""
    media = media_type_of(request)
    content = await read_content(request, limits.body, bodies)
    if media == _JSON:
        return validate_fields(_parse_json(content), schema, limits, strict=True)
    if media == _FORM:
        return validate_fields(_group_by_name(_parse_form(content)), schema, limits)
    raise RequestError(415, f"Invalid request: the body must be {_JSON} or {_FORM}")


def media_type_of(request: Request) -> str:
    """The media type that the request declares, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def validate_fields(fields: Any, schema: type[Schema], limits: ServiceLimits, *, strict: bool = False) -> Schema:
    """These fields of a request as this schema has them.

    Overlong lists are refused without validating them: each wrong element would make an error of its own.
    """
    known = [value for name, value in fields.items() if name in schema.model_fields] if isinstance(fields, dict) else []
    size = max((len(value) for value in known if isinstance(value, list | dict)), default=0)
    if size > limits.texts:
        raise RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limits.texts})")
    try:
        return schema.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise RequestError(400, f"Invalid request: {_describe(error, schema, fields)}") from None


async def read_content(request: Request, most: int, bodies: ArrivingBodies) -> bytes:
    """The bytes of a body, within the limits of this one and of all that are arriving."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 12 or int(length) > most):
        raise _too_large(most)
    content = bytearray()
    try:
        async with bodies.receive() as count:
            async for chunk in request.stream():
                content += chunk
                count(len(chunk))
                if len(content) > most:
                    raise _too_large(most)
    except ClientDisconnect:
        raise RequestError(400, "the client disconnected", close=True) from None
    return bytes(content)


def _too_large(most: int) -> RequestError:
    return RequestError(413, f"Invalid request: the body may have at most {most} bytes", close=True)


def _parse_json(content: bytes) -> Any:
    """Standard JSON only: no NaN, no infinite numbers, and strings that are valid text."""
    try:
        value = json.loads(content.decode(), parse_constant=_refuse_constant, parse_float=_parse_float)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        raise RequestError(400, "Invalid request: the body is not JSON") from None
    return value


def _parse_float(digits: str) -> float:
    if not isfinite(value := float(digits)):
        raise ValueError
    return value


def _refuse_constant(_: str) -> float:
    raise ValueError


def _parse_form(content: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestError(
            400, f"Invalid request: a form must be UTF-8 and may have at most {_MOST_FIELDS} fields"
        ) from None


async def parse_multipart(request: Request, content: bytes, *, files: int = 0) -> FormData:
    """Parse a multipart form in memory."""
    from python_multipart.multipart import parse_options_header
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncGenerator[bytes, None]:
        yield content

    _, options = parse_options_header(request.headers["content-type"])
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":  # some of Python's decoders take minutes
        raise RequestError(415, f"Invalid request: {MULTIPART} must be UTF-8")
    size = len(content) + 1
    parser = MultiPartParser(request.headers, stream(), max_files=files, max_fields=_MOST_FIELDS, max_part_size=size)
    parser.spool_max_size = size
    try:
        return await parser.parse()
    except (MultiPartException, LookupError, ValueError) as error:
        allowed = f"with at most {files} files" if files else "without files"
        raise RequestError(400, f"Invalid request: the body is not a multipart form {allowed}") from error


async def read_pictures(
    request: Request, service: Service, most: int
) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """The fields of a form, and the names and contents of its files `picture`; its API key is checked."""
    content = await read_content(request, service.limits.file, service.bodies(request))
    form = await parse_multipart(request, content, files=most)
    try:
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        service.admit(request, fields.pop("api_key", None))
        files = [file for file in form.getlist("picture") if not isinstance(file, str)]
        if not files:
            raise RequestError(400, "Invalid request: missing picture parameter")
        return fields, [((file.filename or "picture")[:_LONGEST_NAME], await file.read()) for file in files]
    finally:
        await form.close()


def _group_by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A field that is given several times becomes a list."""
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _describe(error: ValidationError, schema: type[BaseModel], fields: Any) -> str:
    """The first error without the value, which may be large."""
    first: Mapping[str, Any] = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    name = str(place[0]) if place else "the body"
    required = [field for field, facts in schema.model_fields.items() if facts.is_required()]
    if name in required and fields.get(name) in (None, "", []):
        return f"missing {name} parameter"
    return f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}"

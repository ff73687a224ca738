"""The OpenAPI document: requests are read by our own hand, so they are told of by it, too."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from heedful.serve import schemas as wire
from heedful.serve.model_registry import Shelf

_REFERENCE = "#/components/schemas/{model}"
_KINDS = (wire.LibreRequest, wire.DetectRequest, wire.TranslateRequest, wire.ScoreRequest, wire.AttentionRequest)
_REFUSALS = {
    400: "what is wrong with the request",
    403: "the key is not known, the request comes from a page of another origin, or this is not done here",
    404: "there is no such model",
    408: "the request did not arrive in time",
    413: "the request is too large",
    415: "the request is neither JSON nor a form",
    429: "the key was used too often; Retry-After tells when to come again",
    503: "too much waits, or it took too long; Retry-After tells when to come again",
}


def takes(kind: type[BaseModel], *, form: bool = False) -> dict[str, Any]:
    """What a route says of its body."""
    schema = {"schema": {"$ref": _REFERENCE.format(model=kind.__name__)}}
    forms = ("application/x-www-form-urlencoded", "multipart/form-data") if form else ()
    media = ("application/json", *forms)
    return {"requestBody": {"required": True, "content": dict.fromkeys(media, schema)}}


def gives(kind: object, *refusals: int, events: bool = False) -> dict[int | str, dict[str, Any]]:
    """What a route says of its answers, which may be a stream of events, too."""
    refused: dict[int | str, dict[str, Any]] = {
        status: {"model": wire.Failure, "description": _REFUSALS[status]} for status in (403, *refusals)
    }
    streams: dict[str, Any] = {"content": {"text/event-stream": {}}} if events else {}
    return {200: {"model": kind, **streams}, **refused}


def described(app: FastAPI, shelf: Shelf) -> Callable[[], dict[str, Any]]:
    """Makes the document, once: models and languages are those that are served."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, kinds = models_json_schema([(kind, "validation") for kind in _KINDS], ref_template=_REFERENCE)
            made["components"]["schemas"].update(kinds["$defs"])
            form = made["paths"]["/translate_file"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
            _name_choices(made["components"]["schemas"] | {"FileForm": form}, shelf)
            app.openapi_schema = made
        return app.openapi_schema

    return document


def _name_choices(schemas: dict[str, Any], shelf: Shelf) -> None:
    sources = sorted({model.source for model in shelf.models})
    targets = sorted({model.target for model in shelf.models})
    every = sorted({*sources, *targets})  # a text in the language that is wanted stays as it is
    for kind, froms, tos in (("LibreRequest", every, every), ("FileForm", sources, targets)):
        schemas[kind]["properties"]["source"]["enum"] = [*froms, "auto"]
        schemas[kind]["properties"]["target"]["enum"] = tos
    choices = {"model": [model.name for model in shelf.models], "source": sources, "target": targets}
    for kind in ("TranslateRequest", "ScoreRequest", "AttentionRequest"):
        for name, known in choices.items():
            text, _ = schemas[kind]["properties"][name]["anyOf"]  # or null
            text["enum"] = known

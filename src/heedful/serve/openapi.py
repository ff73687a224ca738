"""The OpenAPI document. The routes read their bodies by dependencies of our own, so they also describe them here."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from heedful.serve import schemas
from heedful.serve.model_registry import ModelRegistry

_REFERENCE = "#/components/schemas/{model}"
_REQUESTS = (
    schemas.LibreRequest,
    schemas.DetectRequest,
    schemas.TranslateRequest,
    schemas.ScoreRequest,
    schemas.AttentionRequest,
    schemas.CompleteRequest,
    schemas.ClassifyRequest,
    schemas.EmbedRequest,
    schemas.FindRequest,
)
_ERRORS = {
    400: "the request is invalid",
    403: "the API key is unknown, the request comes from a page of another origin, or this is disabled here",
    404: "there is no such model",
    408: "the request did not arrive in time",
    413: "the request is too large",
    415: "the request is neither JSON nor a form",
    429: "the API key was used too often; Retry-After says when to try again",
    503: "too many requests are waiting, or this one took too long; Retry-After says when to try again",
}


def describe_body(schema: type[BaseModel], *, form: bool = False) -> dict[str, Any]:
    """`openapi_extra` of a route: its body is JSON, or also a form."""
    content = {"schema": {"$ref": _REFERENCE.format(model=schema.__name__)}}
    forms = ("application/x-www-form-urlencoded", "multipart/form-data") if form else ()
    media = ("application/json", *forms)
    return {"requestBody": {"required": True, "content": dict.fromkeys(media, content)}}


def describe_body_or_pictures(
    schema: type[BaseModel], pictures: str, listed: str, more: Mapping[str, object] = MappingProxyType({})
) -> dict[str, Any]:
    """`openapi_extra` of a route: its body is JSON, or a form with pictures, a model's name and `more` fields.

    `listed` is the key of its models in the answer of /v1/models.
    """
    described = describe_body(schema)
    properties = {
        "picture": {"type": "string", "contentMediaType": "application/octet-stream", "description": pictures},
        "model": {"type": "string", "description": f"a name from /v1/models, under {listed}"},
        **more,
        "api_key": {"type": "string"},
    }
    form = {"type": "object", "required": ["picture"], "properties": properties}
    described["requestBody"]["content"]["multipart/form-data"] = {"schema": form}
    return described


def describe_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: these errors, and 403, which every route can give."""
    return {status: {"model": schemas.ErrorAnswer, "description": _ERRORS[status]} for status in (403, *statuses)}


EVENT_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}  # or JSON


def make_document(app: FastAPI, registry: ModelRegistry) -> Callable[[], dict[str, Any]]:
    """A function that makes the document once, with the served models and languages."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, requests = models_json_schema([(schema, "validation") for schema in _REQUESTS], ref_template=_REFERENCE)
            made["components"]["schemas"].update(requests["$defs"])
            form = made["paths"]["/translate_file"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
            _add_choices(made["components"]["schemas"] | {"FileForm": form}, registry)
            app.openapi_schema = made
        return app.openapi_schema

    return document


def _add_choices(components: dict[str, Any], registry: ModelRegistry) -> None:
    """List the models and languages that a request can name."""
    sources = sorted({model.source for model in registry.models})
    targets = sorted({model.target for model in registry.models})
    every = sorted({*sources, *targets})  # a text that is already in the target language is returned unchanged
    for name, source_choices, target_choices in (("LibreRequest", every, every), ("FileForm", sources, targets)):
        components[name]["properties"]["source"]["enum"] = [*source_choices, "auto"]
        components[name]["properties"]["target"]["enum"] = target_choices
    choices = {"model": [model.name for model in registry.models], "source": sources, "target": targets}
    for name in ("TranslateRequest", "ScoreRequest", "AttentionRequest"):
        for field, known in choices.items():
            text, _ = components[name]["properties"][field]["anyOf"]  # or null
            text["enum"] = known

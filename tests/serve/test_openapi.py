"""schemathesis makes requests from the OpenAPI document: the document describes every answer, and none is a 500."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CheckFunction
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_examples import listening, service_of

from heedful.documents import SUFFIXES
from heedful.serve.service import ServiceLimits

# A text that is too long and languages that no model is for are well-formed, and refused all the same.
NOT_ASKED: list[CheckFunction] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def schema(trained: Path) -> Iterator[Any]:
    with listening(service_of(trained / "run", limits=ServiceLimits(characters=2000))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


POST = ["/translate", "/detect", "/translate_file", "/v1/translate", "/v1/score", "/v1/attention"]
ASKED = [(path, "POST", mode) for path in POST for mode in GenerationMode]


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [*ASKED, ("/languages", "GET", GenerationMode.POSITIVE)],  # which has nothing that could be wrong
)
def test_every_answer_is_in_the_document(schema: Any, path: str, method: str, mode: GenerationMode) -> None:
    seen: list[int] = []

    @settings(
        max_examples=15,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(schema[path][method].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        body = named(case.body, SUFFIXES[len(seen) % len(SUFFIXES)]) if "file" in path and mode.is_positive else {}
        seen.append(case.call_and_validate(excluded_checks=NOT_ASKED, timeout=20, **body).status_code)

    ask()
    assert mode.is_negative or 200 in seen


def named(body: dict[str, Any], ending: str) -> dict[str, Any]:
    """A form whose file has a name, which an OpenAPI document cannot require, and whose glossary is JSON."""
    fields = {name: body[name] for name in ("source", "target")}
    if "glossary" in body:
        fields["glossary"] = json.dumps({"a": str(body["glossary"])})
    return {"files": {"file": (f"a{ending}", f"a b {body['file']}".encode("utf-8", "replace"))}, "data": fields}


def test_every_schema_that_the_document_names_is_in_it(schema: Any) -> None:
    document = schema.raw_schema
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= document["components"]["schemas"].keys()
    assert {"ClassifyRequest", "CompleteRequest", "EmbedRequest", "FindRequest", "TranslateRequest"} <= named

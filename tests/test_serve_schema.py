"""Every answer to what schemathesis makes of the OpenAPI document is one that it tells of, and none is a 500."""

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

from heedful.serve.limits import Limits
from serve_examples import listening, service_of

# A text that is too long and languages that no model is for are well-formed, and refused all the same.
NOT_ASKED: list[CheckFunction] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def schema(trained: Path) -> Iterator[Any]:
    with listening(service_of(trained / "run", limits=Limits(characters=2000))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", ["/translate", "/detect", "/v1/translate", "/v1/score", "/v1/attention", "/languages"])
def test_every_answer_is_in_the_document(schema: Any, path: str, mode: GenerationMode) -> None:
    method = "GET" if path == "/languages" else "POST"
    if (method, mode) == ("GET", GenerationMode.NEGATIVE):
        return  # it has nothing that could be wrong
    seen = []

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
        seen.append(case.call_and_validate(excluded_checks=NOT_ASKED, timeout=20).status_code)

    ask()
    assert mode.is_negative or 200 in seen

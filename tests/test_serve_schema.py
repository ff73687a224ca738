"""What schemathesis makes of the OpenAPI document: every answer is one that the document tells of, and none is a 500."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="needs schemathesis")

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import positive_data_acceptance

from heedful.serve.limits import Limits
from serve_examples import listening, service_of

# A language that is not served and a list that is too long are well-formed, and refused all the same.
NOT_ASKED: list[CheckFunction] = [positive_data_acceptance]


@pytest.fixture(scope="module")
def schema(trained: Path) -> Iterator[Any]:
    with listening(service_of(trained / "run", limits=Limits(characters=2000))) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


tests = schemathesis.pytest.from_fixture("schema")


@tests.parametrize()
@settings(
    max_examples=12,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_in_the_document(case: Any) -> None:
    case.call_and_validate(excluded_checks=NOT_ASKED, timeout=20)

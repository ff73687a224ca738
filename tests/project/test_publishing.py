"""Files for publishing agree with the package and the server."""

import re
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from heedful.serve import libretranslate_routes

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version_and_the_licence() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_workflow_tests_every_python_that_the_package_accepts() -> None:
    named = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert yaml.safe_load(read(".github/workflows/check.yml"))["jobs"]["core"]["strategy"]["matrix"]["python"] == named
    first, last = named[0], int(named[-1].partition(".")[2])
    assert PROJECT["requires-python"] == f">={first},<3.{last + 1}"


def test_the_image_asks_a_path_that_exists_and_copies_files_that_exist() -> None:
    file = read("Dockerfile")
    (asked,) = re.findall(r"127\.0\.0\.1:5000(/\w+)", file)
    assert asked in {getattr(route, "path", "") for route in libretranslate_routes.router.routes}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", file, re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert len(names) == 5
    assert all((ROOT / name).exists() and f"!{name}" in read(".dockerignore").split() for name in names)


def test_the_images_that_other_files_name_are_built() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", read("Dockerfile"), re.MULTILINE))
    assert yaml.safe_load(read("compose.yaml"))["services"]["heedful"]["build"]["target"] in stages
    assert set(re.findall(r"image: heedful:(\w+)", read("docs/how-to/kubernetes.yaml"))) <= stages

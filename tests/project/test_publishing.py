"""Files for publishing agree with the package and the server."""

import re
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_string
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from heedful.serve import libretranslate_routes

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version_and_the_licence() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]


def test_all_addresses_of_the_project_are_in_its_repository() -> None:
    assert all(url.startswith(PROJECT["urls"]["Repository"]) for url in PROJECT["urls"].values())


def test_the_description_has_no_link_that_an_index_cannot_follow(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path), "--target", "sdist"]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        prefix = archive.name.removesuffix(".tar.gz")
        assert f"{prefix}/hatch_build.py" in files.getnames()  # without it, nobody could build a wheel of this
        metadata = files.extractfile(f"{prefix}/PKG-INFO")
        assert metadata
        message = message_from_string(metadata.read().decode())
    assert message["Description-Content-Type"] == "text/markdown"
    description = message.get_payload()
    assert isinstance(description, str)
    links = re.findall(r"\]\(([^)]+)\)", description)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", read("README.md"))) > 40
    assert all(link.startswith("https://") for link in links)
    home = re.escape(PROJECT["urls"]["Repository"])
    own = [re.fullmatch(rf"{home}/(blob|raw)/v{PROJECT['version']}/([^#]+)(#.*)?", link) for link in links]
    paths = {match[2]: match[1] for match in own if match}
    assert len(paths) > 30
    for path, kind in paths.items():
        assert (ROOT / path).exists(), path
        assert (kind == "raw") == path.endswith(".png")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b/c.md#d)", "[a](https://x/blob/v1/b/c.md#d)"),
        ("![a](b.png)", "![a](https://x/raw/v1/b.png)"),
        ("[a](https://y) [b](#c) [d](mailto:e)", "[a](https://y) [b](#c) [d](mailto:e)"),
        ("a (b) [c]", "a (b) [c]"),
    ],
)
def test_relative_links_lead_to_a_tag_of_the_repository(text: str, expected: str) -> None:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.point_to("https://x", "v1", text) == expected


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
    assert len(names) == 6
    assert all((ROOT / name).exists() and f"!{name}" in read(".dockerignore").split() for name in names)


def test_the_images_that_other_files_name_are_built() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", read("Dockerfile"), re.MULTILINE))
    assert yaml.safe_load(read("compose.yaml"))["services"]["heedful"]["build"]["target"] in stages
    assert set(re.findall(r"image: heedful:(\w+)", read("docs/how-to/kubernetes.yaml"))) <= stages

"""The wheel: it works without PyTorch, contains the models, and brings few other packages."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from heedful.storage.model_names import BUILT_IN, built_in_models
from heedful.storage.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
_TRAINING = (
    *("torch", "numba", "llvmlite", "threadpoolctl", "sacrebleu", "sacremoses", "rapidfuzz", "jaxtyping"),
    *("tokenizers", "safetensors"),
)
NAMES = ("de-en", "en-de", "en-es", "en-fr", "es-en", "fr-en")
MOST_OF_THE_WHEEL = 40 << 20
MOST_OF_A_MODEL = 6 << 20
SENTENCES = {
    "en-de": "Where is the station?",
    "en-fr": "Where is the station?",
    "de-en": "Wo ist der Bahnhof?",
    "en-es": "Where is the station?",
    "fr-en": "Où est la gare ?",
    "es-en": "¿Dónde está la estación?",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    process = subprocess.run(build, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (path,) = folder.glob("heedful-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in its own environment, which borrows all libraries but those of the extra `train`."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    process = subprocess.run(install, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (site / "absent.pth").write_text(f"import sys; sys.modules.update(dict.fromkeys({_TRAINING!r}))\n")
    return folder / "bin" / "heedful"


def ask(program: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The output of the installed program, run in an unrelated folder."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LC_", "LANG", "COV"))}
    environment = plain | {"PYTHONUTF8": "1"}
    command = [str(program), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_is_small_and_has_all_models(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_OF_THE_WHEEL
    files = zipfile.ZipFile(wheel).namelist()
    for name in NAMES:
        assert f"heedful/builtin/{name}/ctranslate2/model.bin" in files
        assert f"heedful/builtin/{name}/README.md" in files


def test_the_installed_program_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = "import heedful, sys; print(heedful.__file__)"
    process = subprocess.run(
        [installed.parent / "python", "-c", where], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    assert Path(process.stdout.strip()).is_relative_to(installed.parent.parent)


def test_the_installed_program_lists_its_models(installed: Path, tmp_path: Path) -> None:
    process = ask(installed, tmp_path, "models")
    assert process.returncode == 0, process.stderr
    assert [line.split()[0] for line in process.stdout.splitlines()[1:]] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_installed_program_translates_at_once(installed: Path, tmp_path: Path, name: str) -> None:
    by_name = ask(installed, tmp_path, "translate", name, SENTENCES[name])
    chosen = ask(installed, tmp_path, "translate", "--to", name.partition("-")[2], SENTENCES[name])
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout.strip()
    assert by_name.stdout.strip() != SENTENCES[name]
    assert chosen.stdout == by_name.stdout
    assert chosen.stderr.startswith(f"{name}: the text seems to be ")


def test_the_built_in_models_are_these() -> None:
    assert tuple(built_in_models()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_small_names_its_languages_and_has_a_card(name: str) -> None:
    folder = BUILT_IN / name
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MOST_OF_A_MODEL
    data = RunFolder.open(folder).experiment().data
    assert f"{data.source_language}-{data.target_language}" == name
    card = (folder / "README.md").read_text(encoding="utf-8")
    for needed in (f"# {name}: ", "CC-BY 2.0 France", "tatoeba.org", "weak at", "BLEU"):
        assert needed in card, needed


@pytest.mark.parametrize("name", NAMES)
def test_a_model_contains_no_path_of_the_machine_that_made_it(name: str) -> None:
    paths = [BUILT_IN / name / file for file in ("experiment.toml", "about.json", "README.md")]
    for path in paths:
        assert not re.search(r"(?<![\w.:/])/(?:home|root|tmp|work|Users|mnt)/", path.read_text(encoding="utf-8")), path


# With its dependencies, in an environment that borrows nothing

MOST_PACKAGES = 32  # 30 on 2026-11-18


@pytest.fixture(scope="module")
def downloaded(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in an empty environment, with the packages that pip chooses for it."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False)
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "--timeout", "20"]
    install += ["--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-compile"]
    probe = subprocess.run([*install, "--no-deps", "polib"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"needs a package index: {probe.stderr.strip().splitlines()[-1]}")
    process = subprocess.run([*install, str(wheel)], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return folder / "bin" / "heedful"


def test_the_core_brings_few_packages_and_none_for_training(downloaded: Path) -> None:
    listed = "from importlib.metadata import distributions; print(*{d.name.lower() for d in distributions()})"
    command = [str(downloaded.parent / "python"), "-c", listed]
    packages = set(subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout.split())
    assert {"heedful", "ctranslate2", "fastapi", "lxml"} <= packages
    assert not packages & {*_TRAINING, "triton"}
    assert len(packages) <= MOST_PACKAGES, sorted(packages)


def test_the_core_translates_serves_and_translates_a_document(downloaded: Path, tmp_path: Path) -> None:
    said = ask(downloaded, tmp_path, "translate", "en-de", SENTENCES["en-de"])
    assert (said.returncode, said.stdout) == (0, "Wo ist der Bahnhof?\n"), said.stderr
    (tmp_path / "a.html").write_text("<p>Where is the <i>station</i>?</p>")
    read = ask(downloaded, tmp_path, "translate", "en-de", "--input", "a.html", "--output", "b.html")
    assert (read.returncode, "Wo ist der" in (tmp_path / "b.html").read_text(encoding="utf-8")) == (0, True)
    command = [str(downloaded), "serve", "en-de", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env={}, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            url = [server.stderr.readline() for _ in range(2)][1].split()[0]
            body = json.dumps({"q": SENTENCES["en-de"], "source": "en", "target": "de"}).encode()
            asked = Request(f"{url}/translate", body, {"Content-Type": "application/json"})
            with urlopen(asked, timeout=30) as answer:
                assert json.load(answer)["translatedText"] == "Wo ist der Bahnhof?"
        finally:
            server.terminate()
            server.communicate(timeout=30)  # a pipe that is closed before the server has ended breaks its last lines
    assert server.returncode == 0

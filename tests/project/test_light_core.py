"""Without the extra `train`, heedful translates, serves and translates documents; the rest says what it needs."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import toy

import heedful
from heedful.errors import ConfigError

# What `train` brings, and what comes with it. A module that is None in `sys.modules` cannot be imported or found.
TRAINING = (
    *("torch", "numba", "llvmlite", "threadpoolctl", "sacrebleu", "sacremoses", "rapidfuzz", "jaxtyping"),
    *("tokenizers", "safetensors"),
)
REMEDY = "which is not installed; run: pip install 'heedful[train]', or '.[train]' in a copy of the repository"
HTML = "<p>The <b>black dog</b> sleeps under the table.</p>"
MARKDOWN = "# The dog\n\nIt *sleeps* here.\n"


@pytest.fixture(params=[(), ("lxml",)], ids=["light", "no-lxml"])
def light(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds none of the libraries of `train`, nor those of the parameter."""
    return _environment(tmp_path / "without", (*TRAINING, *request.param))


@pytest.fixture
def core(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds none of the libraries of `train`."""
    return _environment(tmp_path / "without", TRAINING)


def _environment(folder: Path, absent: tuple[str, ...]) -> dict[str, str]:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\n")
    paths = (str(folder), str(Path(heedful.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"}


def run(environment: dict[str, str], *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_the_modules_are_really_absent(core: dict[str, str]) -> None:
    code = f"import importlib.util as u; print([u.find_spec(name) for name in {TRAINING!r}])"
    process = subprocess.run([sys.executable, "-c", code], env=core, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == str([None] * len(TRAINING))


def test_it_translates_and_describes_its_models(light: dict[str, str]) -> None:
    said = run(light, "translate", "en-de", "Where is the station?")
    assert (said.returncode, said.stdout, said.stderr) == (0, "Wo ist der Bahnhof?\n", "")
    assert run(light, "models").stdout.count("built-in") == 6
    assert "vocabulary" in run(light, "info", "en-de").stdout


def test_it_translates_documents(light: dict[str, str], tmp_path: Path) -> None:
    for name, content in (("a.md", MARKDOWN), ("a.html", HTML)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        done = run(light, "translate", "en-de", "--input", tmp_path / name, "--output", tmp_path / f"out.{name}")
        if name == "a.html" and "lxml" in (tmp_path / "without" / "sitecustomize.py").read_text():
            wanted = "heedful: a .html document needs lxml, which is not installed; run: pip install heedful\n"
            assert (done.returncode, done.stderr) == (2, wanted)
        else:
            assert done.returncode == 0, done.stderr
            assert f"words are not aligned, because that needs torch, {REMEDY}" in done.stderr
            out = (tmp_path / f"out.{name}").read_text(encoding="utf-8")
            assert ("Hund" in out, "*" in out or "<b>" in out) == (True, True)


def test_it_serves(light: dict[str, str]) -> None:
    with toy.start("serve", "en-de", "--port", 0, environment=light) as server, ExitStack() as stack:
        stack.callback(server.kill)
        assert server.stderr
        url = [server.stderr.readline().decode() for _ in range(2)][1].split()[0]
        pair = {"source": "en", "target": "de"}
        with httpx.Client(base_url=url, timeout=30) as client:
            answer = client.post("/translate", json=pair | {"q": "Where is the station?"})
            assert (answer.status_code, answer.json()["translatedText"]) == (200, "Wo ist der Bahnhof?")
            page = client.post("/translate", json=pair | {"q": HTML, "format": "html"})
            assert (page.status_code, "Hund" in page.text) == (200, True)
            assert "<title>" in client.get("/").text
            look = client.post("/v1/attention", json=pair | {"text": "Hello."})
            wanted = f"Invalid request: looking at attention heads needs torch, {REMEDY}"
            assert (look.status_code, look.json()) == (400, {"error": wanted})
            aligned = client.post("/v1/translate", json=pair | {"text": ["Hello."], "alignments": True})
            assert (aligned.status_code, aligned.json()) == (
                400,
                {"error": f"Invalid request: aligning words needs torch, {REMEDY}"},
            )
        server.terminate()
        assert server.wait(timeout=30) == 0


# Each of these needs the extra, and says so before it reads or writes anything.
COMMANDS = {
    "train --source {file} --target {file} --out {new}": "torch",
    "evaluate en-de --source {file} --reference {file}": "sacrebleu",
    "compare --reference {file} {file} {file}": "sacrebleu",
    "explain en-de Hello. --out {new}.html": "torch",
    "heads en-de Hello. --out {new}.html": "torch",
    "prune en-de --out {new} --keep 3 --source {file} --target {file}": "torch",
    "study table1 --out {new}": "torch",
    "export en-de {new} --to onnx": "torch",
    "import {file} {new}": "torch",
    "doctor --source {file} --target {file}": "jaxtyping",
    "translate en-de Hello. --alignments": "torch",
    "translate en-de Hello. --engine torch": "torch",
    "translate en-de Hello. --prefix Guten": "torch",
}
_RUN_ALL = """
import contextlib, io, json, shlex, sys
from heedful.cli import main
found = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["heedful", *shlex.split(line)]
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as end:
            found.append([end.code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""


def test_commands_that_need_the_extra_say_so_in_one_sentence(core: dict[str, str], tmp_path: Path) -> None:
    file, new = tmp_path / "text", tmp_path / "new"
    file.write_text("Hello.\n" * 5)
    lines = [line.format(file=file, new=new) for line in COMMANDS]
    command = [sys.executable, "-c", _RUN_ALL, json.dumps(lines)]
    process = subprocess.run(command, env=core, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    for line, library, (code, out, err) in zip(COMMANDS, COMMANDS.values(), json.loads(process.stdout), strict=True):
        assert re.fullmatch(rf"heedful: [^\n]* needs {library}, {re.escape(REMEDY)}\n", err), (line, err)
        assert (code, out) == (2, ""), line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "without"]


def test_a_limit_of_the_engine_is_named_with_the_library_that_would_help(core: dict[str, str]) -> None:
    said = run(core, "translate", "en-de", "Hello.", "--prefix", "Guten")
    why = "the translation must contain given terms or a prefix, which the ctranslate2 engine cannot do"
    assert said.stderr == f"heedful: {why}; the torch engine needs torch, {REMEDY}\n"


def test_public_names_that_need_the_extra_say_so(core: dict[str, str]) -> None:
    code = "import heedful\ntry: heedful.train\nexcept heedful.ConfigError as error: print(error)"
    process = subprocess.run([sys.executable, "-c", code], env=core, capture_output=True, text=True, check=True)
    assert process.stdout == f"heedful.train needs torch, {REMEDY}\n"


def test_a_missing_library_of_the_core_comes_with_heedful_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from heedful.errors import require_library

    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(ConfigError, match=r"^this needs lxml, which is not installed; run: pip install heedful$"):
        require_library("this", "lxml")


@pytest.mark.parametrize(
    ("environment", "first", "expected"),
    [
        ({}, "", "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "", "7"),
        ({"OMP_WAIT_POLICY": "active"}, "", "None"),
        ({}, "import sys, types; sys.modules['torch'] = types.ModuleType('torch'); ", "None"),
    ],
)
@pytest.mark.parametrize("statement", ["from heedful import train", "import heedful.errors"])
def test_threads_that_wait_hardly_spin_if_heedful_is_first_to_import_torch(
    environment: dict[str, str], first: str, expected: str, statement: str
) -> None:
    if first and statement.endswith("train"):
        statement = "import heedful"  # nothing can be trained without the real one
    others = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = f"{first}{statement}; import os; print(os.environ.get('GOMP_SPINCOUNT'))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=others | environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{expected}\n"

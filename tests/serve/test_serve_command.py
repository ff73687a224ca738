"""`heedful serve` as a process: signals, crashes, and options that it refuses."""
# ruff: noqa: E402 (without the extra, nothing below can be imported)

import json
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import sleep

import pytest
import toy

for needed in ("fastapi", "uvicorn", "httptools", "prometheus_client", "httpx"):
    pytest.importorskip(needed, reason="needs heedful[serve]")

import httpx
import psutil

from heedful.serve.supervisor import Worker


def test_a_server_reloads_on_sighup_and_stops_on_sigterm(trained: Path, tmp_path: Path) -> None:
    run, keys = tmp_path / "run", tmp_path / "keys.json"
    shutil.copytree(trained / "run", run, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    first = toy.run("key", keys, "ann").out.strip()
    server = toy.start("serve", run, "--port", 0, "--keys", keys, "--json-log")
    assert server.stderr
    assert server.stderr.readline() == b"run: en to de\n"
    url = server.stderr.readline().decode().split()[0]
    text = toy.lines_of(trained / "test.en")[0]

    def ask(key: str) -> int:
        asked = {"q": text, "source": "en", "target": "de", "api_key": key}
        return httpx.post(f"{url}/translate", json=asked, timeout=20).status_code

    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert httpx.post(f"{url}/translate_file", content=b"--x\r\nnone", headers=form).status_code == 400
    malformed = json.loads(server.stderr.readline())  # the reader of forms logs nothing of its own
    assert malformed | {"status": 400, "path": "/translate_file"} == malformed
    assert (ask(first), ask("none")) == (200, 403)
    second = toy.run("key", keys, "bob", "--per-minute", 5).out.strip()
    weights = {name: -tensor for name, tensor in toy.weights(run).items()}
    from heedful.storage.run_folder import RunFolder

    RunFolder(run).write_weights(weights, "others")
    server.send_signal(signal.SIGHUP)
    lines = [json.loads(server.stderr.readline()) for _ in range(3)]
    assert [line["message"] for line in lines[:2]] == ["request", "request"]
    assert lines[0] | {"status": 200, "path": "/translate", "method": "POST"} == lines[0]
    assert "now using weights" in lines[2]["message"]
    assert (ask(first), ask(second)) == (200, 200)
    server.send_signal(signal.SIGTERM)
    out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (0, b"")
    assert text.encode() not in err


def test_a_killed_worker_is_replaced(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fastapi.py").write_text("raise SystemExit('code from the current folder')")
    monkeypatch.chdir(tmp_path)
    program = [sys.executable, "-P", "-m", "heedful"]
    asked = {"q": toy.lines_of(trained / "test.en")[0], "source": "en", "target": "de"}
    with toy.start("serve", trained / "run", "--port", 0, program=program) as server, ExitStack() as stack:
        stack.callback(server.kill)  # otherwise the block would wait for it if a check fails
        assert server.stderr
        lines = [server.stderr.readline().decode() for _ in range(2)]
        url = lines[1].split()[0]
        (worker,) = psutil.Process(server.pid).children()
        first = httpx.post(f"{url}/translate", json=asked, timeout=20).json()
        worker.kill()
        while not (begun := psutil.Process(server.pid).children()) or begun == [worker]:
            sleep(0.01)
        server.send_signal(signal.SIGHUP)  # before the new worker can handle it
        assert httpx.post(f"{url}/translate", json=asked, timeout=30).json() == first  # clients wait meanwhile
        (other,) = psutil.Process(server.pid).children()
        assert [other] == begun
        server.kill()  # without its supervisor, the worker stops
        other.wait(timeout=30)


def test_a_bad_option_is_refused_before_anything_is_loaded(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.serve.request_log.log_to_stderr", lambda _: None)
    run = trained / "run"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments, sentence in (
            ((run, "--host", "0.0.0.0"), "--host 0.0.0.0 serves other machines; give --keys FILE, or --anyone"),
            ((run, "--port", port), f"cannot listen on 127.0.0.1, port {port} (Address already in use)"),
        ):
            ran = toy.run("serve", *arguments)
            assert (ran.code, sentence in ran.err) == (2, True), ran.err
    refused: tuple[tuple[tuple[object, ...], str], ...] = (
        ((run, run, "--languages", "en-de"), "--languages: 1 given for 2 models; give the option once per model"),
        ((run, "--keys", tmp_path / "none.json"), "No such file or directory; make a key with: heedful key"),
        ((run, "--cors", "*"), "--cors * is not an origin as browsers send it; name each one"),
        ((run, "--cors", "https://a.example/"), "--cors https://a.example/ is not an origin"),
        ((run, "--cors", "https://a.example:443"), "--cors https://a.example:443 is not an origin"),
        ((run, "--engine", "fast"), "--engine must be one of auto, torch, ctranslate2, but is fast"),
        ((tmp_path,), f"{tmp_path} is not a run folder"),
    )
    for given, sentence in refused:
        with socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as patch:
            inherited = Worker(listener, 0)
            patch.setattr(Worker, "inherit", lambda inherited=inherited: inherited)  # this process is the worker
            ran = toy.run("serve", *given)
        assert (ran.code, sentence in ran.err) == (2, True), ran.err


def test_a_mistake_that_the_worker_finds_ends_the_command_with_one_sentence(tmp_path: Path) -> None:
    with toy.start("serve", tmp_path, "--port", 0) as server:
        _, said = server.communicate(timeout=60)
    assert (server.returncode, said.decode().count("\n")) == (2, 1)
    assert f"heedful: {tmp_path} is not a run folder" in said.decode()


def test_the_supervisor_loads_no_framework_and_no_model() -> None:
    """It would be as large as its worker otherwise, and the first request would wait for two imports."""
    code = """
import subprocess
import sys
from heedful.serve import supervisor
supervisor.supervise = lambda listener: print(*sys.modules) or 0
sys.argv = ["heedful", "serve", "--port", "0"]
from heedful.cli import main
main()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in process.stdout.split()}
    assert "heedful" in loaded
    heavy = {"fastapi", "starlette", "uvicorn", "prometheus_client", "ctranslate2", "tokenizers", "numpy", "torch"}
    assert not loaded & heavy


def test_a_key_file_contains_no_key(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    keys = [toy.run("key", file, name).out.strip() for name in ("ann", "bob", "ann")]
    assert len(set(keys)) == 3
    kept = file.read_text()
    assert [entry["name"] for entry in json.loads(kept)] == ["bob", "ann"]
    assert not any(key in kept for key in keys)
    assert toy.run("key", file, "no/name").code == 2
    file.write_text("[1]")
    assert "was not written by heedful key" in toy.run("key", file, "ann").err

"""A file in a model folder is read only if it is regular, inside the folder, and of a size and depth that we write."""

import json
import os
import shutil
from pathlib import Path

import pytest

from heedful.config import load_recipe
from heedful.errors import ConfigError, FolderError
from heedful.storage.files import read_json, write_manifest
from heedful.storage.run_folder import RunFolder
from heedful.training.events import EventLog
from heedful.untrusted_files import check_file, open_file, parse_json, read_bytes

FILES = ("config.json", "experiment.toml", "tokenizer.json", "manifest.json", "model.safetensors", "events.jsonl")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "golden" / "format-1", tmp_path / "run")
    return tmp_path / "run"


def use(run: Path) -> None:
    folder = RunFolder.open(run)
    folder.read_events("Validated")
    folder.experiment()
    folder.tokenizers()
    folder.model()


def reseal(run: Path) -> None:
    write_manifest(run, ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json"))


@pytest.mark.parametrize("name", FILES)
def test_a_named_pipe_is_refused_and_does_not_block(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    with pytest.raises(FolderError, match=f"{name} is a named pipe instead of a file; remove it"):
        use(run)


@pytest.mark.parametrize("name", FILES)
def test_a_link_out_of_the_folder_is_refused(name: str, run: Path) -> None:
    if (run / name).exists():
        (run / name).rename(run.parent / name)
    else:
        (run.parent / name).touch()
    (run / name).symlink_to(run.parent / name)
    with pytest.raises(FolderError, match=f"{name} is a link that leaves its folder; copy the file itself there"):
        use(run)


def test_a_link_within_the_folder_is_followed(run: Path) -> None:
    (run / "model.safetensors").rename(run / "weights")
    (run / "model.safetensors").symlink_to("weights")
    use(run)


@pytest.mark.parametrize("damage", ["pipe", "link", "sparse"])
def test_the_log_of_a_resumed_run_is_checked_before_it_is_read(damage: str, run: Path) -> None:
    path, sentence = run / "events.jsonl", "is a named pipe instead of a file; remove it"
    path.unlink(missing_ok=True)
    match damage:
        case "pipe":
            os.mkfifo(path)
        case "link":
            (run.parent / "log").touch()
            path.symlink_to(run.parent / "log")
            sentence = "is a link that leaves its folder"
        case _:
            with path.open("wb") as file:
                file.truncate(1 << 40)
            sentence = "has 1,099,511,627,776 bytes, over the 536,870,912 of such a file"
    with pytest.raises(FolderError, match=sentence):
        EventLog(RunFolder(run), 3)


def test_the_log_of_a_resumed_run_keeps_complete_lines_up_to_its_step(run: Path) -> None:
    lines = [json.dumps({"event": "StepDone", "step": step}) for step in (1, 2, 3)]
    odd = ["[" * 100_000, "[]", '{"event": "StepDone", "st', json.dumps({"event": "Finished", "step": 2})]
    (run / "events.jsonl").write_text("\n".join([*odd, *lines]))
    with EventLog(RunFolder(run), 2):
        pass
    assert (run / "events.jsonl").read_text() == "".join(f"{line}\n" for line in lines[:2])


def test_links_between_the_versions_of_a_cached_model_are_followed(tmp_path: Path) -> None:
    blob, link = tmp_path / "blobs" / "1", tmp_path / "snapshots" / "main" / "config.json"
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_text("{}")
    link.symlink_to("../../blobs/1")
    assert read_json(link) == {}
    (tmp_path.parent / "other.json").write_text("{}")
    link.unlink()
    link.symlink_to(tmp_path.parent / "other.json")
    with pytest.raises(FolderError, match="is a link that leaves its folder"):
        read_json(link)


@pytest.mark.parametrize("name", ["config.json", "experiment.toml", "tokenizer.json", "manifest.json"])
def test_a_sparse_gigabyte_is_refused_unread(name: str, run: Path) -> None:
    with (run / name).open("r+b") as file:
        file.truncate(1 << 30)
    if name == "experiment.toml":
        with pytest.raises(FolderError, match=r"has more than 1,048,576 bytes; a recipe is a small TOML file"):
            RunFolder(run).experiment()
    elif name == "tokenizer.json":
        with pytest.raises(FolderError, match=r"tokenizer.json has 1,073,741,824 bytes, over the 67,108,864 of such"):
            RunFolder(run).tokenizers()
    else:
        with pytest.raises(FolderError, match=r"json has 1,073,741,824 bytes, over the 16,777,216 of such a file"):
            RunFolder.open(run)


@pytest.mark.parametrize("key", [".".join("a" * 17), ".".join(["'a'"] * 20_000), " . ".join(["a"] * 99)])
@pytest.mark.parametrize(
    "form", ["{} = 1", "[{}]\nx = 1", "x = 1\n[[{}]]", "x = {{ {} = 1 }}", "x = {{ y = 1, {} = 1 }}"]
)
def test_a_key_with_many_parts_is_refused_unparsed(form: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(form.format(key) + "\n")
    with pytest.raises(ConfigError, match="has a key of more than 16 parts; a key of a recipe has two"):
        load_recipe(tmp_path / "recipe.toml")


def test_dots_in_values_are_no_parts_of_a_key(tmp_path: Path) -> None:
    name = ".".join("a" * 40)
    (tmp_path / "recipe.toml").write_text(f'name = "{name}"\n[data]\nsource = ["{name}", "x{name}"]\n# {name} = 1\n')
    assert load_recipe(tmp_path / "recipe.toml")["name"] == name


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(ConfigError, match="is nested too deeply; a recipe has tables of values and lists"):
        load_recipe(tmp_path / "recipe.toml")
    for depth in (51, 100_000):
        with pytest.raises(ValueError, match="too deeply nested"):
            parse_json(b"[" * depth + b"]" * depth)
    assert parse_json(b'{"a":' * 50 + b"1" + b"}" * 50)


def test_other_kinds_of_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is a folder instead of a file"):
        check_file(tmp_path)
    with pytest.raises(FolderError, match="is a device instead of a file"):
        check_file(Path("/dev/null"))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(FolderError, match="a has 5 bytes, over the 4 of such a file"):
        read_bytes(tmp_path / "a", 4)
    with open_file(tmp_path / "a") as file:
        assert file.read() == b"12345"


def test_tokenizers_must_be_those_of_the_configuration(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    for change in ({"vocab_size": config["vocab_size"] + 1}, {"pad_token_id": config["eos_token_id"]}):
        (run / "config.json").write_text(json.dumps(config | change))
        reseal(run)
        with pytest.raises(FolderError, match=r"has other tokenizers than its config.json says"):
            RunFolder.open(run).tokenizers()
    for damaged in ({"vocab_size": "a"}, {"vocab_size": None}, {"eos_token_id": 10**9}):
        (run / "config.json").write_text(json.dumps(config | damaged))
        reseal(run)
        with pytest.raises(FolderError, match=r"config.json is damaged: it does not describe the vocabularies"):
            RunFolder.open(run).tokenizers()

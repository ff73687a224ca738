"""The steps that make the built-in models, without running them."""

from pathlib import Path

import builtin
import pytest
import steps
from command_line import parse

from heedful.errors import DataError

TEXT = Path("german"), Path("software")
LAST = ("cards", "heads", "course")


class Typed:
    """A fake command line that records the commands and makes the folders that they would make."""

    def __init__(self, size: int = 17) -> None:
        self.size = size
        self.stops_at = ""
        self.commands: list[tuple[str, ...]] = []
        self.cuts: list[str] = []

    def __call__(self, *arguments: str) -> int:
        self.commands.append(arguments)
        if self.stops_at in arguments:
            return 130
        if arguments[0] == "train" and "--out" in arguments:
            folder = Path(arguments[arguments.index("--out") + 1])
            folder.mkdir()
            (folder / "experiment.toml").touch()
        if arguments[0] == "export":
            Path(arguments[2]).mkdir()
            (Path(arguments[2]) / "model.bin").write_bytes(bytes(self.size))
        return 0

    @property
    def kinds(self) -> list[str]:
        return [arguments[0] + (" --resume" if "--resume" in arguments else "") for arguments in self.commands]


def write(german: Path, software: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    return 0


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    typed = Typed()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtin, "heedful", typed)
    monkeypatch.setattr(builtin, "builtin_text", write)
    monkeypatch.setattr(builtin, "cut", typed.cuts.append)
    monkeypatch.setattr(builtin, "write_cards", lambda: typed("cards"))
    monkeypatch.setattr(builtin, "describe_heads", lambda: typed("heads"))
    monkeypatch.setattr(builtin, "write_course", lambda: typed("course"))
    return typed


def test_each_model_is_fine_tuned_from_a_joint_one_exported_and_scored(typed: Typed) -> None:
    assert builtin.builtin(*TEXT) == 0
    assert typed.kinds == ["train", "train", *["train", "export", "evaluate", "evaluate"] * 6, *LAST]
    assert sorted(path.name for path in builtin.SHIPPED.iterdir()) == sorted(builtin.NAMES)
    spanish_to_english = typed.commands[-7]
    assert {"data.folder=runs/builtin/data/es-en", "data.source=train.es", "data.target=train.en"} < set(
        spanish_to_english
    )
    assert {"data.source_language=es", "train.max_steps=1500"} < set(spanish_to_english)
    parents = [command[command.index("--init") + 1] for command in typed.commands if "--init" in command]
    assert parents == [f"runs/builtin/cut/{name}" for name in builtin.NAMES]
    assert typed.cuts == list(builtin.NAMES)
    assert [command[3] for command in typed.commands[-5:-3]] == [
        "runs/builtin/data/es-en/software-test.es",
        "runs/builtin/data/es-en/test.es",
    ]


def test_every_command_parses(typed: Typed) -> None:
    builtin.builtin(*TEXT)
    for arguments in typed.commands[:-3]:
        assert parse(" ".join(steps.shown(argument) for argument in arguments))


def test_it_continues_where_it_stopped(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    typed.stops_at = "runs/builtin/en-fr"
    assert builtin.builtin(*TEXT) == 130
    assert typed.kinds == ["train", "train", "train", "export", "evaluate", "evaluate", "train"]
    typed.stops_at, typed.commands = "", []
    monkeypatch.setattr(builtin, "builtin_text", lambda *_: pytest.fail("the text was there"))
    assert builtin.builtin(*TEXT) == 0
    assert typed.kinds[:6] == [*["train --resume"] * 3, "export", "evaluate", "evaluate"]
    assert typed.kinds[6:] == [*["train", "export", "evaluate", "evaluate"] * 5, *LAST]


def test_incomplete_text_is_written_again(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(german: Path, software: Path, out: Path) -> int:
        out.mkdir(parents=True, exist_ok=True)
        raise OSError

    monkeypatch.setattr(builtin, "builtin_text", full_disk)
    with pytest.raises(OSError):
        builtin.builtin(*TEXT)
    assert typed.commands == []
    monkeypatch.setattr(builtin, "builtin_text", write)
    assert builtin.builtin(*TEXT) == 0


def test_a_model_that_is_too_large_is_refused_and_the_old_one_stays(typed: Typed) -> None:
    old = builtin.SHIPPED / "en-de"
    old.mkdir(parents=True)
    (old / "old").touch()
    typed.size = builtin.MAX_BYTES + 1
    with pytest.raises(DataError, match=r"runs/builtin/en-de-int8 has 6291457 bytes, but .* may have 6291456; make it"):
        builtin.builtin(*TEXT)
    assert [path.name for path in old.iterdir()] == ["old"]

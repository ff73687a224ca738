"""The demo, without a network and without training."""

import errno
import re
from collections.abc import Callable
from pathlib import Path

import demo
import pytest
import steps
from command_line import parse
from package_index import Unreachable
from splits import Pairs

from heedful.errors import DataError, FolderError, HeedfulError, UserError

PAIRS = [(f"Unable to open volume number {number}.", f"Impossible d'ouvrir {number}.") for number in range(500)]


class Typed:
    """A fake command line that records the commands and writes the requested translations."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.commands: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str) -> int:
        self.commands.append(arguments)
        if arguments[0] == "evaluate":
            sources = Path(arguments[arguments.index("--source") + 1]).read_text().splitlines()
            Path(arguments[-1]).write_text("".join(f"by {arguments[1]}: {source}\n" for source in sources))
        return 6 if arguments[0] == self.failing else 0


def refuse(error: HeedfulError) -> Callable[..., Pairs]:
    def raise_it(*_: object) -> Pairs:
        raise error

    return raise_it


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typed:
    typed = Typed()
    monkeypatch.setattr(demo, "heedful", typed)
    monkeypatch.setattr(demo, "messages_of_horizon", lambda *_: PAIRS)
    return typed


class TestWhole:
    def test_it_translates_fine_tunes_evaluates_twice_and_shows_heads(
        self, tmp_path: Path, typed: Typed, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert demo.demo(tmp_path / "demo", 0.5) == 0
        names = [arguments[0] for arguments in typed.commands]
        assert names == ["translate"] * 6 + ["evaluate", "train", "evaluate", "heads"]
        assert [arguments[1] for arguments in typed.commands[:6]] == list(demo.SENTENCES)
        before, train, after, heads = typed.commands[6:]
        assert (before[1], after[1], heads[1]) == ("en-fr", train[-1], train[-1])
        assert "train.max_minutes=0.5" in train
        shown = capsys.readouterr().out
        assert "50 pairs to train on, 150 to validate, 300 to test" in shown
        assert shown.count("   before     by en-fr: Unable to open") == demo.SHOWN
        assert shown.count(f"   after      by {train[-1]}: Unable to open") == demo.SHOWN

    def test_every_command_that_is_run_or_suggested_parses(
        self, tmp_path: Path, typed: Typed, capsys: pytest.CaptureFixture[str]
    ) -> None:
        demo.demo(tmp_path / "demo", 0.5)
        lines = [" ".join(steps.shown(argument) for argument in arguments) for arguments in typed.commands]
        advised = re.findall("^   heedful (.*)$", capsys.readouterr().out, re.MULTILINE)
        advised += re.findall("^   heedful (.*)$", demo.farewell_untaught(Path("page.html")), re.MULTILINE)
        assert len(advised) == 11
        for line in (*lines, *advised):
            assert parse(line)

    def test_training_and_test_files_share_nothing(self, tmp_path: Path, typed: Typed) -> None:
        demo.demo(tmp_path / "demo", 0.5)
        train = typed.commands[7]
        learnt = {
            line
            for option in ("--source", "--target")
            for line in Path(train[train.index(option) + 1]).read_text().splitlines()
        }
        assert len(learnt) == 100
        assert not learnt & set((tmp_path / "demo" / "data" / "test.en").read_text().splitlines())
        assert not learnt & set((tmp_path / "demo" / "data" / "test.fr").read_text().splitlines())

    @pytest.mark.parametrize("error", [Unreachable("it cannot be downloaded"), DataError("the index has no horizon")])
    def test_without_a_network_it_translates_shows_heads_and_says_what_it_left_out(
        self,
        error: UserError,
        tmp_path: Path,
        typed: Typed,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(demo, "messages_of_horizon", refuse(error))
        assert demo.demo(tmp_path / "demo", 0.5) == 0
        assert [arguments[:2] for arguments in typed.commands][5:] == [("translate", "es-en"), ("heads", "en-fr")]
        shown = capsys.readouterr().out
        assert f"   {error}.\n   So the fine-tuning is left out" in shown
        assert "The fine-tuning was left out" in shown

    @pytest.mark.parametrize("failing", ["translate", "evaluate", "train", "heads"])
    def test_a_command_that_fails_ends_it_with_its_code(self, failing: str, tmp_path: Path, typed: Typed) -> None:
        typed.failing = failing
        assert demo.demo(tmp_path / "demo", 0.5) == 6
        assert typed.commands[-1][0] == failing


class TestFolder:
    def test_the_folder_of_an_earlier_demo_is_replaced(self, tmp_path: Path) -> None:
        demo.renew(tmp_path / "demo")
        (tmp_path / "demo" / "old").touch()
        demo.renew(tmp_path / "demo")
        assert [path.name for path in (tmp_path / "demo").iterdir()] == [demo.MARK]

    def test_a_folder_of_someone_else_stays_and_nothing_is_run(self, tmp_path: Path, typed: Typed) -> None:
        (tmp_path / "mine").touch()
        with pytest.raises(FolderError, match="exists, but no demo made it; move it away"):
            demo.demo(tmp_path, 0.5)
        assert (tmp_path / "mine").exists()
        assert typed.commands == []


class TestEnding:
    def test_a_full_disk_is_a_sentence(self) -> None:
        full = OSError(errno.ENOSPC, "No space left on device", "runs/demo/data/train.en")
        assert steps.explain(full, 200) == (
            "the disk is full while writing runs/demo/data/train.en; about 200 MB are needed",
            5,
        )
        assert steps.explain(OSError(errno.EACCES, "Permission denied", "runs"), 200) == ("runs: Permission denied", 2)

    @pytest.mark.parametrize(
        ("error", "code", "sentence"),
        [
            (FolderError("it exists; move it away"), 2, "demo: it exists; move it away\n"),
            (KeyboardInterrupt(), 130, "demo: stopped by Ctrl-C\n"),
            (OSError(errno.EACCES, "Permission denied", "runs"), 2, "demo: runs: Permission denied\n"),
        ],
    )
    def test_an_error_is_one_sentence_and_an_exit_code(
        self, error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def work() -> int:
            raise error

        assert steps.ending("demo", work, 200) == code
        assert capsys.readouterr().err == sentence

    def test_finished_work_returns_its_own_exit_code(self) -> None:
        assert steps.ending("demo", lambda: 6, 200) == 6

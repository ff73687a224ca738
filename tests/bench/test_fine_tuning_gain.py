"""The benchmark of fine-tuning against training from scratch, without training."""

import json
import sys
from pathlib import Path

import fine_tuning_gain
import pytest

SCORES = {
    "scores": [{"metric": "BLEU", "value": 21.5, "low": 20.0, "high": 23.0}, {"metric": "chrF", "value": 45.25}],
}


class Typed:
    """A fake command line that records the commands; a training takes three quarters of a minute."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, *arguments: object) -> str:
        words = list(map(str, arguments))
        self.commands.append(words)
        if words[0] == "train":
            folder = Path(words[2])  # after --out or --resume
            folder.mkdir(exist_ok=True)
            events = [{"event": "Saved", "step": 3}, {"event": "Finished", "minutes": 0.75}]
            (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return json.dumps(SCORES)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    for name, language in ((name, language) for name in ("train", "test") for language in ("en", "fr")):
        (tmp_path / f"{name}.{language}").write_text("".join(f"{name} {line} {language}\n" for line in range(40)))
    files = ["--source", "train.en", "--target", "train.fr", "--test", "test.en", "test.fr"]
    given = ["fine_tune.py", "en-fr", *files, "--pairs", "7", "--out", "out", "--", "--set", "train.threads=1"]
    typed = Typed()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setattr(fine_tuning_gain, "heedful", typed)
    return typed


def test_the_table_has_all_three_models(typed: Typed, capsys: pytest.CaptureFixture[str]) -> None:
    fine_tuning_gain.main()
    assert [words[:2] for words in typed.commands if words[0] == "evaluate"] == [
        ["evaluate", "en-fr"],
        ["evaluate", "out/7/tuned"],
        ["evaluate", "out/7/scratch"],
    ]
    tuned, scratch = (words for words in typed.commands if words[0] == "train")
    assert tuned[3:5] == ["--init", "en-fr"]
    assert "--init" not in scratch
    assert tuned[-2:] == scratch[-2:] == ["--set", "train.threads=1"]
    assert tuned[5:9] == scratch[3:7] == ["--source", "out/7/text.en", "--target", "out/7/text.fr"]
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "| en-fr as it is | 21.50 (20.00 to 23.00), 45.25 |  |"
    assert rows[3] == "| fine-tuned, 7 pairs | 21.50 (20.00 to 23.00), 45.25 | 0.8 |"
    assert rows[4].startswith("| from scratch, 7 pairs | ")


def test_pairs_are_sampled_once_and_stay_aligned(typed: Typed) -> None:
    fine_tuning_gain.main()
    drawn = [Path(f"out/7/text.{language}").read_text().splitlines() for language in ("en", "fr")]
    assert len(set(drawn[0])) == 7
    assert [line.replace(" en", " fr") for line in drawn[0]] == drawn[1]
    fine_tuning_gain.main()
    assert Path("out/7/text.en").read_text().splitlines() == drawn[0]


def test_finished_runs_are_not_repeated_and_interrupted_ones_resume(typed: Typed) -> None:
    fine_tuning_gain.main()
    Path("out/7/scratch/minutes").unlink()
    Path("out/7/scratch/experiment.toml").touch()
    typed.commands.clear()
    fine_tuning_gain.main()
    assert [words for words in typed.commands if words[0] == "train"] == [["train", "--resume", "out/7/scratch"]]

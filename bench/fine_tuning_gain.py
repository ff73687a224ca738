r"""What fine-tuning gains: an existing model on a little text of another kind, against training from scratch on it.

.venv/bin/python bench/fine_tuning_gain.py MODEL --source train.en --target train.de --test test.en test.de \
    --general general.en general.de --pairs 1000 --out runs/fine-tune

MODEL is a run folder, an export, or the name of a built-in model, such as en-de. `--general` is a test set like the
text that the model was trained on: a loss there is what it has forgotten. Arguments after `--` go to both trainings,
such as `-- --set train.threads=1`. You can interrupt it and run it again: finished runs are not repeated, and the
others resume.
"""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.data.pairs import read_parallel


@dataclass(frozen=True, slots=True)
class TestSet:
    """A test set with a name."""

    name: str
    source: Path
    target: Path


def heedful(*arguments: object) -> str:
    """Run a command and return its standard output; messages go to the terminal."""
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def write_sample(source: Path, target: Path, pairs: int, out: Path) -> tuple[Path, Path]:
    """A random sample of pairs, always the same."""
    everything = list(read_parallel([str(source)], [str(target)]))
    drawn = random.Random(1).sample(everything, min(pairs, len(everything)))
    files = out / f"text{source.suffix}", out / f"text{target.suffix}"
    out.mkdir(parents=True, exist_ok=True)
    for file, lines in zip(files, ([p.source for p in drawn], [p.target for p in drawn]), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


def trained(folder: Path, *arguments: object) -> float:
    """Train in a folder, or resume there; return the minutes that it took."""
    if not (folder / "minutes").exists():
        begun = (folder / "experiment.toml").exists()
        heedful("train", *(("--resume", folder) if begun else ("--out", folder, *arguments)))
        last = json.loads((folder / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        (folder / "minutes").write_text(f"{last['minutes']:.2f}\n")  # of all parts, if it was interrupted
    return float((folder / "minutes").read_text())


def scores(model: str | Path, test: TestSet) -> str:
    """BLEU with its interval, and chrF."""
    found = heedful("evaluate", model, "--source", test.source, "--reference", test.target, "--json")
    named = {score["metric"]: score for score in json.loads(found)["scores"]}
    bleu = named["BLEU"]
    return f"{bleu['value']:.2f} ({bleu['low']:.2f} to {bleu['high']:.2f}), {named['chrF']['value']:.2f}"


def table(rows: Sequence[tuple[str, ...]], tests: Sequence[TestSet]) -> str:
    """A table in Markdown."""
    head = ("", *(f"{test.name}: BLEU (95 %), chrF" for test in tests), "minutes")
    lines = [" | ".join(row) for row in (head, tuple("---" for _ in head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    for name in ("source", "target", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--general", type=Path, nargs=2)
    parser.add_argument("--pairs", type=int, default=1000)
    given = sys.argv[1:]
    more = given[given.index("--") + 1 :] if "--" in given else []
    options = parser.parse_args(given[: len(given) - len(more) - 1] if more else given)
    tests = [TestSet("this text", *options.test)]
    if options.general:
        tests.append(TestSet("general", *options.general))
    out = options.out / str(options.pairs)
    source, target = write_sample(options.source, options.target, options.pairs, out)
    files = ("--source", source, "--target", target, *more)
    rows = [(f"{Path(options.model).name} as it is", *(scores(options.model, test) for test in tests), "")]
    for name, folder, arguments in (
        ("fine-tuned", out / "tuned", ("--init", options.model, *files)),
        ("from scratch", out / "scratch", files),
    ):
        minutes = trained(folder, *arguments)
        rows.append((f"{name}, {options.pairs} pairs", *(scores(folder, test) for test in tests), f"{minutes:.1f}"))
    print(table(rows, tests))


if __name__ == "__main__":
    main()

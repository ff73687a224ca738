"""Make the built-in models: text, two joint trainings, six smaller models fine-tuned from them, exports, scores, cards.

    .venv/bin/python scripts/builtin.py --german FOLDER --software FOLDER

This takes hours. builtin_text.py says what the folders hold. Everything but the exports goes to runs/builtin. You can
interrupt it and run it again: it continues where it stopped and does not repeat a finished training.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from builtin_text import builtin_text
from cut_vocabulary import cut_vocabulary
from steps import ending, heedful, say

from heedful.errors import DataError
from heedful.storage.run_folder import RunFolder

REPOSITORY = Path(__file__).resolve().parent.parent
WORK = Path("runs/builtin")
SHIPPED = Path("src/heedful/builtin")
NAMES = ("en-de", "en-fr", "en-es", "de-en", "fr-en", "es-en")
LATE = {  # for a model whose rate has already fallen to zero once
    "train.max_steps": "1500",
    "train.learning_rate": "0.001",
}
LOW_CONFIDENCE = {"en-fr": 0.72, "en-es": 0.76}  # by bench/confidence.py; the other models have the default
MAX_BYTES = 6 << 20  # of a built-in model
MEGABYTES = 2000


def main() -> None:
    """Run everything; an error is one sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--german", type=Path, required=True, metavar="FOLDER", help="with train.en, train.de, ...")
    parser.add_argument("--software", type=Path, required=True, metavar="FOLDER", help="with en-de.tsv.gz, ...")
    options = parser.parse_args()
    german, software = options.german.resolve(), options.software.resolve()
    os.chdir(REPOSITORY)
    sys.exit(ending("builtin", lambda: builtin(german, software), MEGABYTES))


def builtin(german: Path, software: Path) -> int:
    """Run all steps in order, up to the first that fails; return the exit code."""
    if code := write_text(german, software):
        return code
    for kind in ("from-english", "into-english"):
        say(f"\nThe joint model {kind.replace('-e', ' E')}:")
        if code := train(WORK / kind, f"recipes/builtin-{kind}.toml"):
            return code
    for name in NAMES:
        say(f"\n{name}:")
        cut(name)
        if code := (fine_tune(name) or export(name) or evaluate(name)):
            return code
        ship(name)
    return write_cards() or describe_heads() or write_course()


def write_text(german: Path, software: Path) -> int:
    """Write the text unless it exists; return the exit code."""
    if (WORK / "data").exists():
        return 0
    coming = WORK / "data.new"  # so that incomplete text is never taken for complete
    if code := builtin_text(german, software, coming):
        return code
    coming.rename(WORK / "data")
    return 0


def train(run: Path, *arguments: str) -> int:
    """Train in a folder, or resume there; a finished run stays as it is. Return the exit code."""
    if (run / "experiment.toml").exists():
        return heedful("train", "--resume", str(run))
    return heedful("train", *arguments, "--out", str(run))


def cut(name: str) -> None:
    """Leave the pieces of the other languages out of a joint model, unless this is done."""
    if start_of(name).exists():
        return
    joint = RunFolder.open(WORK / ("into-english" if name.endswith("-en") else "from-english"))
    coming = start_of(f"{name}.new")  # so that an incomplete folder is never taken for complete
    shutil.rmtree(coming, ignore_errors=True)
    cut_vocabulary(joint, coming, [text_of(name) / f"train.{language}" for language in name.split("-")])
    coming.rename(start_of(name))


def fine_tune(name: str) -> int:
    """Fine-tune a joint model for one direction; return the exit code."""
    source, target = name.split("-")
    values = {
        "name": name,
        "data.source_language": source,
        "data.target_language": target,
        "data.folder": str(text_of(name)),
        "data.source": f"train.{source}",
        "data.target": f"train.{target}",
        "data.valid_source": f'["val.{source}", "software-val.{source}"]',
        "data.valid_target": f'["val.{target}", "software-val.{target}"]',
        **(LATE if target == "en" else {}),
        **({"search.low_confidence": str(LOW_CONFIDENCE[name])} if name in LOW_CONFIDENCE else {}),
    }
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return train(WORK / name, "recipes/builtin-one.toml", "--init", str(start_of(name)), *settings)


def export(name: str) -> int:
    """Export the model in the format that is shipped; return the exit code."""
    shutil.rmtree(exported(name), ignore_errors=True)
    if code := heedful("export", str(WORK / name), str(exported(name)), "--to", "ctranslate2", "--numbers", "int8"):
        return code
    check_size(exported(name))
    return 0


def check_size(folder: Path) -> None:
    """Refuse a model that is too large to ship."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > MAX_BYTES:
        raise DataError(
            f"{folder} has {size} bytes, but a built-in model may have {MAX_BYTES}; "
            "make it smaller in recipes/builtin-from-english.toml and builtin-into-english.toml"
        )


def evaluate(name: str) -> int:
    """Score it on held-out software texts and sentences; its folder keeps the scores. Return the exit code."""
    languages = name.split("-")
    for kind in ("software-test", "test"):
        source, target = (str(text_of(name) / f"{kind}.{language}") for language in languages)
        output = str(WORK / f"{name}.{kind}.txt")
        arguments = ("--source", source, "--reference", target, "--output", output)
        if code := heedful("evaluate", str(exported(name)), *arguments):
            return code
    return 0


def ship(name: str) -> None:
    """Replace the shipped model by this one."""
    shutil.rmtree(SHIPPED / name, ignore_errors=True)
    SHIPPED.mkdir(parents=True, exist_ok=True)
    shutil.move(exported(name), SHIPPED / name)


def write_cards() -> int:
    """Write the card of each model; return the exit code."""
    return subprocess.run([sys.executable, "scripts/builtin_cards.py"], check=False).returncode


def start_of(name: str) -> Path:
    """The folder of the joint model with the pieces of this direction."""
    return WORK / "cut" / name


def describe_heads() -> int:
    """Store in each model what its heads do; return the exit code."""
    pairs = [part for name in NAMES for part in (name, str(text_of(name) / f"val.{name.split('-')[0]}"))]
    return subprocess.run([sys.executable, "scripts/head_roles.py", *pairs], check=False).returncode


def write_course() -> int:
    """Write the course, whose numbers are those of a built-in model; return the exit code."""
    return subprocess.run([sys.executable, "scripts/course.py"], check=False).returncode


def exported(name: str) -> Path:
    """The folder of an export before it is shipped."""
    return WORK / f"{name}-int8"


def text_of(name: str) -> Path:
    """The folder with the text of a direction."""
    return WORK / "data" / name


if __name__ == "__main__":
    main()

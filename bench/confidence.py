r"""How well the low-confidence mark tells nonsense from good translations.

.venv/bin/python bench/confidence.py translate en-de en-fr --labels labels.tsv
.venv/bin/python bench/confidence.py measure labels.tsv

`translate` adds the outputs of models for the 200 texts in `confidence_sources.tsv` (everyday sentences, messages of
programs, news, single words, gibberish, other languages) to a table. Write `good`, `fair` or `nonsense` into its column
`label`: good if you would use it as it is, fair if the meaning is there, nonsense if a reader would be misled or lost.
Run `translate` again when models change: outputs that are the same keep their labels. `measure` reports how often
nonsense is unmarked and good output is marked, at the present threshold and at others, and names the threshold with the
least of both, for all outputs and for each model. Set it with `search.low_confidence`.
`confidence_labels.tsv` has the outputs of three built-in models as one person labelled them.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.config.experiment import LOW_CONFIDENCE
from heedful.storage.files import write_atomically
from heedful.translation.translator import Translator

SOURCES = Path(__file__).with_name("confidence_sources.tsv")
COLUMNS = ("model", "kind", "source", "output", "confidence", "label")
LABELS = ("good", "fair", "nonsense")
THRESHOLDS = [step / 50 for step in range(5, 46)]  # 0.1 to 0.9


@dataclass(frozen=True, slots=True)
class Output:
    """A translation, the geometric mean of the probabilities of its pieces, and what a person says about it."""

    model: str
    kind: str
    source: str
    output: str
    confidence: float
    label: str = ""


def main() -> None:
    """Translate or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    translate = commands.add_parser("translate", help="add the outputs of models to a table")
    translate.add_argument("models", nargs="+", help="names or folders")
    translate.add_argument("--labels", type=Path, required=True, help="the table; its labels are kept")
    measure = commands.add_parser("measure", help="report how good the mark is")
    measure.add_argument("labels", type=Path)
    options = parser.parse_args()
    known = read_table(options.labels) if options.labels.exists() else []
    if options.command == "translate":
        new = [output for model in options.models for output in translate_sources(model)]
        table = keep_labels(known, new)
        write_table(options.labels, table)
        print(f"{sum(not one.label for one in table)} of {len(table)} outputs have no label: {options.labels}")
        return
    labelled = [one for one in known if one.label]
    if not labelled:
        sys.exit(f"confidence: {options.labels} has no labels; write {', '.join(LABELS)} into its column label")
    print_report(labelled)


def translate_sources(model: str) -> list[Output]:
    """What a model makes of the texts."""
    with SOURCES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = Translator.load(model).translate([row["text"] for row in rows])
    return [
        Output(model, row["kind"], row["text"], " ".join(one.text.split()), one.mean_probability)
        for row, one in zip(rows, found, strict=True)
    ]


def keep_labels(known: Iterable[Output], new: Sequence[Output]) -> list[Output]:
    """The new outputs with the labels of equal ones, and the known outputs of other models."""
    labels = {(one.model, one.source, one.output): one.label for one in known}
    models = {one.model for one in new}
    others = [one for one in known if one.model not in models]
    return others + [replace(one, label=labels.get((one.model, one.source, one.output), "")) for one in new]


def read_table(path: Path) -> list[Output]:
    """The table; an error if a label is unknown."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for number, row in enumerate(rows, 2):
        if row["label"] not in ("", *LABELS):
            sys.exit(f"confidence: {path}, line {number}: {row['label']!r} is no label; write {', '.join(LABELS)}")
    return [
        Output(row["model"], row["kind"], row["source"], row["output"], float(row["confidence"]), row["label"])
        for row in rows
    ]


def write_table(path: Path, table: Iterable[Output]) -> None:
    """Write the table with tabs, one output a line."""
    lines = ["\t".join(COLUMNS)]
    lines += [
        "\t".join((one.model, one.kind, one.source, one.output, f"{one.confidence:.4f}", one.label)) for one in table
    ]
    write_atomically(path, "\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a threshold is wrong, in percent."""

    unmarked_nonsense: float
    marked_good: float
    marked: float

    @property
    def mean(self) -> float:
        """Of both kinds of error."""
        return (self.unmarked_nonsense + self.marked_good) / 2


def rate(outputs: Sequence[Output], threshold: float) -> Rates:
    """The errors at this threshold; a kind that does not occur has none."""
    nonsense = [one.confidence >= threshold for one in outputs if one.label == "nonsense"]
    good = [one.confidence < threshold for one in outputs if one.label == "good"]
    return Rates(_percent(nonsense), _percent(good), _percent([one.confidence < threshold for one in outputs]))


def _percent(hits: Sequence[bool]) -> float:
    return 100 * sum(hits) / len(hits) if hits else 0.0


def choose_threshold(outputs: Sequence[Output]) -> float:
    """The threshold with the least mean of both errors; of equal ones, the lowest."""
    return min(THRESHOLDS, key=lambda threshold: (rate(outputs, threshold).mean, threshold))


def print_report(outputs: Sequence[Output]) -> None:
    """The rates of all outputs by threshold, of each model at its best, and of each model and kind at the default."""
    print("| threshold | nonsense unmarked | good marked | marked |\n|---|---|---|---|")
    best = choose_threshold(outputs)
    for threshold in sorted({*THRESHOLDS[::5], LOW_CONFIDENCE, best}):
        marks = " (now)" * (threshold == LOW_CONFIDENCE) + " (best)" * (threshold == best)
        print(_row(f"{threshold:.2f}{marks}", rate(outputs, threshold)))
    print("\n| model | its best threshold | nonsense unmarked | good marked | marked |\n|---|---|---|---|---|")
    for model in dict.fromkeys(one.model for one in outputs):
        own = [one for one in outputs if one.model == model]
        print(_row(f"{model} | {choose_threshold(own):.2f}", rate(own, choose_threshold(own))))
    print(f"\nat {LOW_CONFIDENCE}:\n\n| outputs | labelled | nonsense | nonsense unmarked | good marked | marked |")
    print("|---|---|---|---|---|---|")
    groups = {one.model: "model" for one in outputs} | {one.kind: "kind" for one in outputs}
    for name, column in groups.items():
        own = [one for one in outputs if getattr(one, column) == name]
        nonsense = sum(one.label == "nonsense" for one in own)
        print(_row(f"{name} | {len(own)} | {nonsense}", rate(own, LOW_CONFIDENCE)))


def _row(name: str, rates: Rates) -> str:
    return f"| {name} | {rates.unmarked_nonsense:.0f} % | {rates.marked_good:.0f} % | {rates.marked:.0f} % |"


if __name__ == "__main__":
    main()

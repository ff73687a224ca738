"""Translation speed of heedful and other programs, side by side, with the same weights, tokenizer and beam.

    .venv/bin/python bench/translation_speed.py RUN --source test.en --reference test.de

Only the ratios are meaningful; see docs/how-to/benchmarks.md.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from race import Contender, ContenderFailed, Result, environment, python, race
from random_run import random_texts
from translation_contenders import Job, read_lines
from translators import FLOAT, INT8, TORCH, Entrant, Tuned, entrants, prepare, spelled, tune
from workload import TINY

_TOO_BUSY = 0.05
_ALONE = 100  # texts to translate one at a time
_FIRST = "A man rides a horse."
_STARTS = 3
_PATIENCE = 3600.0  # seconds that a file may take


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare translation speeds.")
    parser.add_argument("run", type=Path, help="a run folder; only a post-norm Transformer runs in all programs")
    parser.add_argument("--source", type=Path, action="append", help="texts, one a line; can be repeated")
    parser.add_argument("--reference", type=Path, action="append", help="for BLEU; one for each --source")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds per contender and round, at least")
    parser.add_argument("--texts", type=int, default=0, help="only the first lines of each source; 0: all")
    parser.add_argument("--only", action="append", help="only contenders whose names contain this; can be repeated")
    parser.add_argument(
        "--equal-length", type=int, default=0, help="use random weights, with texts and outputs of this many pieces"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not options.source and not options.equal_length:
        parser.error("give --source or --equal-length")
    sources, references = options.source or [], options.reference or []
    if references and len(references) != len(sources):
        parser.error(f"{len(sources)} sources, but {len(references)} references")
    for source, reference in zip(sources, references, strict=False):
        if (lines := len(read_lines(source))) != (others := len(read_lines(reference))):
            parser.error(f"{source} has {lines} lines, but {reference} has {others}")
    with TemporaryDirectory() as name:
        facts = compare(options, Path(name))
    print(json.dumps(facts) if options.json else table(facts))


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run all requested measurements."""
    run, sources = options.run, options.source
    if options.equal_length:
        run, sources = folder / "random", [folder / "random.txt"]
        say("making a model with random weights")
        subprocess.run(python("random_run.py", run, "--like", options.run), check=True)
        lines = random_texts(TINY.vocabulary, options.equal_length, options.texts or 1000)
        sources[0].write_text("\n".join(lines) + "\n", encoding="utf-8")
    say("exporting the model")
    chosen = [one for one in entrants() if not options.only or any(part in one.name for part in options.only)]
    absent = prepare(run, folder, [one.model for one in chosen])
    able = [one for one in chosen if one.model not in absent]
    facts: dict[str, Any] = {"run": str(options.run), "beam": options.beam, "equal_length": options.equal_length}
    facts["sources"] = {}
    for number, source in enumerate(sources):
        reference = None if options.equal_length or not options.reference else options.reference[number]
        job = job_for(run, source, options)
        found = race_source(able, job, folder, options.seconds, options.rounds)
        found["bleu"] = bleu(run, found.pop("outputs"), reference, options.texts)
        facts["sources"][str(source)] = found
    facts["start_seconds"] = {} if options.equal_length else start_up(able, job, folder)
    return {**facts, "skipped": {one.name: absent[one.model] for one in chosen if one.model in absent}}


def say(text: str) -> None:
    """Report progress."""
    print(text, file=sys.stderr, flush=True)


def job_for(run: Path, source: Path, options: argparse.Namespace) -> Job:
    """The job of all contenders; each gets its own `model` and `report`."""
    from heedful.storage.run_folder import RunFolder

    search = RunFolder.open(run).experiment().search
    job = Job(model="", source=str(source.resolve()), report="", beam=options.beam, alpha=search.alpha)
    return replace(job, extra=search.max_extra, limit=options.equal_length, texts=options.texts)


def race_source(entered: Sequence[Entrant], job: Job, folder: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Measure all texts together, then some of them one at a time."""
    whole, wrong = run_race(entered, job, folder / "together", seconds, rounds)
    count = min(_ALONE, job.texts or _ALONE)
    apart, wrong_alone = run_race(entered, replace(job, together=1, texts=count), folder / "alone", 0.0, rounds)
    return summary(whole) | {"alone": latencies(apart), "skipped": {**wrong_alone, **wrong}}


Raced = dict[str, tuple[Result, Tuned, dict[str, Any]]]  # result, settings, and the contender's own report


def run_race(
    entered: Sequence[Entrant], job: Job, folder: Path, seconds: float, rounds: int
) -> tuple[Raced, dict[str, str]]:
    """Tune each translator, then measure all of them."""
    folder.mkdir(exist_ok=True)
    contenders: list[Contender] = []
    settings: dict[str, Tuned] = {}
    failed: dict[str, str] = {}
    for entrant in entered:
        path = folder / f"{entrant.name.replace(' ', '-')}.json"
        own = replace(job, model=str(folder.parent / entrant.model), report=f"{path}.report")
        say(f"{folder.name}: {entrant.name} is being tuned")
        try:
            settings[entrant.name] = tune(entrant, own, path)
        except ContenderFailed as error:
            failed[entrant.name] = str(error)
            continue
        replace(own, settings=[settings[entrant.name].best]).write(path)
        contenders.append(entrant.contender(path, "race"))
    say(f"{folder.name}: measuring")
    results, lost = race(contenders, folder, seconds, rounds, _PATIENCE)
    raced = {}
    for result in results:
        name = result.contender.name
        report = json.loads((folder / f"{name.replace(' ', '-')}.json.report").read_text(encoding="utf-8"))
        raced[name] = (result, settings[name], report)
    return raced, failed | lost


def summary(raced: Raced) -> dict[str, Any]:
    """Speeds, ratios, memory, and the number of translations that equal those of the torch engine."""
    speeds = {name: result.speed for name, (result, _, _) in raced.items()}
    outputs = {name: report["texts"] for name, (_, _, report) in raced.items()}
    count = {name: len(texts) for name, texts in outputs.items()}
    return {
        "texts": max(count.values(), default=0),
        "texts_per_second": {name: round(speed, 1) for name, speed in speeds.items()},
        "rounds": {name: [round(lap.speed, 1) for lap in result.laps] for name, (result, _, _) in raced.items()},
        "pieces_per_second": {
            name: round(speeds[name] * report["pieces"] / count[name]) for name, (_, _, report) in raced.items()
        },
        "ratio": {
            ours: {name: round(speeds[ours] / speed, 3) for name, speed in speeds.items() if name != ours}
            for ours in (TORCH, FLOAT, INT8)
            if ours in speeds
        },
        "same_as_torch": {
            name: sum(map(str.__eq__, texts, outputs[TORCH])) for name, texts in outputs.items() if TORCH in outputs
        },
        "setting": {name: spelled(tuned.best) for name, (_, tuned, _) in raced.items()},
        "tuning_seconds": {name: tuned.seconds for name, (_, tuned, _) in raced.items() if tuned.seconds},
        "busy_elsewhere": {name: round(statistics.fmean(r.elsewhere), 3) for name, (r, _, _) in raced.items()},
        "peak_megabytes": {name: round(result.peak_bytes / 1e6) for name, (result, _, _) in raced.items()},
        "outputs": outputs,
    }


def latencies(raced: Raced) -> dict[str, Any]:
    """The milliseconds per single text, over all rounds."""
    return {
        name: {
            "p50": round(1e3 * statistics.median(report["turns"]), 1),
            "p95": round(1e3 * sorted(report["turns"])[int(0.95 * len(report["turns"]))], 1),
            "setting": spelled(tuned.best),
        }
        for name, (_, tuned, report) in raced.items()
    }


def bleu(run: Path, outputs: Mapping[str, Sequence[str]], reference: Path | None, texts: int) -> dict[str, float]:
    """BLEU by sacreBLEU with the tokens of the run's recipe; empty without a reference."""
    if reference is None:
        return {}
    from heedful.metrics.bleu import bleu as score
    from heedful.storage.run_folder import RunFolder

    lines = read_lines(reference)[: texts or None]
    tokenize = RunFolder.open(run).experiment().evaluate.tokenize
    return {name: round(score(found, [lines], tokenize), 2) for name, found in outputs.items()}


def start_up(entered: Sequence[Entrant], job: Job, folder: Path) -> dict[str, float]:
    """The seconds from the start of a process to its first translation: the median of several starts, in turn."""
    source = folder / "first.txt"
    source.write_text(f"{_FIRST}\n", encoding="utf-8")
    shell = [sys.executable, "-m", "heedful", "translate"]
    commands: dict[str, Contender] = {}
    for entrant in entered:
        path = folder / f"start-{entrant.name.replace(' ', '-')}.json"
        own = replace(job, model=str(folder / entrant.model), source=str(source), settings=entrant.alone[:1])
        own.write(path)
        commands[entrant.name] = entrant.contender(path, "once")
        if entrant.kind == "heedful":
            name = f"{entrant.name}, from the shell"
            commands[name] = Contender(name, "heedful", [*shell, str(folder / entrant.model), _FIRST])
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(_STARTS + 1):
        say(f"starting each, {number} of {_STARTS}")
        for name, command in commands.items():
            found[name].append(seconds_to_answer(command))
    return {name: round(statistics.median(times[1:]), 2) for name, times in found.items()}


def seconds_to_answer(contender: Contender) -> float:
    """The seconds until its first line; NaN if there is none."""
    began = time.perf_counter()
    with subprocess.Popen(
        contender.command, env=environment(contender), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - began
    return seconds if line else math.nan


def table(facts: dict[str, Any]) -> str:
    """The summary as text."""
    parts = [source_table(source, found) for source, found in facts["sources"].items()]
    starts = [f"{name:44} {seconds:6.2f} s" for name, seconds in facts["start_seconds"].items()]
    if starts:
        parts.append("\n".join(["from nothing to the first translation", *starts]))
    skipped = {**facts["skipped"], **{k: v for found in facts["sources"].values() for k, v in found["skipped"].items()}}
    return "\n\n".join([*parts, *(f"skipped: {name}: {reason}" for name, reason in skipped.items())])


def source_table(source: str, found: dict[str, Any]) -> str:
    """The results for one file; ratios say how many times as fast heedful's engines are."""
    rows = [
        f"{Path(source).name}, {found['texts']} texts",
        f"{'':30} texts/s pieces/s  torch is float32 is int8 is  BLEU  same   p50 ms  p95 ms   memory",
    ]
    for name, speed in found["texts_per_second"].items():
        ratios = [found["ratio"].get(ours, {}).get(name) for ours in (TORCH, FLOAT, INT8)]
        cells = " ".join(f"{ratio:6.2f} x" if ratio else f"{'':8}" for ratio in ratios)
        alone = found["alone"].get(name, {})
        rows.append(
            f"{name:30} {speed:7,.1f} {found['pieces_per_second'][name]:8,} {cells} {found['bleu'].get(name, ''):>7}"
            f" {found['same_as_torch'].get(name, ''):>5} {alone.get('p50', ''):>8} {alone.get('p95', ''):>7}"
            f" {found['peak_megabytes'][name]:5,} MB"
        )
    rows += [
        f"{name}: {setting}; one at a time: {found['alone'].get(name, {}).get('setting', '')}"
        for name, setting in found["setting"].items()
    ]
    elsewhere = max(found["busy_elsewhere"].values(), default=0.0)
    if elsewhere > _TOO_BUSY:
        rows.append(f"other programs took up to {elsewhere:.0%} of the machine; repeat this when it is idle")
    return "\n".join(rows)


if __name__ == "__main__":
    main()

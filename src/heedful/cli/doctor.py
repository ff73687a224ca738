"""`heedful doctor`"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption
from heedful.errors import counted

if TYPE_CHECKING:
    from heedful.data.doctor import CleanedCorpus


def doctor(
    source: Annotated[list[str], typer.Option(help="Text, one sentence a line. Can be repeated.")],
    target: Annotated[list[str], typer.Option(help="Its translation, line by line.")],
    test: Annotated[
        tuple[str, str] | None, typer.Option(help="Source and reference of a test set, to find overlap with it.")
    ] = None,
    clean: Annotated[Path | None, typer.Option(help="Write cleaned copies into this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find problems in parallel text, with line numbers; clean it on request."""
    from heedful.data.doctor import clean_corpus
    from heedful.data.doctor import doctor as examine

    tests = [test] if test else []
    diagnosis = examine(source, target, tests)
    facts: dict[str, Any] = dataclasses.asdict(diagnosis)
    if not as_json:
        console.out(
            f"{counted(diagnosis.pairs, 'pair', ',')}, {diagnosis.source_words:,} source and "
            f"{counted(diagnosis.target_words, 'target word', ',')}"
        )
        for finding in diagnosis.findings:
            console.out(f"{finding.severity}: {finding.message}{_format_lines(finding.lines, finding.count)}")
        if not diagnosis.findings:
            console.out("no problems found")
    if clean:
        cleaned = clean_corpus(source, target, clean, tests)
        facts["cleaned"] = dataclasses.asdict(cleaned) | {"files": [str(path) for path in cleaned.files]}
        if not as_json:
            console.out(f"cleaned copies are in {clean}: {_describe_cleaning(cleaned)}")
    if as_json:
        console.out(json.dumps(facts, ensure_ascii=False))
    if any(finding.severity == "error" for finding in diagnosis.findings):
        raise typer.Exit(1)


def _describe_cleaning(cleaned: "CleanedCorpus") -> str:
    dropped = ", ".join(f"{count:,} {kind}" for kind, count in cleaned.dropped.items() if count)
    return (
        f"{cleaned.kept:,} of {counted(cleaned.pairs, 'pair', ',')}, {cleaned.tidied:,} of them tidied"
        f"{f'; dropped: {dropped}' if dropped else ''}"
    )


def _format_lines(lines: tuple[int, ...], count: int) -> str:
    if not lines:
        return ""
    more = ", ..." if count > len(lines) else ""
    return f" ({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}{more})"

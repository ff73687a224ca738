"""`heedful doctor`"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption
from heedful.errors import ConfigError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heedful.data.caption_doctor import CaptionDiagnosis
    from heedful.data.doctor import CleanedCorpus, Finding
    from heedful.data.label_doctor import LabelDiagnosis
    from heedful.data.picture_doctor import PictureDiagnosis
    from heedful.data.text_doctor import TextDiagnosis

_SHOWN_LABELS = 20


def doctor(
    source: Annotated[list[str] | None, typer.Option(help="Text, one sentence a line. Can be repeated.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Its translation, line by line.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="Plain text instead. Can be repeated.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option(help="Labelled texts or tagged words instead. Can be repeated.")
    ] = None,
    images: Annotated[
        list[str] | None, typer.Option(help="Pictures instead: a folder of classes, or IDX files. Can be repeated.")
    ] = None,
    captions: Annotated[
        list[str] | None, typer.Option(help="Lines of PICTURE TAB CAPTION instead. Can be repeated.")
    ] = None,
    test: Annotated[
        tuple[str, str] | None, typer.Option(help="Source and reference of a test set, to find overlap with it.")
    ] = None,
    clean: Annotated[Path | None, typer.Option(help="Write cleaned copies into this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find problems in parallel, plain or labelled text, in pictures or captions; clean parallel text on request."""
    alone = (
        *(("--captions", captions, _examine_captions), ("--images", images, _examine_pictures)),
        *(("--labels", labels, _examine_labels), ("--text", text, _examine_text)),
    )
    for name, files, look_at in alone:
        if files:
            if source or target or test or clean or sum(bool(others) for _, others, _ in alone) > 1:
                raise ConfigError(f"{name} is examined alone; leave out the other files and --clean")
            look_at(files, as_json)
            return
    if not source or not target:
        raise ConfigError(
            "there is nothing to examine; give --source and --target, --text, --labels, --images or --captions"
        )
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
        _print_findings(diagnosis.findings)
    if clean:
        cleaned = clean_corpus(source, target, clean, tests)
        facts["cleaned"] = dataclasses.asdict(cleaned) | {"files": [str(path) for path in cleaned.files]}
        if not as_json:
            console.out(f"cleaned copies are in {clean}: {_describe_cleaning(cleaned)}")
    if as_json:
        console.out(json.dumps(facts, ensure_ascii=False))
    _exit_if_error(diagnosis.findings)


def _examine_text(files: list[str], as_json: bool) -> None:
    from heedful.data.text_doctor import doctor_text

    diagnosis = doctor_text(files)
    size = (
        f"{counted(diagnosis.texts, 'text')} of {counted(diagnosis.lines, 'line', ',')}, "
        f"{counted(diagnosis.words, 'word', ',')} and {counted(diagnosis.characters, 'character', ',')}"
    )
    _report(diagnosis, size, as_json)


def _examine_labels(files: list[str], as_json: bool) -> None:
    from heedful.data.label_doctor import doctor_labels

    diagnosis = doctor_labels(files)
    size = f"{counted(diagnosis.texts, 'text', ',')}, {counted(diagnosis.words, 'word', ',')}"
    _report(diagnosis, f"{size}, {_format_labels(diagnosis.labels)}", as_json)


def _examine_pictures(places: list[str], as_json: bool) -> None:
    from heedful.data.picture_doctor import doctor_pictures

    diagnosis = doctor_pictures(places)
    size = counted(diagnosis.pictures, "picture", ",")
    _report(diagnosis, f"{size}, {_format_labels(diagnosis.labels)}", as_json)


def _examine_captions(files: list[str], as_json: bool) -> None:
    from heedful.data.caption_doctor import doctor_captions

    diagnosis = doctor_captions(files)
    pictures, captions = counted(diagnosis.pictures, "picture", ","), counted(diagnosis.captions, "caption", ",")
    _report(diagnosis, f"{pictures} and {captions} of {counted(diagnosis.words, 'word', ',')}", as_json)


def _report(
    diagnosis: "TextDiagnosis | LabelDiagnosis | PictureDiagnosis | CaptionDiagnosis", size: str, as_json: bool
) -> None:
    if as_json:
        console.out(json.dumps(dataclasses.asdict(diagnosis), ensure_ascii=False))
    else:
        console.out(size)
        _print_findings(diagnosis.findings)
    _exit_if_error(diagnosis.findings)


def _format_labels(labels: "Sequence[tuple[str, int]]") -> str:
    shown = ", ".join(f"{label} {count:,}" for label, count in labels[:_SHOWN_LABELS])
    return f"{counted(len(labels), 'label')}: {shown}{', ...' if len(labels) > _SHOWN_LABELS else ''}"


def _print_findings(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        console.out(f"{finding.severity}: {finding.message}{_format_lines(finding.lines, finding.count)}")
    if not findings:
        console.out("no problems found")


def _exit_if_error(findings: "Sequence[Finding]") -> None:
    if any(finding.severity == "error" for finding in findings):
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

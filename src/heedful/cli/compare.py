"""`heedful compare`"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    SearchOption,
    check_output,
    parse_device,
    parse_engine,
    parse_search_changes,
    parse_tokenize,
    write_output,
)

if TYPE_CHECKING:
    from heedful.metrics.breakdown import BucketScore
    from heedful.metrics.comparison import Comparison, MetricTest, Sentence, SystemTest

_SHOWN = 5  # sentences each way

SystemsArgument = Annotated[
    list[Path], typer.Argument(help="Models, or files with one translation per line; the first is the baseline.")
]


def compare(
    systems: SystemsArgument,
    reference: Annotated[list[Path], typer.Option(help="Human translations, one per line. Can be repeated.")],
    source: Annotated[Path | None, typer.Option(help="The source text, one sentence per line; models need it.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with every sentence to this file.")] = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer; default is the models' own, or 13a.")] = "",
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Compare translations of a test set: is one system better than another, and where?

    Prints BLEU and chrF with 95 % intervals and two paired tests of significance (bootstrap, approximate
    randomisation), BLEU by sentence length, F1 of words by frequency, and the sentences that differ most.
    """
    check_output(html, "--html")
    from heedful.evaluation.compare import compare as compare_systems

    with console.display() as shown:
        found = compare_systems(
            systems,
            reference,
            source,
            search=parse_search_changes(beam, settings),
            tokenize=parse_tokenize(tokenize) if tokenize else None,
            device=parse_device(device),
            engine=parse_engine(engine),
            threads=0,
            reporter=shown,
        )
    console.out(json.dumps(_facts(found), ensure_ascii=False) if as_json else "\n\n".join(_sections(found)))
    if html:
        from heedful.evaluation.comparison_page import comparison_page

        write_output(html, [comparison_page(found)])
        console.say(f"{html} shows every sentence; open it in a browser")


def _facts(found: "Comparison") -> dict[str, object]:
    wins = [dataclasses.asdict(found.wins(number)) for number in range(1, len(found.names))]
    return {**dataclasses.asdict(found), "wins": wins}


def _sections(found: "Comparison") -> Iterator[str]:
    """The parts of the text for a terminal."""
    for test in found.tests:
        yield _scores(test, found.names)
    yield _against_first(found)
    yield _parts(f"BLEU by words of the {found.length_of}", "sentences", found.by_length, found.names)
    yield _parts(f"F1 of words by how often they are in {found.counted_in}", "words", found.by_frequency, found.names)
    for number, name in enumerate(found.names[1:], 1):
        better, worse = found.extremes(number, _SHOWN)
        for title, sentences in (("gains most over", better), ("loses most against", worse)):
            if sentences:
                yield f"where {name} {title} {found.names[0]}\n" + _sentences(sentences, found.names, number)


def _scores(test: "MetricTest", names: Sequence[str]) -> str:
    titles = (test.metric, "value", "95 % interval", "difference", "p (bootstrap)", "p (randomisation)", "")
    rows = [_score(name, tested) for name, tested in zip(names, test.systems, strict=True)]
    signatures = test.systems[0].score.signature, test.randomisation_signature
    return "\n".join([console.table([titles, *rows]), *signatures])


def _score(name: str, tested: "SystemTest") -> tuple[str, ...]:
    score = tested.score
    plain = name, f"{score.value:.2f}", f"{score.low:.2f} to {score.high:.2f}"
    if tested.bootstrap is None or tested.randomisation is None:
        return *plain, "", "", "", "baseline"
    verdict = "significant" if tested.significant else "may be chance"
    return *plain, f"{tested.difference:+.2f}", f"{tested.bootstrap:.4f}", f"{tested.randomisation:.4f}", verdict


def _against_first(found: "Comparison") -> str:
    rows: list[tuple[str, ...]] = [("sentences by chrF", "better", "worse", "equal", "same text", "length ratio")]
    for number, (name, ratio) in enumerate(zip(found.names, found.length_ratios, strict=True)):
        wins = found.wins(number) if number else None
        counts = (wins.better, wins.worse, wins.equal, wins.identical) if wins else ("", "", "", "")
        rows.append((name, *map(str, counts), f"{ratio:.3f}"))
    return console.table(rows)


def _parts(title: str, counted: str, parts: "Sequence[BucketScore]", names: Sequence[str]) -> str:
    width = max(len(part.name) for part in parts)  # align all of them to the left, even numbers
    rows = [(part.name.ljust(width), str(part.count), *(f"{value:.2f}" for value in part.values)) for part in parts]
    return f"{title}\n{console.table([('', counted, *names), *rows])}"


def _sentences(sentences: "Sequence[Sentence]", names: Sequence[str], number: int) -> str:
    lines = []
    for sentence in sentences:
        lines.append(f"  line {sentence.number}, chrF {sentence.gain(number):+.1f}")
        source = [("source", sentence.source)] if sentence.source is not None else []
        outputs = [(names[0], sentence.outputs[0]), (names[number], sentence.outputs[number])]
        rows = [*source, *(("reference", reference) for reference in sentence.references), *outputs]
        lines.append(console.table([("   ", name, " ".join(text.split())) for name, text in rows]))
    return "\n".join(lines)

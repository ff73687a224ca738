"""`heedful score`"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    DeviceOption,
    EngineOption,
    JsonOption,
    ModelArgument,
    WithOption,
    check_output,
    load_translator,
    open_model,
    write_output,
)
from heedful.errors import counted

if TYPE_CHECKING:
    from heedful.evaluation.score_pairs import PairScore, Total


def score(
    run: ModelArgument,
    source: Annotated[Path, typer.Option(help="Texts, one per line.")],
    target: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    others: WithOption = None,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Score given translations: one line each, with the log-probability and its mean per piece.

    With --json, every piece and word has its own log-probability, and the last line is for the whole file. The
    perplexity is printed to standard error.
    """
    check_output(output, read=[source, target])
    from heedful.data.pairs import read_parallel
    from heedful.evaluation.score_pairs import Total, score_pairs

    translator = load_translator(open_model(run), device, engine, others)
    total = Total()

    def lines() -> Iterator[str]:
        nonlocal total
        for number, found in enumerate(score_pairs(translator, read_parallel([str(source)], [str(target)]), shown)):
            total = total.plus(found)
            yield _json(number, found) if as_json else f"{found.log_prob:.4f}\t{found.per_piece:.4f}"
        if as_json:
            yield json.dumps({"total": _facts(total)})

    with console.display() as shown:
        write_output(output, lines())
    facts = _facts(total)
    console.say(
        f"perplexity {facts['perplexity']:.4f} over {counted(total.pieces, 'piece')} of {counted(total.pairs, 'pair')}"
    )


def _json(number: int, found: "PairScore") -> str:
    return json.dumps({"index": number, **dataclasses.asdict(found)}, ensure_ascii=False)


def _facts(total: "Total") -> dict[str, float]:
    return {**dataclasses.asdict(total), "perplexity": total.perplexity}

"""`heedful evaluate`"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    JsonOption,
    SearchOption,
    check_output,
    device_named,
    search_with,
    write_output,
)
from heedful.config import BleuTokens
from heedful.errors import ConfigError, DataError, HeedfulError, did_you_mean


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Annotated[Path, typer.Option(help="The test set, one sentence a line.")],
    reference: Annotated[list[Path], typer.Option(help="Its translation by people. Can be repeated.")],
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokeniser; default is the experiment's own.")] = "",
    language: Annotated[str, typer.Option(help="Target language, two letters; else from the file's name.")] = "",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a test set and score it: BLEU, chrF, TER and the paper's BLEU, each with its 95 % interval."""
    from heedful.cli.translate import one_line
    from heedful.data.pairs import guess_language, read_lines
    from heedful.device import use_threads
    from heedful.runs.evaluate import evaluate as score
    from heedful.store.run_folder import RunFolder
    from heedful.translator import Translator

    check_output(output)
    sources, references = list(read_lines(source)), [list(read_lines(path)) for path in reference]
    for path, lines in zip(reference, references, strict=True):
        if len(lines) != len(sources):
            raise DataError(
                f"{path} has {len(lines)} lines but {source} has {len(sources)}; they must pair up line by line"
            )
    use_threads(0)
    translator = Translator.load(run, device_named(device))
    folder = RunFolder(run)
    tokens = _tokens(tokenize) if tokenize else folder.experiment().evaluate.tokenize
    search = search_with(translator.search, beam, settings)
    language = language or guess_language(str(reference[0])) or folder.experiment().data.target_language
    with console.display() as shown:
        found = score(translator, sources, references, search, tokens, language, shown)
    scores = [dataclasses.asdict(entry) for entry in found.scores]
    if as_json:
        console.out(json.dumps({"scores": scores}))
    else:
        console.out(console.table([("metric", "value", "95 % interval", "signature"), *map(_row, found.scores)]))
    if output:
        write_output(output, map(one_line, found.outputs))
    try:
        folder.add_scores(str(source), {"beam": search.beam, "alpha": search.alpha, "scores": scores})
    except HeedfulError as error:  # a model may lie where one can only read
        console.say(f"the scores are not kept in the run folder: {error}")


def _row(score: object) -> tuple[str, ...]:
    entry = dataclasses.asdict(score)  # type: ignore[call-overload]
    interval = f"{entry['low']:.2f} to {entry['high']:.2f}"
    return entry["metric"], f"{entry['value']:.2f}", interval, entry["signature"]


def _tokens(name: str) -> BleuTokens:
    known = get_args(BleuTokens)
    if name not in known:
        raise ConfigError(f"--tokenize must be one of {', '.join(known)}, but is {name}{did_you_mean(name, known)}")
    return cast(BleuTokens, name)

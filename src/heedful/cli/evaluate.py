"""`heedful evaluate`"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    BeamOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    ModelArgument,
    SearchOption,
    WithOption,
    check_output,
    load_translator,
    override_search,
    parse_tokenize,
    write_output,
)
from heedful.config import Experiment
from heedful.errors import ConfigError, HeedfulError


def evaluate(
    run: ModelArgument,
    source: Annotated[
        Path | None, typer.Option(help="The test set, one sentence a line; else the one that the experiment names.")
    ] = None,
    reference: Annotated[list[Path] | None, typer.Option(help="Its translation by people. Can be repeated.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    others: WithOption = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokeniser; default is the experiment's own.")] = "",
    language: Annotated[str, typer.Option(help="Target language, two letters; else from the file's name.")] = "",
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a test set and score it, each score with its 95 % interval.

    BLEU, chrF, TER and the paper's BLEU; of other tasks F1 of brackets, error rates of words and symbols, accuracy.
    """
    from heedful.cli.translate import one_line
    from heedful.data.pairs import guess_language
    from heedful.evaluation.evaluate import evaluate as score
    from heedful.storage.model_names import find_model, is_built_in
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task

    folder = RunFolder.open(find_model(run))
    experiment = folder.experiment()
    sources, references = _files(experiment, source, reference)
    check_output(output, read=[Path(name) for names in (sources, *references) for name in names])
    questions = find_task(experiment.task).read_questions(sources, references)
    tokens = parse_tokenize(tokenize) if tokenize else experiment.evaluate.tokenize
    translator = load_translator(folder, device, engine, others)
    search = override_search(translator.search, beam, settings)
    named = guess_language(references[0][0]) if references else ""
    language = language or named or experiment.data.target_language
    with console.display() as shown:
        found = score(translator, questions, search, tokens, language, shown)
    scores = [dataclasses.asdict(entry) for entry in found.scores]
    if as_json:
        console.out(json.dumps({"scores": scores}))
    else:
        console.out(console.table([("metric", "value", "95 % interval", "signature"), *map(_row, found.scores)]))
    if output:
        write_output(output, map(one_line, found.outputs))
    if others or is_built_in(run):  # they are not the scores of this run, or it stays as it is
        return
    try:
        folder.add_scores(", ".join(sources), {"beam": search.beam, "alpha": search.alpha, "scores": scores})
    except HeedfulError as error:  # a model may lie where one can only read
        console.say(f"the scores are not kept in the run folder: {error}")


def _files(
    experiment: Experiment, source: Path | None, reference: list[Path] | None
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Which files the test is in: those given, or those of the experiment."""
    from heedful.tasks import find_task

    data, two_files = experiment.data, find_task(experiment.task).files == "two"
    if source:
        if two_files and not reference:
            raise ConfigError(f"--source {source} needs --reference, its translation by people")
        return [str(source)], [[str(path)] for path in reference or []]
    if reference:
        raise ConfigError(f"--reference {reference[0]} needs --source, the text that it translates")
    if not data.test_source:
        others = " and --reference" if two_files else ""
        raise ConfigError(f"what to evaluate on? give --source{others}; the run names no data.test_source")
    return data.test_source, [data.test_target] if data.test_target else []


def _row(score: object) -> tuple[str, ...]:
    entry = dataclasses.asdict(score)  # type: ignore[call-overload]
    interval = f"{entry['low']:.2f} to {entry['high']:.2f}"
    return entry["metric"], f"{entry['value']:.2f}", interval, entry["signature"]

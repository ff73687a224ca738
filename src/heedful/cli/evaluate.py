"""`heedful evaluate`"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    parse_device,
    parse_engine,
    parse_search_changes,
    parse_tokenize,
    write_output,
)
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heedful.metrics import Score
    from heedful.metrics.label_scores import LabelScore


def evaluate(
    run: ModelArgument,
    source: Annotated[
        Path | None, typer.Option(help="The test set, one sentence per line; default is the experiment's.")
    ] = None,
    reference: Annotated[list[Path] | None, typer.Option(help="Its human translation. Can be repeated.")] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labelled texts, or tagged words, for a model that learnt from such files.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Pictures in folders of classes, or IDX files, for a model that labels them.")
    ] = None,
    captions: Annotated[
        Path | None, typer.Option(help="Lines of PICTURE TAB CAPTION, for a model that learnt from such files.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the outputs here: translations, or labels.")] = None,
    others: WithOption = None,
    beam: BeamOption = None,
    settings: SearchOption = None,
    tokenize: Annotated[str, typer.Option(help="sacreBLEU's tokenizer; default is the experiment's.")] = "",
    language: Annotated[str, typer.Option(help="Target language, two letters; default is the file name's.")] = "",
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Translate a test set and score it; each score has a 95 % interval.

    For translation the scores are BLEU, chrF, TER and the paper's BLEU; for other tasks F1 of brackets, error rates of
    words and symbols, or accuracy. A model that continues text gets the loss, the perplexity and the bits per character
    of the text --source. A model that labels texts or pictures, or tags words, gets accuracy, macro F1, the scores
    of each label and the confusion matrix as a picture in its folder. A model of captions gets recall at 1, 5 and 10,
    with that of chance.
    """
    if sum(each is not None for each in (source, labels, images, captions)) > 1:
        raise ConfigError("--source, --labels, --images and --captions all name the test set; leave one")
    source = source or labels or images or captions
    from heedful.cli.translate import one_line
    from heedful.evaluation.evaluate import CONFUSION_FILE, find_test_files
    from heedful.evaluation.evaluate import evaluate as score
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task

    references = reference or []
    opened = RunFolder.open(find_model(run))
    task = find_task(opened.experiment().task)
    if labels and not task.encoder:
        raise ConfigError(
            f"--labels {labels} is for a model that labels texts, which {run} does not; name it with --source"
        )
    if images and not task.reads_pictures:
        raise ConfigError(f"--images {images} is for a model that labels pictures, which {run} does not")
    if captions and not task.matches_pictures:
        raise ConfigError(f"--captions {captions} is for a model that finds pictures, which {run} does not")
    files = find_test_files(opened, source, references)
    check_output(output, read=[Path(name) for names in (files.sources, *files.references) for name in names])
    with console.display() as shown:
        found = score(
            run,
            source,
            references,
            others=others or [],
            search=parse_search_changes(beam, settings),
            tokenize=parse_tokenize(tokenize) if tokenize else None,
            language=language,
            device=parse_device(device),
            engine=parse_engine(engine),
            threads=0,
            reporter=shown,
        )
    if as_json:
        facts: dict[str, object] = {"scores": [dataclasses.asdict(entry) for entry in found.scores]}
        if found.labels:
            report = dataclasses.asdict(found.labels)
            facts |= {key: report[key] for key in ("labels", "confusion", "by_label")}
        console.out(json.dumps(facts, ensure_ascii=False))
    else:
        titles = ("metric", "value", "95 % interval", _last_column(found.scores), "signature")
        console.out(console.table([titles, *map(_row, found.scores)]))
    if found.labels and not as_json:
        console.out("")
        console.out(
            console.table([("label", "precision", "recall", "F1", "texts"), *map(_label_row, found.labels.by_label)])
        )
        picture = run / CONFUSION_FILE
        if picture.exists():
            console.say(f"the confusion matrix is in {picture}")
    if output:
        write_output(output, map(one_line, found.outputs))


def _label_row(score: "LabelScore") -> tuple[str, ...]:
    return score.label, f"{score.precision:.2f}", f"{score.recall:.2f}", f"{score.f1:.2f}", f"{score.count}"


def _last_column(scores: "Sequence[Score]") -> str:
    """What stands beside the intervals."""
    from heedful.metrics.recall import RetrievalScore

    return "chance" if any(isinstance(score, RetrievalScore) for score in scores) else "brevity penalty"


def _row(score: "Score") -> tuple[str, ...]:
    from heedful.metrics.recall import RetrievalScore

    beside = "" if score.brevity_penalty is None else f"{score.brevity_penalty:.3f}"
    if isinstance(score, RetrievalScore):
        beside = f"{score.chance:.2f}"
    digits = 4 if score.metric in ("loss", "bits per character") else 2
    low, high = f"{score.low:.{digits}f}", f"{score.high:.{digits}f}"
    return score.metric, f"{score.value:.{digits}f}", f"{low} to {high}", beside, score.signature

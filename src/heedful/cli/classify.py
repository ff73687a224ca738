"""`heedful classify`"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    STANDARD_INPUT,
    DeviceOption,
    JsonOption,
    ModelArgument,
    open_model,
    parse_device,
    read_texts,
)
from heedful.errors import ConfigError, require_library

if TYPE_CHECKING:
    from heedful.classification.classifier import Classification, TaggedText
    from heedful.storage.run_folder import RunFolder

_PICTURES_AT_A_TIME = 64


def classify(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts, or pictures, to label; default, and -: standard input, a text a line.",
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file instead, one text a line, plain or .gz.")] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Label texts or pictures, or tag words, with a model that `heedful train --labels` or `--images` has trained.

    Prints the label, its probability and the text or the picture's name; a tagger prints word/tag. --json has all
    probabilities.
    """
    run = open_model(model)
    require_library("classifying a text", "torch")
    from heedful.tasks import find_task

    if find_task(run.experiment().task).reads_pictures:
        _classify_pictures(run, texts or [], file, as_json, device)
        return
    from heedful.classification.classifier import Classifier
    from heedful.data.stream import read_windows
    from heedful.device import use_threads

    classifier = Classifier.from_run(run, parse_device(device))
    use_threads(0)
    index = 0
    for window in read_windows(read_texts(texts or [], file)):
        found: list[TaggedText] | list[Classification] = (
            classifier.tag(window) if classifier.tags_words else classifier.classify(window)
        )
        for one in found:
            if as_json:
                console.out(json.dumps({"index": index, **asdict(one)}, ensure_ascii=False))
            else:
                console.out(_format(one))
            index += 1
        sys.stdout.flush()  # the reader of a pipe may wait for this text


def _classify_pictures(run: "RunFolder", names: list[str], file: Path | None, as_json: bool, device: str) -> None:
    from heedful.classification.picture_classifier import PictureClassifier
    from heedful.device import use_threads

    if file or not names or names == [STANDARD_INPUT]:
        raise ConfigError(f"{run.path} labels pictures; name them: heedful classify {run.path} cat.png")
    classifier = PictureClassifier.from_run(run, parse_device(device))
    use_threads(0)
    for first in range(0, len(names), _PICTURES_AT_A_TIME):
        for index, one in enumerate(classifier.classify(names[first : first + _PICTURES_AT_A_TIME]), first):
            if as_json:
                console.out(json.dumps({"index": index, **asdict(one)}, ensure_ascii=False))
            else:
                console.out(f"{one.label}\t{one.probability:.4f}\t{one.picture}")


def _format(found: "TaggedText | Classification") -> str:
    from heedful.classification.classifier import Classification

    if isinstance(found, Classification):
        return f"{found.label}\t{found.probability:.4f}\t{found.text}"
    return str(found)

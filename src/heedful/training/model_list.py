"""The models there are to use: those that come with the program, and run folders."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.errors import HeedfulError
from heedful.models.size import model_size
from heedful.storage.files import read_json
from heedful.storage.model_names import built_in_models
from heedful.storage.run_folder import RunFolder
from heedful.training.learning_curve import read_events


@dataclass(frozen=True, slots=True)
class Scored:
    """How well a model did, and on what."""

    metric: str
    value: float
    test_set: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model: by which name, between which languages, how large, how good; `problem` says why it cannot be used."""

    name: str
    kind: Literal["built-in", "local"]
    folder: str
    source: str = ""
    target: str = ""
    task: str = ""
    parameters: int = 0
    bytes: int = 0  # of the weights
    score: Scored | None = None
    about: str = ""
    problem: str = ""


def list_models(local: Path, built_in: Path | None = None) -> list[ModelFacts]:
    """Those built in, then the run folders in `local` and in its folders."""
    return [
        *(_facts(name, "built-in", folder) for name, folder in built_in_models(built_in).items()),
        *(_facts(str(folder), "local", folder) for folder in _runs(local)),
    ]


def _runs(folder: Path, deeper: int = 1) -> Iterator[Path]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (path / "config.json").is_file():
            yield path
        elif deeper and path.is_dir():
            yield from _runs(path, deeper - 1)


def _facts(name: str, kind: Literal["built-in", "local"], folder: Path) -> ModelFacts:
    try:
        run = RunFolder.open(folder)
        experiment, config = run.experiment(), read_json(folder / "config.json")
    except HeedfulError as error:  # one that is damaged does not hide the others
        return ModelFacts(name, kind, str(folder), problem=str(error))
    sizes: dict[str, Any] = config if isinstance(config, dict) else {}
    vocabulary = (sizes.get("source_vocab_size", 0), sizes.get("vocab_size", 0))
    return ModelFacts(
        name,
        kind,
        str(folder),
        experiment.data.source_language,
        experiment.data.target_language,
        experiment.task,
        model_size(experiment.model, *vocabulary).total,
        _weights(run),
        _score(run),
        _about(run),
    )


def _weights(run: RunFolder) -> int:
    path = run.path / "model.safetensors" if run.has_model else run.ctranslate2 / "model.bin"
    return path.stat().st_size if path.exists() else 0


def _score(run: RunFolder) -> Scored | None:
    """Of the last test set that it was evaluated on, or else the best of its validations."""
    match list((scores if isinstance(scores := run.about().get("scores"), dict) else {}).items()):
        case [*_, (str(test_set), {"scores": [{"metric": str(metric), "value": float(value)}, *_]})]:
            return Scored(metric, value, test_set)
    validated = [event for event in read_events(run, "Validated") if event["score"] is not None]
    best = max(validated, key=lambda event: event["score"], default=None)
    return Scored(best["metric"], best["score"], "validation") if best else None


def _about(run: RunFolder) -> str:
    """In a few words what it is."""
    about = run.about()
    data = about.get("data")
    pairs = f"{data['pairs']:,} pairs" if isinstance(data, dict) and "pairs" in data else ""
    weights = "no weights yet" if not run.has_model and not run.ctranslate2.is_dir() else ""
    match about:
        case {"exported": {"numbers": str(numbers)}}:
            kind = f"exported, {numbers}"
        case {"pruned": _}:
            kind = "pruned"
        case {"parent": {"model": str(parent)}}:
            kind = f"fine-tuned from {Path(parent).name}"
        case _:
            kind = ""
    return ", ".join(part for part in (kind, pairs, weights) if part)

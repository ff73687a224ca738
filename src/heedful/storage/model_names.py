"""The models on this machine: built-in ones, which have names, and run folders."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heedful.errors import FolderError, HeedfulError, counted, did_you_mean

if TYPE_CHECKING:  # finding a model by its name needs none of this
    from heedful.storage.run_folder import RunFolder

BUILT_IN = Path(__file__).resolve().parent.parent / "builtin"


def built_in_models(folder: Path | None = None) -> dict[str, Path]:
    """The folders of the built-in models by their names; `en-de` translates English to German."""
    return {path.parent.name: path.parent for path in sorted((folder or BUILT_IN).glob("*/config.json"))}


def find_model(name: str | os.PathLike[str], folder: Path | None = None) -> Path:
    """The folder of a model: an existing folder of this name, else the built-in model (`folder` holds those)."""
    given, known = os.fspath(name), built_in_models(folder)
    if _is_folder(Path(given)):
        if given in known and not (Path(given) / "config.json").exists():
            raise FolderError(
                f"the folder {given} is not a run folder, but hides the built-in model of that name; "
                f"change to another folder, or write {known[given]}"
            )
        return Path(given)
    if given in known:
        return known[given]
    others = f", or name a built-in model: {', '.join(known)}" if known else ""
    raise FolderError(
        f"no run folder {given}; make one with: heedful train --source A --target B --out {given}"
        f"{others}{did_you_mean(given, known)}"
    )


def is_model(name: str, folder: Path | None = None) -> bool:
    """Whether a folder or a built-in model has this name."""
    return bool(name) and (_is_folder(Path(name)) or name in built_in_models(folder))


def is_built_in(name: str | os.PathLike[str], folder: Path | None = None) -> bool:
    """Whether this name or folder is a built-in model, which must not be changed."""
    return find_model(name, folder).resolve().parent == (folder or BUILT_IN).resolve()


def looks_like_model(text: str) -> bool:
    """Whether this is probably meant as a model and not as text to translate, even if no model has that name.

    That is one word with a slash, a pair of languages, or a path inside an existing folder.
    """
    path = any(separator in text for separator in (os.sep, os.altsep) if separator)
    if len(text.split()) == 1 and (path or re.fullmatch(r"[a-z]{2}-[a-z]{2}", text)):
        return True
    return path and _is_folder(Path(text).parent)


def _is_folder(path: Path) -> bool:
    """False also for text that cannot be a path: too long, or with characters that no path has."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class ModelScore:
    """The score of a model on a test set."""

    metric: str
    value: float
    test_set: str


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """Name, languages, size and score of a model; `problem` says why it cannot be used."""

    name: str
    kind: Literal["built-in", "local"]
    folder: str
    source: str = ""
    target: str = ""
    task: str = ""
    parameters: int = 0
    bytes: int = 0  # of the weights
    score: ModelScore | None = None
    about: str = ""
    problem: str = ""


def list_models(local: Path, built_in: Path | None = None) -> list[ModelSummary]:
    """The built-in models, then the run folders in `local` and in its subfolders."""
    return [
        *(_summarise(name, "built-in", folder) for name, folder in built_in_models(built_in).items()),
        *(_summarise(str(folder), "local", folder) for folder in _find_runs(local)),
    ]


def _find_runs(folder: Path, deeper: int = 1) -> Iterator[Path]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (path / "config.json").is_file() and (path / "experiment.toml").exists():  # else it is another program's
            yield path
        elif deeper and path.is_dir():
            yield from _find_runs(path, deeper - 1)


def _summarise(name: str, kind: Literal["built-in", "local"], folder: Path) -> ModelSummary:
    try:
        return _summarise_intact(name, kind, folder)
    except HeedfulError as error:  # a damaged model must not hide the others
        return ModelSummary(name, kind, str(folder), problem=str(error))


def _summarise_intact(name: str, kind: Literal["built-in", "local"], folder: Path) -> ModelSummary:
    from heedful.models.size import model_size
    from heedful.storage.files import read_json
    from heedful.storage.run_folder import RunFolder

    run = RunFolder.open(folder)
    experiment, config = run.experiment(), read_json(folder / "config.json")
    sizes: dict[str, Any] = config if isinstance(config, dict) else {}
    vocabulary = (sizes.get("source_vocab_size", 0), sizes.get("vocab_size", 0))
    return ModelSummary(
        name,
        kind,
        str(folder),
        experiment.data.source_language,
        experiment.data.target_language,
        experiment.task,
        model_size(experiment.model, *vocabulary).total,
        _size_of_weights(run),
        _find_score(run),
        _describe(run),
    )


def _size_of_weights(run: "RunFolder") -> int:
    path = run.path / "model.safetensors" if run.has_model else run.ctranslate2 / "model.bin"
    return path.stat().st_size if path.exists() else 0


def _find_score(run: "RunFolder") -> ModelScore | None:
    """The weights' score on the last test set that they were evaluated on, or else in their own validation."""
    match list(run.scores().items()):
        case [*_, (str(test_set), {"scores": [{"metric": str(metric), "value": float(value)}, *_]})]:
            return ModelScore(metric, value, test_set)
    validation = run.validation()
    if not validation or validation.score is None:
        return None
    return ModelScore(validation.metric, validation.score, "validation")


def _describe(run: "RunFolder") -> str:
    """The kind of model, its training pairs and missing weights, in a few words."""
    about = run.about()
    data = about.get("data")
    pairs = counted(data["pairs"], "pair", ",") if isinstance(data, dict) and "pairs" in data else ""
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

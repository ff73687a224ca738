"""The name of a model: a folder, or the name of a built-in model."""

import os
import re
from pathlib import Path

from heedful.errors import FolderError, did_you_mean

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

"""Whether models can be taken together."""

from heedful.errors import FolderError
from heedful.storage.run_folder import RunFolder


def require_compatible(run: RunFolder, other: RunFolder) -> None:
    """Models can only be taken together where the same ids mean the same."""
    if run.experiment().task != other.experiment().task:
        tasks = f"{run.experiment().task} and {other.experiment().task}"
        raise FolderError(f"{run.path} and {other.path} cannot translate together: they are for {tasks}")
    ours, theirs = run.tokenizers(), other.tokenizers()
    for side in ("source", "target"):
        if getattr(ours, side).to_json() != getattr(theirs, side).to_json():
            raise FolderError(
                f"{run.path} and {other.path} cannot translate together: their {side} tokenizers differ; "
                "train the second with text.tokenizer_file of the first"
            )

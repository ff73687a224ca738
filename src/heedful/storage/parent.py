"""The model that a run began with: a whole run folder inside of it, so that the run needs the other one no more."""

from collections.abc import Mapping

from heedful.storage.files import new_folder
from heedful.storage.run_folder import RunFolder

_PARENT = "parent"


def has_parent(run: RunFolder) -> bool:
    """Whether the run has a copy of what it began with."""
    return (run.path / _PARENT).exists()


def parent_of(run: RunFolder) -> RunFolder:
    """The model that the run began with."""
    return RunFolder.open(run.path / _PARENT)


def copy_parent(run: RunFolder, parent: RunFolder, about: Mapping[str, object]) -> None:
    """Write all that using the parent needs into the run; `about` is what the copy says about itself."""
    weights = {name: parameter.detach() for name, parameter in parent.model().named_parameters()}
    experiment = parent.experiment()
    with new_folder(run.path / _PARENT) as folder:
        copy = RunFolder(folder)
        copy.begin(experiment)
        copy.describe(experiment, parent.tokenizers())
        copy.write_weights(weights, parent.note() or "exported")
        copy.write_about(about)

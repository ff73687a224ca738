"""Plain text before pairs: a model restores spans of it, and then starts to translate from there, in one run folder.

The pre-training is a run folder of its own, `pretraining/` in that of the run. It is there from the beginning, so a
resumed run goes on with it; when it is finished, it is the model that the run starts from.
"""

from collections.abc import Callable, Mapping
from typing import Any

from heedful.config import Experiment, merge
from heedful.errors import ConfigError
from heedful.progress import Reporter
from heedful.storage.run_folder import PRETRAINING, RunFolder
from heedful.tasks import find_task
from heedful.tasks.denoising import DENOISING
from heedful.training.events import Finished
from heedful.training.prepare import count_examples
from heedful.training.process_group import ProcessGroup
from heedful.training.run import EventStream, StopRequested, resume_run, start_run

# What the pre-training has from the pairs: the network, which is chosen by their number, and where it is trained.
_NETWORK = ("d_model", "d_ff", "num_heads", "encoder_layers", "decoder_layers")
_PLACE = ("device", "threads", "precision", "compile", "checkpoint_activations", "on_non_finite")


def shared_settings(pairs: Experiment, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the pre-training, by those of a training on the pairs alone and the user's tables."""
    network = {key: getattr(pairs.model, key) for key in _NETWORK}
    place = {key: getattr(pairs.train, key) for key in _PLACE}
    theirs = {key: table for key, table in tables.items() if key in ("model", "text")}
    return merge({"task": DENOISING.name, "seed": pairs.seed, "model": network, "train": place}, theirs)


def check_learns_from_pairs(tables: Mapping[str, Any]) -> None:
    """Refuse plain text beside pairs for a task that reads no pairs."""
    name = str(tables.get("task", Experiment().task))
    task = find_task(name)
    if task.reads_stream or task.denoises or task.encoder or task.reads_pictures or task.matches_pictures:
        raise ConfigError(
            f"task is '{name}', which does not learn from pairs, so give either text or source and target"
        )


def begin_pretraining(run: RunFolder, experiment: Experiment) -> RunFolder:
    """Write down how the run reads plain text first."""
    before = RunFolder.create(run.path / PRETRAINING)
    before.begin(experiment)
    return before


def with_text_first(
    run: RunFolder,
    pairs: Callable[[], EventStream],
    reporter: Reporter,
    stop_requested: StopRequested,
    group: ProcessGroup,
) -> EventStream:
    """The events of the run's pre-training, if it has one that is not finished, and then those of its pairs."""
    before = RunFolder(run.path / PRETRAINING)
    if (before.path / "experiment.toml").exists() and not run.prepared and "finished" not in before.about():
        if group.world_size > 1:
            raise ConfigError(
                f"{before.path} is not finished, and torchrun cannot do that; resume {run.path} without it"
            )
        reporter.say(f"first the plain text: {before.path}")
        for event in _events(before, reporter, stop_requested, group):
            if not isinstance(event, Finished):
                yield event
            elif event.interrupted:
                yield event
                return
        reporter.say("the plain text is read; now the pairs")
    yield from pairs()


def _events(before: RunFolder, reporter: Reporter, stop_requested: StopRequested, group: ProcessGroup) -> EventStream:
    if before.prepared:
        return resume_run(before.path, {}, reporter, stop_requested, group)
    experiment = before.experiment()
    return start_run(before, experiment, count_examples(experiment), reporter, stop_requested, group)

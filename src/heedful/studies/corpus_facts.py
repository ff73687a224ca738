"""Prepare the text of a study once; its vocabulary gives the model sizes, its lengths the FLOPs."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from heedful.config import Experiment, ModelConfig, SearchConfig, TrainConfig
from heedful.errors import DataError, FolderError
from heedful.models.flops import Lengths
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder, software_versions
from heedful.studies.study import StudyPlan
from heedful.tasks import find_task
from heedful.training.prepare import Prepared, check_evaluation_files, describe_data, load_prepared, prepare


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """Vocabulary sizes, and the lengths of all training pairs (None if the text is not on this machine)."""

    source: int
    target: int
    lengths: tuple[Lengths, Lengths] | None


def collect_corpus_facts(experiment: Experiment, plan: StudyPlan) -> CorpusFacts:
    """Prepare the text in the study's folder, or reuse it. A dry run without the text goes by the recipe."""
    data = experiment.data
    if plan.dry_run and not all(Path(name).exists() for name in (*data.source, *data.target, *data.tsv)):
        size = experiment.text.vocabulary_size
        return CorpusFacts(size, size, None)
    prepared = prepare_text(plan.folder / "prepared", experiment, plan.report)
    vocabulary = prepared.tokenizers.vocabulary
    return CorpusFacts(vocabulary.source, vocabulary.target, prepared.train[0].lengths())


def _only_text(experiment: Experiment) -> Experiment:
    """The experiment without what the prepared text does not depend on."""
    model = ModelConfig(sharing=experiment.model.sharing)
    return replace(experiment, model=model, train=TrainConfig(), search=SearchConfig())


def prepare_text(folder: Path, experiment: Experiment, report: Reporter) -> Prepared:
    """Prepare the text of an experiment in this folder, or reuse what is there."""
    experiment = _only_text(experiment)
    run = RunFolder(folder)
    with suppress(DataError, FolderError):  # another text, or damaged: prepare it again
        if run.prepared and run.experiment() == experiment:
            return load_prepared(run, experiment, report)
    if folder.exists():
        rmtree(folder)
    task = find_task(experiment.task)
    check_evaluation_files(task, experiment.data)
    total = sum(1 for _ in task.read_pairs(experiment.data))
    run = RunFolder.create(folder)
    run.begin(experiment)
    prepared = prepare(run, experiment, total, report)
    run.write_about({"data": describe_data(run, experiment, prepared), "versions": software_versions()})
    return prepared

"""Stand-ins for the models that come with the program: quickly made, in a folder that the lookup is pointed to."""

import shutil
from dataclasses import replace
from pathlib import Path

import toy

from heedful.config import DataConfig, dump_experiment
from heedful.storage.files import write_manifest
from heedful.storage.run_folder import RunFolder

NAMES = ("de-en", "en-de", "en-fr", "fr-en")


def stand_ins(trained: Path, folder: Path) -> Path:
    """The toy model, which knows no language of people, under the names of all four."""
    exported = folder / "exported"
    ran = toy.run("export", trained / "run", exported, "--to", "ctranslate2", "--numbers", "int8")
    assert ran.code == 0, ran.err
    for name in NAMES:
        shutil.copytree(exported, folder / "builtin" / name)
        _rename(RunFolder(folder / "builtin" / name), *name.split("-"))
    return folder / "builtin"


def _rename(run: RunFolder, source: str, target: str) -> None:
    experiment = run.experiment()
    data: DataConfig = replace(experiment.data, source_language=source, target_language=target)
    (run.path / "experiment.toml").write_text(dump_experiment(replace(experiment, data=data)), encoding="utf-8")
    write_manifest(run.path, ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json"))

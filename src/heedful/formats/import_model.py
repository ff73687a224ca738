"""Import another program's model as a run folder, and prove that both models agree."""

import dataclasses
from pathlib import Path

import torch

from heedful.errors import FolderError
from heedful.formats.export_huggingface import MarianCopy
from heedful.formats.import_huggingface import import_huggingface
from heedful.formats.parity import Proof, prove, samples
from heedful.storage.files import new_folder
from heedful.storage.run_folder import RunFolder, software_versions
from heedful.translation.translator import Translator

_TOLERANCE = 1e-3  # largest difference between log-probabilities of a token


def import_model(folder: Path, out: Path) -> Proof:
    """Write a Hugging Face Marian model as a new run folder, which exists afterwards only if the two models agree."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already; choose another folder to import to")
    imported = import_huggingface(folder)
    with new_folder(out) as temporary:
        run = RunFolder(temporary)
        run.begin(imported.experiment)
        run.describe(imported.experiment, imported.tokenizers)
        run.write_weights(imported.weights, f"imported from {folder.resolve().name}")
        translator = Translator.on_device(run, torch.device("cpu"))
        eos_id = translator.tokenizers.target.eos_id
        proof = prove(translator.engine, MarianCopy(folder, eos_id), samples(run, translator), eos_id, _TOLERANCE)
        run.write_about(
            {"versions": software_versions(), "imported": {"from": str(folder), **dataclasses.asdict(proof)}}
        )
    return proof

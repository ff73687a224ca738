"""Import a folder of Hugging Face's `transformers` as a run folder, with a proof that both models agree."""

import dataclasses
from pathlib import Path

from heedful.errors import FolderError
from heedful.formats.huggingface import prove_marian, read_marian
from heedful.formats.huggingface_bert import prove_bert, read_bert
from heedful.formats.huggingface_folder import read_object
from heedful.formats.huggingface_gpt import prove_gpt, read_gpt
from heedful.formats.huggingface_t5 import prove_t5, read_t5
from heedful.formats.huggingface_vit import prove_vit, read_vit
from heedful.formats.parity import Proof
from heedful.storage.files import new_folder
from heedful.storage.run_folder import RunFolder, software_versions

_KINDS = ("marian", "gpt2", "bert", "vit", "t5")


def import_model(folder: Path, out: Path) -> Proof:
    """Write a Hugging Face model as a new run folder, which exists afterwards only if the two models agree."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already; choose another folder to import to")
    if not (folder / "config.json").exists():
        raise FolderError(f"{folder} has no config.json; name a folder of a Hugging Face model")
    config = read_object(folder / "config.json")
    match config.get("model_type"):
        case "marian":
            imported, prove = read_marian(folder, config), prove_marian
        case "gpt2":
            imported, prove = read_gpt(folder, config), prove_gpt
        case "bert":
            imported, prove = read_bert(folder, config), prove_bert
        case "t5":
            imported, prove = read_t5(folder, config), prove_t5
        case "vit":
            imported, prove = read_vit(folder, config), prove_vit
        case other:
            raise FolderError(f"{folder} is a model of type {other}; heedful imports {', '.join(_KINDS)}")
    with new_folder(out) as temporary:
        run = RunFolder(temporary)
        run.begin(imported.experiment)
        run.describe(imported.experiment, imported.tokenizers)
        run.write_weights(imported.weights, f"imported from {folder.resolve().name}")
        proof = prove(folder, run)
        run.write_about(
            {
                "versions": software_versions(),
                "imported": {"from": str(folder), **imported.about, **dataclasses.asdict(proof)},
            }
        )
    return proof

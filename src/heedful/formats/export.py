"""Export a run's model to another program's format, and prove that both models agree."""

import dataclasses
import os
from pathlib import Path
from typing import Literal, assert_never

import torch

from heedful.decoding.ctranslate2_engine import CTranslate2Engine
from heedful.errors import ConfigError, DataError, FolderError
from heedful.formats.ctranslate2 import Numbers, Pieces, export_ctranslate2
from heedful.formats.huggingface import MarianCopy, export_huggingface
from heedful.formats.huggingface_gpt import export_gpt, prove_gpt
from heedful.formats.onnx import OnnxCopy, export_onnx
from heedful.formats.parity import ComparableModel, Proof, measure_rounding, prove, samples
from heedful.models.gpt import GPT
from heedful.storage.ctranslate2_file import check_ctranslate2_model
from heedful.storage.files import disk_errors, new_folder, write_atomically, write_manifest
from heedful.storage.model_card import make_model_card
from heedful.storage.model_names import find_model, is_built_in
from heedful.storage.run_folder import RunAtCheckpoint, RunFolder, Tokenizers, software_versions
from heedful.tasks import find_task
from heedful.text import Tokenizer
from heedful.translation.translator import Translator

Format = Literal["ctranslate2", "huggingface", "onnx"]

# The largest difference between log-probabilities of a token that rounding explains.
_TOLERANCE: dict[Numbers, float] = {"float32": 1e-3, "float16": 0.1, "int8": 3.0}


def export(
    model: str | os.PathLike[str] | RunFolder,
    to: Format,
    out: str | os.PathLike[str] | None = None,
    numbers: Numbers = "float32",
) -> Proof:
    """Write a model in another program's format into a new folder, which exists afterwards only if both models agree.

    `model` is a run folder, a checkpoint or the name of a built-in model. Without `out`, a CTranslate2 model is written
    into the run folder itself.
    """
    if isinstance(model, RunFolder):
        run = model
    elif is_built_in(model) and not out:
        raise ConfigError(f"{model} is a built-in model and cannot be changed; give a folder for the export")
    else:
        run = RunFolder.open(find_model(model))
    return _export_run(run, to, Path(out) if out else None, numbers)


def _export_run(run: RunFolder, to: Format, out: Path | None, numbers: Numbers) -> Proof:
    if out and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already; choose another folder to export to")
    if to != "ctranslate2" and numbers != "float32":
        raise ConfigError(f"--numbers {numbers} is for CTranslate2; others convert by themselves")
    if find_task(run.experiment().task).continues_text:
        return _export_gpt(run, to, out)
    translator = Translator.on_device(run, torch.device("cpu"))
    match to:
        case "ctranslate2" if out:
            with new_folder(out) as folder:
                proof = _to_ctranslate2(run, translator, RunFolder(folder).ctranslate2, numbers)
                _describe(run, RunFolder(folder), out, numbers, proof)
        case "ctranslate2":
            if isinstance(run, RunAtCheckpoint):
                raise ConfigError("give the export of a checkpoint a folder: heedful export CHECKPOINT OUT")
            proof = _to_ctranslate2(run, translator, run.ctranslate2, numbers)
        case "huggingface" | "onnx":
            if not out:
                raise ConfigError(f"give the export a folder: heedful export RUN OUT --to {to}")
            with new_folder(out) as folder:
                proof = (_to_huggingface if to == "huggingface" else _to_onnx)(run, translator, folder)
        case _:
            assert_never(to)
    return proof


def _export_gpt(run: RunFolder, to: Format, out: Path | None) -> Proof:
    if to != "huggingface":
        raise ConfigError(f"a model that continues text is exported --to huggingface, not {to}")
    model = run.model()
    if not out or not isinstance(model, GPT):
        raise ConfigError(f"give the export a folder: heedful export RUN OUT --to {to}")
    with new_folder(out) as folder:
        export_gpt(model, run.tokenizers().target, folder)
        return prove_gpt(folder, run)


def _to_ctranslate2(run: RunFolder, translator: Translator, out: Path, numbers: Numbers) -> Proof:
    with new_folder(out) as folder:
        with disk_errors(folder):
            export_ctranslate2(translator.model, _pieces(translator.tokenizers), folder, numbers, run.weights_id)
        write_manifest(folder, sorted(path.name for path in folder.iterdir()))
        check_ctranslate2_model(folder, run.experiment().model, translator.tokenizers.vocabulary)
        engine = CTranslate2Engine(folder, workers=1)
        proof = _prove(run, translator, engine, _TOLERANCE[numbers])
        if numbers == "float32":
            return proof
        return dataclasses.replace(proof, rounding=measure_rounding(run, translator, engine))


def _to_huggingface(run: RunFolder, translator: Translator, folder: Path) -> Proof:
    export_huggingface(translator.model, translator.tokenizers, translator.search, folder)
    theirs = MarianCopy(folder, translator.tokenizers.target.eos_id)
    return _prove(run, translator, theirs, _TOLERANCE["float32"])


def _to_onnx(run: RunFolder, translator: Translator, folder: Path) -> Proof:
    export_onnx(translator.model, translator.tokenizers, translator.search, folder)
    return _prove(run, translator, OnnxCopy(folder), _TOLERANCE["float32"])


def _prove(run: RunFolder, translator: Translator, theirs: ComparableModel, tolerance: float) -> Proof:
    eos_id = translator.tokenizers.target.eos_id
    return prove(translator.engine, theirs, samples(run, translator), eos_id, tolerance)


def _describe(run: RunFolder, folder: RunFolder, out: Path, numbers: Numbers, proof: Proof) -> None:
    """Write everything that translating needs besides the weights, so that the folder works like a run folder."""
    experiment = run.experiment()
    folder.begin(experiment)
    folder.describe(experiment, run.tokenizers())
    exported = {"parent": str(run.path), "parent_weights": run.note(), "numbers": numbers, **dataclasses.asdict(proof)}
    folder.write_about({"data": run.about().get("data", {}), "versions": software_versions(), "exported": exported})
    write_atomically(folder.path / "README.md", make_model_card(folder, out))


def _pieces(tokenizers: Tokenizers) -> Pieces:
    target = tokenizers.target
    pad, eos = target.piece_at(target.pad_id), target.piece_at(target.eos_id)
    return Pieces(_vocabulary(tokenizers.source), _vocabulary(target), pad, eos)


def _vocabulary(tokenizer: Tokenizer) -> list[str]:
    return [_piece(tokenizer, number) for number in range(tokenizer.vocabulary_size)]


def _piece(tokenizer: Tokenizer, number: int) -> str:
    """The piece of an id; an id without one gets a name that no text contains."""
    try:
        return tokenizer.piece_at(number)
    except DataError:
        return f"<unused-{number}>"

"""A run's model in the format of another program, proven to be the same."""

import dataclasses
from pathlib import Path
from typing import Literal, assert_never

import torch

from heedful.engines.ctranslate2 import CTranslate2Engine
from heedful.errors import ConfigError, DataError, FolderError
from heedful.runs.about import versions
from heedful.runs.proof import Model, Proof, prove, samples
from heedful.store.export_ctranslate2 import Numbers, Pieces, export_ctranslate2
from heedful.store.export_huggingface import MarianCopy, export_huggingface
from heedful.store.files import disk_errors, new_folder
from heedful.store.run_folder import RunFolder, Tokenizers
from heedful.text import Tokenizer
from heedful.translator import Translator

Format = Literal["ctranslate2", "huggingface"]

# How far the log-probability of a token may be from ours. What is beyond is no rounding.
_TOLERANCE: dict[Numbers, float] = {"float32": 1e-3, "float16": 0.1, "int8": 3.0}


def export(run: RunFolder, to: Format, out: Path, numbers: Numbers = "float32") -> Proof:
    """Write the run's model into a new folder, which is there afterwards only if the two models agree."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FolderError(f"{out} exists already; choose another folder to export to")
    if to == "huggingface" and numbers != "float32":
        raise ConfigError(f"--numbers {numbers} is for CTranslate2; Hugging Face converts by itself, when it loads")
    translator = Translator.of(run, torch.device("cpu"))
    sources = samples(run, translator)
    with new_folder(out) as folder:
        match to:
            case "ctranslate2":
                theirs: Model = _to_ctranslate2(translator, RunFolder(folder), numbers)
            case "huggingface":
                theirs = _to_huggingface(translator, folder)
            case _:
                assert_never(to)
        proof = prove(translator.engine, theirs, sources, translator.tokenizers.target.eos_id, _TOLERANCE[numbers])
        if to == "ctranslate2":
            _describe(run, RunFolder(folder), numbers, proof)
    return proof


def _to_ctranslate2(translator: Translator, folder: RunFolder, numbers: Numbers) -> CTranslate2Engine:
    with disk_errors(folder.path):
        folder.ctranslate2.mkdir()
        export_ctranslate2(translator.model, _pieces(translator.tokenizers), folder.ctranslate2, numbers)
    return CTranslate2Engine(folder.ctranslate2, workers=1)


def _to_huggingface(translator: Translator, folder: Path) -> MarianCopy:
    export_huggingface(translator.model, translator.tokenizers, translator.search, folder)
    return MarianCopy(folder, translator.tokenizers.target.eos_id)


def _describe(run: RunFolder, folder: RunFolder, numbers: Numbers, proof: Proof) -> None:
    """All that translating needs besides the weights, so that the folder can be used as the run was."""
    experiment = run.experiment()
    folder.begin(experiment)
    files = [f"{folder.ctranslate2.name}/{path.name}" for path in sorted(folder.ctranslate2.iterdir())]
    folder.describe(experiment, run.tokenizers(), files)
    exported = {"parent": str(run.path), "parent_weights": run.note(), "numbers": numbers, **dataclasses.asdict(proof)}
    folder.write_about({"data": run.about().get("data", {}), "versions": versions(), "exported": exported})


def _pieces(tokenizers: Tokenizers) -> Pieces:
    target = tokenizers.target
    pad, eos = target.piece_at(target.pad_id), target.piece_at(target.eos_id)
    return Pieces(_vocabulary(tokenizers.source), _vocabulary(target), pad, eos)


def _vocabulary(tokenizer: Tokenizer) -> list[str]:
    return [_piece(tokenizer, number) for number in range(tokenizer.vocabulary_size)]


def _piece(tokenizer: Tokenizer, number: int) -> str:
    """Its name; an id that other people's tokenizers leave out gets one that no text has."""
    try:
        return tokenizer.piece_at(number)
    except DataError:
        return f"<unused-{number}>"

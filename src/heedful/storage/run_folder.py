"""A run folder: everything needed to use, resume and explain a model.

::

    runs/en-de/
    ├── model.safetensors        the weights; they carry their own checksum
    ├── config.json              the network, as the model hubs expect it
    ├── generation_config.json   how it is searched
    ├── tokenizer.json           or tokenizer.source.json and tokenizer.target.json
    ├── experiment.toml          every option of the training
    ├── manifest.json            checksums of the four above
    ├── about.json               data fingerprints, versions, languages, scores
    ├── README.md                the model card
    ├── events.jsonl             one line an event of training;  curve.png draws it
    ├── checkpoints/             what --resume goes on from
    └── data/                    the corpus as token ids; only training needs it
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from heedful.config import Experiment, ModelConfig, SearchConfig, dump_experiment, load_recipe
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, FolderError
from heedful.models.size import model_size
from heedful.storage.files import (
    DamagedError,
    check_manifest,
    disk_errors,
    load_tensors,
    read_json,
    save_tensors,
    write_atomically,
    write_manifest,
)
from heedful.storage.lock import LOCK
from heedful.tasks import make_experiment
from heedful.text import Tokenizer

if TYPE_CHECKING:  # who needs no weights does not wait for PyTorch
    from torch import Tensor, nn

    from heedful.models.build import Vocabulary
    from heedful.models.seq2seq import AnySeq2Seq

FORMAT = 1
_CHECKED = ("config.json", "generation_config.json", "experiment.toml")


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """The two sides' tokenizers: the same object where the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """One for both sides."""
        return self.source is self.target

    @property
    def vocabulary(self) -> "Vocabulary":
        """What the model must know of them."""
        from heedful.models.build import Vocabulary

        sizes = (self.source.vocabulary_size, self.target.vocabulary_size)
        return Vocabulary(*sizes, self.target.pad_id, self.target.eos_id)


class RunFolder:
    """One folder on disk; the methods read and write its parts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """A new folder; refuses one that holds anything."""
        check_free(path)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing one, with all that is needed to use it intact; or one of its checkpoints, by its folder."""
        from heedful.storage.at_checkpoint import RunAtCheckpoint, checkpoint_step

        if step := checkpoint_step(path):
            return RunAtCheckpoint(cls.open(path.absolute().parent.parent).path, step)
        if not path.is_dir():
            raise FolderError(f"no run folder {path}; make one with: heedful train --source A --target B --out {path}")
        if not (path / "config.json").exists():
            onnx = "; an ONNX export is for ONNX Runtime: translate with the run itself" if _is_onnx(path) else ""
            raise FolderError(f"{path} is not a run folder: it has no config.json{onnx}")
        _check_format(path)
        check_manifest(path, required=_CHECKED)
        return cls(path)

    @property
    def prepared(self) -> bool:
        """Whether tokenizers and corpora are complete; a run may be killed before."""
        return (self.path / "about.json").exists()

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are."""
        return self.path / "checkpoints"

    @property
    def data(self) -> Path:
        """Where the prepared corpora are."""
        return self.path / "data"

    @property
    def events(self) -> Path:
        """The log of training."""
        return self.path / "events.jsonl"

    @property
    def has_model(self) -> bool:
        """Whether there are weights for PyTorch, as training leaves them."""
        return (self.path / "model.safetensors").exists()

    @property
    def ctranslate2(self) -> Path:
        """Where a folder keeps its model in CTranslate2's format, if it was exported."""
        return self.path / "ctranslate2"

    @property
    def has_fresh_ctranslate2(self) -> bool:
        """Whether that is the model of today: training on makes it an old one."""
        if not self.ctranslate2.is_dir():
            return False
        weights = self._exported_id()
        return not self.has_model or weights == self.weights_id

    @property
    def weights_id(self) -> str:
        """What these very weights, and no others, are called; an export has the name of those that it was made of."""
        if self.has_model or not self.ctranslate2.is_dir():
            return _metadata(self.path / "model.safetensors").get("sha256", "")
        return self._exported_id()

    def _exported_id(self) -> str:
        """The weights that the model for CTranslate2 was made of."""
        try:
            config = json.loads((self.ctranslate2 / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FolderError(f"{self.ctranslate2}/config.json cannot be read ({error}); export it again") from error
        match config:
            case {"heedful": {"weights": str(weights)}}:
                return weights
            case _:
                raise FolderError(f"{self.ctranslate2}/config.json is not heedful's; export the model again")

    def begin(self, experiment: Experiment) -> None:
        """Write what is to be done, so that it can be resumed from the first moment on."""
        write_atomically(self.path / "experiment.toml", dump_experiment(experiment))

    def change(self, settings: Mapping[str, object]) -> None:
        """Remember what a resumed run does otherwise; in one file, for two could be torn apart by a crash."""
        if settings != self.changes():
            self.write_about({"resumed_with": settings})

    def changes(self) -> dict[str, Any]:
        """What the last resumed run did otherwise than `experiment` says."""
        changes = self.about().get("resumed_with", {})
        if not isinstance(changes, dict):
            raise FolderError(f"{self.path}/about.json is damaged: resumed_with is not a table")
        return changes

    def describe(self, experiment: Experiment, tokenizers: Tokenizers) -> None:
        """Write what does not change in training: configuration and tokenizers, with their checksums."""
        write_atomically(self.path / "config.json", _config_json(experiment, tokenizers))
        write_atomically(self.path / "generation_config.json", _generation_json(experiment.search, tokenizers))
        files = tokenizer_files(tokenizers)
        for name, tokenizer in files.items():
            write_atomically(self.path / name, tokenizer.to_json())
        write_manifest(self.path, (*_CHECKED, *files))

    def experiment(self) -> Experiment:
        """Every option of the training."""
        try:
            return make_experiment(load_recipe(self.path / "experiment.toml"))
        except ConfigError as error:
            raise FolderError(f"{self.path}/experiment.toml is not of this version of heedful: {error}") from error

    def tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers."""
        if (joint := self.path / "tokenizer.json").exists():
            tokenizer = read_tokenizer(joint)
            return Tokenizers(tokenizer, tokenizer)
        source, target = (read_tokenizer(self.path / f"tokenizer.{side}.json") for side in ("source", "target"))
        return Tokenizers(source, target)

    def write_weights(self, weights: "Mapping[str, Tensor]", note: str) -> None:
        """Make these the folder's model, in one rename; `note` says where they come from."""
        metadata = {"format": "pt", "heedful": str(FORMAT), "note": note}
        path = self.path / "model.safetensors"
        save_tensors(path, weights, metadata | {"sha256": _digest(weights, metadata)})

    def model(self) -> "AnySeq2Seq":
        """The model, ready to use."""
        if not self.has_model and self.ctranslate2.is_dir():
            return self._exported_model()
        path, weights = self._weights()
        model = self._built(path, sum(weight.numel() for weight in weights.values()))
        fill_model(model.to_empty(device="cpu"), weights, str(path))
        return model.eval()

    def _built(self, path: Path, held: int) -> "AnySeq2Seq":
        """The model without weights, if a file that holds so many can be of it."""
        import torch

        from heedful.models.build import build_model

        config, vocabulary = self.experiment().model, self.tokenizers().vocabulary
        _check_size(config, vocabulary, held, path)
        with torch.device("meta"):
            return build_model(config, vocabulary)

    def _exported_model(self) -> "AnySeq2Seq":
        """What the folder has for CTranslate2, for PyTorch."""
        from heedful.models.transformer import Transformer
        from heedful.storage.ctranslate2_weights import read_ctranslate2_weights

        check_manifest(self.ctranslate2)
        path = self.ctranslate2 / "model.bin"
        model = self._built(path, path.stat().st_size)
        if not isinstance(model, Transformer):
            raise FolderError(f"{path} is a Transformer, but experiment.toml describes a {type(model).__name__}")
        weights = read_ctranslate2_weights(path, model)
        fill_model(model.to_empty(device="cpu"), weights, str(path))
        return model.eval()

    def _weights(self) -> "tuple[Path, Mapping[str, Tensor]]":
        """The weights, and the file that they are in."""
        if not self.has_model:
            raise FolderError(f"{self.path} has no model yet; go on training with: heedful train --resume {self.path}")
        path = self.path / "model.safetensors"
        weights = load_tensors(path)
        metadata = _metadata(path)
        if metadata.pop("sha256", "") != _digest(weights, metadata):
            raise FolderError(f"{path} is damaged: its checksum differs; copy it again, or train --resume to remake it")
        return path, weights

    def note(self) -> str:
        """Where the weights come from."""
        return _metadata(self.path / "model.safetensors").get("note", "") if self.has_model else ""

    def write_about(self, about: Mapping[str, object]) -> None:
        """Write or extend what the folder says about itself."""
        write_atomically(self.path / "about.json", json.dumps(self.about() | dict(about), indent=1) + "\n")

    def add_scores(self, test_set: str, scores: Mapping[str, object]) -> None:
        """Remember how well it does on a test set, beside what is known of others."""
        before = self.about().get("scores", {})
        self.write_about({"scores": (before if isinstance(before, dict) else {}) | {test_set: dict(scores)}})

    def about(self) -> dict[str, object]:
        """Data, versions, languages, scores; empty where it is not written yet."""
        if not (self.path / "about.json").exists():
            return {}
        about = read_json(self.path / "about.json")
        if not isinstance(about, dict):
            raise FolderError(f"{self.path}/about.json is damaged: it is not a JSON object")
        return about


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything but the lock of a training that never began."""
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise FolderError(f"{path} exists already; go on with it by --resume {path}, or choose another --out")


def fill_model(model: "nn.Module", weights: "Mapping[str, Tensor]", origin: str) -> None:
    """Copy named weights into the model; every name and shape must fit."""
    import torch

    wanted = dict(model.named_parameters())
    for name in sorted(wanted.keys() ^ weights.keys()):
        state = "has no" if name in wanted else "has an unknown"
        raise FolderError(f"{origin} {state} weight {name}; it is of another model")
    with torch.no_grad():
        for name, parameter in wanted.items():
            if parameter.shape != weights[name].shape:
                shapes = f"{list(weights[name].shape)} instead of {list(parameter.shape)}"
                raise FolderError(f"{origin} has {name} of shape {shapes}; it is of another model")
            parameter.copy_(weights[name])


def _check_format(path: Path) -> None:
    match read_json(path / "config.json"):
        case {"heedful_format": int(version)}:
            if version != FORMAT:
                raise FolderError(f"{path} is of format {version}, but this heedful reads format {FORMAT}; update it")
        case {"model_type": "marian"}:
            raise FolderError(f"{path} is of Hugging Face; make a run of it with: heedful import {path} OUT")
        case _:
            raise FolderError(f"{path}/config.json is not heedful's: it has no heedful_format")


def _is_onnx(path: Path) -> bool:
    return any(path.glob("*.onnx"))


def _check_size(config: ModelConfig, vocabulary: "Vocabulary", held: int, path: Path) -> None:
    """Refuse a description of a far larger model before it is built: it could take all memory and time there is.

    What differs less is named weight by weight when the model is filled.
    """
    described = model_size(config, vocabulary.source, vocabulary.target).total
    if described > 2 * held:
        raise FolderError(
            f"{path} holds {held:,} values, but experiment.toml describes {described:,}; it is of another model"
        )


def tokenizer_files(tokenizers: Tokenizers) -> dict[str, Tokenizer]:
    """What the files of both sides' tokenizers are called."""
    if tokenizers.joint:
        return {"tokenizer.json": tokenizers.source}
    return {"tokenizer.source.json": tokenizers.source, "tokenizer.target.json": tokenizers.target}


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer.json, if all of it is allowed."""
    try:
        with disk_errors(path):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(path.parent, f"{path.name}: not UTF-8") from error
    return Tokenizer.from_json(text, str(path))


def _config_json(experiment: Experiment, tokenizers: Tokenizers) -> str:
    vocabulary = tokenizers.vocabulary
    config: dict[str, object] = {
        "heedful_format": FORMAT,
        "model_type": f"heedful-{experiment.model.family}",
        "architectures": [experiment.model.family.capitalize()],
        "is_encoder_decoder": True,
        "vocab_size": vocabulary.target,
        "source_vocab_size": vocabulary.source,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "decoder_start_token_id": vocabulary.pad_id,
    }
    return json.dumps(config | dataclasses.asdict(experiment.model), indent=1) + "\n"


def _generation_json(search: SearchConfig, tokenizers: Tokenizers) -> str:
    """In the hub's words; its length penalty is a power of the length, so ours is told by name."""
    config = {
        "num_beams": search.beam,
        "eos_token_id": tokenizers.target.eos_id,
        "pad_token_id": tokenizers.target.pad_id,
        "decoder_start_token_id": tokenizers.target.pad_id,
        "heedful": dataclasses.asdict(search),
    }
    return json.dumps(config, indent=1) + "\n"


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {})
    except Exception as error:  # as in `load_tensors`: whatever it raises, the file is not what was written
        raise FolderError(f"{path} is damaged ({error}); copy it again, or train --resume to remake it") from error


def _digest(weights: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> str:
    """A checksum over names, shapes, types, values and metadata."""
    import torch

    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def average_weights(several: "Iterable[Mapping[str, Tensor]]") -> "dict[str, Tensor]":
    """The mean of checkpoints (section 6.1), added up in double precision."""
    sums: "dict[str, Tensor]" = {}
    count = 0
    for weights in several:
        count += 1
        for name, tensor in weights.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
    return {name: (total / count).float() for name, total in sums.items()}


def read_valid_pairs(run: RunFolder) -> tuple[Pair, ...]:
    """The validation pairs as text."""
    match read_json(run.data / "valid.json"):
        case list(pairs) if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return tuple(Pair(str(source), str(target)) for source, target in pairs)
    raise FolderError(f"{run.data}/valid.json is damaged: it is not a list of pairs")

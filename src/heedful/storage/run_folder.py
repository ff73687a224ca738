"""A run folder: everything needed to use, resume and explain a model.

::

    runs/en-de/
    ├── model.safetensors        the weights, with their own checksum
    ├── config.json              the network, in the form that model hubs expect
    ├── generation_config.json   the search options
    ├── tokenizer.json           or tokenizer.source.json and tokenizer.target.json
    ├── experiment.toml          every option of the training
    ├── manifest.json            checksums of the four files above
    ├── about.json               data fingerprints, versions, languages, scores
    ├── README.md                the model card
    ├── events.jsonl             the training log, one event a line; curve.png plots it
    ├── checkpoints/             for --resume
    ├── data/                    the corpus as token ids; only training needs it
    ├── parent/                  the model that a fine-tuning started from, itself a run folder
    ├── pretraining/             the run that read plain text first, if this one had any
    └── without/                 the run that did not start from it, if both are compared
"""

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Experiment, ModelConfig, SearchConfig, dump_experiment, load_recipe
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, FolderError
from heedful.models.size import Vocabulary, model_size
from heedful.storage.ctranslate2_file import check_ctranslate2_model
from heedful.storage.files import (
    DamagedError,
    check_manifest,
    disk_errors,
    load_tensors,
    new_folder,
    read_json,
    read_tensor_metadata,
    save_tensors,
    write_atomically,
    write_manifest,
)
from heedful.storage.lock import LOCK
from heedful.tasks import find_task, make_experiment
from heedful.text import Tokenizer
from heedful.untrusted_files import check_file, parse_json, read_bytes

if TYPE_CHECKING:  # code that needs no weights does not wait for PyTorch
    from torch import Tensor, nn

    from heedful.models.predictor import AnyPredictor
    from heedful.models.seq2seq import AnySeq2Seq
    from heedful.models.size import Vocabulary

FORMAT = 1
_PARENT = "parent"
PRETRAINING = "pretraining"
_MOST_TOKENIZER_BYTES, _MOST_EVENT_BYTES, _MOST_PAIR_BYTES = 64 << 20, 512 << 20, 512 << 20
_CHECKED = ("config.json", "generation_config.json", "experiment.toml")


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """The two sides' tokenizers: the same object where the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both sides share one tokenizer."""
        return self.source is self.target

    @property
    def vocabulary(self) -> Vocabulary:
        """The sizes and special ids that a model is built with."""
        sizes = (self.source.vocabulary_size, self.target.vocabulary_size)
        return Vocabulary(*sizes, self.target.pad_id, self.target.eos_id)


@dataclass(frozen=True, slots=True)
class WeightsValidation:
    """The validation of one set of weights."""

    perplexity: float
    score: float | None  # by `metric`; None if it was not scored
    metric: str  # BLEU, F1, accuracy


class RunFolder:
    """One run folder on disk; the methods read and write its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make a new folder; an existing one must be empty."""
        check_free(path)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open a run folder after verifying its manifest. The folder of a checkpoint opens the run at that step."""
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
        """Whether the tokenizers and corpora are complete; a run may be killed before that."""
        return (self.path / "about.json").exists()

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def data(self) -> Path:
        """The folder of the prepared corpora."""
        return self.path / "data"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def has_model(self) -> bool:
        """Whether the folder has weights for PyTorch, as training writes them."""
        return (self.path / "model.safetensors").exists()

    @property
    def ctranslate2(self) -> Path:
        """The folder of the model in CTranslate2's format, if it was exported."""
        return self.path / "ctranslate2"

    @property
    def _has_weights(self) -> bool:
        return self.has_model or self.ctranslate2.is_dir()

    @property
    def has_fresh_ctranslate2(self) -> bool:
        """Whether the CTranslate2 model has the current weights; further training makes it stale."""
        if not self.ctranslate2.is_dir():
            return False
        weights = self._exported_id()
        return not self.has_model or weights == self.weights_id

    @property
    def weights_id(self) -> str:
        """A hash that identifies the weights; an export has that of the weights it was made from."""
        if self.has_model or not self.ctranslate2.is_dir():
            return _metadata(self.path / "model.safetensors").get("sha256", "")
        return self._exported_id()

    def _exported_id(self) -> str:
        """The `weights_id` of the weights that the CTranslate2 model was made from."""
        match read_json(self.ctranslate2 / "config.json"):
            case {"heedful": {"weights": str(weights)}}:
                return weights
            case _:
                raise FolderError(f"{self.ctranslate2}/config.json was not written by heedful; export the model again")

    def begin(self, experiment: Experiment) -> None:
        """Write the experiment first, so that the run can be resumed from its first moment."""
        write_atomically(self.path / "experiment.toml", dump_experiment(experiment))

    def write_resume_settings(self, settings: Mapping[str, object]) -> None:
        """Store the settings that a resumed run changes; in about.json alone, so that a crash cannot tear two files."""
        if settings != self.resume_settings():
            self.write_about({"resumed_with": settings})

    def resume_settings(self) -> dict[str, Any]:
        """The settings in which the last resumed run differs from `experiment`."""
        changes = self.about().get("resumed_with", {})
        if not isinstance(changes, dict):
            raise FolderError(f"{self.path}/about.json is damaged: resumed_with is not a table")
        return changes

    def describe(self, experiment: Experiment, tokenizers: Tokenizers) -> None:
        """Write what training does not change, the configuration and the tokenizers, and their checksums."""
        write_atomically(self.path / "config.json", _config_json(experiment, tokenizers))
        write_atomically(self.path / "generation_config.json", _generation_json(experiment.search, tokenizers))
        files = tokenizer_files(tokenizers)
        for name, tokenizer in files.items():
            write_atomically(self.path / name, tokenizer.to_json())
        write_manifest(self.path, (*_CHECKED, *files))

    def experiment(self) -> Experiment:
        """Every option of the training."""
        path = self.path / "experiment.toml"
        with disk_errors(path):
            check_file(path)
        try:
            # A key that is younger than the run has its default. The preset may have gained another value since.
            return make_experiment(load_recipe(path), dataclasses.asdict(Experiment()))
        except ConfigError as error:
            raise FolderError(f"{self.path}/experiment.toml does not fit this version of heedful: {error}") from error

    def tokenizers(self) -> Tokenizers:
        """The tokenizers, whose sizes and special ids must be those of config.json."""
        if (joint := self.path / "tokenizer.json").exists():
            tokenizer = read_tokenizer(joint)
            found = Tokenizers(tokenizer, tokenizer)
        else:
            found = Tokenizers(*(read_tokenizer(self.path / f"tokenizer.{side}.json") for side in ("source", "target")))
        if found.vocabulary != self._vocabulary():
            raise FolderError(f"{self.path} has other tokenizers than its config.json says; restore both from a copy")
        return found

    def _vocabulary(self) -> Vocabulary:
        """The sizes and special ids of the vocabularies by config.json."""
        match read_json(self.path / "config.json"):
            case {
                "source_vocab_size": int(source),
                "vocab_size": int(target),
                "pad_token_id": int(pad_id),
                "eos_token_id": int(eos_id),
            } if 0 <= pad_id < target and 0 <= eos_id < target:
                return Vocabulary(source, target, pad_id, eos_id)
        raise FolderError(f"{self.path}/config.json is damaged: it does not describe the vocabularies")

    def check_ctranslate2(self) -> None:
        """Raise FolderError unless the CTranslate2 model is unchanged and is the one that this folder describes."""
        if not self.ctranslate2.resolve().is_relative_to(self.path.resolve()):
            raise FolderError(f"{self.ctranslate2} is a link that leaves the run folder; copy the folder itself there")
        check_manifest(self.ctranslate2, required=("model.bin", "config.json"))
        check_ctranslate2_model(self.ctranslate2, self.experiment().model, self._vocabulary())

    def write_weights(
        self, weights: "Mapping[str, Tensor]", note: str, validation: WeightsValidation | None = None
    ) -> None:
        """Make these the folder's model, atomically; `note` says where they come from."""
        metadata = {"format": "pt", "heedful": str(FORMAT), "note": note}
        if validation:  # in the same file, so that no crash can give the weights another's score
            metadata["validation"] = json.dumps(dataclasses.asdict(validation))
        path = self.path / "model.safetensors"
        save_tensors(path, weights, metadata | {"sha256": _digest(weights, metadata)})

    def seq2seq(self) -> "AnySeq2Seq":
        """The model, if it writes text token by token; others are an error."""
        from heedful.models.seq2seq import require_seq2seq

        return require_seq2seq(self.model(), str(self.path))

    def model(self) -> "AnyPredictor":
        """The model with its weights, on the CPU, in evaluation mode."""
        if not self.has_model and self.ctranslate2.is_dir():
            return self._load_exported_model()
        path, weights = self._load_weights()
        model = self._build_empty(path, sum(weight.numel() for weight in weights.values()))
        fill_model(model.to_empty(device="cpu"), weights, str(path))
        return model.eval()

    def _build_empty(self, path: Path, held: int) -> "AnyPredictor":
        """The model without weights; refuses sizes that do not go with a file of `held` values."""
        import torch

        from heedful.models.build import build_model

        config, vocabulary = self.experiment().model, self.tokenizers().vocabulary
        _check_size(config, vocabulary, held, path)
        with torch.device("meta"):
            return build_model(config, vocabulary)

    def _load_exported_model(self) -> "AnyPredictor":
        """The CTranslate2 model of the folder as a PyTorch model."""
        from heedful.models.transformer import Transformer
        from heedful.storage.ctranslate2_weights import read_ctranslate2_weights

        self.check_ctranslate2()
        path = self.ctranslate2 / "model.bin"
        model = self._build_empty(path, path.stat().st_size)
        if not isinstance(model, Transformer):  # never, after the check; this is for the type checker
            raise FolderError(f"{path} is a Transformer, but experiment.toml describes a {type(model).__name__}")
        weights = read_ctranslate2_weights(path, model)
        fill_model(model.to_empty(device="cpu"), weights, str(path))
        return model.eval()

    def _load_weights(self) -> "tuple[Path, Mapping[str, Tensor]]":
        """The weights and their file."""
        if not self.has_model:
            raise FolderError(f"{self.path} has no model yet; go on training with: heedful train --resume {self.path}")
        path = self.path / "model.safetensors"
        weights = load_tensors(path)
        metadata = _metadata(path)
        if metadata.pop("sha256", "") != _digest(weights, metadata):
            raise FolderError(f"{path} is damaged: its checksum differs; copy it again, or train --resume to remake it")
        return path, weights

    def note(self) -> str:
        """Where the weights come from, in a few words."""
        return _metadata(self.path / "model.safetensors").get("note", "") if self.has_model else ""

    def validation(self) -> WeightsValidation | None:
        """The validation of the weights in this folder; None if they were not validated."""
        if not self.has_model:
            return None
        metadata = _metadata(self.path / "model.safetensors")
        if "validation" in metadata:
            return _parse_validation(metadata["validation"], self.path)
        match metadata.get("note", "").removeprefix("best validation, step ").split(",")[0]:  # of an earlier version
            case step if step.isdecimal():
                return self._validation_at(int(step))
        return None

    def _validation_at(self, step: int) -> WeightsValidation | None:
        """The last logged validation after this step."""
        for event in reversed(self.read_events("Validated")):
            match event:
                case {"step": int(found), "perplexity": float(perplexity), "metric": str(metric)} if found == step:
                    score = event.get("score")
                    return WeightsValidation(perplexity, score if isinstance(score, float) else None, metric)
        return None

    def write_about(self, about: Mapping[str, object]) -> None:
        """Write these entries into about.json; the others stay."""
        write_atomically(self.path / "about.json", json.dumps(self.about() | dict(about), indent=1) + "\n")

    def add_scores(self, test_set: str, scores: Mapping[str, object]) -> None:
        """Store the scores on a test set beside those on others."""
        before = self.about().get("scores", {})
        entry = {"weights": self.weights_id, **scores}
        self.write_about({"scores": (before if isinstance(before, dict) else {}) | {test_set: entry}})

    def scores(self) -> dict[str, dict[str, Any]]:
        """The stored scores of the weights in this folder, by test set; not those of a checkpoint or of former weights.

        Earlier versions did not store which weights they scored.
        """
        stored, weights = self.about().get("scores"), self.weights_id if self._has_weights else ""
        return {
            test_set: entry
            for test_set, entry in (stored.items() if isinstance(stored, dict) else ())
            if isinstance(entry, dict) and entry.get("weights", weights) == weights
        }

    def about(self) -> dict[str, object]:
        """The entries of about.json: data, versions, languages, scores; empty if it is not written yet."""
        if not (self.path / "about.json").exists():
            return {}
        about = read_json(self.path / "about.json")
        if not isinstance(about, dict):
            raise FolderError(f"{self.path}/about.json is damaged: it is not a JSON object")
        return about

    def read_events(self, kind: str) -> list[dict[str, Any]]:
        """The logged events of one kind, in order; incomplete lines are skipped."""
        found = [event for _, event in self.event_lines() if event.get("event") == kind]
        # The first version had BLEU only.
        return [{"score": event["bleu"], "metric": "BLEU", **event} if "bleu" in event else event for event in found]

    def event_lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines of the log and their events, in order; incomplete lines are skipped."""
        if not os.path.lexists(self.events):
            return
        with disk_errors(self.events):
            content = read_bytes(self.events, _MOST_EVENT_BYTES)
        for line in content.decode(errors="replace").splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield line, event

    @property
    def has_parent(self) -> bool:
        """Whether the run has a copy of the model that it started from."""
        return (self.path / _PARENT).exists()

    def parent(self) -> "RunFolder":
        """The copy of the model that the run started from."""
        return RunFolder.open(self.path / _PARENT)

    def copy_parent(self, parent: "RunFolder", about: Mapping[str, object]) -> None:
        """Copy all that is needed to use the parent into this run, so that it no longer depends on the other folder.

        `about` becomes the about.json of the copy.
        """
        weights = {name: parameter.detach() for name, parameter in parent.model().named_parameters()}
        experiment = parent.experiment()
        with new_folder(self.path / _PARENT) as folder:
            copy = RunFolder(folder)
            copy.begin(experiment)
            copy.describe(experiment, parent.tokenizers())
            copy.write_weights(weights, parent.note() or "exported")
            copy.write_about(about)


class RunAtCheckpoint(RunFolder):
    """A run with the weights of one of its checkpoints."""

    has_model = True
    has_fresh_ctranslate2 = False
    weights_id = ""

    def __init__(self, path: Path, step: int) -> None:
        super().__init__(path)
        self.step = step
        self.weights_id = f"step {step}"

    @property
    def ctranslate2(self) -> Path:
        """A folder that does not exist: the export in the run folder has other weights."""
        return self.checkpoints / f"step-{self.step:08d}" / "ctranslate2"

    def note(self) -> str:
        """See `RunFolder`."""
        return f"checkpoint of step {self.step}"

    def validation(self) -> WeightsValidation | None:
        """See `RunFolder`."""
        return self._validation_at(self.step)

    def add_scores(self, test_set: str, scores: Mapping[str, object]) -> None:
        """Store them beside those of the run's own model, under a name with the step."""
        super().add_scores(f"{test_set} at step {self.step}", scores)

    def _load_weights(self) -> "tuple[Path, Mapping[str, Tensor]]":
        """The moving average of the weights if there is one, else the weights."""
        from heedful.storage.checkpoint import Checkpoints

        checkpoints = Checkpoints(self.checkpoints, keep=0)
        weights = checkpoints.load_model(self.step, "ema.") or checkpoints.load_model(self.step, "model.")
        return self.checkpoints / f"step-{self.step:08d}", weights


def checkpoint_step(path: Path) -> int:
    """The step of a checkpoint folder; 0 for other folders."""
    number = path.name.removeprefix("step-")
    inside = path.absolute().parent.name == "checkpoints" and path.is_dir()
    return int(number) if inside and number != path.name and number.isdecimal() else 0


def refuse_checkpoint(path: Path) -> None:
    """Raise FolderError if --resume is given a checkpoint instead of a run."""
    if checkpoint_step(path):
        raise FolderError(
            f"--resume {path}: this is a checkpoint, but training always resumes from the newest; resume the run, "
            f"{path.parent.parent}, or start another run from this checkpoint: --init {path}"
        )


def check_free(path: Path) -> None:
    """Refuse a folder that holds anything but the lock of a training that never started."""
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise FolderError(f"{path} already exists; resume it with --resume {path}, or choose another --out")


def fill_model(model: "nn.Module", weights: "Mapping[str, Tensor]", origin: str) -> None:
    """Copy named weights into the model; every name and shape must match."""
    import torch

    check_weights(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: "nn.Module", weights: "Mapping[str, Tensor]", origin: str) -> None:
    """Raise FolderError unless the weights have the names and shapes of the model's."""
    wanted = dict(model.named_parameters())
    for name in sorted(wanted.keys() ^ weights.keys()):
        state = "has no" if name in wanted else "has an unknown"
        raise FolderError(f"{origin} {state} weight {name}; it belongs to a different model")
    for name, parameter in wanted.items():
        if parameter.shape != weights[name].shape:
            shapes = f"{list(weights[name].shape)} instead of {list(parameter.shape)}"
            raise FolderError(f"{origin} has {name} of shape {shapes}; it belongs to a different model")


def _check_format(path: Path) -> None:
    match read_json(path / "config.json"):
        case {"heedful_format": int(found)}:
            if found != FORMAT:
                raise FolderError(f"{path} has format {found}, but this heedful reads format {FORMAT}; update heedful")
        case {"model_type": "marian" | "gpt2" | "bert" | "t5" | "vit" | "clip"}:
            raise FolderError(f"{path} holds a Hugging Face model; convert it with: heedful import {path} OUT")
        case _:
            raise FolderError(f"{path}/config.json was not written by heedful: it has no heedful_format")


def _is_onnx(path: Path) -> bool:
    return any(path.glob("*.onnx"))


def _check_size(config: ModelConfig, vocabulary: Vocabulary, held: int, path: Path) -> None:
    """Refuse to build a model far larger than its weights: it could take all the memory and time there is.

    Smaller differences are reported weight by weight when the model is filled.
    """
    described = model_size(config, vocabulary.source, vocabulary.target).total
    if described > 2 * held:
        raise FolderError(
            f"{path} holds {held:,} values, but experiment.toml describes {described:,}; "
            "it belongs to a different model"
        )


def tokenizer_files(tokenizers: Tokenizers) -> dict[str, Tokenizer]:
    """The tokenizers by the names of their files."""
    if tokenizers.joint:
        return {"tokenizer.json": tokenizers.source}
    return {"tokenizer.source.json": tokenizers.source, "tokenizer.target.json": tokenizers.target}


def read_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json; refuses components that heedful does not support."""
    try:
        with disk_errors(path):
            text = read_bytes(path, _MOST_TOKENIZER_BYTES).decode()
    except UnicodeDecodeError as error:
        raise DamagedError(path.parent, f"{path.name}: not UTF-8") from error
    return Tokenizer.from_json(text, str(path))


def _config_json(experiment: Experiment, tokenizers: Tokenizers) -> str:
    vocabulary, task = tokenizers.vocabulary, find_task(experiment.task)
    config: dict[str, object] = {
        "heedful_format": FORMAT,
        "model_type": f"heedful-{experiment.model.family}",
        "architectures": [experiment.model.family.capitalize()],
        "is_encoder_decoder": task.writes_text and not task.continues_text,
        "vocab_size": vocabulary.target,
        "source_vocab_size": vocabulary.source,
        "pad_token_id": vocabulary.pad_id,
        "eos_token_id": vocabulary.eos_id,
        "decoder_start_token_id": vocabulary.pad_id,
    }
    if labels := experiment.model.labels:
        config |= {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
    return json.dumps(config | dataclasses.asdict(experiment.model), indent=1) + "\n"


def _generation_json(search: SearchConfig, tokenizers: Tokenizers) -> str:
    """The search options under the hubs' names; their length penalty is another formula, so ours has its own key."""
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
        return read_tensor_metadata(path)
    except DamagedError as error:
        message = f"{path} is damaged ({error.reason}); copy it again, or train --resume to remake it"
        raise FolderError(message) from error


def _parse_validation(text: str, path: Path) -> WeightsValidation:
    try:
        match parse_json(text.encode()):
            case {"perplexity": float(perplexity), "score": float() | None as score, "metric": str(metric)}:
                return WeightsValidation(perplexity, score, metric)
    except ValueError:
        pass
    raise FolderError(f"{path}/model.safetensors is damaged: its validation is {text[:80]!r}; restore it from a copy")


def _digest(weights: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> str:
    """The sha256 of names, shapes, types, values and metadata."""
    import torch

    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_valid_pairs(run: RunFolder) -> tuple[Pair, ...]:
    """The validation pairs of a run, as text."""
    match read_json(run.data / "valid.json", _MOST_PAIR_BYTES):
        case list(pairs) if all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            return tuple(Pair(str(source), str(target)) for source, target in pairs)
    raise FolderError(f"{run.data}/valid.json is damaged: it is not a list of pairs")


def require_compatible(run: RunFolder, other: RunFolder) -> None:
    """Refuse an ensemble of models whose tasks or vocabularies differ."""
    if run.experiment().task != other.experiment().task:
        tasks = f"{run.experiment().task} and {other.experiment().task}"
        raise FolderError(f"{run.path} and {other.path} cannot translate together: their tasks are {tasks}")
    ours, theirs = run.tokenizers(), other.tokenizers()
    for side in ("source", "target"):
        if getattr(ours, side).to_json() != getattr(theirs, side).to_json():
            raise FolderError(
                f"{run.path} and {other.path} cannot translate together: their {side} tokenizers differ; "
                "train the second with text.tokenizer_file of the first"
            )


def software_versions() -> dict[str, str]:
    """The versions that results can depend on."""
    import torch

    return {
        "heedful": version("heedful"),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }

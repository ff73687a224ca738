"""Fine-tuning: the settings that a training inherits from its parent model, and warnings about their fit."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from heedful.config import DataConfig, Experiment, flat
from heedful.errors import ConfigError
from heedful.models.bert import BERT, is_of_head
from heedful.models.predictor import AnyPredictor
from heedful.models.vit import ViT
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import PRETRAINING, RunFolder, fill_model, read_valid_pairs
from heedful.tasks import find_task, make_experiment
from heedful.training.prepare import count_pieces_per_word

Facts = Mapping[str, object]

# Keys of [model] and [text] that the weights do not depend on.
_FREE_KEYS = (
    *("model.dropout", "model.attention_dropout", "model.activation_dropout"),
    *("text.bpe_dropout", "text.bpe_variants"),
)
# Keys of [train] that say where and for how long the parent was trained, not how; the warm-up of its dropout, which is
# for models that know nothing yet; and R-Drop, which doubles the time.
_NOT_INHERITED = (
    *("max_minutes", "device", "threads", "precision", "compile", "checkpoint_activations"),
    *("parallel", "timeout_minutes", "accumulate", "init", "dropout_warmup", "r_drop"),
)
_NETWORK = ("model.", "text.")
NOT_VALIDATED = (
    "warning: there are no pairs to validate on, so the run keeps the last model, even if it is worse; "
    "give some with valid_source and valid_target"
)
_MANY_MORE = 1.2  # times the pieces per word of the text that the vocabulary was learnt from


def open_parent(name: str) -> RunFolder:
    """The run folder of the model to start from."""
    return RunFolder.open(find_model(name))


def inherit_settings(parent: RunFolder, tables: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a new run inherits; refuses tables that do not fit the parent's weights."""
    before = parent.experiment()
    everything = asdict(before)
    if is_pretrained(before) and tables.get("task", "") != before.task:
        inherited = inherit_network(before)
        _check_fit(flat(make_experiment(inherited)), flat(make_experiment(tables, inherited)), parent, _NETWORK)
        return inherited
    inherited = {key: everything[key] for key in ("task", "model", "text", "search", "evaluate")}
    inherited["data"] = {key: everything["data"][key] for key in ("max_length", "max_ratio")}
    inherited["train"] = {key: value for key, value in everything["train"].items() if key not in _NOT_INHERITED}
    task = find_task(str(tables.get("task", before.task)))
    if find_task(before.task).encoder and task.encoder:  # only the head differs, and it is drawn anew
        inherited |= {"task": task.name, "model": {**inherited["model"], "head": task.encoder}}
        if task.encoder == "masked" or task.name != before.task:
            inherited["model"]["labels"] = ()
        if task.name != before.task:
            inherited["train"] = {key: everything["train"][key] for key in ("optimizer", "schedule", "learning_rate")}
    old, new = flat(before) | flat(make_experiment(inherited)), flat(make_experiment(tables, inherited))
    _check_fit(old, new, parent, ("task", *_NETWORK))
    return inherited


def is_pretrained(before: Experiment) -> bool:
    """Whether a model has only restored spans of plain text, so that it has yet to learn its task."""
    return find_task(before.task).denoises


def inherit_network(before: Experiment) -> dict[str, Any]:
    """What any task takes over from a model that was trained on plain text: the network and the vocabulary."""
    everything = asdict(before)
    inherited = {"model": everything["model"], "text": everything["text"]}
    inherited["data"] = {key: everything["data"][key] for key in ("max_length", "max_ratio")}
    return inherited


def _check_fit(old: Facts, new: Facts, parent: RunFolder, keys: tuple[str, ...]) -> None:
    """Refuse other values of the keys that the parent's weights depend on."""
    for key, value in old.items():
        if key.startswith(keys) and key not in _FREE_KEYS and new[key] != value:
            raise ConfigError(
                f"{key} is {new[key]}, but the model in {parent.path} has {value}, and its weights fit only that; "
                "leave the key out, or train from scratch without --init"
            )


def inherit_languages(data: DataConfig, parent: RunFolder) -> tuple[DataConfig, str]:
    """The data with the parent's languages where its own are unknown, and a warning if they differ."""
    before = parent.experiment().data
    theirs = (before.source_language, before.target_language)
    ours = (data.source_language or theirs[0], data.target_language or theirs[1])
    named = replace(data, source_language=ours[0], target_language=ours[1])
    if all(own == other or not own or not other for own, other in zip(ours, theirs, strict=True)):
        return named, ""
    swapped = "; are source and target swapped?" if ours == theirs[::-1] else ""
    return named, (
        f"warning: the model in {parent.path} translates from {theirs[0] or '?'} to {theirs[1] or '?'}, "
        f"but the text is from {ours[0] or '?'} to {ours[1] or '?'}{swapped}"
    )


def copy_parent_model(run: RunFolder, name: str) -> dict[str, object]:
    """Copy the model of this name into the run, unless it is there; return the entry for about.json."""
    if not name:
        return {}
    if not run.has_parent:
        before = run.path / PRETRAINING  # where it is even if the folder has moved
        parent = RunFolder.open(before) if before.exists() else open_parent(name)
        about = parent.about()
        data = about.get("data")
        facts = dict(data) if isinstance(data, dict) else {}
        if "pieces_a_word" not in facts and (parent.data / "valid.json").exists():
            task = find_task(parent.experiment().task)
            facts["pieces_a_word"] = count_pieces_per_word(parent.tokenizers(), task, read_valid_pairs(parent))
        run.copy_parent(parent, {"data": facts, "parent": about.get("parent")})
    copy = run.parent()
    noted: dict[str, object] = {"model": name, "weights": copy.note(), "sha256": copy.weights_id}
    older = copy.about().get("parent")
    return noted | ({"parent": older} if older else {})


def load_parent_weights(model: AnyPredictor, run: RunFolder) -> None:
    """Load the weights that the run starts from."""
    parent = run.parent()
    before = parent.model()
    weights: dict[str, Tensor] = dict(before.named_parameters())
    if (isinstance(model, BERT) and isinstance(before, BERT) and not model.answers_like(before)) or (
        isinstance(model, ViT) and isinstance(before, ViT) and model.config.labels != before.config.labels
    ):
        weights = {name: weight for name, weight in weights.items() if not is_of_head(name)}
        weights |= {name: weight for name, weight in model.named_parameters() if is_of_head(name)}
    fill_model(model, weights, str(parent.path))


def warn_about_vocabulary(run: RunFolder, data: Facts) -> str:
    """A warning if the vocabulary, which cannot change, splits this text into many more pieces than the parent's."""
    match run.parent().about().get("data"), data.get("pieces_a_word"):
        case {"pieces_a_word": dict(theirs)}, dict(ours):
            more = [side for side in ours if side in theirs and ours[side] > _MANY_MORE * theirs[side]]
        case _:
            return ""
    if not more:
        return ""
    figures = ", ".join(
        f"{ours[side]:.2f} pieces per word in the {side} instead of {theirs[side]:.2f}" for side in more
    )
    return (
        f"warning: the model's vocabulary, which cannot change, does not fit this text well ({figures}); "
        "if you have much text, compare with a training from scratch, which learns its own vocabulary"
    )


def describe_gain(run: RunFolder) -> str:
    """The validation of a fine-tuning before its first step and of the weights that it keeps; empty for others."""
    validations, kept = run.read_events("Validated"), run.validation()
    if not run.has_parent or not kept or not validations or validations[0]["step"]:
        return ""
    before = validations[0]
    if run.note().startswith("best validation, step 0,"):
        return (
            "no validation was better than before the first step, so the model is unchanged; "
            "more text may help, or a lower train.learning_rate"
        )
    score = f", {kept.metric} {before['score']:.2f} -> {kept.score:.2f}" if kept.score is not None else ""
    return f"validation before and after: perplexity {before['perplexity']:.2f} -> {kept.perplexity:.2f}{score}"

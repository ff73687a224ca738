"""A training that begins with an existing model: what it takes over, what it may change, what it must know."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from heedful.config import DataConfig, flat
from heedful.errors import ConfigError
from heedful.models.seq2seq import AnySeq2Seq
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder, fill_model, read_valid_pairs
from heedful.tasks import find_task, make_experiment
from heedful.training.prepare import count_pieces_per_word

Facts = Mapping[str, object]

# Of [model] and [text]: what the weights don't depend on.
_MAY_CHANGE = (
    *("model.dropout", "model.attention_dropout", "model.activation_dropout"),
    *("text.bpe_dropout", "text.bpe_variants"),
)
# Of [train]: where and how long the other run was trained, not how.
_OF_THE_PLACE = (
    *("max_minutes", "device", "threads", "precision", "compile", "checkpoint_activations"),
    *("parallel", "timeout_minutes", "accumulate", "init"),
)
NOT_VALIDATED = (
    "warning: no pair is left to validate on, so the last model stays, better or not; "
    "give some with --valid-source and --valid-target"
)
_MANY_MORE = 1.2  # times as many pieces a word as in the text that the vocabulary is from


def open_parent(name: str) -> RunFolder:
    """The model to begin with."""
    return RunFolder.open(find_model(name))


def inherit_settings(parent: RunFolder, tables: Mapping[str, Any]) -> dict[str, Any]:
    """What a new run has from the model that it begins with; refuses tables that its weights do not fit."""
    before = parent.experiment()
    everything = asdict(before)
    taken = {key: everything[key] for key in ("task", "model", "text", "search", "evaluate")}
    taken["data"] = {key: everything["data"][key] for key in ("max_length", "max_ratio")}
    taken["train"] = {key: value for key, value in everything["train"].items() if key not in _OF_THE_PLACE}
    old, new = flat(before), flat(make_experiment(tables, taken))
    for key, value in old.items():
        if (key == "task" or key.startswith(("model.", "text."))) and key not in _MAY_CHANGE and new[key] != value:
            raise ConfigError(
                f"{key} is {new[key]}, but the model in {parent.path} has {value} and its weights fit nothing else; "
                "leave it out, or train from scratch without --init"
            )
    return taken


def inherit_languages(data: DataConfig, parent: RunFolder) -> tuple[DataConfig, str]:
    """The files, with the parent's languages where their names tell none; and a sentence if they tell others."""
    before = parent.experiment().data
    theirs = (before.source_language, before.target_language)
    ours = (data.source_language or theirs[0], data.target_language or theirs[1])
    named = replace(data, source_language=ours[0], target_language=ours[1])
    if all(own == other or not own or not other for own, other in zip(ours, theirs, strict=True)):
        return named, ""
    swapped = "; are --source and --target swapped?" if ours == theirs[::-1] else ""
    return named, (
        f"warning: the model in {parent.path} is from {theirs[0] or '?'} to {theirs[1] or '?'}, "
        f"but the text from {ours[0] or '?'} to {ours[1] or '?'}{swapped}"
    )


def copy_parent_model(run: RunFolder, name: str) -> dict[str, object]:
    """Copy the model of this name into the run, unless it is there; give what the run notes of it."""
    if not name:
        return {}
    if not run.has_parent:
        parent = open_parent(name)
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


def load_parent_weights(model: AnySeq2Seq, run: RunFolder) -> None:
    """Give the model the weights that the run begins with."""
    parent = run.parent()
    fill_model(model, dict(parent.model().named_parameters()), str(parent.path))


def warn_about_vocabulary(run: RunFolder, data: Facts) -> str:
    """A warning where the vocabulary, which cannot change, cuts this text into many more pieces than its own."""
    match run.parent().about().get("data"), data.get("pieces_a_word"):
        case {"pieces_a_word": dict(theirs)}, dict(ours):
            more = [side for side in ours if side in theirs and ours[side] > _MANY_MORE * theirs[side]]
        case _:
            return ""
    if not more:
        return ""
    figures = ", ".join(f"{ours[side]:.2f} pieces a word in the {side} instead of {theirs[side]:.2f}" for side in more)
    return (
        f"warning: the model's vocabulary does not know the words of this text well ({figures}) and stays as it is; "
        "if you have much text, compare with a training from scratch, which learns a vocabulary of its own"
    )


def describe_gain(run: RunFolder) -> str:
    """What the training has changed, by its validations; empty where it did not begin with a model."""
    validations = run.read_events("Validated")
    if not run.has_parent or not validations or validations[0]["step"]:
        return ""
    before, best = validations[0], [event for event in validations if event["best"]][-1]
    if best is before:
        return (
            "no validation was better than before the first step: the model stays as it was; "
            "more text may help, or a lower train.learning_rate"
        )
    score = f", {best['metric']} {before['score']:.2f} -> {best['score']:.2f}" if best["score"] is not None else ""
    return f"validation before and after: perplexity {before['perplexity']:.2f} -> {best['perplexity']:.2f}{score}"

"""The model card: a page about the model, in the form that the hubs read."""

from collections.abc import Mapping
from pathlib import Path

from heedful.config import Family
from heedful.models.size import model_size
from heedful.storage.model_names import is_built_in
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.training.learning_curve import read_events

_KINDS: Mapping[Family, str] = {
    "transformer": "Transformer",
    "recurrent": "recurrent model",
    "convolutional": "convolutional model",
}


_LICENCE = "The licence of the model follows from the data it was trained on."


def model_card(folder: RunFolder, name: str = "", ending: str = _LICENCE) -> str:
    """Markdown with a YAML head; the name is the folder's unless it is given."""
    experiment, about, vocabulary = folder.experiment(), folder.about(), folder.tokenizers().vocabulary
    name = name or folder.path.resolve().name
    data = about.get("data")
    facts = data if isinstance(data, dict) else {}
    source, target = facts.get("source_language") or "source", facts.get("target_language") or "target"
    model = experiment.model
    size = model_size(model, vocabulary.source, vocabulary.target)
    languages = "".join(f"- {code}\n" for code in (source, target) if code not in ("source", "target"))
    validations = read_events(folder, "Validated")
    best = max((v["score"] for v in validations if v["score"] is not None), default=None)
    match about.get("parent"):
        case {"model": str(parent), "weights": str(weights)}:
            begun = [f"- begun with the weights of {Path(parent).name} ({weights})"]
        case _:
            begun = []
    lines = [
        "---",
        "library_name: heedful",
        f"pipeline_tag: {find_task(experiment.task).pipeline_tag}",
        *(["language:", languages.rstrip()] if languages else []),
        "---",
        f"# {name}: {source} to {target}",
        "",
        f"A {_KINDS[model.family]} of {size.total:,} parameters (preset `{model.preset}`), trained with heedful.",
        "",
        f"- data: {facts.get('pairs', 0):,} sentence pairs, {facts.get('validation_pairs', 0):,} for validation",
        f"- vocabulary: {vocabulary.target:,} pieces ({experiment.text.kind}, {experiment.text.vocabularies})",
        *begun,
        f"- weights: {_weights(folder)}",
        *(
            [f"- best validation {validations[-1]['metric']} on the way (greedy): {best:.2f}"]
            if best is not None
            else []
        ),
        *_scores(about.get("scores")),
        "",
        "```",
        f'heedful translate {_called(folder, name)} "..."',
        "```",
        "",
        "Every option of the training is in `experiment.toml`"
        + (", its log in `events.jsonl`." if folder.events.exists() else "."),
        ending,
        "",
    ]
    return "\n".join(lines)


def _called(folder: RunFolder, name: str) -> str:
    """What to write for it: a built-in model's name, or the folder; a path of one machine means nothing elsewhere."""
    if is_built_in(folder.path):
        return name
    return f"PATH/TO/{name}" if folder.path.is_absolute() else str(folder.path)


def _weights(folder: RunFolder) -> str:
    match folder.about().get("exported"):
        case {"numbers": str(numbers), "parent_weights": str(note)} if not folder.has_model:
            return f"{note or 'those of an export'}, as {numbers} for CTranslate2"
        case _:
            return folder.note() or "none yet"


def _scores(scores: object) -> list[str]:
    """A line for each test set that it was evaluated on; of a path only the name."""
    found = []
    for test_set, told in scores.items() if isinstance(scores, dict) else ():
        values = ", ".join(
            f"{one['metric']} {one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in told["scores"]
        )
        found.append(f"- {Path(test_set).name}, beam {told['beam']}: {values}")
    return found

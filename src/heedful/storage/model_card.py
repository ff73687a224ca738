"""The model card: a page about the model, in the form that model hubs read."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.config import Family, ModelConfig
from heedful.errors import counted
from heedful.models.size import model_size
from heedful.storage.model_names import BUILT_IN
from heedful.storage.run_folder import RunFolder, WeightsValidation
from heedful.tasks import Task, find_task

_KINDS: Mapping[Family, str] = {
    "transformer": "Transformer",
    "recurrent": "recurrent model",
    "convolutional": "convolutional model",
    "gpt": "GPT",
    "bert": "BERT",
    "t5": "T5",
    "vit": "ViT",
    "clip": "CLIP",
}


_NAMED_LABELS = 20
_LICENCE = "The licence of the model follows from the data it was trained on."


def make_model_card(folder: RunFolder, place: Path | None = None, ending: str = _LICENCE) -> str:
    """Markdown with a YAML header; `place` is where the folder will be, if it has a temporary name for now."""
    experiment, about, vocabulary = folder.experiment(), folder.about(), folder.tokenizers().vocabulary
    place = place or folder.path
    name = place.resolve().name
    data = about.get("data")
    facts = data if isinstance(data, dict) else {}
    source, target = facts.get("source_language") or "source", facts.get("target_language") or "target"
    model = experiment.model
    size = model_size(model, vocabulary.source, vocabulary.target)
    languages = "".join(f"- {code}\n" for code in (source, target) if code not in ("source", "target"))
    validation, task = folder.validation(), find_task(experiment.task)
    continues = task.continues_text
    alone = continues or not task.writes_text  # one language, no source and target
    match about.get("parent"):
        case {"model": str(parent), "weights": str(weights)}:
            origin = [f"- started from the weights of {Path(parent).name} ({weights})"]
        case _:
            origin = []
    lines = [
        "---",
        "library_name: heedful",
        f"pipeline_tag: {task.pipeline_tag}",
        *(["language:", languages.rstrip()] if languages else []),
        "---",
        f"# {name}" if alone or task.denoises else f"# {name}: {source} to {target}",
        "",
        f"A {_KINDS[model.family]} of {size.total:,} parameters (preset `{model.preset}`), trained with heedful.",
        "",
        _describe_data(facts, model, task),
        f"- vocabulary: {vocabulary.target:,} pieces ({experiment.text.kind}"
        + ("" if alone else f", {experiment.text.vocabularies}")
        + ")",
        *origin,
        f"- weights: {_describe_weights(folder)}",
        *_describe_validation(validation, task),
        *_describe_scores(folder.scores()),
        "",
        "```",
        _describe_use(task, _model_argument(place)),
        "```",
        "",
        *_ctranslate2_snippet(folder, place),
        "Every option of the training is in `experiment.toml`"
        + (", its log in `events.jsonl`." if folder.events.exists() else "."),
        ending,
        "",
    ]
    return "\n".join(lines)


def _describe_use(task: Task, model: str) -> str:
    """The command that uses the model."""
    if task.encoder == "masked":
        return f"heedful train --init {model} --labels FILE --out OUT"
    if task.matches_pictures:
        return f'heedful find {model} "..." FOLDER'
    verb = "complete" if task.continues_text else "classify" if task.encoder else "translate"
    return f"heedful {verb} {model} picture.png" if task.reads_pictures else f'heedful {verb} {model} "..."'


def _describe_data(facts: Mapping[str, Any], model: ModelConfig, task: Task) -> str:
    if task.reads_stream:
        return _describe_text(facts, model.max_positions)
    if task.matches_pictures:
        pictures = counted(facts.get("pictures", 0), "picture", ",")
        captions = counted(facts.get("captions", 0), "caption", ",")
        return f"- data: {pictures} with {captions}, {facts.get('validation_pictures', 0):,} pictures for validation"
    return _describe_labels(facts, model.labels) if task.encoder else _describe_pairs(facts)


def _describe_labels(facts: Mapping[str, Any], labels: Sequence[str]) -> str:
    noun, key = ("picture", "pictures") if "pictures" in facts else ("labelled text", "texts")
    texts = counted(facts.get(key, 0), noun, ",")
    shown = ", ".join(f"`{label}`" for label in labels[:_NAMED_LABELS])
    more = f" and {len(labels) - _NAMED_LABELS} more" if len(labels) > _NAMED_LABELS else ""
    return (
        f"- data: {texts}, {facts.get(f'validation_{key}', 0):,} for validation\n- {len(labels)} labels: {shown}{more}"
    )


def _describe_pairs(facts: Mapping[str, Any]) -> str:
    pairs = counted(facts.get("pairs", 0), "sentence pair", ",")
    return f"- data: {pairs}, {facts.get('validation_pairs', 0):,} for validation"


def _describe_text(facts: Mapping[str, Any], context: int) -> str:
    characters = counted(facts.get("characters", 0), "character", ",")
    return (
        f"- data: {characters} of text, {facts.get('validation_characters', 0):,} for validation; "
        f"the model sees {counted(context, 'token')} at a time"
    )


def _describe_validation(validation: WeightsValidation | None, task: Task) -> list[str]:
    if not validation or validation.score is None:
        return []
    if not task.writes_text:
        return [f"- validation {validation.metric} of these weights: {validation.score:.2f}"]
    if task.continues_text:
        loss = math.log(validation.perplexity)
        figures = f"loss {loss:.4f} nats a token, perplexity {validation.perplexity:.2f}, {validation.score:.3f}"
        return [f"- validation of these weights: {figures} {validation.metric}"]
    return [f"- validation {validation.metric} of these weights (greedy): {validation.score:.2f}"]


def _model_argument(place: Path) -> str:
    """The name of a built-in model, or the folder; an absolute path means nothing on other machines."""
    if place.resolve().parent == BUILT_IN:
        return place.name
    return f"PATH/TO/{place.name}" if place.is_absolute() else shlex.quote(str(place))


def _ctranslate2_snippet(folder: RunFolder, place: Path) -> list[str]:
    """How to use an export without heedful; nothing for other models."""
    if folder.has_model or not folder.ctranslate2.is_dir():
        return []
    path = place.name if place.is_absolute() else place.as_posix()
    beam, joint = folder.experiment().search.beam, (folder.path / "tokenizer.json").exists()
    names = ("tokenizer.json",) if joint else ("tokenizer.source.json", "tokenizer.target.json")
    files = ", ".join(f"Tokenizer.from_file({json.dumps(f'{path}/{name}')})" for name in names)
    return [
        "Without heedful, with the packages `ctranslate2` and `tokenizers` alone:",
        "",
        "```python",
        "from ctranslate2 import Translator",
        "from tokenizers import Tokenizer",
        "",
        f"source {'=' if joint else ','} target = {files}",
        "source.encode_special_tokens = True  # a literal </s> in a text does not end it",
        f"translator = Translator({json.dumps(f'{path}/ctranslate2')})",
        'pieces = source.encode("A man rides a horse.").tokens  # with the end-of-sentence piece that the model needs',
        f"(result,) = translator.translate_batch([pieces], beam_size={beam}, max_input_length=0)",
        "print(target.decode([target.token_to_id(piece) for piece in result.hypotheses[0]]))",
        "```",
        "",
    ]


def _describe_weights(folder: RunFolder) -> str:
    match folder.about().get("exported"):
        case {"numbers": str(numbers), "parent_weights": str(note)} if not folder.has_model:
            return f"{note or 'those of an export'}, as {numbers} for CTranslate2"
        case _:
            return folder.note() or "none yet"


def _describe_scores(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each test set, named without its path."""
    found = []
    for test_set, result in scores.items():
        values = ", ".join(
            f"{one['metric']} {one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for one in result["scores"]
        )
        search = f", beam {result['beam']}" if "beam" in result else ""
        found.append(f"- {Path(test_set).name}{search}: {values}")
    return found

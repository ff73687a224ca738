"""`heedful info`"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli import console
from heedful.cli.common import MODEL_HELP, JsonOption
from heedful.config import PRESETS, Experiment, differences, flat
from heedful.errors import ConfigError, counted

_RIVAL_KEYS = ("model.cell", "model.attention", "model.kernel_width")
_BERT_KEYS = ("model.head", "model.pooling", "model.unit_length")
_BARS = "▁▂▃▄▅▆▇█"


def info(
    run: Annotated[Path | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    preset: Annotated[
        str, typer.Option(help=f"A preset instead: {', '.join(list(PRESETS)[:5])}, modern, table3-...")
    ] = "",
    vocabulary: Annotated[int, typer.Option(min=2, help="Vocabulary size, to count the preset's parameters.")] = 37_000,
    as_json: JsonOption = False,
) -> None:
    """Describe a model (sizes, data, vocabulary, learning curve, scores) or a preset."""
    if (run is None) == (not preset):
        raise ConfigError("name a model, or a preset with --preset, such as: heedful info --preset base")
    facts = _run_facts(run) if run else _preset_facts(preset, vocabulary)
    console.out(json.dumps(facts, ensure_ascii=False) if as_json else _page(_for_people(facts)))


def _preset_facts(name: str, vocabulary: int) -> dict[str, Any]:
    from heedful.tasks import make_experiment

    experiment = make_experiment({"model": {"preset": name}})
    return {"preset": name, "vocabulary": vocabulary, **_model_facts(experiment, vocabulary, vocabulary)}


def _model_facts(experiment: Experiment, source: int, target: int) -> dict[str, Any]:
    from heedful.models.size import model_size

    size = model_size(experiment.model, source, target)
    changed = differences(experiment, Experiment())
    skipped = ("name", "seed", "model.preset")
    return {
        "parameters": {
            "total": size.total,
            "embeddings": size.embeddings,
            "encoder": size.encoder,
            "decoder": size.decoder,
        },
        "model": {key: value for key, value in flat(experiment).items() if key.startswith("model.")},
        "differences_from_paper": {
            key: {"paper": theirs, "here": ours}
            for key, ours, theirs in changed
            if key not in skipped and not key.startswith("data.")
        },
    }


def _run_facts(path: Path) -> dict[str, Any]:
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder

    folder = RunFolder.open(find_model(path))
    tokenizers, experiment = folder.tokenizers(), folder.experiment()
    validations = folder.read_events("Validated")
    steps = folder.read_events("StepDone")
    return {
        "run": str(path),
        "weights": folder.note() or ("exported" if folder.ctranslate2.is_dir() else "none yet"),
        **({"validation": asdict(validation)} if (validation := folder.validation()) else {}),
        **({"card": str(card)} if (card := folder.path / "README.md").exists() else {}),
        **_model_facts(experiment, tokenizers.vocabulary.source, tokenizers.vocabulary.target),
        "vocabulary": {
            "kind": experiment.text.kind,
            "joint": tokenizers.joint,
            "source": tokenizers.vocabulary.source,
            "target": tokenizers.vocabulary.target,
        },
        "search": asdict(experiment.search),
        **folder.about(),
        **({"steps": steps[-1]["step"]} if steps else {}),
        "curve": [{key: v[key] for key in ("step", "loss", "perplexity", "score", "metric")} for v in validations],
    }


def _for_people(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out default sizes, keys of other model families, and checksums."""
    model = facts["model"]
    others = {"transformer": (*_RIVAL_KEYS, *_BERT_KEYS), "bert": _RIVAL_KEYS}.get(model["model.family"], _BERT_KEYS)
    shown = {key: value for key, value in model.items() if value not in ((), 0) and key not in others}
    data = facts.get("data")
    if not data:
        return facts | {"model": shown}
    files = {name: counted(file["bytes"], "byte", ",") for name, file in data.get("files", {}).items()}
    return facts | {"model": shown, "data": data | {"files": files}}


def _page(facts: dict[str, Any]) -> str:
    """Format the description as lines and tables."""
    parts: list[str] = []
    for key, value in facts.items():
        match key:
            case "curve":
                parts.append(_curve(value))
            case "differences_from_paper":
                parts.append(_differences(value))
            case "scores":
                parts.append(_scores(value))
            case _ if isinstance(value, dict):
                parts.append(f"{key}\n" + "\n".join(_indented(value)))
            case _:
                parts.append(f"{key}: {value}")
    return "\n".join(part for part in parts if part)


def _indented(table: dict[str, Any], depth: int = 1) -> list[str]:
    lines: list[str] = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["  " * depth + key, *_indented(value, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key.removeprefix('model.')}: {_number(value)}")
    return lines


def _number(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def _differences(changed: dict[str, Any]) -> str:
    if not changed:
        return "no difference from the paper's base model"
    rows = [("  key", "paper", "here"), *((f"  {k}", str(v["paper"]), str(v["here"])) for k, v in changed.items())]
    return "differences from the paper's base model\n" + console.table(rows)


def _curve(points: list[dict[str, Any]]) -> str:
    from heedful.metrics.text_loss import BITS_PER_CHARACTER

    if not points:
        return ""
    last = points[-1]
    lines = [f"validation loss  {_spark([p['loss'] for p in points])}  {last['loss']:.3f} at step {last['step']}"]
    scores = [p["score"] for p in points if p["score"] is not None]
    if scores:
        best = f"{min(scores):.3f}" if last["metric"] == BITS_PER_CHARACTER else f"{max(scores):.2f}"
        lines.append(f"validation {last['metric']}  {_spark(scores)}  best {best}")
    return "\n".join(lines)


def _spark(values: list[float], width: int = 40) -> str:
    """Draw a curve with block characters."""
    stride = max(1, -(-len(values) // width))
    shown = values[::stride]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def _scores(scores: dict[str, Any]) -> str:
    rows = [
        (f"  {name}", entry["metric"], f"{entry['value']:.2f}", f"{entry['low']:.2f} to {entry['high']:.2f}")
        for name, found in scores.items()
        for entry in found["scores"]
    ]
    return "scores\n" + console.table(rows) if rows else ""

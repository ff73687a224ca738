"""`heedful prune`"""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import BeamOption, DeviceOption, JsonOption, ModelArgument, override_search, parse_device

if TYPE_CHECKING:
    from heedful.inspection.prune import Pruning


def prune(
    run: ModelArgument,
    keep: Annotated[float, typer.Option(help="Share of heads to keep, such as 0.7.")],
    source: Annotated[Path, typer.Option(help="Validation text; ranks the heads.")],
    out: Annotated[Path, typer.Option(help="The new run folder.")],
    target: Annotated[Path | None, typer.Option(help="Its translation, line by line.")] = None,
    beam: BeamOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Remove the heads that matter least. Writes a smaller model to a new folder, and measures quality and speed."""
    from heedful.device import use_threads
    from heedful.inspection.prune import prune as prune_model
    from heedful.storage.model_names import find_model
    from heedful.storage.run_folder import RunFolder
    from heedful.tasks import find_task
    from heedful.translation.translator import Translator

    run = find_model(run)
    task = find_task(RunFolder.open(run).experiment().task)
    pairs = list(task.read_files([str(source)], [str(target)] if target else []))
    use_threads(0)
    translator = Translator.load(run, parse_device(device))
    search = override_search(translator.search, beam, None)
    with console.display() as shown:
        found = prune_model(RunFolder.open(run), translator, keep, pairs, search, out, shown)
    console.out(json.dumps(dataclasses.asdict(found)) if as_json else _format(found, task.quick_metric, out))
    if translator.engine.name != "torch":
        console.say(
            f"the whole model has a CTranslate2 export; make one of this, too: heedful export {out} --to ctranslate2"
        )


def _format(found: "Pruning", metric: str, out: Path) -> str:
    before, after = found.before, found.after
    rows = [
        ("", "before", "after"),
        ("heads", f"{before.heads}", f"{after.heads}"),
        ("parameters", f"{before.parameters:,}", f"{after.parameters:,}"),
        (metric, f"{before.score:.2f}", f"{after.score:.2f}"),
        ("sentences per second", f"{before.sentences_per_second:.1f}", f"{after.sentences_per_second:.1f}"),
    ]
    speed = f"speed: {found.speed:.2f} times that of the whole model, both with PyTorch (median of alternating turns)"
    places = Counter(tuple(name.split(".")[:2]) for name in found.removed)
    layers = sorted({layer for _, layer in places}, key=int)
    kinds = sorted({kind for kind, _ in places})
    removed = [
        ("heads removed in layer", *layers),
        *((kind, *(str(places[kind, layer]) for layer in layers)) for kind in kinds),
    ]
    return f"{console.table(rows)}\n\n{console.table(removed)}\n\n{speed}\nthe pruned model is in {out}"

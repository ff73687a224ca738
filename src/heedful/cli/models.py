"""`heedful models`"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli import console
from heedful.cli.common import JsonOption

if TYPE_CHECKING:
    from heedful.storage.model_names import ModelSummary

_RUNS = Path("runs")  # the default folder of `heedful train`


def models(as_json: JsonOption = False) -> None:
    """List the built-in models and the run folders in runs/."""
    from heedful.storage.model_names import list_models

    found = list_models(_RUNS)
    if as_json:
        console.out(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False))
        return
    if not found:
        console.say("there are no built-in models and no run folders in runs/; train one with: heedful train")
        return
    usable = [one for one in found if not one.problem]
    if usable:
        console.out(console.table([("model", "", "from", "to", "MiB", "score", "what it is"), *map(_row, usable)]))
    for one in found:
        if one.problem:
            console.say(one.problem)


def _row(one: "ModelSummary") -> tuple[str, ...]:
    score = f"{one.score.metric} {one.score.value:.2f} ({one.score.test_set})" if one.score else ""
    from heedful.tasks import find_task

    task = find_task(one.task)
    unknown = "" if task.continues_text or not task.writes_text else "?"  # a model of text has no languages to name
    kind = one.about if task.translates else ", ".join(part for part in (one.task, one.about) if part)
    size = f"{one.bytes / 2**20:.1f}"
    return one.name, one.kind, one.source or unknown, one.target or unknown, size, score, kind

"""Write the JSON schema of recipes, with which editors complete and check them: docs/how-to/recipe.schema.json."""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from heedful.config import experiment
from heedful.config.experiment import Experiment

FILE = Path(__file__).parents[1] / "docs" / "how-to" / "recipe.schema.json"
_OPTION = re.compile(r"^    (\w+): .*?  # (.+)$", re.MULTILINE)


def make_schema() -> dict[str, Any]:
    """The schema of a recipe: every option with its type, its default and its comment."""
    schema = TypeAdapter(Experiment).json_schema()
    described = {**schema["$defs"], "Experiment": schema}
    for name, part in described.items():
        part["additionalProperties"] = False
        part.pop("title", None)
        comments = dict(_OPTION.findall(inspect.getsource(getattr(experiment, name))))
        for option, about in part["properties"].items():
            about.pop("title", None)
            if option in comments:
                about["description"] = comments[option]
            if about.get("items") == {"type": "string"}:  # one file may stand without brackets
                about["anyOf"] = [{"type": "string"}, {"type": about.pop("type"), "items": about.pop("items")}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A recipe of heedful", **schema}


def render() -> str:
    """The text of the file."""
    return json.dumps(make_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{FILE}\n")

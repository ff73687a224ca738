"""The JSON schema of recipes: it is up to date, accepts every recipe, and refuses what heedful refuses."""

import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
import recipe_schema

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def test_the_file_is_what_the_script_writes() -> None:
    assert recipe_schema.FILE.read_text(encoding="utf-8") == recipe_schema.render(), "run scripts/recipe_schema.py"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    schema = jsonschema_rs.validator_for(recipe_schema.make_schema())
    recipe = tomllib.loads(path.read_text(encoding="utf-8"))
    assert [error.message for error in schema.iter_errors(recipe)] == []


@pytest.mark.parametrize(
    "recipe", ["seed = 'one'", "[model]\nnorm = 'pst'", "[train]\nstep = 3", "[modell]", "[data]\nsource = 3"]
)
def test_a_mistake_is_marked(recipe: str) -> None:
    assert not jsonschema_rs.validator_for(recipe_schema.make_schema()).is_valid(tomllib.loads(recipe))


def test_options_have_their_comments_and_defaults() -> None:
    options = recipe_schema.make_schema()["$defs"]["TrainConfig"]["properties"]
    assert options["patience"]["default"] == 0
    assert options["patience"]["description"] == "stop after this many validations without improvement; 0: never"
    assert options["best_by"]["enum"] == ["loss", "bleu"]

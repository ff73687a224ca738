"""The documentation agrees with the code: commands parse, links lead somewhere, every option is documented."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import tomlkit
import typer
from command_line import parse

import heedful
from heedful.cli.commands import INTERRUPTED
from heedful.cli.signals import _SAVED_AND_STOPPED
from heedful.config import PRESETS, Experiment, flat, load_recipe, merge, parse_setting
from heedful.errors import Diverged, HeedfulError, OutOfSpace, UserError
from heedful.tasks import make_experiment

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RECIPES = sorted(ROOT.glob("recipes/*.toml"))
OTHERS = [*RECIPES, *ROOT.glob("scripts/*"), *ROOT.glob("bench/*"), ROOT / "Makefile", ROOT / "requirements.lock"]
SOURCES = sorted(ROOT.glob("src/**/*.py"))
TESTS = sorted(ROOT.glob("tests/**/*.py"))
DECISIONS = sorted(ROOT.glob("docs/decisions/*.md"))
PAPER_MAPS = [ROOT / "docs/paper-map.md", ROOT / "docs/family-map.md", ROOT / "docs/architecture.md"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^(?:\$ |srun )?heedful (.*)$")
# American spellings; "tokenizer" and "optimizer" are names of the libraries.
AMERICAN = re.compile(
    r"\b(?:(?:tokeni|optimi)z(?:e[ds]?|ing|ation)|(?:un)?(?:normali|initiali|recogni|seriali|summari|organi|generali)z\w*"
    r"|analyz\w*|colou?red|color\w*|behavior\w*|favor\w*|center(?:s|ed)?|gray|licens(?:e|es)|catalog|modeling|labeled)\b",
    re.IGNORECASE,
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def each_of(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=name)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def prose(text: str) -> str:
    """The text without code and without the addresses of links."""
    return LINK.sub("", SPAN.sub("", FENCE.sub("", text)))


def commands(text: str) -> Iterator[str]:
    """Each command line of heedful in the blocks of shell code, in spans and in a recipe's first comment."""
    blocks = [block for language, block in FENCE.findall(text) if language == "sh"]
    comment = "\n".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#   "))
    for block in [*blocks, comment]:
        for line in block.replace("\\\n", " ").splitlines():
            if found := COMMAND.match(line.strip()):
                yield found[1]
    for span in SPAN.findall(FENCE.sub("", text)):
        if (found := COMMAND.match(span)) and " " in found[1]:
            yield found[1]


@each_of([*PAGES, *RECIPES])
def test_every_command_parses_and_sets_keys_that_exist(path: Path) -> None:
    for line in commands(read(path)):
        try:
            given = parse(line)
        except typer.TyperException as error:
            pytest.fail(f"heedful {line}: {error.format_message()}")
        settings = given.get("settings")
        make_experiment(merge(*map(parse_setting, settings if isinstance(settings, list) else [])))
        recipe = given.get("recipe")
        assert recipe is None or str(recipe).startswith("runs/") or (ROOT / str(recipe)).exists(), line


def test_the_commands_of_the_tour_are_found() -> None:
    tour = list(commands(read(ROOT / "docs/tour.md")))
    for wanted in (
        "train --source train.en --target train.de --out runs/en-de",
        "train recipes/multi30k-en-de.toml --set train.max_steps=200",
        "train --resume runs/en-de",
        'translate runs/en-de "A man rides a horse."',
        "evaluate runs/en-de --source test.en --reference test.de",
        "doctor --source train.en --target train.de --test test.en test.de",
        "info runs/en-de",
        "info --preset base --vocabulary 37000",
    ):
        assert wanted in tour


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(typer.TyperException):
        parse("train --sauce train.en")


@each_of(PAGES)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for address in LINK.findall(FENCE.sub("", read(path))):
        if "://" not in address:
            assert (path.parent / address.partition("#")[0]).exists(), address


def test_every_option_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| .+ \|$", read(ROOT / "docs/how-to/recipes.md"), re.MULTILINE)
    written = dict(rows)
    expected = {key: list(value) if isinstance(value, tuple) else value for key, value in flat(Experiment()).items()}
    assert written.keys() == expected.keys()
    for key, value in expected.items():
        assert tomllib.loads(f"value = {written[key]}")["value"] == value, key
        assert written[key].replace("e-09", "e-9") == tomlkit.item(value).as_string().replace("e-09", "e-9"), key


def test_every_preset_is_documented() -> None:
    text = read(ROOT / "docs/how-to/recipes.md")
    for preset in PRESETS:
        assert f"`{preset}`" in text or preset.startswith("table3-"), preset


def test_every_key_that_a_resumed_run_may_change_is_documented() -> None:
    from heedful.training.run import MAY_CHANGE

    text = read(ROOT / "docs/how-to/train.md")
    assert [key for key in MAY_CHANGE if f"`{key}`" not in text] == []


def test_every_exit_code_is_documented() -> None:
    text = read(ROOT / "docs/how-to/exit-codes.md")
    kinds = (HeedfulError, UserError, OutOfSpace, Diverged)
    codes = [*(kind.exit_code for kind in kinds), _SAVED_AND_STOPPED, INTERRUPTED]
    assert [code for code in codes if f"\n| {code} |" not in text] == []


def test_every_recipe_is_listed() -> None:
    text = read(ROOT / "docs/how-to/recipes.md")
    assert [path.stem for path in RECIPES if f"recipes/{path.name})" not in text] == []


@each_of(RECIPES)
def test_every_recipe_is_an_experiment_with_its_own_name(path: Path) -> None:
    experiment = make_experiment(load_recipe(path))
    assert experiment.name == path.stem
    assert experiment.data.source or experiment.data.text


def test_the_readme_says_how_to_begin() -> None:
    text = read(ROOT / "README.md")
    first_screen = "\n".join(text.splitlines()[:40])
    for needed in ("heedful translate ", "heedful train ", "](docs/pictures/"):
        assert needed in first_screen, needed
    for needed in ("make demo", "make test", "Python 3.11 to 3.14", "PyTorch"):
        assert needed in text, needed


def test_the_readmes_python_runs_on_a_built_in_model_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for language, block in FENCE.findall(read(ROOT / "README.md")) if language == "python"]
    (block,) = (block for block in blocks if '"en-de"' in block)
    exec(block, {})
    assert "Ein Mann" in capsys.readouterr().out


@each_of(PAGES)
def test_pythons_imports_from_heedful_exist(path: Path) -> None:
    for block in (block for language, block in FENCE.findall(read(path)) if language == "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "heedful":
                module = import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], node.module


def test_every_public_name_is_documented() -> None:
    text = read(ROOT / "docs/python.md")
    assert [name for name in heedful.__all__ if f"`{name}`" not in text] == []


def test_every_part_of_the_package_is_in_the_layers() -> None:
    layers = read(ROOT / "docs/architecture.md")
    parts = [entry for entry in (ROOT / "src/heedful").iterdir() if not entry.name.startswith(("_", "py.typed"))]
    for part in parts:
        shown = f"{part.name}/" if part.is_dir() else part.name
        assert re.search(rf"(?m)(?:^| ){re.escape(shown)}\s", layers), shown


@each_of(PAPER_MAPS)
def test_every_name_in_the_map_and_in_the_walks_exists(path: Path) -> None:
    for address, names in re.findall(r"\(\.\./(src/[^)]+\.py)\)((?:\s+`[\w.]+`,?)*)", read(path)):
        for name in re.findall(r"[\w.]+", names):
            assert name in set(defined_names(ast.parse(read(ROOT / address)))), f"{address}: {name}"


def defined_names(node: ast.AST, prefix: str = "") -> Iterator[str]:
    """The classes, functions and variables of a module, and the members of its classes as `Class.member`."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield prefix + name
                yield from defined_names(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name


def imported_names(tree: ast.Module) -> Iterator[str]:
    """The libraries that a module imports anywhere, as they are installed: `torch`, `numpy`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                yield module.partition(".")[0]


def test_every_test_in_the_maps_and_among_the_guarantees_exists() -> None:
    pages = ("docs/paper-map.md", "docs/family-map.md", "docs/reliability.md")
    tests = re.findall(r"`(test_\w+)`", "".join(read(ROOT / page) for page in pages))
    everything = "".join(map(read, (ROOT / "tests").rglob("test_*.py")))
    assert tests
    assert [test for test in tests if f"def {test}(" not in everything] == []


PLACE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|sh|js|lock)|(?:[\w-]+/)+(?:[\w-]+)?")
NAME = re.compile(r"(?:[A-Za-z]\w*\.)*(?:[A-Z]\w+|_?[a-z]\w*_\w+)")
NOT_OURS = {"DistributedDataParallel", "huggingface_hub", "transformer_base", "TypeError", "ModuleNotFoundError", "NaN"}
NOT_OURS |= {"Literal", "assert_never"}
IN_A_RUN = {"parent/", "heedful_format"}  # a folder and a key of config.json
ABOUT_THE_CODE = [ROOT / "CONTRIBUTING.md", *PAPER_MAPS, *DECISIONS]


@each_of(ABOUT_THE_CODE)
def test_every_place_in_the_pages_about_the_code_exists(path: Path) -> None:
    text = read(path)
    example = re.findall(r"`([\w/.]+)`:\n\n```", text)  # a file that the page shows how to write
    for place in SPAN.findall(LINK.sub("", FENCE.sub("", text))):
        if PLACE.fullmatch(place) and place not in example and place not in IN_A_RUN:
            assert any((home / place).exists() for home in (ROOT, ROOT / "src/heedful")), place


@each_of(ABOUT_THE_CODE)
def test_every_name_in_the_pages_about_the_code_exists(path: Path) -> None:
    text = read(path)
    names = [name for name in SPAN.findall(FENCE.sub("", text)) if NAME.fullmatch(name)]
    own = {
        name
        for language, block in FENCE.findall(text)
        if language == "python"
        for name in defined_names(ast.parse(block))
    }
    missing = [name for name in names if not is_known(name) and name.rpartition(".")[2] not in own]
    assert set(missing) <= NOT_OURS | IN_A_RUN


def is_known(name: str) -> bool:
    """Whether this is an option, a name of another library, or a class, function or variable of ours."""
    libraries, ours = names_of_the_code()
    return name in flat(Experiment()) or name.partition(".")[0] in libraries or name in ours


@cache
def names_of_the_code() -> tuple[set[str], set[str]]:
    """The libraries that the code imports, and all names that it defines, those of members with and without class."""
    trees = [ast.parse(read(source)) for source in (*SOURCES, *TESTS)]
    ours = {name for tree in trees for name in defined_names(tree)}
    return {name for tree in trees for name in imported_names(tree)}, ours | {name.rpartition(".")[2] for name in ours}


def test_the_index_lists_every_decision_by_its_number_and_title() -> None:
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", read(ROOT / "docs/decisions/README.md"), re.MULTILINE)
    pages = [path for path in DECISIONS if path.name != "README.md"]
    expected = [
        (str(number), read(path).splitlines()[0].removeprefix("# "), path.name) for number, path in enumerate(pages, 1)
    ]
    assert listed == expected
    assert [path.name[:2] for path in pages] == [f"{number:02}" for number, _ in enumerate(pages, 1)]


@each_of(PAGES)
def test_the_spelling_is_british(path: Path) -> None:
    assert AMERICAN.findall(prose(read(path))) == []


@each_of([*PAGES, *OTHERS, *SOURCES])
def test_nothing_names_a_machine_or_a_registry(path: Path) -> None:
    hosts = (".".join(("pypi", "org")), "python" + "hosted", ".".join(("npmjs", "com")))
    places = re.compile(r"(?:^|[\s\"'(=:`])/(?:home|root|tmp|work|Users|mnt)/|\.\./shared")
    text = read(path)
    assert not any(host in text for host in hosts)
    assert places.findall(text) == []


def test_the_lock_file_pins_every_dependency_once() -> None:
    lines = [line for line in read(ROOT / "requirements.lock").splitlines() if not line.startswith("#")]
    pinned = [re.fullmatch(r"([\w.-]+)==[\w.]+", line) for line in lines]
    assert all(pinned), lines
    names = [canonical(match[1]) for match in pinned if match]
    assert len(names) == len(set(names))
    project = tomllib.loads(read(ROOT / "pyproject.toml"))
    extras = [entry for extra in project["project"]["optional-dependencies"].values() for entry in extra]
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"], "editables", *extras]
    needed = {canonical(re.split(r"[\[<>=!~]", entry)[0]) for entry in wanted} - {"heedful"}
    assert needed <= set(names)


def canonical(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def test_a_name_that_was_renamed_would_be_noticed() -> None:
    assert is_known("Predictor.attentions")
    assert is_known("train.max_steps")
    assert not is_known("train.max_stepz")
    assert not is_known("Seq2Sequel")

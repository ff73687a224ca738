"""The order of the layers, and the public names."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import heedful

SOURCE = Path(heedful.__file__).parent

# A module imports only from later lines. Parts on one line do not import each other.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("serve", "studies"),
    ("formats", "inspection"),
    ("training", "evaluation"),
    ("translation", "documents", "completion", "classification", "embedding"),
    ("attention", "decoding", "storage"),
    ("models", "tasks"),
    ("nn", "data", "pages"),
    ("text", "metrics", "kernels"),
    ("device", "process_memory", "progress", "untrusted_files"),
    ("config",),
    ("errors",),
)
WITHOUT_TORCH = ("config", "text", "metrics", "errors", "documents")
FACADE = "__init__"  # the package itself, which exports names of all layers

PUBLIC = [
    "Alternative",
    "Attention",
    "AttentionRecord",
    "Classification",
    "Classifier",
    "CleanedCorpus",
    "Comparison",
    "Completer",
    "Completion",
    "ConfigError",
    "Constraints",
    "Continuation",
    "DataError",
    "Diagnosis",
    "Diverged",
    "Embedder",
    "Evaluation",
    "Experiment",
    "FolderError",
    "Head",
    "HeedfulError",
    "LabelDiagnosis",
    "Look",
    "OutOfSpace",
    "PictureClassification",
    "PictureClassifier",
    "PictureDiagnosis",
    "PivotTranslator",
    "Proof",
    "Score",
    "SimilarText",
    "TaggedText",
    "TaggedWord",
    "TextDiagnosis",
    "TextLook",
    "Tokenizer",
    "TrainingResult",
    "Translation",
    "Translator",
    "UserError",
    "__version__",
    "clean_corpus",
    "compare",
    "comparison_page",
    "doctor",
    "doctor_labels",
    "doctor_pictures",
    "doctor_text",
    "evaluate",
    "export",
    "record_attention",
    "resume",
    "train",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE).with_suffix("")).replace("/", ".")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """The full names of all modules that these statements import; relative imports start with a dot."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            # `from heedful import nn` imports heedful.nn.
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "heedful" else [base]


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that run when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from outside_functions(child)


def layer_of(part: str) -> int:
    return next(number for number, names in enumerate(LAYERS) if part in names)


def parts() -> set[str]:
    return {name_of(path).partition(".")[0] for path in files()} - {FACADE}


def test_every_part_has_a_layer() -> None:
    assert parts() == {name for names in LAYERS for name in names}


@pytest.mark.parametrize("path", [path for path in files() if name_of(path) != FACADE], ids=name_of)
def test_a_module_imports_only_from_lower_layers(path: Path) -> None:
    own = name_of(path).partition(".")[0]
    for name in imported(ast.walk(tree_of(path))):
        assert not name.startswith("."), f"{name}: imports are absolute here"
        package, _, rest = name.partition(".")
        if package == "heedful":
            part = rest.partition(".")[0]
            assert part in parts(), f"{name}: modules are imported, not what the package gives out"
            assert part == own or layer_of(own) < layer_of(part), f"{own} must not import {name}"


@pytest.mark.parametrize("part", WITHOUT_TORCH)
def test_some_parts_do_not_import_torch_on_import(part: str) -> None:
    for path in files():
        if name_of(path).partition(".")[0] == part:
            assert not [name for name in imported(outside_functions(tree_of(path))) if name.startswith("torch")]


def loaded(code: str) -> set[str]:
    """The modules that a new interpreter has loaded after this code."""
    shown = f"{code}\nimport sys\nprint('LOADED', *sys.modules)"
    process = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(process.stdout.rpartition("LOADED")[2].split())


def command(*arguments: str) -> str:
    return f"""
import sys
sys.argv = ["heedful", *{arguments!r}]
from heedful.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


@pytest.mark.parametrize(
    "code",
    [
        "import heedful",
        "import heedful.config, heedful.text, heedful.errors",
        "import heedful.metrics, heedful.metrics.bleu, heedful.tasks",
        "import heedful.models.size",
        "import heedful.translation.translator, heedful.decoding.ctranslate2_engine",
        command("--help"),
        command("train", "--help"),
        command("info", "--preset", "base"),
    ],
    ids=["heedful", "config-text", "metrics", "size", "translator", "help", "train-help", "info"],
)
def test_code_that_needs_no_torch_does_not_import_it(code: str) -> None:
    modules = loaded(code)
    assert "heedful.errors" in modules
    assert "torch" not in modules


def test_the_public_names_are_these() -> None:
    assert heedful.__all__ == dir(heedful) == PUBLIC == sorted(PUBLIC)
    assert all(getattr(heedful, name) is not None for name in PUBLIC)


def test_any_other_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'heedful' has no attribute 'Transformer'"):
        heedful.Transformer  # noqa: B018


def test_every_module_has_a_docstring() -> None:
    trees = {name_of(path): tree_of(path) for path in files()}
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert getattr(heedful, name).__doc__


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_only_a_command_and_its_work_share_a_module_name() -> None:
    places: dict[str, set[str]] = {}
    for path in files():
        package, _, module = name_of(path).rpartition(".")
        if not module.startswith("__"):
            places.setdefault(module, set()).add(package)
    twice = {module: packages for module, packages in places.items() if len(packages) > 1}
    assert {module: packages for module, packages in twice.items() if len(packages - {"cli"}) > 1} == {}

"""The JavaScript of the pages: modules bundled into one script, and their types."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from heedful.pages.inline import bundle, load_modules

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "heedful"
SCRIPTS = sorted([*SOURCE.glob("*/assets/*.js"), *SOURCE.glob("serve/static/*.js")])

MODULES = {
    "main.js": """import { count, Counter as Other } from './counter.js';
import { one } from './one.js';
const counter = new Other();
globalThis.counted = [count(counter), one, typeof secret];
""",
    "counter.js": """import {
  one,
} from './one.js';
const secret = one;
export class Counter { value = secret; }
export function count(counter) { return counter.value + secret; }
""",
    "one.js": "const secret = 'of its own';\nexport const one = secret.length ? 1 : 0;\n",
}


def test_a_module_comes_after_its_imports() -> None:
    assert list(load_modules("main.js", MODULES.__getitem__)) == ["one.js", "counter.js", "main.js"]


def test_a_bundle_does_what_its_modules_do() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on the path")
    script = bundle(load_modules("main.js", MODULES.__getitem__)) + "console.log(JSON.stringify(globalThis.counted));"
    ran = subprocess.run([node, "--input-type=module", "-"], input=script, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ('[2,1,"undefined"]\n', "")


def test_modules_that_import_each_other_are_refused() -> None:
    modules = {"a.js": "import { b } from './b.js';\n", "b.js": "import { a } from './a.js';\n"}
    with pytest.raises(ValueError, match=r"import each other: a\.js > b\.js > a\.js"):
        load_modules("a.js", modules.__getitem__)


@pytest.mark.parametrize(
    "line",
    [
        "import './one.js';",
        "import * as all from './one.js';",
        'import { one } from "./one.js";',
        "export default 1;",
        "export let changing = 1;",
        "export { one };",
        "export * from './one.js';",
    ],
)
def test_an_import_or_export_that_cannot_be_bundled_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"main.js has an import or export that cannot be bundled: {line}")):
        bundle({"main.js": f"const one = 1;\n{line}\n"})


def test_no_two_modules_have_the_same_name() -> None:
    names = [path.name for path in SCRIPTS]
    assert "dom.js" in names and "main.js" in names
    assert sorted(set(names)) == sorted(names)  # they are served from one folder


def test_typescript_finds_no_type_errors() -> None:
    checker = ROOT / "node_modules" / ".bin" / "tsc"
    if not checker.exists() or shutil.which("node") is None:
        pytest.skip("needs node, and TypeScript: npm ci")
    ran = subprocess.run([checker, "--project", ROOT], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

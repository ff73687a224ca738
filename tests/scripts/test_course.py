"""The course: its files are what the script writes, and its code runs."""

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import course
import pytest

from heedful.inspection.explain import ExplainedSentence

NUMBER = re.compile(r"−?-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
# In a process of its own: here every call is held to its shapes, which makes a hundred searches take minutes.
_EXPLAIN = """
import pickle, sys
from pathlib import Path
import course
Path(sys.argv[1]).write_bytes(pickle.dumps(course.explain_example()))
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("course") / "found"
    subprocess.run([sys.executable, "-c", _EXPLAIN, str(path)], check=True, cwd=Path(course.__file__).parent)
    found: ExplainedSentence = pickle.loads(path.read_bytes())
    return course.render_files(course.write_chapters(found))


def words_of(text: str) -> list[str]:
    return NUMBER.sub("#", text).split()


def numbers_of(text: str) -> list[float]:
    return [float(each.replace("−", "-").replace(",", "")) for each in NUMBER.findall(text)]


def test_the_course_is_what_the_script_writes_up_to_rounding(written: dict[str, str]) -> None:
    assert {path.name for path in course.FOLDER.iterdir()} == set(written)
    for name, text in written.items():
        kept = (course.FOLDER / name).read_text(encoding="utf-8")
        assert words_of(kept) == words_of(text), f"{name}: run scripts/course.py"
        assert numbers_of(kept) == pytest.approx(numbers_of(text), rel=0.03, abs=0.03), f"{name}: run scripts/course.py"


def test_there_are_eight_chapters_each_with_an_exercise_an_answer_and_the_command() -> None:
    chapters = sorted(course.FOLDER.glob("[1-9]*.md"))
    assert len(chapters) == 8
    for path in chapters:
        text = path.read_text(encoding="utf-8")
        assert "## Predict, then run" in text
        assert "<summary>The answer</summary>" in text
        assert "```python" in text
        assert f"heedful explain {course.MODEL}" in text or path.name.startswith("8")
        assert max(map(len, text.splitlines())) < 400


def test_the_notebook_runs_from_its_first_cell_to_its_last() -> None:
    notebook = json.loads((course.FOLDER / course.NOTEBOOK).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert code.count("translator.look") >= 8
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, encoding="utf-8")
    assert "True" in said.stdout.splitlines()  # the share that chapter 2 computes is the recorded one


def test_prose_is_wrapped_and_code_and_tables_are_not() -> None:
    table, code = "| a | b |\n|---|---|", "```python\nx = 1\n\ny = 2\n```"
    text = f"{'word ' * 60}\nmore\n\n{table}\n\n{code}"
    wrapped = course._wrap(text)
    assert max(map(len, wrapped.splitlines())) <= 120
    assert wrapped.split() == text.split()
    assert table in wrapped
    assert code in wrapped

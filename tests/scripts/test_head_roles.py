"""The roles of a built-in model's heads: measured once, stored with the model, and shown only for its weights."""

import shutil
from pathlib import Path

import head_roles
import toy

from heedful.attention.head_names import KINDS
from heedful.inspection.attention_view import read_roles


def test_the_script_stores_a_role_for_every_head(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    roles = head_roles.store_roles(str(folder), trained / "test.en", lines=8)
    assert set(roles) == {f"{kind}.1.{head}" for kind in KINDS for head in (1, 2)}
    assert read_roles(folder) == roles
    page = tmp_path / "a.html"
    assert toy.run("heads", folder, toy.lines_of(trained / "test.en")[0], "--out", page).code == 0
    assert f'"name":"{roles["cross.1.1"]["name"]}"' in page.read_text(encoding="utf-8")  # type: ignore[index]

"""Set-up of all tests: shapes in signatures are checked, one thread works."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

_CHECKED = ("nn", "models", "train", "search", "data")

# Before any of these is imported: their signatures name the shapes, and here every call is held to them.
install_import_hook([f"heedful.{part}" for part in _CHECKED], "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)  # tiny tensors on two threads are many times slower on a busy machine


@pytest.fixture
def shared_data() -> Path:
    """The corpora beside the repository; a test that needs them is skipped where they are absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the corpora in {folder}")
    return folder

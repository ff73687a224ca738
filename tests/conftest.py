"""Set-up of all tests: shapes in signatures are checked, one thread works."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

_CHECKED = ("nn", "models", "training", "decoding", "data", "attention")

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


@pytest.fixture(scope="session")
def encoder_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny runs by name: `sorter`, `tagger`, `masked`, `vit` and `t5`. Not to be written to."""
    import encoder_examples

    return encoder_examples.train_all(tmp_path_factory.mktemp("encoders"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the toy language pair and `run`, a model that has learnt it. Not to be written to."""
    import toy

    folder = tmp_path_factory.mktemp("trained")
    source, target = toy.write_pairs(folder, "train", 2000, seed=11)
    valid_source, valid_target = toy.write_pairs(folder, "valid", 60, seed=12)
    toy.write_pairs(folder, "test", 50, seed=13)
    toy.write_pairs(folder, "few", 120, seed=14)
    wanted = ("batch_tokens=384", "max_steps=350", "learning_rate=0.01", "warmup_steps=40", "validate_every=175")
    # The language reverses sentences, which is learnt from absolute positions.
    former = ("model.positions=sinusoidal", "train.optimizer=adam", "train.dropout_warmup=0", "train.ema_decay=0.998")
    process = toy.start(
        *("train", "--source", source, "--target", target),
        *("--valid-source", valid_source, "--valid-target", valid_target, "--out", folder / "run"),
        *toy.settings(*(f"train.{setting}" for setting in wanted), *former),
        environment=toy.PLAIN_LOCALE,
    )
    out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    (folder / "stdout").write_bytes(out)
    (folder / "stderr").write_bytes(err)
    return folder

"""`train --compare`: a second model on the same data, which does not start from another, and both scores."""

from pathlib import Path

import label_examples
import pytest
import text_examples
import toy

from heedful.errors import ConfigError
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.training.train import resume, train

STEPS = {"train.max_steps": 6, "train.validate_every": 3, "train.save_every": 2, "train.threads": 1}
MASKED = ("text.vocabulary_size=265", "model.max_positions=32", "train.max_steps=3")


@pytest.fixture(autouse=True)
def no_pictures() -> object:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison")


@pytest.fixture(scope="module")
def labels(folder: Path) -> Path:
    return label_examples.write_labels(folder / "few.tsv", 60)


@pytest.fixture(scope="module")
def pre(folder: Path) -> Path:
    text = text_examples.write_text(folder / "text.txt", text_examples.rhymes(100))
    options = label_examples.options(*MASKED)
    with toy.plain_log():
        ran = toy.run("train", "--text", text, "--objective", "masked", "--out", folder / "pre", *options)
    assert ran.code == 0, ran.err
    return folder / "pre"


@pytest.fixture(scope="module")
def compared(pre: Path, labels: Path, folder: Path) -> toy.Ran:
    more = [part for key, value in STEPS.items() for part in ("--set", f"{key}={value}")]
    with toy.plain_log():
        ran = toy.run("train", "--init", pre, "--labels", labels, "--compare", "--out", folder / "run", *more)
    assert ran.code == 0, ran.err
    return ran


def scores(folder: Path) -> tuple[float | None, float | None]:
    ours, theirs = (RunFolder.open(path).validation() for path in (folder, folder / "without"))
    assert ours
    assert theirs
    return ours.score, theirs.score


def test_both_scores_are_printed(compared: toy.Ran, pre: Path, folder: Path) -> None:
    ours, theirs = scores(folder / "run")
    assert f"afterwards a second model is trained from nothing in {folder / 'run' / 'without'}" in compared.err
    assert (
        f"macro F1 in validation: {ours:.2f} starting from {pre}, {theirs:.2f} from nothing ({folder / 'run'}/without)"
        in compared.err
    )
    assert f"heedful classify {folder / 'run'} " in compared.err


def test_the_second_model_has_the_same_data_and_nothing_of_the_first(
    compared: toy.Ran, pre: Path, labels: Path, folder: Path
) -> None:
    run, without = RunFolder.open(folder / "run"), RunFolder.open(folder / "run" / "without")
    assert read_valid_pairs(run) == read_valid_pairs(without) != ()
    assert run.experiment().data == without.experiment().data
    assert (run.has_parent, without.has_parent) == (True, False)
    assert (run.experiment().train.init, without.experiment().train.init) == (str(pre), "")
    assert run.experiment().train.max_steps == without.experiment().train.max_steps
    alone = train(labels=labels, out=folder / "alone", settings=STEPS)
    assert toy.same_bits(toy.weights(alone.folder), toy.weights(without.path))


@pytest.mark.parametrize("stop", [4, 9])  # steps of both trainings: in the first, and in the second
def test_a_stopped_comparison_ends_as_if_it_had_not_been(
    compared: toy.Ran, pre: Path, labels: Path, folder: Path, tmp_path: Path, stop: int
) -> None:
    looks = iter(range(1000))
    first = train(
        labels=labels,
        init=pre,
        compare=True,
        out=tmp_path / "run",
        settings=STEPS,
        stop_requested=lambda: "SIGTERM" if next(looks) == stop else "",
    )
    assert first.interrupted
    assert (first.folder, first.score_without) == (tmp_path / "run", None)
    result = resume(tmp_path / "run")
    assert (result.score, result.score_without) == scores(folder / "run")
    for path in ("run", "run/without"):
        assert toy.same_bits(toy.weights(tmp_path / path), toy.weights(folder / path))


def test_a_comparison_needs_something_to_leave_out(labels: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none is named; give one with init"):
        train(labels=labels, compare=True, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_losses_of_two_vocabularies_are_not_compared(pre: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a training for masked is validated by its loss alone; leave compare out"):
        train(text=folder / "text.txt", objective="masked", init=pre, compare=True, out=tmp_path / "run")


def test_without_validation_it_says_how_to_compare(pre: Path, labels: Path, tmp_path: Path) -> None:
    more = [part for key, value in {**STEPS, "data.hold_out": 0}.items() for part in ("--set", f"{key}={value}")]
    ran = toy.run("train", "--init", pre, "--labels", labels, "--compare", "--out", tmp_path / "run", *more)
    assert ran.code == 0, ran.err
    assert f"heedful evaluate {tmp_path / 'run'}, heedful evaluate {tmp_path / 'run' / 'without'}" in ran.err


def test_the_second_model_learns_the_task_of_the_first(tmp_path: Path) -> None:
    """The task of a fine-tuning is that of its model, which the second does not see."""
    (tmp_path / "words.tsv").write_text("".join(f"{w}\t{' '.join(w)}\n" for w in ("ab", "ba", "aab", "bba") * 20))
    tiny = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "data.hold_out": 10, **STEPS}
    parent = train(tsv=tmp_path / "words.tsv", out=tmp_path / "parent", settings={"task": "pronunciation", **tiny})
    train(tsv=tmp_path / "words.tsv", init=parent.folder, compare=True, out=tmp_path / "run", settings=STEPS)
    assert RunFolder.open(tmp_path / "run" / "without").experiment().task == "pronunciation"

"""A CLIP from captioned pictures: training, exact resume, evaluate, find, info, and mistakes in one sentence."""

import json
from pathlib import Path

import caption_examples
import pytest
import toy

import heedful
from heedful.errors import ConfigError
from heedful.storage.files import load_tensors
from heedful.storage.run_folder import RunFolder

LONG = ("train.max_steps=300", "train.save_every=50", "train.validate_every=100", "train.learning_rate=0.01")


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return caption_examples.write_captioned(tmp_path_factory.mktemp("clip") / "shapes", each=14, more=True)


@pytest.fixture(scope="module")
def run(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return caption_examples.train_clip(captions, tmp_path_factory.mktemp("clip") / "run", *LONG)


def test_it_finds_other_pictures_of_what_it_has_learnt(run: Path, tmp_path: Path) -> None:
    test = caption_examples.write_captioned(tmp_path / "test", each=2, seed=9)
    found = {score.metric: score for score in heedful.evaluate(run, test).scores}
    assert len(found) == 6
    assert found["text to picture recall@5"].value > 90.0
    assert found["picture to text recall@1"].value > 80.0
    # 12 captions, each of 2 of 24 pictures: 1 - 22/24, and 1 of 12 captions for each picture.
    ran = toy.run("evaluate", run, "--captions", test, "--json")
    assert ran.code == 0, ran.err
    chances = {score["metric"]: score["chance"] for score in json.loads(ran.out)["scores"]}
    assert chances["text to picture recall@1"] == pytest.approx(100 * 2 / 24)
    assert chances["picture to text recall@5"] == pytest.approx(100 * 5 / 12)
    shown = toy.run("evaluate", run, "--captions", test)
    assert "chance" in shown.out.splitlines()[0]
    assert "8.33" in shown.out
    assert RunFolder.open(run).scores()[str(test)]["scores"][0]["metric"] == "text to picture recall@1"


def test_a_stop_in_the_middle_changes_nothing(captions: Path, run: Path, tmp_path: Path) -> None:
    from heedful.training.train import resume, train

    def settings() -> dict[str, object]:
        pairs = (setting.split("=") for setting in (*caption_examples.TINY_CLIP, *LONG))
        return {key: json.loads(value) for key, value in pairs}

    steps = iter(range(1000))
    stopped = train(
        captions=captions,
        out=tmp_path / "run",
        settings=settings(),
        stop_requested=lambda: "SIGTERM" * (next(steps) > 170),
    )
    assert stopped.interrupted
    finished = resume(tmp_path / "run")
    assert finished.steps == 300
    assert finished.metric == "recall@5"
    whole, halves = (load_tensors(each / "model.safetensors") for each in (run, tmp_path / "run"))
    assert all(whole[name].equal(halves[name]) for name in whole)


def test_the_scale_has_been_learnt(run: Path) -> None:
    assert load_tensors(run / "model.safetensors")["log_scale"].exp().item() != pytest.approx(1 / 0.07, rel=1e-3)


def test_info_and_card_name_the_captions(run: Path) -> None:
    told = toy.run("info", run)
    assert told.code == 0, told.err
    assert "validation recall@5" in told.out
    card = (run / "README.md").read_text()
    assert "A CLIP of" in card
    assert "captions, " in card
    assert f"heedful find PATH/TO/{run.name}" in card


def test_choices_are_printed_with_their_reasons(captions: Path, tmp_path: Path) -> None:
    ran = toy.run("train", "--captions", captions, "--out", tmp_path / "run", "--set", "train.max_steps=1")
    assert ran.code == 0, ran.err
    for sentence in (
        "captions: 336 captions of 168 pictures, 24 of them different",
        "size: the square in the middle of each picture, as 12 x 12 pixels",
        "patches: 36, each of 2 x 2 pixels",
        "model: CLIP, for pictures and texts 4 layers each, 128 wide, dropout 0.2: 168 pictures would soon",
        "batch: 10 pictures; each is told apart from all others of its batch",
        "held out: about 16 pictures with all their captions to validate on",
        "find pictures with: heedful find",
    ):
        assert sentence in ran.err
    assert "too few" not in ran.err


def test_more_pictures_start_from_a_trained_model(run: Path, tmp_path: Path) -> None:
    more = caption_examples.write_captioned(tmp_path / "more", each=3, seed=5)
    short = ("--set", "train.max_steps=1", "--set", "train.warmup_steps=1")
    ran = toy.run("train", "--captions", more, "--init", run, "--out", tmp_path / "run", *short)
    assert ran.code == 0, ran.err
    assert "are too few to learn what words mean" in ran.err
    after = RunFolder.open(tmp_path / "run")
    assert after.experiment().model.image_size == 12
    assert after.tokenizers().vocabulary == RunFolder.open(run).tokenizers().vocabulary
    assert "validation before and after" in ran.err or "the model is unchanged" in ran.err


def test_files_to_validate_on_can_be_given(captions: Path, tmp_path: Path) -> None:
    other = caption_examples.write_captioned(tmp_path / "other", each=1, seed=8)
    given = ("--valid-captions", other, *caption_examples.options("train.max_steps=2"))
    ran = toy.run("train", "--captions", captions, "--out", tmp_path / "run", *given)
    assert ran.code == 0, ran.err
    assert "168 pictures with 336 captions to train on, 12 for validation" in ran.err
    assert "held out" not in ran.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --captions {captions} --images a --out {out}", "images and captions are for different models"),
        ("train --valid-captions {captions} --out {out}", "valid_captions needs captions to train on"),
        ("train --captions {run}/README.md --out {out}", "no tab; a line must be picture, tab, caption"),
        ("train --captions {captions} --out {out} --set model.preset=vit", "which does not read both pictures"),
        ("train --captions {captions} --out {out} --set train.accumulate=2", "compares all pairs of an update at once"),
        ("train --captions {captions} --out {out} --set text.bpe_dropout=0.1", "splits each caption in one way"),
        ("train --source {captions} --target {captions} --out {out} --set model.preset=clip", "name them: captions"),
        ("evaluate {run} --captions nowhere.tsv", "nowhere.tsv"),
        ("evaluate {run} --captions {captions} --labels x", "all name the test set; leave one"),
        ("classify {run} a.png", "captions"),
        ("translate {run} word", "heedful find"),
        ("complete {run} word", "cannot continue a text"),
    ],
)
def test_mistakes_get_one_sentence(command: str, message: str, captions: Path, run: Path, tmp_path: Path) -> None:
    ran = toy.run(*command.format(captions=captions, run=run, out=tmp_path / "out").split())
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_pictures_that_are_missing_or_broken_and_empty_captions_are_named(captions: Path, tmp_path: Path) -> None:
    lines = ("gone.png\ta cat", f"{captions}\ta cat", "a.png\t ")
    messages = ("gone.png does not exist", "is not a PNG or JPEG picture", "line 1: the caption of a.png is empty")
    for number, (line, message) in enumerate(zip(lines, messages, strict=True)):
        (tmp_path / f"{number}.tsv").write_text(line + "\n")
        ran = toy.run("train", "--captions", tmp_path / f"{number}.tsv", "--out", tmp_path / "run")
        assert ran.code == 2
        assert message in ran.err
        assert not (tmp_path / "run").exists()


def test_a_model_of_pictures_with_labels_finds_nothing(tmp_path: Path) -> None:
    import picture_examples

    images = picture_examples.write_pictures(tmp_path / "images", each=4)
    vit = picture_examples.train_vit(images, tmp_path / "vit", "train.max_steps=1")
    with pytest.raises(ConfigError, match="is a model for pictures, which finds no pictures; train one"):
        heedful.Finder.load(vit)

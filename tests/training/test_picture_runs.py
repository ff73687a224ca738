"""A ViT from a folder of pictures: training, exact resume, classify, evaluate, info, and mistakes in one sentence."""

import json
from pathlib import Path

import picture_examples
import pytest
import toy

import heedful
from heedful.classification.picture_classifier import PictureClassifier
from heedful.errors import ConfigError
from heedful.storage.files import load_tensors
from heedful.storage.run_folder import RunFolder

LONG = ("train.max_steps=120", "train.save_every=20", "train.validate_every=40")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_examples.write_pictures(tmp_path_factory.mktemp("vit") / "pictures", each=60)


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_examples.train_vit(images, tmp_path_factory.mktemp("vit") / "run", *LONG)


def test_it_learns_what_tells_the_pictures_apart(run: Path, tmp_path: Path) -> None:
    test = picture_examples.write_pictures(tmp_path / "test", each=20, seed=9)
    found = heedful.evaluate(run, test)
    assert [score.metric for score in found.scores] == ["accuracy", "macro F1"]
    assert found.scores[0].value > 85.0
    assert found.labels is not None
    assert found.labels.labels == picture_examples.CLASSES
    assert (run / "confusion.svg").read_text().startswith("<svg")
    stored = RunFolder.open(run).scores()[str(test)]
    assert stored["scores"][0]["value"] == found.scores[0].value


def test_a_stop_in_the_middle_changes_nothing(images: Path, run: Path, tmp_path: Path) -> None:
    from heedful.training.train import resume, train

    def settings() -> dict[str, object]:
        pairs = (setting.split("=") for setting in (*picture_examples.TINY_VIT, *LONG))
        return {key: json.loads(value) for key, value in pairs}

    steps = iter(range(1000))
    stopped = train(
        images=images, out=tmp_path / "run", settings=settings(), stop_requested=lambda: "SIGTERM" * (next(steps) > 70)
    )
    assert stopped.interrupted
    finished = resume(tmp_path / "run")
    assert finished.steps == 120
    whole, halves = (load_tensors(each / "model.safetensors") for each in (run, tmp_path / "run"))
    assert all(whole[name].equal(halves[name]) for name in whole)


def test_pictures_are_classified_alike_alone_and_together(images: Path, run: Path) -> None:
    names = sorted(images.glob("*/1*.png"))
    classifier = PictureClassifier.load(run)
    together = classifier.classify(names)
    for name, found in zip(names, together, strict=True):
        (alone,) = classifier.classify([name])
        assert alone.label == found.label
        assert alone.probability == pytest.approx(found.probability, abs=1e-5)
        assert sum(found.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    ran = toy.run("classify", run, names[0], names[-1])
    assert ran.code == 0, ran.err
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == [together[0].label, together[-1].label]
    (line,) = toy.run("classify", run, names[0], "--json").out.splitlines()
    facts = json.loads(line)
    assert (facts["index"], facts["picture"], facts["label"]) == (0, str(names[0]), together[0].label)


def test_info_and_card_name_the_pictures(run: Path) -> None:
    told = toy.run("info", run)
    assert told.code == 0, told.err
    assert "vit" in told.out
    card = (run / "README.md").read_text()
    assert "pipeline_tag: image-classification" in card
    assert "3 labels: `across`, `down`, `plain`" in card
    assert " picture.png" in card


def test_mnists_files_are_trained_and_tested(tmp_path: Path) -> None:
    folder = picture_examples.write_mnist(tmp_path / "mnist", each=40, gz=".gz")
    run = picture_examples.train_vit(folder, tmp_path / "run", "train.max_steps=4")
    ran = toy.run("evaluate", run, "--images", folder, "--json")
    assert ran.code == 0, ran.err
    facts = json.loads(ran.out)
    assert facts["labels"] == ["0", "1", "2"]
    assert sum(map(sum, facts["confusion"])) == 120
    assert RunFolder.open(run).experiment().model.channels == 1


def test_choices_are_printed_with_their_reasons(images: Path, tmp_path: Path) -> None:
    ran = toy.run("train", "--images", images, "--out", tmp_path / "run", "--set", "train.max_steps=1")
    assert ran.code == 0, ran.err
    for sentence in (
        "pictures: 3 classes of 180 pictures, from across (60) to plain (60)",
        "size: 12 x 12 pixels, in grey",
        "patches: 36, each of 2 x 2 pixels",
        "augmentation: in training, each picture is moved by up to 1 pixel",
        "held out: about 18 pictures to validate on",
    ):
        assert sentence in ran.err


def test_other_classes_start_from_its_network_with_a_new_head(run: Path, tmp_path: Path) -> None:
    images = picture_examples.write_pictures(tmp_path / "pictures", shape=(20, 20))
    (images / "plain").rename(images / "empty")
    short = ("--set", "train.max_steps=1", "--set", "train.warmup_steps=1")
    ran = toy.run("train", "--images", images, "--init", run, "--out", tmp_path / "run", *short)
    assert ran.code == 0, ran.err
    assert "size: " not in ran.err  # the model's own, not the 20 pixels of these pictures
    after = RunFolder.open(tmp_path / "run").experiment()
    assert (after.model.image_size, after.model.patch_size, after.data.shift) == (12, 4, 1)
    assert after.model.labels == ("across", "down", "empty")
    assert f"batch: {after.train.batch_tokens // (12 * 12)} pictures" in ran.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train --images {images} --source a --out {out}", "source and images are for different models"),
        ("train --valid-images {images} --out {out}", "valid_images needs images to train on"),
        ("train --images {images}/down --out {out}", "holds no sub-folders with PNG or JPEG pictures"),
        (
            "train --images {images} --out {out} --set model.patch_size=5",
            "which patches of 5 pixels do not divide",
        ),
        (
            "train --images {images} --out {out} --set model.family=bert",
            "which reads no pictures; leave out model.family",
        ),
        ("classify {run}", "labels pictures; name them: heedful classify"),
        ("classify {run} nowhere.png", "nowhere.png does not exist; name a PNG or JPEG picture"),
        ("evaluate {run} --images {images}/down", "holds no sub-folders"),
        ("translate {run} word", "classify"),
        ("complete {run} word", "cannot continue a text"),
    ],
)
def test_mistakes_get_one_sentence(command: str, message: str, images: Path, run: Path, tmp_path: Path) -> None:
    ran = toy.run(*command.format(images=images, run=run, out=tmp_path / "out").split())
    assert ran.code == 2, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_texts_and_pictures_are_not_confused(run: Path) -> None:
    with pytest.raises(ConfigError, match="labels pictures, not texts; use PictureClassifier"):
        heedful.Classifier.load(run)

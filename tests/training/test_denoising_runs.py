"""Whole runs that restore spans of plain text, and then learn from pairs what nobody taught them before."""

import random
from pathlib import Path

import pytest
import toy
from resume_examples import Drive, assert_same, state

from heedful.config import Experiment, merge, parse_setting
from heedful.data.spans import SENTINELS
from heedful.errors import ConfigError
from heedful.models.t5 import T5
from heedful.storage.run_folder import RunFolder
from heedful.tasks import make_experiment
from heedful.training.autoconfig import (
    CorpusStatistics,
    choose_denoising_settings,
    choose_settings,
    keep_pretrained_network,
)
from heedful.training.train import train

TINY = (
    *("seed=3", "train.threads=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.dropout=0.0"),
    *("text.vocabulary_size=400", "text.kind=words", "train.batch_tokens=400", "train.warmup_steps=5"),
)
FREE = tuple(setting for setting in TINY if not setting.startswith(("model.", "text.")))


def settings(*more: str, start: tuple[str, ...] = TINY) -> dict[str, object]:
    return merge(*map(parse_setting, (*start, *more)))


def options(*more: str) -> list[str]:
    return [part for setting in (*TINY, *more) for part in ("--set", setting)]


@pytest.fixture(autouse=True)
def no_pictures() -> object:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("denoising")
    toy.write_pairs(path, "train", 400, seed=11)
    toy.write_pairs(path, "valid", 30, seed=12)
    return path


@pytest.fixture(scope="module")
def pre(folder: Path) -> Path:
    """A model of the plain text of both sides."""
    out = folder / "pre"
    text = ("--text", folder / "train.en", folder / "train.de")
    with toy.plain_log():
        ran = toy.run("train", *text, "--objective", "spans", "--out", out, *options("train.max_steps=120"))
    assert ran.code == 0, ran.err
    assert "other spans of the 800 passages are left out in each epoch" in ran.err
    assert f"teach it to translate with: heedful train --init {out} --source FILE" in ran.err
    return out


@pytest.fixture(scope="module")
def taught(pre: Path, folder: Path) -> Path:
    """The same model, taught to translate by the pairs."""
    with toy.plain_log():
        train(
            init=pre,
            source=folder / "train.en",
            target=folder / "train.de",
            valid_source=folder / "valid.en",
            valid_target=folder / "valid.de",
            out=folder / "taught",
            settings=settings("train.max_steps=150", "train.learning_rate=0.01", "model.dropout=0.0", start=FREE),
        )
    return folder / "taught"


class TestPretraining:
    def test_the_vocabulary_has_a_sentinel_for_each_span(self, pre: Path) -> None:
        tokenizer = RunFolder(pre).tokenizers().source
        assert len({tokenizer.special_id(name) for name in SENTINELS}) == len(SENTINELS)
        assert tokenizer.encode("<extra_id_0>") != [tokenizer.special_id("<extra_id_0>"), tokenizer.eos_id]

    def test_it_learns_to_restore_text(self, pre: Path) -> None:
        losses = [event["loss"] for event in toy.events(pre, "Validated")]
        assert losses[-1] < 0.9 * losses[0]

    def test_it_does_not_translate_yet(self, pre: Path) -> None:
        ran = toy.run("translate", pre, "word")
        assert ran.code == 2
        assert (
            f"{pre} has only learnt to restore text; teach it to translate with: heedful train --init {pre}" in ran.err
        )

    def test_text_of_its_own_can_be_for_validation(self, folder: Path, tmp_path: Path) -> None:
        more = settings("train.max_steps=2")
        text, valid = folder / "train.en", folder / "valid.en"
        train(text=text, valid_text=valid, objective="spans", out=tmp_path / "run", settings=more)
        about = RunFolder(tmp_path / "run").about()["data"]
        assert isinstance(about, dict)
        assert (about["pairs"], about["validation_pairs"]) == (400, 30)

    def test_t5_can_be_the_model(self, folder: Path, tmp_path: Path) -> None:
        more = settings("train.max_steps=2", "model.preset=t5")
        train(text=folder / "train.en", objective="spans", out=tmp_path / "run", settings=more)
        assert isinstance(RunFolder(tmp_path / "run").model(), T5)

    def test_pieces_may_be_drawn_anew_in_each_epoch(self, folder: Path, tmp_path: Path) -> None:
        more = settings(
            "train.max_steps=2",
            "text.kind=bpe",
            "text.vocabulary_size=300",
            "text.bpe_dropout=0.1",
            "text.bpe_variants=2",
        )
        result = train(text=folder / "train.en", objective="spans", out=tmp_path / "run", settings=more)
        assert result.steps == 2

    def test_it_can_go_on_with_more_text(self, pre: Path, folder: Path, tmp_path: Path) -> None:
        more = settings("train.max_steps=2", start=FREE)
        result = train(text=folder / "valid.en", objective="spans", init=pre, out=tmp_path / "run", settings=more)
        assert result.steps == 2
        assert RunFolder(tmp_path / "run").experiment().task == "denoising"


class TestThenPairs:
    def test_it_becomes_a_translator_with_the_same_network_and_vocabulary(self, pre: Path, taught: Path) -> None:
        before, after = (RunFolder(path).experiment() for path in (pre, taught))
        assert (before.task, after.task) == ("denoising", "translation")
        assert (after.model.d_model, after.model.preset) == (32, "modern")
        assert (taught / "tokenizer.json").read_bytes() == (pre / "tokenizer.json").read_bytes()
        assert after.train.validate_bleu
        assert after.train.schedule == "cosine"

    def test_it_begins_with_the_weights_of_the_pre_training(self, pre: Path, taught: Path) -> None:
        assert toy.same_bits(toy.weights(taught / "parent"), toy.weights(pre))
        losses = [event["loss"] for event in toy.events(taught, "Validated")]
        assert toy.events(taught, "Validated")[0]["step"] == 0
        assert losses[-1] < losses[0]

    def test_it_translates(self, taught: Path) -> None:
        ran = toy.run("translate", taught, toy.sentences(1, 13)[0])
        assert ran.code == 0, ran.err
        assert ran.lines[0]

    def test_another_network_is_refused(self, pre: Path, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"model\.d_model is 64, but the model in .* has 32"):
            train(
                source=folder / "train.en",
                target=folder / "train.de",
                init=pre,
                out=tmp_path / "run",
                settings={"model.d_model": 64},
            )


class TestResume:
    STEPS = 9

    def experiment(self, folder: Path) -> Experiment:
        chance = random.Random(4)
        lines = (
            " ".join(chance.choices(["the", "cat", "sat", "on", "a", "mat", "and", "ran", "off"], k=9))
            for _ in range(40)
        )
        (folder / "text").write_text("\n".join(lines), encoding="utf-8")
        more = (
            *(f"train.max_steps={self.STEPS}", "train.save_every=4", "train.validate_every=3", "model.dropout=0.2"),
            *(
                "train.accumulate=2",
                "train.ema_decay=0.9",
                "task=denoising",
                "data.hold_out=5",
                "train.batch_tokens=90",
            ),
        )
        return make_experiment(merge({"data": {"text": str(folder / "text")}}, settings(*more)))

    @pytest.mark.parametrize(("step", "kill"), [(1, False), (4, True), (6, True), (8, False)])
    def test_a_run_stopped_at_any_step_ends_with_the_same_bits(self, tmp_path: Path, step: int, kill: bool) -> None:
        experiment = self.experiment(tmp_path)
        whole = DenoisingDrive(tmp_path / "whole").start(experiment)
        assert max(event["epoch"] for event in toy.events(tmp_path / "whole", "StepDone")) >= 1
        drive = DenoisingDrive(tmp_path / "run").start(experiment, until=step, kill=kill)
        drive.resume()
        assert drive.finished.step == whole.finished.step == self.STEPS
        assert_same(tmp_path / "run", tmp_path / "whole")
        assert state(tmp_path / "run") == state(tmp_path / "whole")


class DenoisingDrive(Drive):
    total = 40


class TestChoices:
    few = CorpusStatistics(3000, 40_000, 5000)

    def test_pre_training_has_less_dropout_than_training_on_pairs(self) -> None:
        found = choose_denoising_settings(self.few, "cpu", {})
        assert (
            found.tables["model"]["dropout"]
            < choose_settings(self.few, "cpu", {}, model=True).tables["model"]["dropout"]
        )
        assert "dropout 0.1" in found.reasons["model.preset"]

    @pytest.mark.parametrize("passages", [3000, 30_000])
    def test_pre_training_reads_no_passage_twice_and_hides_no_words(self, passages: int) -> None:
        found = choose_denoising_settings(CorpusStatistics(passages, 40_000, 5000), "cpu", {})
        assert not {"r_drop", "word_dropout"} & found.tables["train"].keys()
        assert "train.r_drop" not in found.reasons

    def test_what_the_user_sets_stays(self) -> None:
        found = choose_denoising_settings(self.few, "cpu", {"train": {"max_steps": 77}, "model": {"preset": "t5"}})
        assert found.tables["model"] == {}
        assert found.tables["train"]["max_steps"] == 77

    def test_pairs_after_it_keep_the_network_and_get_the_schedule_of_a_new_model(self) -> None:
        new = choose_settings(self.few, "cpu", {}, model=True)
        found = keep_pretrained_network(new)
        assert found.tables["train"] == new.tables["train"]
        assert found.tables["model"] == {"dropout": 0.4}
        assert not {"model.preset", "text.vocabulary_size"} & found.reasons.keys()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--objective", "spam", "--text", "book"),
            "--objective must be one of next, masked, spans, but is spam; did you mean",
        ),
        (("--set", "task=denoising", "--source", "book"), "task is 'denoising', which learns from plain text"),
        (("--text", "none", "--objective", "spans"), "there is no file none"),
    ],
)
def test_a_mistake_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book").write_text("some text to learn.\n", encoding="utf-8")
    ran = toy.run("train", *arguments, "--out", "run")
    assert ran.code == 2
    assert sentence in ran.err

"""Whole runs on plain text: the model, tokens and held-out part follow from the text, and resuming is exact."""

import json
import math
from pathlib import Path

import pytest
import text_examples
import toy
from resume_examples import Drive, assert_same, state
from text_examples import options, rhymes, write_text

import heedful
from heedful.config import Experiment, merge, parse_setting
from heedful.data.text import TextCorpus, TextStatistics
from heedful.models.gpt import GPT
from heedful.storage.run_folder import RunFolder
from heedful.tasks import make_experiment
from heedful.training.autoconfig import choose_text_settings, default_text_hold_out
from heedful.training.train import train


@pytest.fixture(autouse=True)
def no_pictures() -> object:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_examples.train_gpt(tmp_path_factory.mktemp("run"), "train.max_steps=40", "train.validate_every=20")


class TestRun:
    def test_the_end_of_the_text_is_held_out(self, run: Path) -> None:
        text = rhymes(150)
        held = default_text_hold_out(len(text))
        tokenizer = RunFolder(run).tokenizers().target
        train, valid = TextCorpus(run / "data" / "train"), TextCorpus(run / "data" / "valid")
        assert tokenizer.decode(train.ids.tolist()) == text[:-held]
        assert tokenizer.decode(valid.ids.tolist()) == text[-held:]
        assert (train.characters, valid.characters) == (len(text) - held, held)
        assert valid.ids[-1] == tokenizer.eos_id not in train.ids

    def test_the_model_is_a_gpt_that_reads_characters(self, run: Path) -> None:
        folder = RunFolder.open(run)
        experiment = folder.experiment()
        assert isinstance(folder.model(), GPT)
        assert (experiment.task, experiment.text.kind, experiment.train.optimizer) == (
            "completion",
            "characters",
            "muon",
        )
        assert folder.tokenizers().vocabulary.target == 258 + 1  # every byte, two special ones, and ä
        assert json.loads((run / "config.json").read_text())["is_encoder_decoder"] is False

    def test_it_learns(self, run: Path) -> None:
        first, last = (event["loss"] for event in toy.events(run, "Validated"))
        assert last < first < math.log(259)

    def test_validation_is_in_nats_perplexity_and_bits_per_character(self, run: Path) -> None:
        (*_, last) = toy.events(run, "Validated")
        valid = TextCorpus(run / "data" / "valid")
        assert last["metric"] == "bits per character"
        assert last["perplexity"] == pytest.approx(math.exp(last["loss"]), rel=1e-6)
        assert last["score"] == pytest.approx(last["loss"] / math.log(2) * len(valid) / valid.characters, rel=1e-6)

    def test_tokens_are_counted_once(self, run: Path) -> None:
        assert {event["tokens"] for event in toy.events(run, "StepDone")} <= set(range(1, 161))

    def test_the_card_and_info_speak_of_text(self, run: Path) -> None:
        card = (run / "README.md").read_text(encoding="utf-8")
        held = default_text_hold_out(len(rhymes(150)))
        assert "pipeline_tag: text-generation" in card
        assert f"{len(rhymes(150)) - held:,} characters of text, {held} for validation" in card
        assert "A GPT of" in card
        assert "nats a token" in card
        assert "heedful complete" in card
        assert "translat" not in card
        shown = toy.run("info", run)
        assert "validation bits per character" in shown.out
        assert f"validation_characters: {held}" in shown.out

    def test_each_choice_is_printed_with_its_reason(self, tmp_path: Path) -> None:
        text = write_text(tmp_path / "rhymes.txt", rhymes(60))
        ran = toy.run("train", "--text", text, "--out", tmp_path / "run", *options("train.max_steps=2"))
        assert ran.code == 0, ran.err
        assert (
            f"tokens: {len(set(rhymes(60)))} different characters, because in {len(rhymes(60)):,} characters" in ran.err
        )
        assert "model: GPT, 2 layers, 32 wide" in ran.err
        assert "at the end of the text, to validate on" in ran.err
        assert "validation loss" in ran.err
        assert "are too little text to learn a language from" in ran.err
        assert f'continue a text with: heedful complete {tmp_path / "run"} "..."' in ran.err

    @pytest.mark.parametrize(
        "given",
        [("--text", "[ab].txt", "--text", "c.txt"), ("--text", "a.txt", "b.txt", "c.txt")],
        ids=["patterns", "as a shell writes them"],
    )
    def test_several_files_and_patterns_are_one_text(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for name in ("a", "b", "c"):
            write_text(tmp_path / f"{name}.txt", name * 30)
        ran = toy.run("train", *given, "--out", "run", *options("train.max_steps=1", "data.hold_out=20"))
        assert ran.code == 0, ran.err
        tokenizer = RunFolder(tmp_path / "run").tokenizers().target
        train = TextCorpus(tmp_path / "run" / "data" / "train").ids.tolist()
        assert train == [*tokenizer.encode("a" * 30), *tokenizer.encode("b" * 30), *tokenizer.encode("c" * 10)[:-1]]

    def test_text_of_ones_own_can_be_for_validation(self, tmp_path: Path) -> None:
        text, valid = write_text(tmp_path / "text", rhymes(40)), write_text(tmp_path / "valid", rhymes(9, seed=2))
        result = train(text=text, valid_text=valid, out=tmp_path / "run", settings=settings("train.max_steps=2"))
        assert result.metric == "bits per character"
        assert TextCorpus(tmp_path / "run" / "data" / "train").characters == len(rhymes(40))
        assert TextCorpus(tmp_path / "run" / "data" / "valid").characters == len(rhymes(9, seed=2))

    def test_words_are_split_into_pieces_if_you_ask_for_it(self, tmp_path: Path) -> None:
        text = write_text(tmp_path / "text", rhymes(80))
        more = settings("train.max_steps=2", "text.kind=bpe", "text.vocabulary_size=270")
        train(text=text, out=tmp_path / "run", settings=more)
        folder = RunFolder(tmp_path / "run")
        ids = TextCorpus(folder.data / "train").ids.tolist()
        held = default_text_hold_out(len(rhymes(80)))
        assert folder.tokenizers().target.decode(ids) == rhymes(80)[:-held]
        assert len(ids) < 0.9 * len(rhymes(80))

    def test_a_model_can_be_trained_on_with_other_text(self, run: Path, tmp_path: Path) -> None:
        text = write_text(tmp_path / "text", rhymes(50, seed=4).replace("mät", "böx"))
        result = train(text=text, init=run, out=tmp_path / "run", settings={"train.max_steps": 3})
        assert RunFolder(tmp_path / "run").experiment().train.optimizer == "muon"
        assert result.steps == 3
        assert toy.events(tmp_path / "run", "Validated")[0]["step"] == 0


def settings(*given: str) -> dict[str, object]:
    return merge(*map(parse_setting, (*text_examples.TINY_GPT, *given)))


class TestResume:
    STEPS = 11

    def experiment(self, folder: Path) -> Experiment:
        text = write_text(folder / "rhymes.txt", rhymes(12))
        more = (
            *(f"train.max_steps={self.STEPS}", "train.save_every=4", "train.validate_every=3", "model.dropout=0.2"),
            *("train.accumulate=2", "train.ema_decay=0.9", "task=completion", "data.hold_out=60"),
        )
        return make_experiment(merge({"data": {"text": str(text)}}, settings(*more)))

    def drive(self, folder: Path) -> "TextDrive":
        return TextDrive(folder)

    @pytest.mark.parametrize(("step", "kill"), [(1, False), (4, True), (5, False), (6, True), (10, False)])
    def test_a_run_stopped_at_any_step_ends_with_the_same_bits(self, tmp_path: Path, step: int, kill: bool) -> None:
        experiment = self.experiment(tmp_path)
        whole = self.drive(tmp_path / "whole").start(experiment)
        epochs = [event["epoch"] for event in toy.events(tmp_path / "whole", "StepDone")]
        assert max(epochs) >= 2  # whose windows begin elsewhere
        drive = self.drive(tmp_path / "run").start(experiment, until=step, kill=kill)
        assert drive.step == step
        drive.resume()
        assert drive.finished.step == whole.finished.step == self.STEPS
        assert_same(tmp_path / "run", tmp_path / "whole")
        assert state(tmp_path / "run") == state(tmp_path / "whole")

    def test_text_that_has_changed_is_refused(self, tmp_path: Path) -> None:
        drive = self.drive(tmp_path / "run").start(self.experiment(tmp_path), until=2)
        write_text(tmp_path / "rhymes.txt", rhymes(13))
        with pytest.raises(heedful.DataError, match=r"rhymes\.txt has changed since this run began"):
            drive.resume()

    def test_damaged_ids_are_refused(self, tmp_path: Path) -> None:
        drive = self.drive(tmp_path / "run").start(self.experiment(tmp_path), until=2)
        ids = tmp_path / "run" / "data" / "train" / "text.ids"
        ids.write_bytes(ids.read_bytes()[::-1])
        with pytest.raises(heedful.FolderError, match="has changed since this run prepared it"):
            drive.resume()


class TextDrive(Drive):
    total = len(rhymes(12))


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("--text", "none.txt"), "there is no file none.txt"),
            (("recipe.toml", "book"), "book: a recipe stands alone; name other files with"),
            (("--text", "*.nothing"), "no file matches *.nothing"),
            (("--text", "-"), "- can be read only once"),
            (("--set", "task=completion", "--source", "book"), "task is 'completion', which learns from plain text"),
            (("--text", "book", "--set", "model.family=transformer"), "leave out model.family, or set it to 'gpt'"),
            (("--text", "book", "--set", "task=translation"), "data.text is plain text, but task is 'translation'"),
            (("--text", "book", "--set", "data.hold_out=900"), "data.hold_out is 900, but the text has only 20 char"),
        ],
    )
    def test_a_mistake_gets_one_sentence_and_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write_text(tmp_path / "book", "some text to learn.\n")
        ran = toy.run("train", *arguments, "--out", "run")
        assert ran.code == 2
        assert sentence in ran.err
        assert ran.err.strip().splitlines()[-1].startswith("heedful: ")
        assert not list((tmp_path / "run").glob("[!.]*"))

    def test_a_model_of_text_does_not_translate(self, run: Path) -> None:
        ran = toy.run("translate", run, "the cat")
        assert ran.code == 2
        assert f'{run} is a model for completion, which cannot translate; use: heedful complete {run} "..."' in ran.err


class TestAutoconfig:
    def chosen(self, characters: int, device: str = "cpu", **tables: dict[str, object]) -> Experiment:
        text = TextStatistics(1, characters, 70, 4)
        found = choose_text_settings(text, device, tables)
        return make_experiment({"task": "completion", **tables}, found.tables)

    def test_little_text_is_read_by_characters_and_much_by_pieces(self) -> None:
        assert (self.chosen(1_000_000).text.kind, self.chosen(1_000_000).text.vocabulary_size) == ("characters", 262)
        assert (self.chosen(50_000_000).text.kind, self.chosen(50_000_000).text.vocabulary_size) == ("bpe", 8000)

    def test_more_text_gets_a_larger_model_and_a_gpu_a_larger_one_still(self) -> None:
        widths = [self.chosen(size).model.d_model for size in (10_000, 1_000_000, 500_000_000)]
        assert widths == sorted(widths)
        assert self.chosen(1_000_000, "cuda").model.d_model > self.chosen(1_000_000).model.d_model

    def test_what_the_user_sets_stays_and_the_rest_goes_with_it(self) -> None:
        text = TextStatistics(1, 1_000_000, 70, 4)
        found = choose_text_settings(text, "cpu", {"model": {"d_model": 64}, "train": {"max_steps": 100}})
        assert "64 wide" in found.reasons["model.preset"]
        assert found.tables["train"]["warmup_steps"] == 10

    def test_the_last_tenth_is_held_out_as_nanogpt_does(self) -> None:
        assert default_text_hold_out(1_115_394) == 1_115_394 - int(0.9 * 1_115_394) == 111_540
        assert default_text_hold_out(10**9) == 200_000

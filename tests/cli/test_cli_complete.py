"""`heedful complete` and `heedful evaluate` with a model of plain text."""

import json
import math
from pathlib import Path

import pytest
import text_examples
import toy

import heedful
from heedful.data.text import TextCorpus
from heedful.storage.run_folder import RunFolder

OPTIONS = ("--length", "24", "--temperature", "0.7", "--seed", "3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_examples.train_gpt(tmp_path_factory.mktemp("gpt"), "train.max_steps=60", "train.learning_rate=0.01")


def test_prompt_and_continuation_are_printed(run: Path) -> None:
    ran = toy.run("complete", run, "the cat", *OPTIONS)
    (expected,) = heedful.Completer.load(run).complete(["the cat"], length=24, temperature=0.7, seed=3)
    assert (ran.code, ran.out, ran.err) == (0, expected.text + "\n", "")
    assert ran.out.startswith("the cat")


def test_a_stream_prints_the_same(run: Path) -> None:
    plain = toy.run("complete", run, "the cat", "a dog", "--n", "2", *OPTIONS)
    streamed = toy.run("complete", run, "the cat", "a dog", "--n", "2", "--stream", *OPTIONS)
    assert (plain.code, streamed.code) == (0, 0)
    assert streamed.out == plain.out
    assert plain.lines.count("-" * 15) == 3


def test_json_has_every_continuation(run: Path) -> None:
    ran = toy.run("complete", run, "the cat", "the", "--n", "2", "--json", *OPTIONS)
    found = [json.loads(line) for line in ran.lines]
    assert [(one["index"], one["prompt"], len(one["continuations"])) for one in found] == [
        (0, "the cat", 2),
        (1, "the", 2),
    ]
    assert set(found[0]["continuations"][0]) == {"text", "log_prob", "tokens", "finished"}
    assert found[0]["continuations"][0]["log_prob"] < 0


@pytest.mark.parametrize("given", [(), ("-",)])
def test_standard_input_has_one_prompt_a_line(run: Path, given: tuple[str, ...]) -> None:
    ran = toy.run("complete", run, *given, *OPTIONS, stdin=b"the cat\na dog\n")
    assert (ran.code, ran.out) == (0, toy.run("complete", run, "the cat", "a dog", *OPTIONS).out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("the", "--stream", "--json"), "--stream prints text piece by piece, but --json prints whole results"),
        (("the", "--top-p", "0"), "search.top_p must be above 0"),
        (("the", "--n", "2", "--temperature", "0"), "with temperature 0 there is only the most probable one"),
        (("the", "--device", "gpu"), "--device must be one of auto, cpu, cuda, mps, but is gpu"),
    ],
)
def test_a_mistake_gets_one_sentence(run: Path, arguments: tuple[str, ...], sentence: str) -> None:
    ran = toy.run("complete", run, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("heedful: ")
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


def test_a_translator_is_refused() -> None:
    ran = toy.run("complete", "en-de", "the")
    assert ran.code == 2
    assert "is a model for translation, which cannot continue a text; train one with: heedful train --text" in ran.err


class TestEvaluate:
    def test_the_loss_of_the_held_out_text_is_that_of_the_validation(self, run: Path, tmp_path: Path) -> None:
        folder = RunFolder.open(run)
        valid = TextCorpus(folder.data / "valid")
        text = folder.tokenizers().target.decode(valid.ids.tolist())
        held_out = text_examples.write_text(tmp_path / "held-out.txt", text)
        ran = toy.run("evaluate", run, "--source", held_out, "--json")
        assert ran.code == 0, ran.err
        loss, perplexity, bits = json.loads(ran.out)["scores"]
        validation = folder.validation()
        assert validation is not None
        assert validation.score is not None
        assert loss["value"] == pytest.approx(math.log(validation.perplexity), abs=1e-5)
        assert perplexity["value"] == pytest.approx(validation.perplexity, rel=1e-5)
        assert bits["value"] == pytest.approx(validation.score, rel=1e-5)
        assert loss["low"] < loss["value"] < loss["high"]
        assert "context:16" in loss["signature"]
        assert "bits per character" in toy.run("info", run).out
        assert str(held_out) in RunFolder.open(run).scores()

    def test_a_table_shows_four_digits_of_a_loss(self, run: Path, tmp_path: Path) -> None:
        other = text_examples.write_text(tmp_path / "other.txt", text_examples.rhymes(9, seed=8))
        found = heedful.evaluate(run, other)
        shown = toy.run("evaluate", run, "--source", other).out
        assert found.outputs == ()
        assert f"{found.scores[0].value:.4f}" in shown
        assert f"{found.scores[1].value:.2f}" in shown

    @pytest.mark.parametrize(
        ("content", "more", "sentence"),
        [
            ("", (), "is empty; give a file with text"),
            ("the", ("--reference", "other"), "a model that continues text needs no --reference; leave it out"),
        ],
    )
    def test_a_mistake_gets_one_sentence(
        self, run: Path, tmp_path: Path, content: str, more: tuple[str, ...], sentence: str
    ) -> None:
        ran = toy.run("evaluate", run, "--source", text_examples.write_text(tmp_path / "text", content), *more)
        assert ran.code == 2
        assert sentence in ran.err

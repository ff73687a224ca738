"""Whole runs: chosen sizes, held-out pairs, validation, and the final weights."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.config import DataConfig, Experiment, parse_setting
from heedful.config.recipe import merge
from heedful.data.corpus import Corpus
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, DataError, Diverged, FolderError, OutOfSpace
from heedful.metrics import Score
from heedful.progress import SilentReporter, report_progress
from heedful.storage.model_names import ModelScore, list_models
from heedful.storage.run_folder import RunFolder, WeightsValidation
from heedful.tasks import make_experiment
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.training import prepare as preparing
from heedful.training.autoconfig import (
    CorpusStatistics,
    choose_finetuning_settings,
    choose_settings,
    default_hold_out,
    measure_corpus,
    warn_about_corpus,
)
from heedful.training.events import Event, Finished, StepDone, Validated
from heedful.training.model_selection import compute_validation_loss, sample_evenly, use_weights
from heedful.training.run import describe_learning_rate, resume_run, start_run

TINY = (
    *("train.threads=1", "model.d_model=16", "model.d_ff=24", "model.num_heads=2", "model.dropout=0.1"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "text.kind=words", "text.vocabulary_size=300"),
    *("train.batch_tokens=300", "train.max_steps=9", "train.save_every=2", "train.validate_every=3"),
    *("train.validate_bleu=false", "train.warmup_steps=2", "train.learning_rate=0.1"),
)


class RecordingReporter(SilentReporter):
    """Keeps the sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.moved: list[tuple[str, int, int]] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)

    def progress(self, what: str, done: int, total: int) -> None:
        self.moved.append((what, done, total))


@pytest.fixture(autouse=True)
def no_pictures() -> Iterator[None]:
    with toy.plain_log():
        yield


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    toy.write_pairs(folder, "train", 140, seed=31)
    toy.write_pairs(folder, "valid", 17, seed=32)
    return folder


def wanted(pairs: Path, *more: str, valid: bool = True) -> Experiment:
    data = {"source": str(pairs / "train.en"), "target": str(pairs / "train.de")}
    if valid:
        data |= {"valid_source": str(pairs / "valid.en"), "valid_target": str(pairs / "valid.de")}
    return make_experiment(merge({"data": data}, *map(parse_setting, (*TINY, *more))))


def trained_in(folder: Path, experiment: Experiment, told: SilentReporter | None = None) -> list[Event]:
    return list(start_run(RunFolder.create(folder), experiment, 140, told or SilentReporter(), lambda: ""))


def checkpointed(folder: Path, step: int, prefix: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors = load_file(folder / "checkpoints" / f"step-{step:08d}" / "tensors.safetensors")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def last(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


# The final weights


def test_a_training_finishes_even_if_no_memory_is_left_to_find_an_aligner(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("heedful.training.run.save_best_aligner", fail)
    told = RecordingReporter()
    assert last(trained_in(tmp_path / "run", wanted(pairs), told)).model
    assert "no memory was left to find where the model aligns words; --alignments will do it" in told.sentences


@pytest.mark.parametrize("place", ["build_model", "Validator", "EventLog", "training_steps"])
def test_wherever_memory_runs_out_the_settings_are_named(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(f"heedful.training.run.{place}", fail)
    with pytest.raises(OutOfSpace, match=r"out of memory with train\.batch_tokens = \d+ and train\.accumulate = 1"):
        trained_in(tmp_path / "run", wanted(pairs))


def test_without_validation_the_model_is_the_mean_of_the_last_checkpoints(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    events = trained_in(run, wanted(pairs, "train.average_checkpoints=3", "data.hold_out=0", valid=False))
    assert last(events).model == "mean of the checkpoints of steps 6, 8, 9"
    assert RunFolder(run).note() == last(events).model
    several = [checkpointed(run, step, "model.") for step in (6, 8, 9)]
    for name, weight in toy.weights(run).items():
        mean = torch.stack([weights[name].double() for weights in several]).mean(0).float()
        torch.testing.assert_close(weight, mean, rtol=1e-6, atol=1e-9)
        assert weight.isfinite().all()
    assert not any(isinstance(event, Validated) for event in events)


def test_without_validation_and_averaging_the_model_is_the_last_one(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    events = trained_in(run, wanted(pairs, "train.average_checkpoints=1", "data.hold_out=0", valid=False))
    assert last(events).model == "last, step 9"
    assert toy.same_bits(toy.weights(run), checkpointed(run, 9, "model."))


def test_with_a_moving_average_the_average_is_the_model(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    more = ("train.average_checkpoints=1", "train.ema_decay=0.5", "data.hold_out=0")
    trained_in(run, wanted(pairs, *more, valid=False))
    assert toy.same_bits(toy.weights(run), checkpointed(run, 9, "ema."))
    assert not toy.same_bits(toy.weights(run), checkpointed(run, 9, "model."))


class Script:
    """Validation losses or scores, one after another."""

    def __init__(self, *losses: float | Score) -> None:
        self.losses = iter(losses)

    def __call__(self, *_: object) -> float | Score:
        return next(self.losses)


def test_the_model_is_the_one_with_the_best_validation(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(3.0, 2.0, 2.5))
    run = tmp_path / "run"
    more = ("train.average_checkpoints=1", "train.save_every=3", "train.ema_decay=0.5")
    events = trained_in(run, wanted(pairs, *more))
    validated = [event for event in events if isinstance(event, Validated)]
    assert [event.best for event in validated] == [True, True, False]
    assert [event.perplexity for event in validated] == pytest.approx([math.exp(x) for x in (3.0, 2.0, 2.5)])
    assert last(events).model == "best validation, step 6"
    assert toy.same_bits(toy.weights(run), checkpointed(run, 6, "ema."))


@pytest.mark.parametrize(("loss", "note"), [(2.0, "mean of the checkpoints of steps 8, 9"), (2.01, "best validation")])
def test_the_mean_is_kept_only_if_it_is_as_good_as_the_best(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float, note: str
) -> None:
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(3.0, 2.0, 2.5, loss))
    events = trained_in(tmp_path / "run", wanted(pairs, "train.average_checkpoints=2"))
    assert last(events).model.startswith(note)


def test_the_best_can_be_chosen_by_bleu(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(3.0, 2.0, 1.0))
    scores = Script(*map(bleu, (10.0, 30.0, 20.0)))
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_score", scores)
    events = trained_in(tmp_path / "run", wanted(pairs, "train.best_by=bleu", "train.average_checkpoints=1"))
    validated = [event for event in events if isinstance(event, Validated)]
    assert [(event.score, event.brevity_penalty) for event in validated] == [(10.0, 0.9), (30.0, 0.9), (20.0, 0.9)]
    assert last(events).model == "best validation, step 6"


@pytest.mark.parametrize(("average", "score"), [(1, 20.0), (2, 25.0)])
def test_the_score_that_is_shown_is_that_of_the_weights_that_are_kept(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, average: int, score: float
) -> None:
    """By its loss the second validation is the best, or the mean of the checkpoints; by its score the third is."""
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(3.0, 2.0, 2.5, 1.5))
    scores = Script(*map(bleu, (10.0, 20.0, 30.0, 25.0)))
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_score", scores)
    run = tmp_path / "run"
    more = ("train.best_by=loss", "train.validate_bleu=true", f"train.average_checkpoints={average}")
    trained_in(run, wanted(pairs, *more))
    perplexity = math.exp(2.0 if average == 1 else 1.5)
    assert RunFolder(run).validation() == WeightsValidation(perplexity, score, "BLEU")
    (model,) = list_models(tmp_path, tmp_path / "nowhere")
    assert model.score == ModelScore("BLEU", score, "validation")
    assert f"- validation BLEU of these weights (greedy): {score:.2f}\n" in (run / "README.md").read_text()


def test_a_run_of_an_earlier_version_shows_the_validation_of_its_best_step(pairs: Path, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    trained_in(run.path, wanted(pairs, "train.average_checkpoints=1", "train.validate_bleu=true"))
    validation, weights = run.validation(), toy.weights(run.path)
    assert validation
    run.write_weights(weights, run.note())
    found = run.validation()
    assert found
    assert found.perplexity == pytest.approx(validation.perplexity)
    assert found.score == pytest.approx(validation.score)
    assert found.metric == "BLEU"
    run.write_weights(weights, "mean of the checkpoints of steps 8, 9")
    assert run.validation() is None


def bleu(value: float) -> Score:
    return Score("BLEU", value, value, value, "", brevity_penalty=0.9)


@given(st.integers(0, 60), st.integers(1, 20))
def test_scored_pairs_are_spread_over_all_validation_pairs(count: int, most: int) -> None:
    taken = sample_evenly(range(count), most)
    gaps = {after - before for before, after in pairwise(taken)}
    assert len(taken) == min(count, most)
    assert max(gaps, default=0) - min(gaps, default=0) <= 1
    assert list(taken) == list(range(count)) if count <= most else count - taken[-1] <= max(gaps, default=count) + 1


def test_a_validation_loss_of_nan_stops_training_and_is_never_the_best(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("train.average_checkpoints=1",)
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(math.nan))
    with pytest.raises(Diverged, match=r"^the validation loss at step 3 is nan; lower train\.learning_rate and resume"):
        trained_in(tmp_path / "stop", wanted(pairs, *more))
    assert not (tmp_path / "stop" / "model.safetensors").exists()
    monkeypatch.setattr("heedful.training.model_selection.compute_validation_loss", Script(math.nan, 4.0, math.inf))
    events = trained_in(tmp_path / "skip", wanted(pairs, *more, "train.on_non_finite=skip"))
    assert last(events).model == "best validation, step 6"


# The end of training


def test_the_time_limit_counts_all_parts_of_a_resumed_run(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("heedful.training.run.time.monotonic", lambda: now[0])

    def ticking(events: Iterator[Event]) -> list[Event]:
        found = []
        for event in events:
            found.append(event)
            if isinstance(event, StepDone):
                now[0] += 60.0
        return found

    run = tmp_path / "run"
    first = ticking(
        start_run(RunFolder.create(run), wanted(pairs, "train.max_minutes=2"), 140, SilentReporter(), lambda: "")
    )
    assert (last(first).step, last(first).reason, last(first).minutes) == (2, "2 minutes are over", 2.0)
    assert [event.step for event in first if isinstance(event, Validated)] == [
        2
    ]  # training always validates at its end
    now[0] += 6000.0  # the time in between does not count
    more = {"train": {"max_minutes": 5}}
    second = ticking(resume_run(run, more, SilentReporter(), lambda: ""))
    assert (last(second).step, last(second).minutes) == (5, 5.0)


# Resuming


def test_a_change_of_machine_is_reported(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained_in(tmp_path / "run", wanted(pairs))
    monkeypatch.setattr("heedful.training.checkpointing.software_versions", lambda: {"torch": "9.9", "cpu": "AVX2"})
    told = RecordingReporter()
    list(resume_run(tmp_path / "run", {"train": {"max_steps": 10}}, told, lambda: ""))
    assert any(
        sentence.startswith("not the same machine (torch was ") and sentence.endswith("but not to the same bits")
        for sentence in told.sentences
    )


def test_a_checkpoint_of_another_model_is_refused(pairs: Path, tmp_path: Path) -> None:
    for name, width in (("a", 16), ("b", 12)):
        trained_in(tmp_path / name, wanted(pairs, f"model.d_model={width}", "train.max_steps=2"))
    (tmp_path / "a" / "checkpoints").rename(tmp_path / "old")
    (tmp_path / "b" / "checkpoints").rename(tmp_path / "a" / "checkpoints")
    with pytest.raises(FolderError, match=r"^the checkpoint has .* of shape .*; it belongs to a different model$"):
        list(resume_run(tmp_path / "a", {}, SilentReporter(), lambda: ""))


# Validation


def test_other_weights_are_used_only_inside_the_context() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    other = {name: torch.full_like(weight, 7.0) for name, weight in before.items()}
    for weights in (other, None):
        with pytest.raises(ZeroDivisionError), use_weights(model, weights):
            assert not model.training
            assert bool((dict(model.named_parameters())["0.bias"] == 7.0).all()) == (weights is other)
            raise ZeroDivisionError
        assert model.training
        assert toy.same_bits({name: p.detach() for name, p in model.named_parameters()}, before)


@pytest.mark.parametrize("batch_tokens", [1, 25, 10_000])
def test_the_validation_loss_is_that_of_each_sentence_by_itself(trained: Path, batch_tokens: int) -> None:
    run = RunFolder.open(trained / "run")
    model, corpus = run.model(), Corpus(trained / "run" / "data" / "valid")
    total = tokens = 0.0
    with torch.no_grad():
        for index in range(12):
            batch = corpus.batch(np.array([index]), model.pad_id)
            memory = model.encode(batch.source, batch.source_lengths)
            logits = model.decode(batch.target_in, batch.target_lengths, memory)
            total += F.cross_entropy(logits.double(), batch.target_out, reduction="sum").item()
            tokens += len(batch.target_out)

    class First(Corpus):
        """The first dozen pairs."""

        def lengths(self) -> tuple[Any, Any]:
            source, target = super().lengths()
            return source[:12], target[:12]

    found = compute_validation_loss(model, First(corpus.folder), batch_tokens)
    assert found == pytest.approx(total / tokens, rel=1e-5)


# Held out


def lines(count: int) -> list[Pair]:
    return [Pair(f"s{number % 60}", f"t{number}") for number in range(count)]


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.01, 0.6), seed=st.integers(0, 2**63 - 1))
def test_a_sentence_is_held_out_with_all_its_translations(share: float, seed: int) -> None:
    held = [pair for pair in lines(240) if preparing._is_held_out(pair, share, seed)]
    assert held == [pair for pair in lines(240) if preparing._is_held_out(pair, share, seed)]
    assert set(Counter(pair.source for pair in held).values()) <= {4}


def test_about_as_many_pairs_are_held_out_as_requested() -> None:
    many = [Pair(f"sentence {number}", "") for number in range(20_000)]
    held = sum(preparing._is_held_out(pair, 0.05, 1) for pair in many)
    assert abs(held - 1000) < 5 * math.sqrt(1000)
    assert not any(preparing._is_held_out(pair, 0.0, 1) for pair in many)


@pytest.mark.parametrize(
    ("hold_out", "total", "share"),
    [(-1, 1000, 0.1), (-1, 20_000, 0.02), (-1, 10_000_000, 1e-4), (0, 50, 0.0), (7, 50, 0.14)],
)
def test_the_default_number_of_held_out_pairs(hold_out: int, total: int, share: float) -> None:
    usual = default_hold_out(total)
    assert preparing._held_out_share(DataConfig(hold_out=hold_out), total, usual) == pytest.approx(share)
    assert preparing._held_out_share(DataConfig(hold_out=hold_out, valid_source=("x",)), total, usual) == 0.0


def test_training_never_sees_held_out_pairs(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained_in(run, wanted(pairs, "data.hold_out=30", "train.max_steps=1", valid=False))
    held = {source for source, _ in json.loads((run / "data" / "valid.json").read_text())}
    corpus, tokenizers = Corpus(run / "data" / "train-0"), RunFolder.open(run).tokenizers()
    seen = {tokenizers.source.decode(corpus.sentence("source", index).tolist()) for index in range(len(corpus))}
    assert held
    assert not held & seen
    assert held | seen == set((pairs / "train.en").read_text(encoding="utf-8").splitlines())


def test_validation_pairs_that_are_all_empty_are_refused(pairs: Path, tmp_path: Path) -> None:
    blank = toy.write_lines(tmp_path / "blank.en", [" ", " "])
    experiment = wanted(pairs)
    data = replace(experiment.data, valid_source=(str(blank),), valid_target=(str(blank),))
    with pytest.raises(DataError, match=r"^all validation pairs are empty or too long; give other files"):
        trained_in(tmp_path / "run", replace(experiment, data=data))
    assert not (tmp_path / "run").exists()


# The vocabulary


def test_a_tokenizer_can_be_taken_from_another_run(trained: Path, pairs: Path, tmp_path: Path) -> None:
    told = RecordingReporter()
    file = trained / "run" / "tokenizer.json"
    trained_in(tmp_path / "run", wanted(pairs, f"text.tokenizer_file={file}", "train.max_steps=1"), told)
    theirs, ours = (RunFolder.open(folder).tokenizers().source for folder in (trained / "run", tmp_path / "run"))
    assert f"vocabulary: {ours.vocabulary_size} pieces of {file}" in told.sentences
    text = "x " + toy.sentences(1, seed=1)[0]
    assert ours.pieces(ours.encode(text)) == theirs.pieces(theirs.encode(text))


def test_a_vocabulary_is_learnt_from_lines_spread_over_all_files(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(given: Iterator[str], config: Any, more: Sequence[str] = ()) -> Any:
        kept = list(given)
        seen.extend(kept)
        return learn_tokenizer(iter(kept), config, more)

    monkeypatch.setattr(preparing, "learn_tokenizer", watched)
    monkeypatch.setattr(preparing, "SAMPLE_LINES", 40)
    trained_in(tmp_path / "run", wanted(pairs, "train.max_steps=1"))
    source = (pairs / "train.en").read_text(encoding="utf-8").splitlines()
    assert seen[::2] == source[::7]


# Automatic settings


@settings(deadline=None)
@given(
    pairs=st.integers(1, 10**9),
    words=st.integers(0, 10**10),
    distinct=st.integers(0, 10**7),
    device=st.sampled_from(["cpu", "cuda", "mps"]),
    model=st.booleans(),
    search=st.booleans(),
)
def test_every_choice_is_a_valid_experiment(
    pairs: int, words: int, distinct: int, device: str, model: bool, search: bool
) -> None:
    choice = choose_settings(CorpusStatistics(pairs, words, distinct), device, {}, model=model, search=search)
    experiment = make_experiment({}, under=choice.tables)
    assert experiment.text.vocabulary_size >= 258
    assert experiment.train.warmup_steps <= experiment.train.max_steps
    assert experiment.train.validate_every <= experiment.train.max_steps
    assert (experiment.model.preset == "modern") == model
    keys = {f"{table}.{key}" for table, values in choice.tables.items() for key in values}
    assert choice.reasons.keys() <= keys | {"model.preset"}


def test_more_data_gets_a_larger_model_and_vocabulary() -> None:
    found = [
        make_experiment(
            {}, under=choose_settings(CorpusStatistics(pairs, 20 * pairs, pairs), "cuda", {}, model=True).tables
        )
        for pairs in (1000, 30_000, 500_000, 5_000_000)
    ]
    assert [experiment.model.d_model for experiment in found] == [128, 192, 256, 512]
    assert [experiment.text.vocabulary_size for experiment in found] == [758, 8000, 16_000, 32_000]


@pytest.mark.parametrize(("steps", "decay"), [(100, 0.9), (1000, 0.95), (8000, 0.9938), (100_000, 0.9995)])
def test_the_moving_average_is_over_two_percent_of_the_updates(steps: int, decay: float) -> None:
    chosen = choose_settings(CorpusStatistics(1000, 10_000, 500), "cpu", {"max_steps": steps}, model=True)
    assert chosen.tables["train"]["ema_decay"] == decay


def test_a_model_of_the_users_own_keeps_its_dropout_and_average() -> None:
    chosen = choose_settings(CorpusStatistics(1000, 10_000, 500), "cpu", {}, model=False)
    assert not {"dropout_warmup", "ema_decay"} & chosen.tables["train"].keys()


@pytest.mark.parametrize(("pairs", "dropout"), [(3000, 0.4), (9999, 0.4), (10_000, 0.3), (200_000, 0.2)])
def test_fewer_pairs_need_more_dropout(pairs: int, dropout: float) -> None:
    chosen = choose_settings(CorpusStatistics(pairs, 10 * pairs, pairs), "cpu", {}, model=True)
    assert make_experiment(chosen.tables).model.dropout == dropout
    assert f"dropout {dropout}" in chosen.reasons["model.preset"] or pairs >= 200_000
    assert chosen.tables["train"]["accumulate"] == (2 if pairs >= 200_000 else 1)


@pytest.mark.parametrize(("pairs", "weight"), [(1000, 1.0), (49_999, 1.0), (50_000, 0.0)])
def test_few_pairs_are_read_twice_after_the_warm_up_of_dropout(pairs: int, weight: float) -> None:
    chosen = choose_settings(CorpusStatistics(pairs, 10 * pairs, pairs), "cpu", {}, model=True)
    train = make_experiment(chosen.tables).train
    assert train.r_drop == weight
    reason = chosen.reasons.get("train.r_drop", "")
    assert (f"after {train.dropout_warmup} updates" in reason) == (weight > 0)


def test_choices_follow_the_settings_of_the_user() -> None:
    found = CorpusStatistics(1000, 10_000, 500)
    usual, smaller, short = (
        choose_settings(found, "cpu", given, model=True) for given in ({}, {"batch_tokens": 100}, {"max_steps": 100})
    )
    assert usual.tables["train"]["batch_tokens"] == 875
    assert smaller.tables["train"]["max_steps"] == round(8.75 * usual.tables["train"]["max_steps"])
    assert "about 75 epochs" in smaller.reasons["train.max_steps"]
    assert (short.tables["train"]["warmup_steps"], short.tables["train"]["validate_every"]) == (12, 50)
    assert choose_settings(found, "cpu", {}, model=True, symbols=True).tables["text"]["vocabulary_size"] == 258 + 500
    before = Experiment()
    tuned = choose_finetuning_settings(found, before, "cpu", {"batch_tokens": 100, "max_steps": 30}, hold_out=True)
    assert (tuned.tables["train"]["batch_tokens"], tuned.tables["train"]["warmup_steps"]) == (100, 3)


def test_a_mistake_in_the_data_empties_a_linked_folder(pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(DataError, match=r"^text\.vocabulary_size is 30000"):
        trained_in(tmp_path / "link", wanted(pairs, "text.kind=bpe", "text.vocabulary_size=30000"))
    assert list((tmp_path / "real").iterdir()) == []


def test_resuming_refuses_the_folder_of_a_checkpoint(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained_in(run, wanted(pairs, "train.max_steps=2", "train.save_every=1"))
    checkpoint = run / "checkpoints" / "step-00000002"
    sentence = (
        f"this is a checkpoint, but training always resumes from the newest; resume the run, {run}, or start another"
    )
    with pytest.raises(FolderError, match=sentence):
        list(resume_run(checkpoint, {}, SilentReporter(), lambda: ""))
    assert not (checkpoint / ".lock").exists()


def test_a_corpus_is_measured() -> None:
    assert measure_corpus([Pair("a b c", "x y"), Pair("a", "x x z"), Pair("", "")]) == CorpusStatistics(3, 5, 6)


def test_copied_pairs_are_counted() -> None:
    assert measure_corpus([Pair("a b", "a b"), Pair("a", "b"), Pair("", "")]).copies == 1


def test_text_that_teaches_no_language_is_warned_of(tmp_path: Path) -> None:
    for name in ("a.en", "a.de", "b.en", "v.en"):
        toy.write_lines(tmp_path / name, ["x"])
    (tmp_path / "link.de").symlink_to(tmp_path / "b.en")
    english, german, other, link, valid = (str(tmp_path / n) for n in ("a.en", "a.de", "b.en", "link.de", "v.en"))
    enough = CorpusStatistics(1000, 9, 9, copies=500)

    def warn(corpus: CorpusStatistics, **files: tuple[str, ...]) -> list[str]:
        return list(warn_about_corpus(corpus, DataConfig(**files)))  # type: ignore[arg-type]

    assert warn(enough, source=(english,), target=(german,)) == []
    twice = "is source and target, so the model learns to copy; give its translation as the target"
    assert warn(enough, source=(english, other), target=(german, link)) == [f"warning: {other} {twice}"]
    assert warn(enough, source=(english,), target=(german,), valid_source=(valid,), valid_target=(valid,)) == [
        f"warning: {valid} {twice}"
    ]
    assert warn(replace(enough, copies=501), source=(english,), target=(german,)) == [
        "warning: 501 of 1000 pairs have a target that is the source itself, so the model learns to copy; "
        "check the files with: heedful doctor"
    ]
    for count, them in ((1, "1 pair cannot teach a language, only itself"), (19, "19 pairs cannot teach")):
        (sentence,) = warn(CorpusStatistics(count, 9, 9))
        assert sentence.startswith(f"warning: {them}")


def test_one_pair_from_one_file_is_trained_on_with_warnings(tmp_path: Path) -> None:
    path = toy.write_lines(tmp_path / "one.en", ["a b c"])
    ran = toy.run(
        *("train", "--source", path, "--target", path, "--out", tmp_path / "run"),
        *toy.settings("train.max_steps=1", "train.batch_tokens=64", "text.kind=words", "text.vocabulary_size=258"),
    )
    assert ran.code == 0, ran.err
    assert f"warning: {path} is source and target" in ran.err
    assert "warning: 1 pair cannot teach a language, only itself; give more text" in ran.err
    assert "data: 1 pair to train on, 0 for validation; none left out" in ran.err
    assert re.search(r"done after 1 step and \d\.\d minutes: 1 step is done; model: last, step 1", ran.err)
    assert not re.search(r"\b1 \w+s (to|are|would|for)\b", ran.err)


@pytest.mark.parametrize(
    ("schedule", "steps", "rate", "step", "sentence"),
    [
        (
            "cosine",
            200,
            None,
            50,
            "0.00852 at step 51 instead of 0.00492, and 0 at the end, step 200 (cosine schedule)",
        ),
        ("linear", 200, None, 100, "0.00497 at step 101 and 0 at the end, step 200 (linear schedule)"),
        ("constant", 200, None, 50, "unchanged at step 51 (0.01), and 0.01 at the end, step 200 (constant schedule)"),
        ("constant", None, 0.5, 50, "0.5 at step 51 instead of 0.01, and 0.5 at the end, step 100 (constant schedule)"),
        ("cosine", None, None, 50, ""),
        ("cosine", 40, None, 50, ""),
    ],
)
def test_a_resumed_run_says_what_becomes_of_the_learning_rate(
    schedule: str, steps: int | None, rate: float | None, step: int, sentence: str
) -> None:
    train = {"schedule": schedule, "learning_rate": 0.01, "warmup_steps": 1, "max_steps": 100}
    changes = {"max_steps": steps, "learning_rate": rate}
    before = make_experiment({"train": train})
    after = make_experiment({"train": train | {key: value for key, value in changes.items() if value}})
    assert describe_learning_rate(before, after, step) == (f"learning rate: {sentence}" if sentence else "")


def test_the_sentence_about_the_learning_rate_is_true(pairs: Path, tmp_path: Path) -> None:
    """It counts from the settings of the last resumption, and is not repeated by one that changes nothing."""
    run, more = tmp_path / "run", {"train": {"max_steps": 12}}
    trained_in(run, wanted(pairs, "train.schedule=cosine", "train.max_steps=4"))
    told = RecordingReporter()
    events = list(resume_run(run, more, told, lambda: ""))
    (sentence,) = [sentence for sentence in told.sentences if sentence.startswith("learning rate: ")]
    first = next(event for event in events if isinstance(event, StepDone))
    assert sentence.startswith(f"learning rate: {first.learning_rate:.3g} at step 5 and 0 at the end, step 12")
    again = RecordingReporter()
    list(resume_run(run, more, again, lambda: ""))
    assert not any(sentence.startswith("learning rate") for sentence in again.sentences)


def test_progress_is_reported_now_and_then() -> None:
    told = RecordingReporter()
    assert list(report_progress(range(7), "walking", 7, told, every=3)) == list(range(7))
    assert told.moved == [("walking", 3, 7), ("walking", 6, 7), ("walking", 7, 7)]


def test_data_in_another_folder_is_found(tmp_path: Path) -> None:
    found = preparing.resolve_files(DataConfig(folder=str(tmp_path), source=("a.en",), target=("/x/b.de.gz",)))
    assert (found.source, found.target, found.folder) == ((str(tmp_path / "a.en"),), ("/x/b.de.gz",), "")
    assert (found.source_language, found.target_language) == ("en", "de")
    with pytest.raises(
        ConfigError,
        match=r"^no training data; give source and target, tsv, text, labels, images, captions, or data\.source",
    ):
        preparing.resolve_files(DataConfig())

"""Ablations: each part is really removed, in training and in search, and finished rows are kept."""

import contextlib
import io
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from model_examples import (
    PAD,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    batch_of,
    example,
    folded,
    fresh,
    logits_of,
    sentences,
    shake,
    update_of,
)
from torch import Tensor, nn

from heedful.cli.study import _show
from heedful.config import Experiment, ModelConfig, Norm, ScheduleKind, TrainConfig
from heedful.data.batch import pack
from heedful.errors import ConfigError, Diverged
from heedful.models.transformer import Transformer
from heedful.nn.attention import SelfAttention
from heedful.nn.feed_forward import FeedForward
from heedful.progress import SilentReporter
from heedful.studies import ablation_changes as changes
from heedful.studies import ablation_training, synthetic
from heedful.studies import ablations as study
from heedful.studies.ablation_training import Ablation, AblationResult, read_result, write_result
from heedful.studies.ablations import ABLATIONS, COMPLETE, POSITIONS
from heedful.studies.study import Scale, StudyInterrupted, StudyPlan, StudyResult
from heedful.tasks import make_experiment
from heedful.training.gradients import Objective, SequentialGradients, ThreadedGradients
from heedful.training.schedule import learning_rate

Change = Callable[[Transformer], None]

CHANGES: dict[str, tuple[type[Transformer], Change]] = {
    part.name: (part.kind, part.change)
    for part in ABLATIONS
    if part.kind is not Transformer or part.change is not changes.nothing
}
CONFIG = replace(SMALL, encoder_layers=2, sharing="target")
FEW = [part for part in ABLATIONS if part.name in ("no-positions", "no-padding-mask")]
CARRIED = [part for part in POSITIONS if part.name != "short-learned"]
PLACES: list[Norm] = list(get_args(Norm))


def changed(name: str, config: ModelConfig = CONFIG) -> Transformer:
    """A model without this part; its biases and norms are random, so that all of them matter."""
    kind, change = CHANGES[name]
    torch.manual_seed(5)
    model = kind(config, SOURCE_TYPES, TARGET_TYPES, PAD)
    shake(model)
    change(model)
    return model


def whole(config: ModelConfig = CONFIG) -> Transformer:
    """The complete model with the same weights."""
    model = fresh(config)
    shake(model)
    return model


def memory_of(model: Transformer, *sources: list[int]) -> Tensor:
    ids, lengths = pack(sources)
    return model.encode(ids, lengths).rows


def silence(model: Transformer) -> None:
    """Make every sub-layer return zero."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".output." in name or ".outer." in name:
                parameter.zero_()


# All changes


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CHANGES)
def test_each_change_changes_the_output_and_compiled_loops_agree(name: str, place: Norm) -> None:
    config, batch = replace(CONFIG, norm=place), example([7, 4], [5, 6])
    model = changed(name, config)
    compiled = logits_of(model, batch)  # with gradients, as in training
    with torch.no_grad():
        torch.testing.assert_close(logits_of(model, batch), compiled.detach())
        assert not torch.allclose(logits_of(whole(config), batch), compiled, atol=1e-3)


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_applies_to_the_search_too(name: str) -> None:
    model, batch = changed(name), example([7, 4], [5, 6])
    with torch.no_grad():
        together = torch.cat(folded(model, batch))
        same = torch.allclose(together, logits_of(model, batch), atol=1e-4)
    assert same == (name != "no-look-ahead-mask")  # a search cannot see tokens that are not written yet


@pytest.mark.parametrize("name", CHANGES)
def test_workers_train_the_changed_model(name: str) -> None:
    model = changed(name, replace(CONFIG, dropout=0.2)).train()
    batch = example([7, 4, 4, 7], [5, 6, 6, 5])
    parts = (batch, replace(batch, indices=batch.indices + 9))
    gradients = []
    for worked in (SequentialGradients(model, Objective(0.1, 1)), ThreadedGradients(model, Objective(0.1, 1), 2)):
        worked(update_of(*parts), step=3)
        gradients.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
        model.zero_grad(set_to_none=True)
    one, two = gradients
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(one[key], two[key])


# Each change


def test_without_positions_the_encoder_does_not_know_the_order() -> None:
    ids, order = [2, 3, 4, 3, 5, 1], [4, 0, 3, 2, 1, 5]
    mixed = [ids[place] for place in order]
    model = changed("no-positions")
    torch.testing.assert_close(memory_of(model, mixed), memory_of(model, ids)[order])
    assert not torch.allclose(memory_of(whole(), mixed), memory_of(whole(), ids)[order], atol=1e-2)


def test_without_the_scale_queries_are_longer_by_the_square_root_of_d_k() -> None:
    model, batch = whole(), example([7, 4], [5, 6])
    width = CONFIG.num_heads * CONFIG.d_k
    with torch.no_grad():
        for attention in changes._attentions(model):
            queries = attention.query_key_value if isinstance(attention, SelfAttention) else attention.query
            queries.weight[:width] *= CONFIG.d_k**0.5
            queries.bias[:width] *= CONFIG.d_k**0.5
        torch.testing.assert_close(logits_of(changed("no-scale"), batch), logits_of(model, batch))


def test_keys_use_the_projection_of_the_queries() -> None:
    model, batch = whole(), example([7, 4], [5, 6])
    width = CONFIG.num_heads * CONFIG.d_k
    with torch.no_grad():
        for layer in changes._layers(model):
            own = layer.attention.query_key_value
            own.weight[width : 2 * width], own.bias[width : 2 * width] = own.weight[:width], own.bias[:width]
        for cross in (layer.cross_attention for layer in model.decoder):
            cross.key_value.weight[:width], cross.key_value.bias[:width] = cross.query.weight, cross.query.bias
        torch.testing.assert_close(logits_of(changed("keys-as-queries"), batch), logits_of(model, batch))


@pytest.mark.parametrize("place", PLACES)
def test_without_residuals_only_the_output_of_sub_layers_is_passed_on(place: Norm) -> None:
    config = replace(CONFIG, norm=place)
    for model, passes in ((changed("no-residuals", config), False), (whole(config), True)):
        silence(model)
        left, right = memory_of(model, [2, 3, 4, 1]), memory_of(model, [5, 6, 7, 1])
        assert torch.allclose(left, right) == (not passes)


@pytest.mark.parametrize("place", PLACES)
def test_without_norm_nothing_is_normalised(place: Norm) -> None:
    model = changed("no-norm", replace(CONFIG, norm=place))
    assert not any(isinstance(module, nn.LayerNorm) for module in model.modules())
    silence(model)
    assert model.source_positions is not None
    ids = torch.tensor([2, 3, 4, 1])
    embedded = model.source_embedding(ids) + model.source_positions(torch.arange(4), 4)
    torch.testing.assert_close(memory_of(model, ids.tolist()), embedded)


def test_without_feed_forward_the_model_acts_as_if_it_returned_zero() -> None:
    config, batch = replace(CONFIG, norm="pre"), example([7, 4], [5, 6])
    model = changed("no-feed-forward", config)
    assert not any(isinstance(module, FeedForward) for module in model.modules())
    reference = whole(config)
    with torch.no_grad():
        for layer in changes._layers(reference):
            layer.feed_forward.outer.weight.zero_()
            layer.feed_forward.outer.bias.zero_()
    torch.testing.assert_close(logits_of(model, batch), logits_of(reference, batch))


def test_without_the_look_ahead_mask_a_position_depends_on_later_ones() -> None:
    source, target = sentences([5], SOURCE_TYPES), [3, 4, 5, 6, 1]
    here, there = batch_of(source, [target]), batch_of(source, [[3, 4, 5, 9, 1]])
    for model, sees in ((changed("no-look-ahead-mask"), True), (whole(), False)):
        first = logits_of(model, here)[0], logits_of(model, there)[0]
        assert torch.allclose(*first, atol=1e-6) == (not sees)


def test_without_the_padding_mask_a_sentence_depends_on_its_neighbour() -> None:
    short, long = [2, 3, 1], [4, 5, 6, 7, 8, 1]
    model = changed("no-padding-mask")
    assert not torch.allclose(memory_of(model, short, long)[:3], memory_of(model, short), atol=1e-3)
    torch.testing.assert_close(memory_of(whole(), short, long)[:3], memory_of(whole(), short))
    torch.testing.assert_close(memory_of(model, short), memory_of(whole(), short))  # a single sentence has no padding


@pytest.mark.parametrize("schedule", get_args(ScheduleKind))
def test_without_warm_up_the_rate_starts_at_its_peak(schedule: ScheduleKind) -> None:
    config = TrainConfig(schedule=schedule, warmup_steps=40, max_steps=10_000, learning_rate=0.5)
    part = next(part for part in ABLATIONS if part.name == "no-warm-up")
    without = part.experiment(Experiment(train=config)).train
    rates = [learning_rate(step, 64, without) for step in range(1, 200)]
    assert rates[0] == max(rates)
    assert rates[150] == pytest.approx(learning_rate(151, 64, config), rel=0.01)


def test_rows_that_do_not_change_the_recipe_are_left_out() -> None:
    base = make_experiment({"model": {"dropout": 0.0, "norm": "pre"}})
    by_name = {part.name: part for part in ABLATIONS}
    assert not by_name["no-dropout"].differs(base)
    assert by_name["no-padding-mask"].differs(base)
    assert by_name["post-norm"].differs(base) and not by_name["pre-norm"].differs(base)
    assert by_name["post-norm"].experiment(base).model.norm == "post"
    assert by_name["one-head"].experiment(base).model.num_heads == 1
    assert by_name["untied"].experiment(base).model.sharing == "none"
    assert by_name["no-label-smoothing"].experiment(base).train.label_smoothing == 0.0


# Rows


TINY: dict[str, Any] = {
    "model": {"d_model": 8, "d_ff": 12, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "train": {"max_steps": 2, "batch_tokens": 90, "warmup_steps": 1, "threads": 1},
    "text": {"kind": "words", "vocabulary_size": 400},
    "search": {"max_extra": 0},
}


def plan_of(folder: Path, scale: Scale = "smoke", recipe: dict[str, Any] | None = None) -> StudyPlan:
    return StudyPlan(scale, folder, recipe if recipe is not None else TINY, SilentReporter())


def make_small(patch: pytest.MonkeyPatch, few: Sequence[Ablation], carried: Sequence[Ablation]) -> None:
    """Reduce the study to a few rows and words, without pictures."""
    patch.setattr(study, "can_draw", lambda: False)
    patch.setattr(study, "_SMOKE_PAIRS", (40, 6, 0))
    patch.setattr(study, "_SMOKE_CLAUSES", (1,))
    patch.setattr(study, "ABLATIONS", few)
    patch.setattr(study, "POSITIONS", carried)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult]:
    """The smallest possible study."""
    folder = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch, FEW, CARRIED)
        return folder, study.run_ablations(plan_of(folder))


def refuse(*_: object) -> None:
    raise AssertionError("it trains")


def test_every_ablation_has_its_own_row(done: tuple[Path, StudyResult]) -> None:
    folder, outcome = done
    parts, laws, lengths = outcome.tables
    assert [row[0] for row in parts.rows] == ["complete", "no-positions", "no-padding-mask"]
    assert [row[0] for row in lengths.rows] == ["sinusoidal", "none"]
    differ = {row[0]: row[1] for row in laws.rows}
    assert isinstance(differ["no-positions"], float) and isinstance(differ["complete"], float)
    assert differ["no-positions"] < 1e-4 < differ["complete"]
    row = json.loads((folder / "rows" / "complete.json").read_text())
    assert row["steps"] == 2 and [step for step, _ in row["curve"]] == [1, 2]
    assert math.isclose(row["curve"][-1][1], row["validation_loss"])


def test_a_second_call_trains_nothing(done: tuple[Path, StudyResult], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, outcome = done
    make_small(monkeypatch, FEW, CARRIED)
    monkeypatch.setattr(ablation_training, "training_steps", refuse)
    again = study.run_ablations(plan_of(folder, recipe={**TINY, "name": "another"}))
    assert again.as_json() == outcome.as_json()


def test_more_seeds_are_trained_in_addition(
    done: tuple[Path, StudyResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first seed is kept, and the others differ from it and are kept, too."""
    make_small(monkeypatch, FEW, CARRIED)
    folder = tmp_path / "study"
    shutil.copytree(done[0], folder)
    before = (folder / "rows" / "complete.json").read_bytes()
    outcome = study.run_ablations(replace(plan_of(folder), seeds=3))
    assert (folder / "rows" / "complete.json").read_bytes() == before
    names = [f"{name}.json" for name in ("complete", "complete-seed2", "complete-seed3")]
    losses = [json.loads((folder / "rows" / name).read_text())["validation_loss"] for name in names]
    assert len(set(losses)) == 3
    assert outcome.tables[0].rows[0][3] == pytest.approx(sum(losses) / 3)
    monkeypatch.setattr(ablation_training, "training_steps", refuse)
    assert study.run_ablations(replace(plan_of(folder), seeds=3)).as_json() == outcome.as_json()


def test_rows_with_new_settings_are_trained_again(
    done: tuple[Path, StudyResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, FEW, CARRIED)
    monkeypatch.setattr(ablation_training, "training_steps", refuse)
    with pytest.raises(AssertionError, match="it trains"):
        study.run_ablations(plan_of(done[0], recipe={**TINY, "seed": 2}))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"bleu": 1.0}'])
def test_a_missing_or_damaged_row_is_trained_again(
    done: tuple[Path, StudyResult], content: str | None, tmp_path: Path
) -> None:
    fingerprint = json.loads((done[0] / "rows" / "complete.json").read_text())["fingerprint"]
    row = read_result(done[0] / "rows" / "complete.json", fingerprint)
    assert row is not None
    path = tmp_path / "rows" / "complete.json"
    write_result(path, row)
    assert read_result(path, fingerprint) == row
    assert read_result(path, "of other settings") is None
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert read_result(path, fingerprint) is None


def test_a_diverging_training_still_gives_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*_: object) -> None:
        raise Diverged("the loss is nan")

    make_small(monkeypatch, [ABLATIONS[1]], POSITIONS[:1])
    monkeypatch.setattr(ablation_training, "training_steps", diverge)
    outcome = study.run_ablations(plan_of(tmp_path))
    assert "training stopped: the loss or its gradient was not finite at step 1" in str(outcome.tables[0].rows[1][-1])
    assert outcome.tables[0].rows[1][2] is None  # no training loss


def test_the_study_runs_on_a_users_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, FEW[:1], POSITIONS[:1])
    synthetic.write_corpus(tmp_path / "text", (40, 0, 0), (1,))
    data = {"folder": str(tmp_path / "text"), "source": "train.en", "target": "train.xx", "hold_out": 5}
    outcome = study.run_ablations(plan_of(tmp_path / "out", "laptop", {**TINY, "data": data}))
    assert [row[0] for row in outcome.tables[0].rows] == ["complete", "no-positions"]
    differs = outcome.tables[1].rows[1][1]
    assert isinstance(differs, float) and differs < 1e-4


def test_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, FEW, CARRIED)
    with pytest.raises(ConfigError, match="--scale laptop needs a recipe; give one, such as recipes/multi30k-en-de"):
        study.run_ablations(StudyPlan("laptop", tmp_path, None, SilentReporter()))
    with pytest.raises(ConfigError, match=r"needs a Transformer, but model.family is 'recurrent'"):
        study.run_ablations(plan_of(tmp_path, recipe={"model": {"preset": "gru"}}))


def test_a_signal_stops_the_study_within_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, FEW, CARRIED)
    with pytest.raises(StudyInterrupted, match="stopped by SIGTERM"):
        study.run_ablations(replace(plan_of(tmp_path), interrupted=lambda: "SIGTERM"))
    assert not list(tmp_path.glob("rows/*.json"))


# Verdicts


ROW = AblationResult(
    "", [], 0.3, 0.2, 90.0, 70.0, [], 0.9, [["a b", "x y"], ["b a", "y x"]], 90.0, 90.0, 0.0, [], 9, "", 1.0
)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (replace(ROW, bleu=30.0), "it barely learns: BLEU 30.0 against 90.0"),
        (replace(ROW, bleu=80.0), "no clear effect with one seed: BLEU 80.0 against 90.0"),
        (replace(ROW, bleu=91.0), "no clear effect with one seed: BLEU 91.0 against 90.0"),
        (replace(ROW, bleu=96.3), "no clear effect with one seed: BLEU 96.3 against 90.0"),
        (replace(ROW, stopped="so", bleu=0.0), "training stopped: so; BLEU 0.0 against 90.0"),
    ],
)
def test_verdicts_describe_the_change_in_bleu(row: AblationResult, sentence: str) -> None:
    assert study.explain_compared([row], [ROW]) == sentence


def with_bleu(*values: float) -> list[AblationResult]:
    return [replace(ROW, bleu=value) for value in values]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((85.0, 86.5, 80.0), "worse with all 3 seeds: BLEU 80.0 to 86.5 against 88.0 to 91.0"),
        ((92.0, 91.5, 94.0), "better with all 3 seeds: BLEU 91.5 to 94.0 against 88.0 to 91.0"),
        ((85.0, 86.5, 88.5), "no clear effect with 3 seeds: BLEU 85.0 to 88.5 against 88.0 to 91.0"),
        ((99.0, 99.0, 90.5), "no clear effect with 3 seeds: BLEU 90.5 to 99.0 against 88.0 to 91.0"),
        ((1.0, 40.0, 43.9), "it barely learns: BLEU 1.0 to 43.9 against 88.0 to 91.0"),
        ((1.0, 40.0, 44.1), "worse with all 3 seeds: BLEU 1.0 to 44.1 against 88.0 to 91.0"),
    ],
)
def test_a_small_difference_is_an_effect_only_if_all_seeds_show_it(values: tuple[float, ...], sentence: str) -> None:
    assert study.explain_compared(with_bleu(*values), with_bleu(88.0, 91.0, 89.0)) == sentence


def test_two_seeds_are_too_few_for_a_small_difference() -> None:
    assert study.explain_compared(with_bleu(80.0, 81.0), with_bleu(89.0, 90.0)) == (
        "no clear effect with 2 seeds: BLEU 80.0 to 81.0 against 89.0 to 90.0"
    )


def test_a_seed_that_stopped_is_counted() -> None:
    rows = [ROW, replace(ROW, stopped="so", bleu=0.0), ROW]
    assert study.explain_compared(rows, [ROW] * 3).startswith("training stopped with 1 of 3 seeds: so; BLEU 0.0 to 90")


def test_verdicts_use_the_figures_of_their_part() -> None:
    cheat = replace(ROW, training_loss=0.01, validation_loss=0.02, bleu=3.0)
    assert "but BLEU 3.0: it learned to copy the answer" in study.explain_look_ahead([cheat], [ROW])
    assert "copy" not in study.explain_look_ahead([replace(ROW, bleu=3.0)], [ROW])
    assert "copy" not in study.explain_look_ahead([cheat, replace(ROW, bleu=3.0)], [ROW, ROW])
    lost = replace(ROW, orders_differ=1e-7, orders=[["a b", "x y"], ["b a", "x y"]])
    assert study.explain_positions([lost], [ROW]).endswith("to 1e-07 (complete: 0.9) and the same translation")
    one_of_two = study.explain_positions([lost, ROW], [ROW, ROW])
    assert one_of_two.endswith("and different translations with 1 of 2 seeds")
    padded = replace(ROW, together_changed=40.0, together_bleu=55.0)
    assert study.explain_padding([padded], [ROW]).endswith(
        "(complete: 0 %): BLEU 55.0, against 90.0 among sentences of equal length"
    )
    assert "no clear effect" in study.explain_padding([ROW], [ROW])
    assert "no clear effect" in study.explain_padding([padded, ROW], [ROW, ROW])
    assert COMPLETE.verdict([ROW], [ROW]) == "70 % of the translations equal the reference"
    assert COMPLETE.verdict(with_bleu(90.0, 80.0), []).endswith("; BLEU 80.0 to 90.0")


def test_the_table_has_the_means_of_all_seeds() -> None:
    second = replace(ROW, bleu=80.0, validation_loss=None)
    table = study._table([(COMPLETE, [ROW, second])])
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["BLEU"] == 85.0
    assert shown["validation loss"] is None  # not finite for one of the seeds


def test_the_caveat_says_how_often_chance_alone_looks_like_an_effect() -> None:
    """With three seeds, 2 of the 20 ways to order the scores of two rows separate them."""
    assert "By chance alone, this happens to about one row of 10." in study._table([(COMPLETE, [ROW] * 3)]).caveat
    assert "By chance alone, this happens to about one row of 126." in study._table([(COMPLETE, [ROW] * 5)]).caveat
    assert "only a collapse is called an effect" in study._table([(COMPLETE, [ROW] * 2)]).caveat


def test_the_caveat_comes_before_the_table() -> None:
    table = study._table([(COMPLETE, [ROW])])
    assert "one training with one seed" in table.caveat
    page = table.markdown()
    assert page.index(table.caveat) < page.index("| row |")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        _show(StudyResult("Ablations", (table,)))
    assert shown.getvalue().index("one training with one seed") < shown.getvalue().index("validation loss")
    assert json.loads(StudyResult("Ablations", (table,)).as_json())["tables"][0]["caveat"] == table.caveat


def test_curves_and_lengths_are_drawn() -> None:
    row = replace(ROW, curve=[[1, 3.0], [2, None], [3, 1.0]], by_length=[[5, 2, 80.0], [9, 3, 10.0]])
    pictures = study._pictures([(COMPLETE, [row])], [(POSITIONS[0], [row])], longest=5)
    assert b">complete<" in pictures["curves.svg"] and b">sinusoidal<" in pictures["lengths.svg"]


def test_the_least_loss_is_that_of_a_perfect_model() -> None:
    p = torch.tensor([0.9, *[0.1 / 6] * 6])
    assert ablation_training.least_loss(0.1, 7) == pytest.approx(-(p * p.log()).sum().item())
    assert ablation_training.least_loss(0.0, 7) == 0.0

"""Removing heads: the smaller model, its configuration, and the command."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from model_examples import (
    PAD,
    SMALL,
    SOURCE_TYPES,
    TARGET_TYPES,
    VARIANTS,
    add_gradients,
    example,
    fresh,
    label,
    logits_of,
    shaken,
)

from heedful.attention.head_names import Head, all_heads, find_heads
from heedful.attention.pruning import choose_least_important, remove_heads, switch_off_heads
from heedful.config import ModelConfig, dump_experiment, load_recipe
from heedful.errors import ConfigError
from heedful.inspection.prune import count_heads_to_remove
from heedful.models.size import model_size
from heedful.models.transformer import Transformer
from heedful.storage.run_folder import fill_model
from heedful.tasks import make_experiment
from heedful.translation.translator import Translator

# No two layers keep the same number.
REMOVED = ["encoder.1.2", "decoder.1.1", "decoder.1.3", "cross.2.3", "decoder.2.2", "cross.1.1", "cross.1.2"]
UNEVEN = replace(SMALL, encoder_layers=2, encoder_heads=(4, 1), decoder_heads=(1, 2), cross_heads=(3, 5))


def cut(model: Transformer, heads: Sequence[Head]) -> Transformer:
    """The smaller model."""
    config, weights = remove_heads(model, heads)
    smaller = fresh(config, seed=99).eval()
    fill_model(smaller, weights, "the test")
    return smaller


@pytest.mark.parametrize("config", VARIANTS, ids=label)
@torch.no_grad()
def test_a_pruned_model_computes_what_the_whole_one_does_with_these_heads_off(config: ModelConfig) -> None:
    model, batch = shaken(config), example([3, 7, 5], [6, 2, 4])
    heads = find_heads(model, REMOVED)
    with switch_off_heads(model, heads):
        expected = logits_of(model, batch)
    smaller = cut(model, heads)
    torch.testing.assert_close(logits_of(smaller, batch), expected, atol=1e-5, rtol=1e-5)
    assert (logits_of(model, batch) - expected).abs().max() > 1e-3
    assert smaller.config == replace(config, encoder_heads=(2,), decoder_heads=(1, 2), cross_heads=(1, 2))
    state = smaller.start(smaller.encode(batch.source, batch.source_lengths))
    first, state = smaller.step(torch.full((3,), PAD), state)
    torch.testing.assert_close(first, expected[[0, 6, 8]], atol=1e-5, rtol=1e-5)


def test_a_pruned_model_can_be_pruned_again() -> None:
    model, batch = shaken(SMALL), example([3, 7, 5], [6, 2, 4])
    twice = cut(cut(model, [Head("encoder", 0, 0)]), [Head("encoder", 0, 1)])
    torch.testing.assert_close(
        logits_of(twice, batch), logits_of(cut(model, find_heads(model, ["encoder.1.1", "encoder.1.3"])), batch)
    )


def test_the_matrices_lose_the_rows_and_columns_of_the_heads() -> None:
    model = shaken(SMALL)
    smaller = dict(cut(model, [Head("encoder", 0, 1), Head("cross", 1, 0)]).named_parameters())
    changed = {
        name: list(smaller[name].shape) for name, p in model.named_parameters() if p.shape != smaller[name].shape
    }
    assert changed == {
        "encoder.0.attention.query_key_value.weight": [2 * (5 + 5 + 7), 12],
        "encoder.0.attention.query_key_value.bias": [2 * (5 + 5 + 7)],
        "encoder.0.attention.output.weight": [12, 2 * 7],
        "decoder.1.cross_attention.query.weight": [2 * 5, 12],
        "decoder.1.cross_attention.query.bias": [2 * 5],
        "decoder.1.cross_attention.key_value.weight": [2 * (5 + 7), 12],
        "decoder.1.cross_attention.key_value.bias": [2 * (5 + 7)],
        "decoder.1.cross_attention.output.weight": [12, 2 * 7],
    }


def test_an_attention_cannot_lose_its_last_head() -> None:
    model = shaken(SMALL)
    heads = [Head("cross", 1, index) for index in range(3)]
    with pytest.raises(ConfigError, match="layer 2 of cross attention would lose all its heads; keep at least one"):
        remove_heads(model, heads)
    importance = dict.fromkeys(all_heads(model), 1.0) | dict.fromkeys(heads, 0.0)
    importance[Head("cross", 1, 1)] = 0.5
    assert choose_least_important(importance, 2) == [Head("cross", 1, 0), Head("cross", 1, 2)]
    assert Head("cross", 1, 1) not in choose_least_important(importance, 99)
    assert len(choose_least_important(importance, 99)) == 15 - 5


# Models with uneven heads


def test_a_model_with_uneven_heads_keeps_the_laws_and_trains() -> None:
    batch = example([4, 2, 7], [5, 8, 3])
    model = shaken(UNEVEN)
    assert [[a.num_heads for a in layers] for layers in model.attentions.values()] == [[4, 1], [1, 2], [3, 5]]
    with torch.no_grad():
        expected = logits_of(model, batch).split([5, 8, 3])
        state = model.start(model.encode(batch.source, batch.source_lengths)).select(torch.tensor([1, 1]))
        for position, token in enumerate(batch.target_in.split([5, 8, 3])[1]):
            logits, state = model.step(token.expand(2), state)
            torch.testing.assert_close(logits, expected[1][position].expand(2, -1), atol=1e-5, rtol=1e-5)
    # The compiled loops, which only training takes, have the gradients of the plain path.
    plain = shaken(UNEVEN).double()
    assert add_gradients(model.train(), [batch]) == pytest.approx(add_gradients(plain.train(), [batch]), abs=1e-5)
    for (name, one), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad.float(), atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("config", [UNEVEN, replace(SMALL, cross_heads=(1, 2)), replace(UNEVEN, d_k=0, d_v=0)])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_parameters_of_uneven_heads_are_counted_exactly(config: ModelConfig, norm: Any) -> None:
    config = replace(config, norm=norm, sharing="none")
    size = model_size(config, SOURCE_TYPES, TARGET_TYPES)
    assert size.total == sum(weight.numel() for weight in fresh(config).parameters())


def test_uneven_heads_are_read_back_from_toml(tmp_path: Path) -> None:
    experiment = make_experiment({"model": {"encoder_layers": 2, "encoder_heads": [4, 1], "decoder_heads": []}})
    assert (experiment.model.encoder_heads, experiment.model.decoder_heads) == ((4, 1), ())
    (tmp_path / "experiment.toml").write_text(dump_experiment(experiment))
    assert make_experiment(load_recipe(tmp_path / "experiment.toml")) == experiment


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("encoder_heads", [4, 4], "has 2 numbers, but model.encoder_layers is 6; give one a layer, or an empty list"),
        ("cross_heads", [4], "has 1 numbers, but model.decoder_layers is 6; give one a layer, or an empty list"),
        ("decoder_heads", [1, 2, 0, 3, 1, 1], "must have at least 1 head in each layer, but is [1, 2, 0, 3, "),
        ("decoder_heads", [True] * 6, "must be a list of whole numbers, but is"),
        ("decoder_heads", 4, "must be a list of whole numbers, but is 4 instead"),
    ],
)  # fmt: skip
def test_impossible_numbers_of_heads_are_refused_in_a_sentence(key: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_experiment({"model": {key: value}})
    assert str(caught.value).startswith(f"model.{key} {sentence}")


# The command


@pytest.fixture(scope="module")
def smaller(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A pruned run folder, and what the command printed."""
    out = tmp_path_factory.mktemp("pruned") / "run"
    ran = toy.run(*arguments(trained, out), "--json")
    assert ran.code == 0, ran.err
    return out, json.loads(ran.out)


def arguments(trained: Path, out: Path, keep: object = 0.7) -> list[object]:
    text = ("--source", trained / "test.en", "--target", trained / "test.de")
    return ["prune", trained / "run", "--keep", keep, *text, "--out", out]


def test_a_pruned_folder_is_a_run_folder_like_any_other(
    trained: Path, smaller: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    out, printed = smaller
    assert (printed["before"]["heads"], printed["after"]["heads"], len(printed["removed"])) == (6, 4, 2)
    assert printed["speed"] > 0.0
    weights = toy.weights(out)
    assert printed["after"]["parameters"] == sum(tensor.numel() for tensor in weights.values())
    facts = json.loads(toy.run("info", out, "--json").out)
    assert facts["parameters"]["total"] == printed["after"]["parameters"] < printed["before"]["parameters"]
    assert facts["pruned"]["parent"] == str(trained / "run")
    assert {key: facts["pruned"][key] for key in printed} == printed
    assert facts["weights"] == "pruned from run: 4 of 6 heads"
    assert facts["data"]["target_language"] == "de"
    counts = [facts["model"][f"model.{kind}_heads"] for kind in ("encoder", "decoder", "cross")]
    assert sum(map(sum, counts)) == 4
    assert "events.jsonl" not in (out / "README.md").read_text()
    translated = toy.run("translate", out, "--input", trained / "test.en", "--output", tmp_path / "found.de")
    assert (translated.code, len(toy.lines_of(tmp_path / "found.de"))) == (0, 50)
    assert facts["alignment"]["model"] == facts["weights"]
    resumed = toy.run("train", "--resume", out)
    assert (resumed.code, "holds a pruned model, which has no checkpoint to resume from" in resumed.err) == (2, True)


@pytest.mark.parametrize(("which", "folder"), [("before", "run"), ("after", "pruned")])
def test_bleu_equals_that_of_evaluate(
    trained: Path, smaller: tuple[Path, dict[str, Any]], which: str, folder: str, tmp_path: Path
) -> None:
    path = smaller[0] if folder == "pruned" else copied(trained / "run", tmp_path / "copy")
    text = ("--source", trained / "test.en", "--reference", trained / "test.de")
    (found,) = (
        s for s in json.loads(toy.run("evaluate", path, *text, "--json").out)["scores"] if s["metric"] == "BLEU"
    )
    assert smaller[1][which]["score"] == pytest.approx(found["value"], abs=1e-9)


def test_both_models_translate_with_the_same_engine(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="needs ctranslate2")
    from heedful.decoding.ctranslate2_engine import CTranslate2Engine

    run = copied(trained / "run", tmp_path / "copy")
    assert toy.run("export", run, "--to", "ctranslate2").code == 0
    assert Translator.load(run).engine.name == "ctranslate2"

    def refuse(*_: object) -> None:
        raise AssertionError("the pruned model has only PyTorch")

    monkeypatch.setattr(CTranslate2Engine, "decode", refuse)
    text = ("--source", trained / "test.en", "--target", trained / "test.de")
    ran = toy.run("prune", run, "--keep", 0.7, *text, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "both with PyTorch" in ran.out
    assert f"the whole model has a CTranslate2 export; make one of this, too: heedful export {tmp_path}" in ran.err


def copied(run: Path, to: Path) -> Path:
    """The files of a model, copied, because evaluate writes scores beside them."""
    to.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (to / path.name).write_bytes(path.read_bytes())
    return to


def test_the_command_prints_tables(trained: Path, tmp_path: Path) -> None:
    ran = toy.run(*arguments(trained, tmp_path / "out", 0.5), "--beam", 1)
    assert ran.code == 0, ran.err
    table = [line.split() for line in ran.lines]
    assert ["heads", "6", "3"] in table
    assert table[0] == ["before", "after"]
    assert [line[0] for line in table[1:5]] == ["heads", "parameters", "BLEU", "sentences"]
    assert table[6:10] == [["heads", "removed", "in", "layer", "1"], ["cross", "1"], ["decoder", "1"], ["encoder", "1"]]
    assert ran.lines[-1] == f"the pruned model is in {tmp_path / 'out'}"


@pytest.mark.parametrize(
    ("keep", "sentence"),
    [
        ("0", "--keep must be above 0 and below 1, but is 0.0 instead; 0.7 keeps seven heads of ten"),
        ("1.5", "--keep must be above 0 and below 1, but is 1.5 instead"),
        ("nan", "--keep must be above 0 and below 1, but is nan instead"),
        ("1", "--keep 1.0 of 6 heads removes none; lower it"),
        ("0.95", "--keep 0.95 of 6 heads removes none; lower it"),
        ("0.3", "--keep 0.3 leaves 2 of 6 heads, but each layer of each attention keeps one, which makes 3; "
                "the least is --keep 0.5"),
    ],
)  # fmt: skip
def test_an_impossible_share_is_refused_in_a_sentence(trained: Path, tmp_path: Path, keep: str, sentence: str) -> None:
    ran = toy.run(*arguments(trained, tmp_path / "out", keep))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"heedful: {sentence}")
    assert not (tmp_path / "out").exists()


def test_the_smallest_share_that_an_error_names_works() -> None:
    model = shaken(SMALL)
    assert count_heads_to_remove(model, 0.34) == 15 - 5
    with pytest.raises(ConfigError, match=r"the least is --keep 0.34$"):
        count_heads_to_remove(model, 0.25)


def test_unpaired_files_and_existing_folders_are_refused(trained: Path, tmp_path: Path) -> None:
    some = toy.write_lines(tmp_path / "some.de", ["ba"])
    ran = toy.run(*arguments(trained, tmp_path / "out"), "--target", some)
    assert (ran.code, "has 50 lines but" in ran.err, "must pair up" in ran.err) == (2, True, True)
    ran = toy.run(*arguments(trained, tmp_path / "out"), "--source", tmp_path / "nothing.en")
    assert (ran.code, f"there is no file {tmp_path / 'nothing.en'}" in ran.err) == (2, True)
    ran = toy.run(*arguments(trained, trained / "run"))
    assert (ran.code, f"{trained / 'run'} already exists" in ran.err) == (2, True)
    file = toy.write_lines(tmp_path / "file", [])
    ran = toy.run(*arguments(trained, file / "out"))
    assert (ran.code, "cannot be read or written" in ran.err) == (2, True)
    blank = toy.write_lines(tmp_path / "blank", [" "])
    ran = toy.run(*arguments(trained, tmp_path / "out"), "--source", blank, "--target", blank)
    assert (ran.code, "every pair is empty or too long" in ran.err) == (2, True)

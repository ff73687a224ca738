"""Fine-tuning: the settings that it inherits and refuses, its messages, and how it resumes."""

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, rmtree

import pytest
import torch
import toy
from resume_examples import Drive, assert_same

from heedful.config import DataConfig, Experiment, merge, parse_setting
from heedful.data.corpus import Corpus
from heedful.data.pairs import Pair
from heedful.errors import ConfigError
from heedful.storage.run_folder import RunFolder
from heedful.tasks import make_experiment
from heedful.tasks.translation import TRANSLATION
from heedful.training.autoconfig import CorpusStatistics, choose_finetuning_settings
from heedful.training.finetune import copy_parent_model, inherit_languages, inherit_settings
from heedful.training.model_selection import compute_validation_loss
from heedful.training.prepare import count_pieces_per_word

SHORT = ("train.threads=1", "train.max_steps=12", "train.validate_every=4")


@pytest.fixture(autouse=True)
def no_pictures() -> Iterator[None]:
    with toy.plain_log():
        yield


def tune(parent: Path, text: Path, out: Path, *settings: str) -> toy.Ran:
    """`heedful train --init` on text.en and text.de."""
    options = [part for setting in (*SHORT, *settings) for part in ("--set", setting)]
    files = ("--source", text.with_suffix(".en"), "--target", text.with_suffix(".de"))
    return toy.run("train", "--init", parent, *files, "--out", out, *options)


@pytest.fixture(scope="module")
def tuned(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that started from the trained model, and its messages."""
    out = tmp_path_factory.mktemp("tuned") / "mine"
    with toy.plain_log():
        ran = tune(trained / "run", trained / "few", out, "model.dropout=0.1")
    assert ran.code == 0, ran.err
    return out, ran.err


# Inherited settings


def test_the_new_run_has_the_parents_network_and_vocabulary(trained: Path, tuned: tuple[Path, str]) -> None:
    old, new = RunFolder.open(trained / "run"), RunFolder.open(tuned[0])
    before, after = old.experiment(), new.experiment()
    assert after.text == before.text
    assert make_experiment({"model": {"dropout": 0.1}}, {"model": taken(old)["model"]}).model == after.model
    assert after.train.label_smoothing == before.train.label_smoothing
    assert after.train.init == str(trained / "run")
    assert new.tokenizers().source.to_json() == old.tokenizers().source.to_json()
    assert (after.data.source_language, after.data.target_language) == ("en", "de")


def taken(parent: RunFolder) -> dict[str, dict[str, object]]:
    return inherit_settings(parent, {})


def test_it_validates_before_the_first_step_like_the_parent(trained: Path, tuned: tuple[Path, str]) -> None:
    first = toy.events(tuned[0], "Validated")[0]
    model, valid = RunFolder.open(trained / "run").model(), Corpus(tuned[0] / "data" / "valid")
    batch = RunFolder.open(tuned[0]).experiment().train.batch_tokens
    assert first["step"] == 0
    assert first["loss"] == pytest.approx(compute_validation_loss(model, valid, batch), abs=1e-6)
    assert first["score"] is not None
    assert "before the first step: validation perplexity" in tuned[1]


def test_its_first_loss_is_below_that_of_a_training_from_scratch(
    trained: Path, tuned: tuple[Path, str], tmp_path: Path
) -> None:
    files = ("--source", trained / "few.en", "--target", trained / "few.de", "--out", tmp_path / "run")
    assert toy.run("train", *files, *toy.settings("train.max_steps=12")).code == 0
    scratch, ours = (toy.events(run, "StepDone") for run in (tmp_path / "run", tuned[0]))
    assert ours[0]["loss"] < 0.5 * scratch[-1]["loss"]


def test_every_choice_is_reported(tuned: tuple[Path, str]) -> None:
    said = tuned[1]
    assert "its weights, network and vocabulary are kept" in said
    assert "held out: about 12 pairs to validate on" in said
    assert (
        "learning rate: 0.001 at most, 10 % of the rate that the model was trained with, so that it forgets little"
        in said
    )
    assert "or the unchanged model if none is better" in said
    assert "end: after 5 validations without a better model" in said
    assert "schedule:" not in said  # these two were set
    assert "validation: every" not in said
    assert "warning" not in said


def test_the_folder_names_its_parent(trained: Path, tuned: tuple[Path, str]) -> None:
    parent = json.loads(toy.run("info", tuned[0], "--json").out)["parent"]
    assert parent["model"] == str(trained / "run")
    assert parent["weights"] == RunFolder.open(trained / "run").note()
    assert "parent\n  model: " in toy.run("info", tuned[0]).out
    card = (tuned[0] / "README.md").read_text(encoding="utf-8")
    assert f"- started from the weights of run ({parent['weights']})\n" in card
    assert str(trained) not in card


def test_the_copy_of_the_parent_can_be_used(trained: Path, tuned: tuple[Path, str]) -> None:
    assert toy.same_bits(toy.weights(tuned[0] / "parent"), toy.weights(trained / "run"))
    sentence = toy.sentences(1, seed=3)[0]
    before = toy.run("translate", tuned[0] / "parent", sentence)
    assert before.lines == [toy.translated(sentence)]


def test_a_fine_tuned_model_can_be_fine_tuned_again_and_lists_all_ancestors(
    tuned: tuple[Path, str], tmp_path: Path
) -> None:
    noted = copy_parent_model(RunFolder.create(tmp_path / "run"), str(tuned[0]))
    first = RunFolder.open(tuned[0]).about()["parent"]
    assert noted["parent"] == first
    assert inherit_settings(RunFolder.open(tuned[0]), {})["train"].get("init") is None


def test_a_pruned_model_can_be_fine_tuned(trained: Path, tmp_path: Path) -> None:
    test = ("--source", trained / "test.en", "--target", trained / "test.de")
    assert toy.run("prune", trained / "run", "--keep", 0.7, *test, "--out", tmp_path / "pruned").code == 0
    ran = tune(tmp_path / "pruned", trained / "few", tmp_path / "run", "train.max_steps=2")
    assert ran.code == 0, ran.err
    heads = [RunFolder.open(tmp_path / name).experiment().model.encoder_heads for name in ("pruned", "run")]
    assert heads[0] == heads[1]
    assert "pruned" not in RunFolder.open(tmp_path / "run").about()


@pytest.mark.parametrize("kind", ["checkpoint", "export"])
def test_a_checkpoint_and_an_export_can_be_fine_tuned(trained: Path, tmp_path: Path, kind: str) -> None:
    if kind == "export":
        pytest.importorskip("ctranslate2")
        parent = tmp_path / "exported"
        ran = toy.run("export", trained / "run", parent, "--to", "ctranslate2")
        assert ran.code == 0, ran.err
        assert not (parent / "model.safetensors").exists()
    else:
        parent = sorted((trained / "run" / "checkpoints").glob("step-*"))[-1]
    run = RunFolder.create(tmp_path / "run")
    noted = copy_parent_model(run, str(parent))
    assert noted["weights"] == ("exported" if kind == "export" else f"checkpoint of step {int(parent.name[5:])}")
    wanted = dict(RunFolder.open(parent).model().named_parameters())
    found = dict(run.parent().model().named_parameters())
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    pieces = run.parent().about()["data"]["pieces_a_word"]  # type: ignore[index]
    assert pieces == {"source": 1.0, "target": 1.0}


# Choices


def test_the_rate_is_a_tenth_of_the_parents_peak_and_is_not_lowered_twice() -> None:
    found = CorpusStatistics(1000, 12_000, 3000)
    peaked = make_experiment({"train": {"schedule": "cosine", "learning_rate": 0.004}})
    tables = choose_finetuning_settings(found, peaked, "cpu", {}, hold_out=True).tables
    assert tables["train"]["learning_rate"] == 0.0004
    assert tables["data"] == {"hold_out": 100}
    paper = choose_finetuning_settings(found, Experiment(), "cpu", {}, hold_out=False)
    assert paper.tables["train"]["learning_rate"] == float(f"{0.1 * 512**-0.5 * 4000**-0.5:.2g}")
    assert paper.tables["data"] == {}
    assert "data.hold_out" not in paper.reasons
    again = make_experiment({"train": {**tables["train"], "init": "runs/first"}})
    assert choose_finetuning_settings(found, again, "cpu", {}, hold_out=True).tables["train"]["learning_rate"] == 0.0004


@pytest.mark.parametrize(("pairs", "held_out"), [(50, 5), (5000, 200), (30_000, 600), (10**6, 1000)])
def test_more_text_means_fewer_epochs(pairs: int, held_out: int) -> None:
    chosen = choose_finetuning_settings(
        CorpusStatistics(pairs, 12 * pairs, 5000), Experiment(), "cpu", {}, hold_out=True
    ).tables
    assert chosen["data"]["hold_out"] == held_out
    train = chosen["train"]
    passes = train["max_steps"] * train["batch_tokens"] / (16.6 * pairs)
    assert (1 if pairs > 10**5 else 9) < passes < 25
    assert train["warmup_steps"] <= train["max_steps"] / 10
    assert 5 <= train["validate_every"] <= max(5, train["max_steps"] / 20)


# Errors and warnings


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("text.vocabulary_size=500", "text.vocabulary_size is 500, but the model in PARENT has 400"),
        ("text.kind=bpe", "text.kind is bpe, but the model in PARENT has words"),
        ("model.d_model=64", "model.d_model is 64, but the model in PARENT has 32"),
        ("model.preset=base", "model.preset is base, but the model in PARENT has modern"),
        ("task=copy", "task is copy, but the model in PARENT has translation"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(
    trained: Path, tmp_path: Path, setting: str, sentence: str
) -> None:
    ran = tune(trained / "run", trained / "few", tmp_path / "run", setting)
    assert ran.code == 2
    assert sentence.replace("PARENT", str(trained / "run")) in ran.err
    assert "leave the key out, or train from scratch without --init" in ran.err
    assert not (tmp_path / "run").exists()


def test_a_missing_model_is_named(trained: Path, tmp_path: Path) -> None:
    ran = tune(tmp_path / "nowhere", trained / "few", tmp_path / "run")
    assert ran.code == 2
    assert f"no run folder {tmp_path / 'nowhere'}" in ran.err
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_cannot_change_its_parent(trained: Path, tuned: tuple[Path, str]) -> None:
    ran = toy.run("train", "--resume", tuned[0], "--init", trained / "run")
    assert ran.code == 2
    assert "leave out recipe, files, --init and --out" in ran.err


@pytest.mark.parametrize(
    ("languages", "warning"),
    [
        (("de", "en"), "translates from en to de, but the text is from de to en; are source and target swapped?"),
        (("en", "fr"), "translates from en to de, but the text is from en to fr"),
        (("", "de"), ""),
        (("", ""), ""),
    ],
)
def test_different_languages_give_a_warning(trained: Path, languages: tuple[str, str], warning: str) -> None:
    data = DataConfig(source_language=languages[0], target_language=languages[1])
    named, said = inherit_languages(data, RunFolder.open(trained / "run"))
    assert said.endswith(warning)
    assert bool(said) == bool(warning)
    assert (named.source_language, named.target_language) == (languages[0] or "en", languages[1] or "de")


def test_the_end_of_the_sentence_is_not_counted_as_a_piece(trained: Path) -> None:
    tokenizers = RunFolder.open(trained / "run").tokenizers()
    known = toy.sentences(2, seed=4)
    pairs = [Pair(known[0], known[0] + " xyz"), Pair(known[1], known[1])]
    words = sum(len(line.split()) for line in known)
    spelt = 4  # "xyz" and its space, one piece per byte
    assert count_pieces_per_word(tokenizers, TRANSLATION, pairs) == {
        "source": 1.0,
        "target": round((words + spelt) / (words + 1), 3),
    }


# Text that does not help the model


def test_foreign_words_give_a_warning_and_a_training_without_a_gain_keeps_the_parent(
    trained: Path, tmp_path: Path
) -> None:
    source = toy.sentences(60, seed=5)
    toy.write_lines(tmp_path / "odd.en", [line.upper() for line in source])
    toy.write_lines(tmp_path / "odd.de", [toy.translated(line) for line in source])
    # The learning rate is far too high: no validation is better than the first.
    ran = tune(trained / "run", tmp_path / "odd", tmp_path / "run", "train.learning_rate=30", "train.clip_norm=0")
    assert ran.code == 0, ran.err
    assert "warning: the model's vocabulary, which cannot change, does not fit this text well" in ran.err
    assert "pieces per word in the source instead of 1.00)" in ran.err
    assert "no validation was better than before the first step, so the model is unchanged" in ran.err
    assert "model: best validation, step 0, unchanged from run" in ran.err
    assert toy.same_bits(toy.weights(tmp_path / "run"), toy.weights(trained / "run"))


def test_text_too_small_to_validate_on_gives_a_warning(trained: Path, tmp_path: Path) -> None:
    source = toy.sentences(8, seed=5)
    toy.write_lines(tmp_path / "few.en", source)
    toy.write_lines(tmp_path / "few.de", [toy.translated(line) for line in source])
    ran = tune(trained / "run", tmp_path / "few", tmp_path / "run", "train.max_steps=2")
    assert "warning: there are no pairs to validate on, so the run keeps the last model, even if it is worse" in ran.err
    assert "or the unchanged model if none is better" not in ran.err
    assert "model: last, step 2" in ran.err


def test_a_gain_is_reported(trained: Path, tmp_path: Path) -> None:
    source = toy.sentences(60, seed=6)
    toy.write_lines(tmp_path / "plain.en", source)
    known = toy.dictionary()
    toy.write_lines(tmp_path / "plain.de", [" ".join(known[word] for word in line.split()) for line in source])
    ran = tune(trained / "run", tmp_path / "plain", tmp_path / "run", "train.learning_rate=0.003")
    assert ran.code == 0, ran.err
    validations = toy.events(tmp_path / "run", "Validated")
    assert validations[-1]["best"] and validations[-1]["loss"] < validations[0]["loss"]
    assert "validation before and after: perplexity " in ran.err
    assert f" -> {validations[-1]['perplexity']:.2f}, BLEU {validations[0]['score']:.2f} -> " in ran.err


# Resuming


def begun_with(parent: Path, text: Path) -> Experiment:
    files = {"source": str(text.with_suffix(".en")), "target": str(text.with_suffix(".de"))}
    files |= {"valid_source": str(text.with_name("valid.en")), "valid_target": str(text.with_name("valid.de"))}
    train = ("batch_tokens=200", "save_every=4", "ema_decay=0.9", "validate_bleu=false")
    more = ("model.dropout=0.1", *(f"train.{setting}" for setting in train))
    tables = merge({"data": files, "train": {"init": str(parent)}}, *map(parse_setting, (*SHORT, *more)))
    return make_experiment(tables, inherit_settings(RunFolder.open(parent), tables))


def test_it_resumes_to_the_bit_without_its_parent(trained: Path, tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    copytree(trained / "run", parent)
    wanted = begun_with(parent, trained / "few")
    Drive(tmp_path / "whole").start(wanted)
    killed = {step: Drive(tmp_path / f"killed-{step}").start(wanted, until=step, kill=True) for step in (2, 6)}
    rmtree(parent)
    for drive in killed.values():
        drive.resume()
        assert_same(drive.folder, tmp_path / "whole")
        assert [event["step"] for event in toy.events(drive.folder, "Validated")] == [0, 4, 8, 12]


def test_an_interrupted_preparation_resumes_without_the_parent(trained: Path, tmp_path: Path) -> None:
    parent, text = tmp_path / "parent", trained / "few"
    copytree(trained / "run", parent)
    wanted = begun_with(parent, text)
    Drive(tmp_path / "whole").start(wanted)
    run = RunFolder.create(tmp_path / "run")
    run.begin(wanted)
    copy_parent_model(run, str(parent))
    rmtree(parent)
    Drive(run.path).resume()
    assert_same(run.path, tmp_path / "whole")
    assert run.about()["parent"] == RunFolder(tmp_path / "whole").about()["parent"]


def test_a_damaged_copy_of_the_parent_is_refused(trained: Path, tmp_path: Path) -> None:
    from heedful.errors import FolderError

    run = RunFolder.create(tmp_path / "run")
    copy_parent_model(run, str(trained / "run"))
    file = run.path / "parent" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(FolderError, match="is damaged"):
        run.parent().model()


def test_a_recipe_can_name_the_parent_and_the_rest_is_chosen(trained: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    text = f'[data]\nsource = "{trained}/few.en"\ntarget = "{trained}/few.de"\n'
    recipe.write_text(f'{text}[train]\ninit = "{trained}/run"\nmax_steps = 2\nthreads = 1\n', encoding="utf-8")
    ran = toy.run("train", recipe, "--out", tmp_path / "run")
    assert ran.code == 0, ran.err
    train = RunFolder.open(tmp_path / "run").experiment().train
    assert (train.max_steps, train.learning_rate, train.schedule) == (2, 0.001, "cosine")


def test_a_wrong_type_of_name_is_refused_like_any_other_value(trained: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.init must be a string, but is 5 instead"):
        make_experiment({"train": {"init": 5}})

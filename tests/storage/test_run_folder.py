"""A run folder is complete: it can be moved, it can be trusted, and damaged or foreign folders are refused."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from heedful.errors import FolderError
from heedful.storage.files import write_manifest
from heedful.storage.run_folder import RunAtCheckpoint, RunFolder, WeightsValidation, fill_model
from heedful.tasks import make_experiment
from heedful.training.model_selection import average_weights
from heedful.translation.translator import Translator


@pytest.fixture
def moved(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run in another place."""
    return Path(shutil.copytree(trained / "run", tmp_path / "elsewhere"))


def refused(folder: Path, message: str) -> None:
    with pytest.raises(FolderError, match=message):
        Translator.load(folder)


# Moving a folder


def test_a_moved_folder_works_without_the_files_it_was_trained_on(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    source, target = toy.write_pairs(old, "few", 80, seed=2)
    steps = toy.settings("train.max_steps=2", "train.batch_tokens=128", "train.validate_bleu=false")
    with toy.plain_log():
        assert toy.run("train", "--source", source, "--target", target, "--out", old / "run", *steps).code == 0
        before = toy.run("translate", old / "run", "ba", "--json")
        (old / "run").rename(new)
        shutil.rmtree(old)
        assert toy.run("translate", new, "ba", "--json") == before
        ran = toy.run("train", "--resume", new, "--set", "train.max_steps=4")
        assert ran.code == 0, ran.err
        assert toy.run("info", new).code == 0
    assert [event["step"] for event in toy.events(new, "StepDone")] == [1, 2, 3, 4]


def test_nothing_but_the_model_is_needed_to_translate(moved: Path) -> None:
    before = toy.run("translate", moved, "ba", "--json")
    needed = {
        *("model.safetensors", "config.json", "generation_config.json"),
        *("tokenizer.json", "experiment.toml", "manifest.json"),
    }
    for path in list(moved.iterdir()):
        if path.name not in needed:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert toy.run("translate", moved, "ba", "--json") == before


def test_a_run_folder_contains_no_pickle(trained: Path) -> None:
    files = [path for path in (trained / "run").rglob("*") if path.is_file()]
    assert len(files) > 15
    for path in files:
        assert path.suffix not in (".pt", ".pth", ".bin", ".pkl", ".pickle", ".npy", ".npz", ".ckpt"), path
        content = path.read_bytes()
        assert not content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")), path


def test_a_run_folder_is_json_toml_and_safetensors(trained: Path) -> None:
    run = trained / "run"
    config = json.loads((run / "config.json").read_text())
    assert (config["heedful_format"], config["model_type"], config["vocab_size"]) == (1, "heedful-transformer", 298)
    assert json.loads((run / "generation_config.json").read_text())["num_beams"] == 4
    with safe_open(run / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"
        assert file.metadata()["note"] == "best validation, step 350"


def test_the_card_has_a_hub_header_and_no_local_path(trained: Path) -> None:
    card = (trained / "run" / "README.md").read_text(encoding="utf-8")
    head, body = card.split("---\n")[1:]
    assert head == "library_name: heedful\npipeline_tag: translation\nlanguage:\n- en\n- de\n"
    assert body.startswith("# run: en to de\n")
    assert "2,000 sentence pairs, 60 for validation" in body
    assert "\n- validation BLEU of these weights (greedy): " in body
    assert str(trained) not in card
    assert not re.search(r"(?<![\w.])/\w", card)


def test_a_card_has_a_name_even_from_inside_the_folder(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from heedful.storage.model_card import make_model_card

    monkeypatch.chdir(moved)
    assert "# elsewhere: en to de\n" in make_model_card(RunFolder.open(Path()))


# Round trips


def test_experiment_and_tokenizers_come_back(trained: Path, tmp_path: Path) -> None:
    run = RunFolder.open(trained / "run")
    experiment, tokenizers = run.experiment(), run.tokenizers()
    assert experiment.train.batch_tokens == 384
    assert tokenizers.joint
    again = RunFolder.create(tmp_path / "again")
    again.begin(experiment)
    again.describe(experiment, tokenizers)
    assert RunFolder.open(tmp_path / "again").experiment() == experiment
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (trained / "run" / "tokenizer.json").read_bytes()


def test_two_vocabularies_come_back_as_two(tmp_path: Path) -> None:
    source, target = toy.write_pairs(tmp_path, "few", 80, seed=2)
    wanted = ("text.vocabularies=separate", "model.sharing=target", "train.max_steps=2", "train.batch_tokens=128")
    with toy.plain_log():
        ran = toy.run(
            "train", "--source", source, "--target", target, "--out", tmp_path / "run", *toy.settings(*wanted)
        )
    assert ran.code == 0, ran.err
    tokenizers = RunFolder.open(tmp_path / "run").tokenizers()
    assert not tokenizers.joint
    word = next(iter(toy.dictionary()))
    assert len(tokenizers.source.encode(word)) == 2
    assert len(tokenizers.target.encode(word)) > 2
    assert toy.run("translate", tmp_path / "run", word).code == 0


def test_weights_come_back_bit_by_bit_with_their_origin(moved: Path) -> None:
    run = RunFolder.open(moved)
    weights = {name: p.detach().clone() for name, p in run.model().named_parameters()}
    assert toy.same_bits(weights, toy.weights(moved))
    weights["target_embedding.weight"][3, 5] = -0.0
    run.write_weights(weights, "changed by hand")
    assert toy.same_bits({name: p.detach() for name, p in run.model().named_parameters()}, weights)
    assert run.note() == "changed by hand"
    assert not run.model().training


def test_entries_of_about_json_are_merged(moved: Path) -> None:
    run = RunFolder.open(moved)
    run.write_about({"scores": {}})  # other tests may have scored the model that this is a copy of
    run.add_scores("a.en", {"beam": 1})
    run.add_scores("b.en", {"beam": 2})
    run.add_scores("a.en", {"beam": 3})
    run.write_about({"x": "ü"})
    weights = run.weights_id
    assert run.about()["scores"] == {"a.en": {"weights": weights, "beam": 3}, "b.en": {"weights": weights, "beam": 2}}
    assert run.about()["x"] == "ü"
    assert run.about()["data"] == json.loads((moved / "about.json").read_text())["data"]


def test_scores_of_other_weights_are_not_those_of_the_model(moved: Path) -> None:
    run = RunFolder.open(moved)
    earlier = {"beam": 4, "scores": []}
    run.write_about({"scores": {"earlier version": earlier}})
    run.add_scores("test.en", {"beam": 1})
    RunAtCheckpoint(moved, 350).add_scores("test.en", {"beam": 2})
    assert list(run.about()["scores"]) == ["earlier version", "test.en", "test.en at step 350"]  # type: ignore[call-overload]
    assert {name: entry["beam"] for name, entry in run.scores().items()} == {"earlier version": 4, "test.en": 1}
    assert list(RunAtCheckpoint(moved, 350).scores()) == ["earlier version", "test.en at step 350"]
    run.write_weights(toy.weights(moved), "trained on")
    assert run.scores() == {"earlier version": earlier}


def test_a_validation_that_is_not_one_is_refused(moved: Path) -> None:
    run, weights = RunFolder.open(moved), toy.weights(moved)
    run.write_weights(weights, "", WeightsValidation(2.0, "high", "BLEU"))  # type: ignore[arg-type]
    with pytest.raises(FolderError, match=r"model\.safetensors is damaged: its validation is '.*high.*'; restore it"):
        run.validation()
    assert "its validation is" in toy.run("info", moved).err


def test_settings_of_a_resumed_run_are_stored_separately(moved: Path) -> None:
    run = RunFolder.open(moved)
    assert run.resume_settings() == {}
    run.write_resume_settings({"train": {"max_steps": 9}})
    assert RunFolder.open(moved).resume_settings() == {"train": {"max_steps": 9}}
    assert run.experiment().train.max_steps == 350


# Refusals


def test_a_new_run_needs_an_empty_folder(tmp_path: Path) -> None:
    for name in ("new", "a/b/new"):
        assert RunFolder.create(tmp_path / name).path.is_dir()
        RunFolder.create(tmp_path / name)
    (tmp_path / "new" / ".lock").touch()  # a training that was killed before it wrote anything
    RunFolder.create(tmp_path / "new")
    (tmp_path / "new" / "notes").touch()
    with pytest.raises(FolderError, match=r"/new already exists; resume it with --resume .*, or choose another --out$"):
        RunFolder.create(tmp_path / "new")
    with pytest.raises(FolderError, match="already exists"):
        RunFolder.create(tmp_path / "new" / "notes")


def test_another_format_is_refused(moved: Path) -> None:
    config = json.loads((moved / "config.json").read_text())
    names = ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json")
    for version in (0, 2, 99):
        (moved / "config.json").write_text(json.dumps(config | {"heedful_format": version}))
        write_manifest(moved, names)
        refused(moved, rf"/elsewhere has format {version}, but this heedful reads format 1; update heedful$")
    del config["heedful_format"]
    (moved / "config.json").write_text(json.dumps(config))
    refused(moved, "config.json was not written by heedful: it has no heedful_format$")
    (moved / "config.json").write_text(json.dumps({"model_type": "marian"}))
    refused(moved, "/elsewhere holds a Hugging Face model; convert it with: heedful import .*/elsewhere OUT$")
    (moved / "config.json").unlink()
    (moved / "encoder.onnx").touch()
    refused(moved, "it has no config.json; an ONNX export is for ONNX Runtime: translate with the run itself$")


def test_options_of_another_version_are_refused(moved: Path) -> None:
    with (moved / "experiment.toml").open("a") as file:
        file.write("\n[quantum]\nqubits = 5\n")
    write_manifest(moved, ("config.json", "generation_config.json", "experiment.toml", "tokenizer.json"))
    refused(moved, "experiment.toml does not fit this version of heedful: unknown key: quantum$")


@pytest.mark.parametrize("missing", ["config.json", "generation_config.json", "experiment.toml"])
def test_a_manifest_that_omits_a_file_is_refused(moved: Path, missing: str) -> None:
    names = ["config.json", "generation_config.json", "experiment.toml", "tokenizer.json"]
    write_manifest(moved, [name for name in names if name != missing])
    refused(moved, f"manifest.json: does not name {missing}")


def test_weights_that_do_not_fit_are_refused(moved: Path) -> None:
    run, weights = RunFolder.open(moved), toy.weights(moved)
    run.write_weights({name: w for name, w in weights.items() if name != "encoder_norm.weight"}, "")
    refused(moved, r"model\.safetensors has no weight encoder_norm\.weight; it belongs to a different model$")
    run.write_weights(weights | {"extra.weight": torch.zeros(2)}, "")
    refused(moved, r"model\.safetensors has an unknown weight extra\.weight; it belongs to a different model$")
    run.write_weights(weights | {"encoder_norm.weight": torch.zeros(31)}, "")
    refused(moved, r"has encoder_norm\.weight of shape \[31\] instead of \[32\]; it belongs to a different model$")


def test_weights_with_a_wrong_checksum_are_refused(moved: Path) -> None:
    """The same tensors, but without the checksum, or with it and a different note."""
    weights, path = toy.weights(moved), moved / "model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
    for change in ({"note": "best of all"}, {"sha256": "0" * 64}):
        save_file(weights, path, metadata | change)
        refused(moved, "model.safetensors is damaged: its checksum differs")
    save_file(weights, path)
    refused(moved, "model.safetensors is damaged: its checksum differs")
    save_file(weights, path, metadata)
    Translator.load(moved)


def test_weights_that_are_not_safetensors_are_refused_without_being_unpickled(moved: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (moved / "trapped",)  # type: ignore[return-value]

    torch.save({"x": Trap()}, moved / "model.safetensors")
    refused(moved, "model.safetensors is damaged")
    (moved / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    refused(moved, "model.safetensors is damaged")
    for command in ("translate", "info"):
        assert toy.run(command, moved, *(["x"] if command == "translate" else [])).code == 2
    assert not (moved / "trapped").exists()


# The mean of checkpoints


@settings(deadline=None)
@given(
    values=st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=9),
)
def test_the_mean_is_computed_in_double_precision(values: list[list[float]]) -> None:
    several = [{"a": torch.tensor(row), "b": torch.tensor(row[0])} for row in values]
    mean = average_weights(several)
    exact = torch.tensor(values, dtype=torch.float64).mean(0).float()
    torch.testing.assert_close(mean["a"], exact, rtol=1e-6, atol=1e-30)
    assert mean["a"].dtype == torch.float32
    assert mean["b"].shape == ()


def test_the_mean_of_equal_weights_has_the_same_bits() -> None:
    weights: dict[str, Tensor] = {"a": torch.randn(7, 5, generator=torch.Generator().manual_seed(3))}
    assert toy.same_bits(average_weights([weights] * 3), weights)


def test_filling_a_model_copies_the_weights(trained: Path) -> None:
    model = torch.nn.Linear(3, 2)
    weights = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    fill_model(model, weights, "here")
    weights["weight"].zero_()
    assert model.weight.sum() == 6
    with pytest.raises(FolderError, match=r"^here has no weight bias; it belongs to a different model$"):
        fill_model(model, {"weight": torch.ones(2, 3)}, "here")


def test_the_default_experiment_is_read_back_from_its_file(tmp_path: Path, trained: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    experiment = make_experiment({"name": 'a "quoted" ü\\name', "data": {"source": ["a b.en", "ü.en"]}})
    run.begin(experiment)
    assert run.experiment() == experiment

"""Exports and imports agree with the original model, and the proof of it fails when they do not."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from unittest import mock

import pytest
import torch
import toy
from engine_examples import POST, untrained_run
from model_examples import EOS, SMALL, SOURCE_TYPES, sentences, shaken

import heedful
from heedful.cli.export import describe_rounding
from heedful.config import ModelConfig, Positions, SearchConfig
from heedful.decoding.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.engine import Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, FolderError, HeedfulError
from heedful.formats.ctranslate2 import Numbers
from heedful.formats.export import export
from heedful.formats.import_model import import_model
from heedful.formats.parity import RoundingLoss, measure_rounding, prove
from heedful.storage.files import write_manifest
from heedful.storage.run_folder import RunFolder, read_valid_pairs
from heedful.text.constraints import Constraints
from heedful.translation.pipeline import Pipeline
from heedful.translation.translator import Translator

TEXTS = toy.sentences(6, seed=8)


@pytest.fixture
def fast() -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("joint", "positions"), [(True, "sinusoidal"), (False, "sinusoidal"), (True, "relative")])
def test_an_exported_folder_translates_as_the_run_does(joint: bool, positions: Positions, tmp_path: Path) -> None:
    config = replace(POST, norm="pre", sharing="all" if joint else "none", positions=positions, max_distance=2)
    run = untrained_run(tmp_path / "run", config, joint=joint)
    proof = export(run, "ctranslate2", tmp_path / "out")
    assert (proof.sentences, proof.same) == (16, 16)
    assert 0 < proof.largest < 1e-4
    ours, theirs = Translator.load(run.path), Translator.load(tmp_path / "out")
    assert (ours.engine.name, theirs.engine.name) == ("torch", "ctranslate2")
    for one, other in zip(ours.translate(TEXTS, beam=1), theirs.translate(TEXTS, beam=1), strict=True):
        assert (one.text, one.pieces, one.source_pieces) == (other.text, other.pieces, other.source_pieces)
        assert one.score == pytest.approx(other.score, abs=1e-4)
    assert Translator.load(tmp_path / "out", engine="torch").translate(TEXTS) == ours.translate(TEXTS)  # to the bit
    assert theirs.look(TEXTS[0]).translation == ours.look(TEXTS[0]).translation
    with pytest.raises(ConfigError, match="has no model for the ctranslate2 engine; add one"):
        Translator.load(run.path, engine="ctranslate2")


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "config",
    [
        POST,
        replace(POST, norm="pre", sharing="target", positions="learned", max_positions=40, output_bias=True),
        replace(POST, d_k=6, d_v=10, encoder_heads=(1,), cross_heads=(2, 1)),
        replace(POST, norm="pre", positions="relative", max_distance=3, d_k=6, d_v=10, decoder_heads=(2, 1)),
    ],
    ids=["post", "learned", "heads", "relative"],
)
def test_weights_come_back_from_an_export(config: ModelConfig, tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", config, joint=config.sharing == "all")
    export(run, "ctranslate2", tmp_path / "out")
    weights = dict(RunFolder.open(tmp_path / "out").model().named_parameters())
    for name, parameter in run.model().named_parameters():
        assert torch.equal(weights.pop(name), parameter), name
    assert not weights


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("numbers", "levels"), [("float16", 2**10), ("int8", 127)])
def test_rounded_weights_come_back_as_they_were_rounded(numbers: Numbers, levels: int, tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2", tmp_path / "out", numbers)
    weights, exact = (dict(one.model().named_parameters()) for one in (RunFolder.open(tmp_path / "out"), run))
    for name, parameter in exact.items():
        far = (weights[name] - parameter).abs()
        assert bool((far <= 0.51 * parameter.abs().amax(dim=-1, keepdim=True) / levels).all()), name
    assert not torch.equal(weights["target_embedding.weight"], exact["target_embedding.weight"])


@pytest.mark.usefixtures("fast")
def test_a_file_that_is_not_an_export_is_refused(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2", tmp_path / "out")
    folder = RunFolder.open(tmp_path / "out").ctranslate2
    content = (folder / "model.bin").read_bytes()

    def refused(changed: bytes, message: str) -> None:
        (folder / "model.bin").write_bytes(changed)
        write_manifest(folder, sorted(path.name for path in folder.iterdir() if path.name != "manifest.json"))
        with pytest.raises(FolderError, match=message):
            RunFolder.open(tmp_path / "out").model()

    not_a_model = "model.bin is not a model in CTranslate2's format 6"
    refused(
        b"\7" + content[1:], rf"{not_a_model} \(it is version 7 of 'TransformerSpec', revision 7\); export it again"
    )
    refused(content[:-100], rf"{not_a_model} \(it ends too early\); export it again")
    renamed = content.replace(b"layer_0/ffn/linear_0/bias", b"layer_0/ffn/linear_0/bia5")
    refused(renamed, "has an unknown variable decoder/layer_0/ffn/linear_0/bia5")
    refused(content[:500], rf"{not_a_model} \(it ends too early\)")


@pytest.mark.usefixtures("fast")
def test_translating_by_ctranslate2_does_not_wait_for_torch(tmp_path: Path) -> None:
    export(untrained_run(tmp_path / "run"), "ctranslate2", tmp_path / "out", "int8")
    code = f"""
import sys
sys.argv = ["heedful", "translate", {str(tmp_path / "out")!r}, {TEXTS[0]!r}]
from heedful.cli import main
try:
    main()
except SystemExit as end:
    print("ENDED", end.code, "torch" in sys.modules, "ctranslate2" in sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "ENDED 0 False True"
    assert "engine" not in process.stderr  # there is no other


@pytest.mark.usefixtures("fast")
def test_the_command_prints_the_proof_and_a_damaged_copy_is_refused(tmp_path: Path) -> None:
    untrained_run(tmp_path / "run")
    ran = toy.run("export", tmp_path / "run", tmp_path / "out", "--to", "ctranslate2", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["sentences"] == 16
    again = toy.run("export", tmp_path / "run", tmp_path / "out", "--to", "ctranslate2")
    assert (again.code, again.err) == (
        2,
        f"heedful: {tmp_path / 'out'} exists already; choose another folder to export to\n",
    )
    model = tmp_path / "out" / "ctranslate2" / "model.bin"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    with pytest.raises(FolderError, match=r"ctranslate2 is damaged \(model.bin: sha256 differs\)"):
        Translator.load(tmp_path / "out")


@pytest.mark.usefixtures("fast")
def test_a_missing_ctranslate2_is_reported(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2", tmp_path / "out")
    with mock.patch.dict(sys.modules, {"ctranslate2": None}):
        assert Translator.load(tmp_path / "out").engine.name == "torch"
        with pytest.raises(ConfigError, match=r"needs CTranslate2, which is not installed; install ctranslate2"):
            Translator.load(tmp_path / "out", engine="ctranslate2")
    with (
        mock.patch("heedful.formats.ctranslate2.find_spec", return_value=None),
        pytest.raises(ConfigError, match=r"needs CTranslate2, which is not installed; install ctranslate2"),
    ):
        export(run, "ctranslate2", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_impossible_combinations_of_options_are_refused(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    out = tmp_path / "out"
    assert "--to must be one of" in toy.run("export", run.path, out, "--to", "ctranslate").err
    assert "--numbers must be one of" in toy.run("export", run.path, out, "--to", "ctranslate2", "--numbers", "i8").err
    assert "--engine must be one of" in toy.run("translate", run.path, "a", "--engine", "fast").err
    with pytest.raises(ConfigError, match="--numbers int8 is for CTranslate2"):
        export(run, "huggingface", out, "int8")
    assert not out.exists()


class Otherwise:
    """A model whose log-probabilities are a little too high after the first, or whose translations differ."""

    def __init__(self, engine: TorchEngine, more: float, *, backwards: bool = False) -> None:
        self.engine, self.more, self.backwards = engine, more, backwards

    def decode(self, sources: Sequence[Ids], search: SearchConfig, n_best: int) -> list[list[Hypothesis]]:
        found = self.engine.decode(sources, search, n_best)
        if self.backwards:
            return [[replace(h, tokens=(*h.tokens[:-1][::-1], h.tokens[-1])) for h in several] for several in found]
        return found

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        found = self.engine.score(sources, targets)
        return [[values[0], *(value + self.more for value in values[1:])] for values in found]


def test_a_proof_fails_where_two_models_disagree() -> None:
    engine = TorchEngine(shaken(SMALL), EOS)
    sources = sentences([5, 2, 9], SOURCE_TYPES)
    proof = prove(engine, Otherwise(engine, 0.0005), sources, EOS, 0.001)
    assert (proof.sentences, proof.same) == (3, 3)
    assert proof.largest == pytest.approx(0.0005, rel=0.01)
    with pytest.raises(HeedfulError, match=r"log-probabilities differ by up to 0.002, over 0.001; nothing was written"):
        prove(engine, Otherwise(engine, 0.002), sources, EOS, 0.001)
    with pytest.raises(HeedfulError, match="translates differently where ours has a margin of"):
        prove(engine, Otherwise(engine, 0.0, backwards=True), sources, EOS, 0.001)
    with pytest.raises(HeedfulError, match="its log-probabilities differ by up to nan"):
        prove(engine, Otherwise(engine, math.nan), sources, EOS, 0.001)


@pytest.mark.usefixtures("fast")
def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    with (
        mock.patch("heedful.formats.ctranslate2.NORM_EPSILON", 0.5),
        pytest.raises(HeedfulError, match="the converted model does not agree"),
    ):
        export(run, "ctranslate2", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# Hugging Face


@pytest.mark.parametrize(
    "config",
    [
        POST,
        replace(POST, activation="gelu-tanh"),
        replace(POST, sharing="target", activation="gelu"),
        replace(POST, sharing="none", cross_heads=(1, 2)),
    ],
    ids=["all", "all, gelu-tanh", "target", "none"],
)
def test_plain_transformers_gives_the_same_translations(config: ModelConfig, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = untrained_run(tmp_path / "run", config, joint=config.sharing == "all")
    proof = export(run, "huggingface", tmp_path / "out")
    assert (proof.sentences, proof.same) == (16, 16)
    assert proof.largest < 1e-3
    translator = Translator.load(run.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "out")
    given = tokenizer(TEXTS, padding=True, return_tensors="pt", return_token_type_ids=False)
    assert [
        ids[: int(mask.sum())].tolist() for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)
    ] == translator.encode(TEXTS)
    literal = "a </s> b"  # ordinary text, which ends nothing
    assert [tokenizer(literal)["input_ids"]] == translator.encode([literal])
    with torch.inference_mode():
        found = model.generate(**given, num_beams=1, max_length=None, max_new_tokens=5)
    ours = translator.decode(translator.encode(TEXTS), SearchConfig(beam=1, max_extra=4), 1)
    for (best,), tokens in zip(ours, found[:, 1:].tolist(), strict=True):
        length = min(5, len(best.tokens))
        assert list(best.tokens[:length]) == tokens[:length]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "pre"}, "has model.norm post, but this one has pre; .*=post --set model.positions=sinusoidal$"),
        ({"positions": "learned"}, "has model.positions sinusoidal, but this one has learned"),
        ({"d_k": 3}, "has model.d_k 8, but this one has 3; .* --set model.positions=sinusoidal --set model.d_k=8$"),
    ],
)
def test_models_that_marian_cannot_represent_are_refused(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    run = untrained_run(tmp_path / "run", replace(POST, **change))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        export(run, "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sharing", ["all", "target", "none"])
def test_an_export_imports_with_the_same_bits(sharing: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = replace(POST, sharing=sharing, dropout=0.25)  # type: ignore[arg-type]
    run = untrained_run(tmp_path / "run", config, joint=sharing == "all")
    assert toy.run("export", run.path, tmp_path / "out", "--to", "huggingface").code == 0
    ran = toy.run("import", tmp_path / "out", tmp_path / "again")
    assert ran.code == 0, ran.err
    assert "again: 16 of 16 samples have the same best output" in ran.out
    again = RunFolder.open(tmp_path / "again")
    assert toy.same_bits(toy.weights(run.path), toy.weights(again.path))
    assert (again.experiment().model, again.experiment().search) == (config, run.experiment().search)
    assert again.tokenizers().target.to_json() == run.tokenizers().target.to_json()


def test_models_that_heedful_cannot_represent_are_not_imported(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    out = tmp_path / "out"
    export(untrained_run(tmp_path / "run"), "huggingface", out)
    config = json.loads((out / "config.json").read_text())

    def refused(change: dict[str, object], message: str) -> None:
        (out / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(FolderError, match=message):
            import_model(out, tmp_path / "again")
        assert not (tmp_path / "again").exists()

    refused({"model_type": "bart"}, "is a model of type bart; heedful imports marian, gpt2, bert, vit, t5")
    refused(
        {"activation_function": "tanh"},
        "has activation_function tanh, but our models have relu or gelu or gelu_pytorch_tanh or swish or silu$",
    )
    refused({"scale_embedding": False}, "has scale_embedding False, but our models have True")
    refused({"eos_token_id": 3}, r"padding and end are \(0, 3\) in config.json, but \(0, 1\) in its tokenizer")
    refused({"encoder_layers": 2}, r"has no weight \S+; it belongs to a different model")
    (out / "tokenizer.json").unlink()
    refused({}, "has neither tokenizer.json nor source.spm; copy it there")


# Both engines in one run


@pytest.mark.usefixtures("fast")
def test_a_run_with_both_engines_uses_torch_for_what_ctranslate2_cannot_do(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    slow = Translator.load(run.path)
    export(run, "ctranslate2")
    both = Translator.load(run.path)
    assert (slow.engine.name, both.engine.name) == ("torch", "ctranslate2")
    for search in (
        replace(slow.search, min_length=3),
        replace(slow.search, method="sample", seed=3),
    ):
        ours, theirs = (one.translate(TEXTS, search=search) for one in (slow, both))
        assert ours == theirs  # to the bit: it was the same engine
    constraints = Constraints(prefix=slow.tokenizers.target.decode([7]))
    assert [found.text for found in both.translate(TEXTS, constraints=constraints)] == [
        found.text for found in slow.translate(TEXTS, constraints=constraints)
    ]
    assert both.look(TEXTS[0]).inside[0].attention
    assert both.engine.name == "ctranslate2"


@pytest.mark.usefixtures("fast")
def test_a_text_too_long_for_the_export_and_one_that_loops_go_to_torch(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    slow = Translator.load(run.path)
    export(run, "ctranslate2")
    both, insisting = Translator.load(run.path), Translator.load(run.path, engine="ctranslate2")
    for translator in (both, insisting):
        assert isinstance(translator.engine, CTranslate2Engine)
        translator.engine._max_length = 6
    assert both.translate(TEXTS) == slow.translate(TEXTS)
    with pytest.raises(
        ConfigError, match=r"may have up to \d+ pieces, over the 6 of the exported model, which the ctrans"
    ):
        insisting.translate(TEXTS)
    insisting.engine._max_length = 2048  # type: ignore[attr-defined]
    failing = mock.patch.object(Pipeline, "_fails", lambda *_: True)
    second = mock.patch.object(Pipeline, "_choose_better", lambda self, text, first, second, options: second)
    with failing, second:
        ours, theirs = slow.translate(TEXTS), insisting.translate(TEXTS)
    assert [found.text for found in ours] == [found.text for found in theirs]


@pytest.mark.usefixtures("fast")
def test_heads_are_switched_off_with_any_engine(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    slow = Translator.load(run.path)
    export(run, "ctranslate2")
    both = Translator.load(run.path)
    names = ["cross.1.1", "encoder.1.1"]
    with slow.switch_off_heads(names), both.switch_off_heads(names):
        assert both.translate(TEXTS) == slow.translate(TEXTS)
    assert both.engine.name == "ctranslate2"


@pytest.mark.usefixtures("fast")
def test_an_export_of_older_weights_is_not_used(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2")
    weights = {name: tensor + 0.01 for name, tensor in run.model().named_parameters()}
    run.write_weights(weights, "trained on")
    assert Translator.load(run.path).engine.name == "torch"
    with pytest.raises(ConfigError, match="belongs to an older model; export it again"):
        Translator.load(run.path, engine="ctranslate2")
    ran = toy.run("translate", run.path, TEXTS[0])
    assert ran.code == 0, ran.err
    assert "engine: torch; the CTranslate2 export belongs to an older model" in ran.err
    export(run, "ctranslate2")
    assert Translator.load(run.path).engine.name == "ctranslate2"


@pytest.mark.usefixtures("fast")
def test_a_message_says_when_torch_translates(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2")
    plain = toy.run("translate", run.path, TEXTS[0])
    assert plain.err.startswith("engine: ctranslate2\n")
    drawn = toy.run("translate", run.path, *TEXTS[:3], "--method", "sample")
    assert drawn.err.startswith(
        "engine: ctranslate2\n"
        "search.method is sample, which the ctranslate2 engine cannot do; the torch engine does it\n"
    )


@pytest.mark.usefixtures("fast")
def test_ctranslate2_alone_refuses_what_only_torch_can_do(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    export(run, "ctranslate2", tmp_path / "out")
    alone = Translator.load(tmp_path / "out", engine="ctranslate2")
    with pytest.raises(ConfigError, match=r"search.groups is 3, which the ctranslate2 engine cannot do; use --engine"):
        alone.translate(TEXTS, search=replace(alone.search, groups=3, beam=3))
    with pytest.raises(ConfigError, match="must contain given terms or a prefix, which the ctranslate2 engine"):
        alone.translate(TEXTS, constraints=Constraints(prefix=alone.tokenizers.target.decode([7])))
    with pytest.raises(ConfigError, match="runs one model, not an ensemble"):
        Translator.load(tmp_path / "out", engine="ctranslate2", others=[run.path])
    ran = toy.run("export", run.path, "--to", "huggingface")
    assert (ran.code, ran.out) == (2, "")
    assert "give the export a folder" in ran.err


@pytest.mark.usefixtures("fast")
def test_a_built_in_model_is_exported_by_its_name_and_never_into_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="en-de is a built-in model and cannot be changed; give a folder"):
        heedful.export("en-de", "ctranslate2")
    proof = heedful.export("en-de", "ctranslate2", tmp_path / "out")
    assert proof.same == proof.sentences
    assert Translator.load(tmp_path / "out").translate(["Two dogs play."])[0].text


@pytest.mark.usefixtures("fast")
def test_the_card_of_an_export_names_its_final_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = untrained_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for out, named in ((Path("made/en de"), "'made/en de'"), (tmp_path / "away", "PATH/TO/away")):
        export(run, "ctranslate2", out)
        card = (out / "README.md").read_text(encoding="utf-8")
        assert f'\nheedful translate {named} "..."\n' in card
        assert ".tmp-" not in card


# What rounding costs


def test_a_rounded_model_is_scored_on_validation_pairs(trained: Path) -> None:
    """The toy model makes no mistakes; its copy writes everything backwards."""
    run = RunFolder.open(trained / "run")
    translator = Translator.on_device(run, torch.device("cpu"))
    assert isinstance(translator.engine, TorchEngine)
    same = measure_rounding(run, translator, Otherwise(translator.engine, 0.0))
    original = same.original
    assert original is not None
    assert original > 90.0
    assert same == RoundingLoss(60, 0, "BLEU", original, original)
    assert not same.is_much
    worse = measure_rounding(run, translator, Otherwise(translator.engine, 0.0, backwards=True))
    several = sum(len(set(pair.target.split())) > 1 for pair in read_valid_pairs(run))
    assert worse.original == original
    assert 0 < worse.different <= several
    assert worse.rounded < original - 1
    assert worse.is_much


def test_a_rounded_model_without_validation_pairs_is_compared_with_the_original(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")
    translator = Translator.on_device(run, torch.device("cpu"))
    assert isinstance(translator.engine, TorchEngine)
    assert measure_rounding(run, translator, Otherwise(translator.engine, 0.0)) == RoundingLoss(
        16, 0, "chrF", None, 100.0
    )
    worse = measure_rounding(run, translator, Otherwise(translator.engine, 0.0, backwards=True))
    assert (worse.original, worse.is_much) == (None, worse.rounded < 50)
    assert worse.different
    assert worse.rounded < 100.0


def test_a_loss_is_much_if_it_is_over_a_point_or_most_translations_differ() -> None:
    few = RoundingLoss(31, 15, "BLEU", 30.0, 29.0)
    assert not few.is_much
    assert replace(few, rounded=28.9).is_much
    assert replace(few, different=16).is_much
    assert replace(few, original=None).is_much
    assert not replace(few, original=None, rounded=50.0, different=31).is_much
    assert (
        describe_rounding(few)
        == "15 of 31 translations of validation sentences differ, with BLEU 29.00 instead of 30.00"
    )
    assert describe_rounding(replace(few, original=None)) == (
        "15 of 31 translations of random pieces differ, with BLEU 29.0 against those of the original"
    )


@pytest.mark.usefixtures("fast")
def test_the_command_says_what_rounding_costs_and_warns_if_it_is_much(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run")

    def export_with(loss: RoundingLoss, numbers: str, *more: str) -> toy.Ran:
        with mock.patch("heedful.formats.export.measure_rounding", return_value=loss):
            return toy.run("export", run.path, "--to", "ctranslate2", "--numbers", numbers, *more)

    little, much = RoundingLoss(31, 15, "BLEU", 30.0, 29.5), RoundingLoss(31, 19, "BLEU", 30.0, 21.25)
    said = "19 of 31 translations of validation sentences differ, with BLEU 21.25 instead of 30.00"
    quiet, warned = export_with(little, "int8"), export_with(much, "int8")
    assert (quiet.code, quiet.err, warned.code) == (0, "", 0)
    assert "; 15 of 31 translations of validation sentences differ, with BLEU 29.50 instead of 30.00\n" in quiet.out
    assert f"; {said}\n" in warned.out
    assert warned.err == (
        f"warning: with weights as int8, {said}; --numbers float16 is more exact, or train the model longer\n"
    )
    assert "; --numbers float32 is more exact, " in export_with(much, "float16").err
    assert json.loads(export_with(much, "int8", "--json").out)["rounding"] == asdict(much)
    exact = toy.run("export", run.path, "--to", "ctranslate2", "--json")
    assert (json.loads(exact.out)["rounding"], exact.err) == (None, "")


# Without heedful


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("joint", [True, False])
def test_the_snippet_of_the_card_translates_without_heedful(
    joint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as it is written. The search is greedy, which is the same in all programs."""
    monkeypatch.chdir(tmp_path)
    run = untrained_run(tmp_path / "run", replace(POST, sharing="all" if joint else "none"), joint=joint, beam=1)
    translator, text = Translator.load(run.path), "A man rides a horse."
    length = len(translator.encode([text])[0])
    search = SearchConfig(beam=1, max_extra=256 - length, guard=False)  # CTranslate2 writes at most 256 pieces
    (expected,) = translator.translate([text], search=search)
    assert expected.text
    for out in (Path("made/it's ours"), tmp_path / "away"):
        export(run, "ctranslate2", out)
        card = (out / "README.md").read_text(encoding="utf-8")
        (code,) = re.findall(r"^```python\n(.*?)^```", card, re.MULTILINE | re.DOTALL)
        alone = "import sys\nsys.modules['heedful'] = None\n"
        ran = subprocess.run([sys.executable, "-c", alone + code], capture_output=True, text=True, check=True)
        assert ran.stdout == expected.text + "\n"

"""Imported T5 models keep their ids, their numbers and their texts, in both versions."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toy

from heedful.config import SearchConfig
from heedful.errors import FolderError
from heedful.formats.import_model import import_model
from heedful.models.t5 import T5
from heedful.storage.files import load_tensors, save_tensors
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import Translator

TEXTS = ["the cat sat on the mat", "a dog ran off", "The  Mät,  it's 2024!", "ß cat 🙂", "mat mat mat   cat "]
WORDS = ["▁the", "▁cat", "▁dog", "▁sat", "▁on", "▁mat", "▁ran", "▁off", "▁a", "▁it"]
VERSIONS: dict[str, dict[str, Any]] = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 5, "num_decoder_layers": 3},
}
every_version = pytest.mark.parametrize("version", VERSIONS)


def t5_folder(folder: Path, version: str = "1.0", **changes: Any) -> Path:
    """A folder as transformers writes it, with random weights large enough for clear differences."""
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    letters = [(letter, -5.0 - place / 100) for place, letter in enumerate("abcdefghijklmnopqrstuvwxyzTM',!024")]
    words = [(word, -2.0 - place / 10) for place, word in enumerate(WORDS)]
    specials = [(f"<extra_id_{number}>", 0.0) for number in (2, 1, 0)]
    start = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    tokenizer = T5Tokenizer(vocab=[*start, *words, *letters, *specials], extra_ids=3)
    sizes = {"vocab_size": len(tokenizer) + 7, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 2, "num_heads": 3}
    settings = {**sizes, "dropout_rate": 0.2, "decoder_start_token_id": 0, **VERSIONS[version], **changes}
    config = T5Config(**settings)
    torch.manual_seed(4)
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if version == "1.1":  # as Google's folders have it: this version of transformers writes one matrix in any case
        weights = load_tensors(folder / "model.safetensors")
        weights["lm_head.weight"] = 0.3 * torch.randn_like(weights["shared.weight"])
        save_tensors(folder / "model.safetensors", weights, {"format": "pt"})
        change_config(folder, tie_word_embeddings=False)
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes), encoding="utf-8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("t5")
    return {version: t5_folder(place / version, version) for version in VERSIONS}


@pytest.fixture(scope="module")
def runs(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    place, found = tmp_path_factory.mktemp("runs"), {}
    for version, folder in folders.items():
        proof = import_model(folder, place / version)
        assert (proof.sentences, proof.same) == (16, 16)
        assert proof.largest < 1e-4
        found[version] = RunFolder.open(place / version)
    return found


@every_version
def test_the_network_is_that_of_the_folder(runs: dict[str, RunFolder], version: str) -> None:
    model, gated = runs[version].model(), version == "1.1"
    assert isinstance(model, T5)
    config = model.config
    assert (config.activation, config.sharing) == (("gated-gelu-tanh", "inputs") if gated else ("relu", "all"))
    assert (config.encoder_layers, config.decoder_layers, config.d_k) == ((2, 3, 5) if gated else (2, 2, 6))
    assert config.dropout == config.attention_dropout == config.activation_dropout == 0.2


@every_version
def test_texts_have_the_same_ids(runs: dict[str, RunFolder], folders: dict[str, Path], version: str) -> None:
    from transformers import T5Tokenizer

    theirs, ours = T5Tokenizer.from_pretrained(folders[version]), runs[version].tokenizers().source
    for text in TEXTS:
        assert ours.encode(text) == theirs(text).input_ids
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs(text).input_ids, skip_special_tokens=True)


@every_version
@torch.inference_mode()
def test_greedy_texts_are_those_of_transformers(
    runs: dict[str, RunFolder], folders: dict[str, Path], version: str
) -> None:
    from transformers import T5ForConditionalGeneration, T5Tokenizer

    tokenizer = T5Tokenizer.from_pretrained(folders[version])
    model = T5ForConditionalGeneration.from_pretrained(folders[version]).eval()
    if version == "1.1":
        weights = load_tensors(folders[version] / "model.safetensors")
        model.lm_head.weight = torch.nn.Parameter(weights["lm_head.weight"])
    translator = Translator.load(runs[version].path)
    ids = translator.encode(TEXTS)
    found = translator.decode(ids, SearchConfig(beam=1, max_extra=9), 1)
    for source, (best,) in zip(ids, found, strict=True):
        options = {"max_new_tokens": len(source) + 9, "num_beams": 1, "do_sample": False, "suppress_tokens": [0]}
        options |= {"use_cache": False}
        expected = model.generate(torch.tensor([list(source)]), **options)[0].tolist()[1:]
        end = tokenizer.eos_token_id
        assert [token for token in best.tokens if token != end] == [token for token in expected if token != end]


def test_it_translates_and_shows_its_heads(runs: dict[str, RunFolder], tmp_path: Path) -> None:
    assert toy.run("translate", runs["1.0"].path, "the cat sat").code == 0
    ran = toy.run("heads", runs["1.0"].path, "the cat sat", "--out", tmp_path / "look.json")
    assert ran.code == 0, ran.err
    assert len(json.loads((tmp_path / "look.json").read_text(encoding="utf-8"))["encoder"]) == 2


def test_the_command_imports_it(folders: dict[str, Path], tmp_path: Path) -> None:
    ran = toy.run("import", folders["1.0"], tmp_path / "run")
    assert ran.code == 0, ran.err
    assert isinstance(RunFolder.open(tmp_path / "run").model(), T5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-silu"}, "has feed_forward_proj gated-silu; heedful knows relu, gated-gelu"),
        (
            {"relative_attention_num_buckets": 16},
            "has relative_attention_num_buckets 16, but T5 as heedful has it has 32",
        ),
        ({"layer_norm_epsilon": 1e-5}, "has layer_norm_epsilon 1e-05, but"),
        (
            {"tie_word_embeddings": False, "scale_decoder_outputs": False},
            "has one matrix for embeddings and output, but",
        ),
        ({"decoder_start_token_id": 2}, "has decoder_start_token_id 2 in config.json, but 0 by its tokenizer"),
        ({"num_layers": 5}, "has no weight encoder.block.2.layer.0.SelfAttention.q.weight"),
        ({"d_model": "wide"}, "config.json cannot be used: model.d_model must be"),
    ],
)
def test_what_ours_cannot_represent_is_refused(
    folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    import shutil

    folder = tmp_path / "theirs"
    shutil.copytree(folders["1.0"], folder)
    change_config(folder, **changes)
    with pytest.raises(FolderError, match=message.replace(".", r"\.").replace("(", r"\(")):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_without_tokenizer_json_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folders["1.0"], tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    with pytest.raises(FolderError, match=r"has no tokenizer\.json; have transformers write it"):
        import_model(tmp_path / "theirs", tmp_path / "run")

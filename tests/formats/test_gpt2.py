"""Imported GPT-2 models keep their ids, their numbers and their continuations; exported ones are GPT-2 again."""

import asyncio
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import text_examples
import torch
import toy
from transformers_examples import END, gpt2_folder, learnt_bpe

from heedful.completion.completer import Completer
from heedful.errors import DataError, FolderError
from heedful.formats.export import export
from heedful.formats.import_model import import_model
from heedful.storage.files import load_tensors, save_tensors
from heedful.storage.run_folder import RunFolder

TEXTS = ["the cat sat", "The  Mät,\n\n it's 2024!", " ran off", "ß 🙂 <|endof", "don't\t stop   "]
CHANGES: dict[str, dict[str, Any]] = {
    "usual": {},
    "wide and named": {"n_inner": 56, "activation_function": "gelu", "vocab_size": 330},
    "relu": {"activation_function": "relu", "n_head": 1, "reorder_and_upcast_attn": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gpt2_folder(tmp_path_factory.mktemp("gpt2") / "tiny-gpt2")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    import_model(folder, out := tmp_path_factory.mktemp("gpt2") / "run")
    return RunFolder.open(out)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_log_probabilities_and_greedy_texts_are_those_of_transformers(changes: dict[str, Any], tmp_path: Path) -> None:
    proof = import_model(gpt2_folder(tmp_path / "theirs", **changes), tmp_path / "run")
    assert (proof.sentences, proof.same) == (16, 16)
    assert proof.tokens > 250
    assert proof.largest < 1e-5


@torch.no_grad()
def test_logits_are_those_of_transformers(folder: Path, run: RunFolder) -> None:
    from transformers import AutoTokenizer, GPT2LMHeadModel

    theirs, their_tokenizer = GPT2LMHeadModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    completer = Completer.from_run(run)
    for text in TEXTS:
        ids = their_tokenizer(text)["input_ids"]
        wanted = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]]
        (found,) = completer.log_probs([ids])
        torch.testing.assert_close(torch.tensor(found), wanted, rtol=1e-5, atol=1e-5)


def test_ids_and_texts_are_those_of_transformers(folder: Path, run: RunFolder) -> None:
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(folder), run.tokenizers().target
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == [*theirs(text)["input_ids"], theirs.eos_token_id]
        assert ours.decode(ids) == text


def test_the_two_files_of_openai_give_the_same_ids(folder: Path, run: RunFolder, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "tokenizer.json").unlink()
    learnt_bpe().model.save(str(copy))
    ids = json.loads((copy / "vocab.json").read_text())
    (copy / "vocab.json").write_text(json.dumps(ids | {END: len(ids)}))
    import_model(copy, tmp_path / "run")
    ours = RunFolder.open(tmp_path / "run").tokenizers().target
    assert [ours.encode(text) for text in TEXTS] == [run.tokenizers().target.encode(text) for text in TEXTS]


def test_greedy_text_is_that_of_generate(folder: Path, run: RunFolder) -> None:
    from transformers import AutoTokenizer, GPT2LMHeadModel

    model, tokenizer = GPT2LMHeadModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    given = tokenizer("the cat", return_tensors="pt")
    ids = model.generate(**given, do_sample=False, max_new_tokens=20, pad_token_id=tokenizer.eos_token_id)[0]
    wanted = tokenizer.decode(ids, skip_special_tokens=True)
    (found,) = Completer.from_run(run).complete(["the cat"], length=20, temperature=0.0)
    assert found.text == str(wanted).rstrip("\ufffd")  # half a character


def test_every_verb_works_afterwards(run: RunFolder, tmp_path: Path) -> None:
    out = run.path
    completed = toy.run("complete", out, "the cat", "--length", 5, "--seed", 2, "--json")
    assert completed.code == 0, completed.err
    text = text_examples.write_text(tmp_path / "text.txt", text_examples.rhymes(20))
    evaluated = toy.run("evaluate", out, "--source", text)
    assert evaluated.code == 0, evaluated.err
    assert "perplexity" in evaluated.out
    told = toy.run("info", out)
    assert told.code == 0, told.err
    assert "gpt" in told.out


def test_the_server_continues_texts(run: RunFolder) -> None:
    pytest.importorskip("fastapi", reason="needs heedful[serve]")
    from serve_examples import client_of, service_of

    from heedful.serve.completion_routes import load_completers

    async def asked() -> None:
        async with client_of(service_of(), completions=load_completers({"gpt": run.path}, "cpu")) as client:
            answer = await client.post("/v1/complete", json={"prompt": "the cat", "length": 4, "temperature": 0})
        (wanted,) = Completer.from_run(run).complete(["the cat"], length=4, temperature=0.0)
        assert answer.json()["continuations"][0]["text"] == wanted.continuations[0].text

    asyncio.run(asyncio.wait_for(asked(), 60))


def test_an_export_is_the_same_model_again(folder: Path, run: RunFolder, tmp_path: Path) -> None:
    proof = export(run, "huggingface", tmp_path / "out")
    assert proof.same == 16
    assert proof.largest < 1e-5
    before, after = (load_tensors(each / "model.safetensors") for each in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].equal(tensor), name


def test_a_trained_gpt_is_exported(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    trained = text_examples.train_gpt(tmp_path, "train.max_steps=6", "model.max_positions=32")
    proof = export(trained, "huggingface", tmp_path / "out")
    assert proof.same == 16
    assert proof.largest < 1e-5
    ours = RunFolder.open(trained).tokenizers().target
    ids = AutoTokenizer.from_pretrained(tmp_path / "out")("the mät", add_special_tokens=False)["input_ids"]
    assert ids == ours.encode("the mät")[:-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_attn_by_inverse_layer_idx": True}, "has scale_attn_by_inverse_layer_idx True, but GPT-2 as .* False"),
        ({"scale_attn_weights": False}, "has scale_attn_weights False"),
        ({"add_cross_attention": True}, "has add_cross_attention True"),
        ({"tie_word_embeddings": False}, "has tie_word_embeddings False"),
        ({"layer_norm_epsilon": 1e-6}, "has layer_norm_epsilon 1e-06, but GPT-2 as heedful has it has 1e-05"),
        ({"activation_function": "tanh"}, "has activation_function tanh; heedful knows gelu_new"),
        ({"activation_function": ["relu"]}, "has activation_function"),
        ({"eos_token_id": 5}, "the end of a text is 5 in config.json, but 280 in its tokenizer"),
        ({"n_positions": 8}, "has n_positions 8; heedful needs at least 24"),
        ({"n_embd": 10**9}, r"holds [\d,]+ values, but config.json describes [\d,]+; it belongs to a different model"),
        ({"n_embd": "24"}, "config.json cannot be used: model.d_model must be a whole number, but is '24' instead"),
        ({"n_embd": None}, "config.json cannot be used: model.d_model must be a whole number, but is None"),
        ({"n_head": 5}, "config.json cannot be used: model.d_model is 24, which 5 heads do not divide"),
        ({"n_layer": 2}, r"has an unknown weight h\.2\.[\w.]+; it belongs to a different model"),
        ({"n_layer": 4}, r"has no weight h\.3\.[\w.]+; it belongs to a different model"),
        ({"n_positions": 32}, r"has positions.weight of shape \[64, 24\] instead of \[32, 24\]"),
        ({"model_type": "gpt_neo"}, "is a model of type gpt_neo; heedful imports marian, gpt2, bert, vit, t5"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FolderError, match=message):
        import_model(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def only_a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def other_head(folder: Path) -> None:
    weights = load_tensors(folder / "model.safetensors")
    head = weights["transformer.wte.weight"] + 1.0
    save_tensors(folder / "model.safetensors", weights | {"lm_head.weight": head}, {"format": "pt"})


def bad_merges(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")


def hostile_pattern(folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    (folder / "tokenizer.json").write_text(json.dumps(data | {"pre_tokenizer": split}))


def more_pieces(folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    data["added_tokens"].append({"id": 300, "content": "<more>", "special": True})
    (folder / "tokenizer.json").write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop("config.json"), "has no config.json; name a folder of a Hugging Face model"),
        (drop("tokenizer.json"), "has neither tokenizer.json nor vocab.json; copy it there"),
        (only_a_pickle, r"pytorch_model.bin, a pickle, .* GPT2LMHeadModel.from_pretrained"),
        (other_head, "has an lm_head of its own"),
        (bad_merges, "merges.txt is damaged: 'a b' is not two pieces of vocab.json"),
        (hostile_pattern, "which is not on the allow-list"),
        (more_pieces, "has 301 pieces, but the embedding of .* has 281 rows"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damaged_and_hostile_folders_are_refused(
    damage: Callable[[Path], None], message: str, folder: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    damage(copy)
    with pytest.raises((FolderError, DataError), match=message):
        import_model(copy, tmp_path / "out")


def test_pieces_that_the_original_lacks_have_no_probability(run: RunFolder) -> None:
    completer = Completer.from_run(run)
    pad = completer.tokenizer.pad_id
    (found,) = completer.log_probs([[5, 6, 7, pad]])
    assert math.exp(found[-1]) == 0.0

"""Imported OPUS-MT models keep their ids, their numbers and their translations."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from opus_examples import (
    CODE,
    ENGLISH,
    GERMAN,
    ODD,
    joint_vocabulary,
    odd_texts,
    opus_folder,
    processor,
    sentences,
    trained,
)

from heedful.config import SearchConfig
from heedful.errors import DataError, FolderError
from heedful.formats.export import export
from heedful.formats.import_model import import_model
from heedful.storage.files import load_tensors, save_tensors
from heedful.storage.run_folder import RunFolder
from heedful.text.sentencepiece import sentencepiece_tokenizer
from heedful.translation.translator import Translator

GREEDY = SearchConfig(beam=1, max_extra=20, guard=False)  # the guard would search again, which CTranslate2 alone cannot
TEXTS = [*sentences(ENGLISH, 12, 7), f"{CODE} the man", "the Straße of 你好", "apple"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opus_folder(tmp_path_factory.mktemp("opus") / "opus-mt-en-de")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("opus") / "run"
    proof = import_model(folder, out)
    assert (proof.sentences, proof.same) == (16, 16)
    assert proof.largest < 1e-3
    return RunFolder.open(out)


@pytest.fixture(scope="module")
def marian(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model as `transformers` loads them."""
    from transformers import MarianMTModel, MarianTokenizer

    return MarianTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder)


# Text


@pytest.mark.parametrize("side", ["source", "target"])
def test_ids_are_those_of_sentencepiece_and_the_vocabulary(side: str, folder: Path, run: RunFolder) -> None:
    content, vocabulary = (folder / f"{side}.spm").read_bytes(), json.loads((folder / "vocab.json").read_text())
    texts = [*ODD, *odd_texts(3000, 5), *sentences([*ENGLISH, *GERMAN], 200, 6)]
    pieces = processor(content).encode(texts, out_type=str)
    wanted = [[*(vocabulary.get(piece, 1) for piece in several), 0] for several in pieces]
    tokenizer = getattr(run.tokenizers(), side)
    assert tokenizer.vocabulary_size == len(vocabulary)
    different = [
        text for text, ids, found in zip(texts, wanted, tokenizer.encode_all(texts), strict=True) if ids != found
    ]
    assert different == []
    # The texts contain each kind of piece: of this side, of the other side, and unknown.
    seen = {piece for several in pieces for piece in several}
    own = {processor(content).id_to_piece(number) for number in range(processor(content).get_piece_size())}
    assert seen & own & vocabulary.keys()
    assert (seen & vocabulary.keys()) - own
    assert (seen & own) - vocabulary.keys()


def test_ids_are_those_of_transformers(run: RunFolder, marian: tuple[Any, Any]) -> None:
    tokenizer, _ = marian
    ours = run.tokenizers()
    assert ours.source.encode_all(TEXTS) == tokenizer(TEXTS)["input_ids"]
    texts = sentences(GERMAN, 50, 3)
    assert ours.target.encode_all(texts) == tokenizer(text_target=texts)["input_ids"]
    assert ours.source.encode(f"{CODE} the man")[0] == tokenizer.encoder[CODE]


def test_any_ids_become_the_same_text(run: RunFolder, marian: tuple[Any, Any]) -> None:
    tokenizer, _ = marian
    target = run.tokenizers().target
    generator = torch.Generator().manual_seed(4)
    for length in range(1, 200):
        ids = torch.randint(target.vocabulary_size, (length % 9 + 1,), generator=generator).tolist()
        assert target.decode(ids).strip() == tokenizer.decode(ids, skip_special_tokens=True)
    elsewhere = next(number for piece, number in tokenizer.encoder.items() if piece in ("▁horse", "▁house"))
    assert target.pieces([elsewhere])[0] in ("▁horse", "▁house")


def test_no_text_becomes_a_special_piece(run: RunFolder) -> None:
    source = run.tokenizers().source
    for text in ("</s>", "a </s> b", "<pad>"):
        assert not {source.pad_id, source.eos_id} & set(source.encode(text)[:-1])


# The model


def test_logits_and_translations_are_the_same(run: RunFolder, marian: tuple[Any, Any]) -> None:
    tokenizer, model = marian
    translator = Translator.load(run.path)
    config = run.experiment().model
    assert (config.activation, config.output_bias, config.sharing) == ("swish", True, "all")
    for text, found in zip(TEXTS, translator.translate(TEXTS, search=GREEDY, split_sentences=False), strict=True):
        given = tokenizer([text], return_tensors="pt")
        limit = given["input_ids"].shape[1] + 20
        with torch.inference_mode():
            theirs = model.generate(**given, num_beams=1, max_length=None, max_new_tokens=limit)[0]
            labels = theirs[1:][None]
            logits = model(**given, labels=labels).logits[0]
        assert found.text.strip() == tokenizer.decode(theirs, skip_special_tokens=True)
        (scores,) = translator.engine.score(given["input_ids"].tolist(), labels.tolist())
        wanted = logits.log_softmax(1).gather(1, labels[0][:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(scores), wanted, atol=1e-3, rtol=0)


def test_search_settings_are_imported(run: RunFolder) -> None:
    search = run.experiment().search
    assert (search.beam, search.alpha, search.penalty) == (4, 1.0, "power")


def test_separate_embeddings_are_imported(tmp_path: Path) -> None:
    changes = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "activation_function": "silu"}
    proof = import_model(opus_folder(tmp_path / "opus", **changes), tmp_path / "run")
    assert proof.same == 16
    config = RunFolder.open(tmp_path / "run").experiment().model
    assert (config.sharing, config.activation) == ("none", "swish")


def test_an_imported_run_can_be_exported_to_ctranslate2(run: RunFolder, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")
    proof = export(run, "ctranslate2", tmp_path / "out")
    assert (proof.same, proof.largest < 1e-3) == (16, True)
    ours, theirs = (Translator.load(path).translate(TEXTS, search=GREEDY) for path in (run.path, tmp_path / "out"))
    assert [found.text for found in ours] == [found.text for found in theirs]


def test_an_imported_run_can_be_exported_to_hugging_face_and_imported_again(run: RunFolder, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    assert export(run, "huggingface", tmp_path / "out").same == 16
    import_model(tmp_path / "out", tmp_path / "again")
    assert toy.same_bits(toy.weights(run.path), toy.weights(tmp_path / "again"))
    again = RunFolder.open(tmp_path / "again")
    assert again.experiment().model == run.experiment().model
    ours = run.tokenizers()
    for plain, own, texts in (
        ("out", ours.source, sentences(ENGLISH, 40, 7)),
        ("out/target", ours.target, sentences(GERMAN, 40, 8)),
    ):
        found = AutoTokenizer.from_pretrained(tmp_path / plain)(texts)["input_ids"]
        assert max(number for ids in found for number in ids) < own.vocabulary_size
        # A piece without an id is unknown to OPUS-MT; a plain tokenizer.json spells it out.
        known = [(ids, wanted) for ids, wanted in zip(found, own.encode_all(texts), strict=True) if 1 not in wanted]
        assert len(known) > 3
        assert all(ids == wanted for ids, wanted in known)
    assert again.tokenizers().target.decode([5, 9, 30]) == ours.target.decode([5, 9, 30])


# Refusals


def test_a_pickle_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.name != "model.safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n.")
    ran = toy.run("import", tmp_path, tmp_path / "out")
    assert ran.code == 2
    assert "pytorch_model.bin, a pickle" in ran.err
    assert "MarianMTModel.from_pretrained(FOLDER).save_pretrained(FOLDER)" in ran.err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("source.spm", b"", "is not a SentencePiece model: it has no pieces"),
        ("source.spm", b"\x0a\x7fshort", r"is not a SentencePiece model, or it is damaged \(it ends too early\)"),
        ("source.spm", b"\xff" * 40, "is not a SentencePiece model, or it is damaged"),
        ("target.spm", None, "has neither tokenizer.json nor target.spm; copy it there"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1}', "has no piece <pad>"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 3}', "the ids of the 3 pieces of .* are not 0 to 2"),
        ("vocab.json", b'{"</s>": "0"}', "does not give pieces their ids"),
        ("generation_config.json", b'{"bad_words_ids": [[5]]}', r"forbids pieces \(bad_words_ids\)"),
    ],
)
def test_damaged_and_unsupported_folders_are_refused(
    name: str, content: bytes | None, message: str, folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((FolderError, DataError), match=message):
        import_model(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 10**9}, r"holds [\d,]+ values, but config.json describes [\d,]+; it belongs to a different model"),
        ({"encoder_layers": 10**9}, r"holds [\d,]+ values, but config.json describes [\d,]+; it belongs"),
        ({"d_model": 8}, "has weights of other shapes than config.json; it belongs to a different model|of shape"),
        ({"d_model": None}, "config.json cannot be used: model.d_model must be a whole number, but is None instead"),
        ({"d_model": "16"}, "config.json cannot be used: model.d_model must be a whole number, but is '16' instead"),
        ({"d_model": -2}, "config.json cannot be used: model.d_model must be at least 2, but is -2 instead"),
        ({"encoder_layers": [2]}, r"config.json cannot be used: model.encoder_layers must be .* but is \[2\] instead"),
        (
            {"encoder_layers": 1},
            r"has an unknown weight model\.encoder\.layers\.1\.[\w.]+; it belongs to a different model",
        ),
        ({"decoder_layers": 3}, "has no weight .*; it belongs to a different model"),
        ({"dropout": "a"}, "config.json cannot be used: model.dropout must be a number, but is 'a' instead"),
        ({"activation_function": ["swish"]}, "has activation_function"),
        ({"forced_eos_token_id": 5}, "has forced_eos_token_id 5, but our models have None or 0"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: dict[str, object], message: str, folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FolderError, match=message):
        import_model(tmp_path, tmp_path / "out")


def test_a_renamed_or_reshaped_weight_is_named(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_tensors(folder / "model.safetensors")
    name = "model.encoder.layers.1.fc1.bias"
    renamed = {f"{key}5" if key == name else key: tensor for key, tensor in weights.items()}
    save_tensors(tmp_path / "model.safetensors", renamed, {"format": "pt"})
    with pytest.raises(
        FolderError, match=f"model.safetensors has no weight {name.rpartition('.layers.1.')[2]}; it belongs"
    ):
        import_model(tmp_path, tmp_path / "out")
    save_tensors(tmp_path / "model.safetensors", weights | {name: weights[name][1:]}, {"format": "pt"})
    with pytest.raises(FolderError, match=r"of shape \[23\] instead of \[24\]; it belongs to a different model"):
        import_model(tmp_path, tmp_path / "out")


def test_a_folder_that_forces_the_end_of_an_output_is_proven(folder: Path, tmp_path: Path) -> None:
    """Marian's default. Here no output ends by itself, so every one is ended by force."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    generation = json.loads((tmp_path / "generation_config.json").read_text()) | {"forced_eos_token_id": 0}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    weights = load_tensors(folder / "model.safetensors")
    weights["final_logits_bias"][0, 0] = -50.0
    save_tensors(tmp_path / "model.safetensors", weights, {"format": "pt"})
    proof = import_model(tmp_path, tmp_path / "out")
    assert (proof.sentences, proof.same) == (16, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "bpe"}, "is not a unigram model"),
        ({"user_defined_symbols": ["the"]}, "has the piece 'the' of type 4"),
        ({"treat_whitespace_as_suffix": True}, "does not write spaces before words"),
    ],
)
def test_other_kinds_of_sentencepiece_are_refused(options: dict[str, object], message: str) -> None:
    content = trained(sentences(ENGLISH, 200, 1), vocab_size=70, **options)
    with pytest.raises(DataError, match=message):
        sentencepiece_tokenizer(content, joint_vocabulary([content]), "source.spm")


def test_a_model_that_keeps_spaces_and_characters_still_does() -> None:
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": False}
    content = trained(sentences(ENGLISH, 200, 1), vocab_size=70, **options)
    vocabulary = joint_vocabulary([content])
    tokenizer = sentencepiece_tokenizer(content, vocabulary, "source.spm")
    texts = ["the man", " the  man ", "ﬁnd", ""]
    pieces = processor(content).encode(texts, out_type=str)
    assert tokenizer.encode_all(texts) == [[*(vocabulary.get(piece, 1) for piece in several), 0] for several in pieces]

"""Foreign tokenizers, shaped like public files and built with the library itself."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_examples import LINES, bert, charsmap, gpt2, llama, t5
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from heedful.errors import DataError, FolderError
from heedful.text import Tokenizer as Ours
from heedful.text.tokenizer_training import reuse_tokenizer


def saved(made: Tokenizer, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(made.to_str(), encoding="utf-8")
    return path


def refusal(folder: Path, made: Tokenizer, part: str, value: Any) -> str:
    """The error for a file in which one part was replaced."""
    data = json.loads(made.to_str())
    if part in data:
        data[part] = value
    else:
        data["model"][part] = value
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        reuse_tokenizer(path)
    with pytest.raises(DataError):
        Ours.from_json(json.dumps(data), "x")
    start = f"{path} is not a tokenizer that heedful can use: "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


@pytest.mark.parametrize(
    ("make", "pad", "eos", "added"),
    [
        (bert, "[PAD]", "[SEP]", 0),
        (gpt2, "<pad>", "<|endoftext|>", 1),
        (t5, "<pad>", "</s>", 2),  # both move out of a model that would find them in text
        (llama, "<pad>", "</s>", 1),
    ],
)
def test_padding_and_end_are_found_or_added(make: Any, pad: str, eos: str, added: int, tmp_path: Path) -> None:
    made = make()
    read = reuse_tokenizer(saved(made, tmp_path))
    assert read.kind == "foreign"
    assert (read.piece_at(read.pad_id), read.piece_at(read.eos_id)) == (pad, eos)
    assert read.vocabulary_size == made.get_vocab_size() + added
    assert read.pieces([read.eos_id, read.pad_id]) == ["</s>", pad]


@pytest.mark.parametrize("make", [bert, gpt2, t5, llama])
def test_ordinary_text_round_trips_and_ends_with_one_eos(make: Any, tmp_path: Path) -> None:
    read = reuse_tokenizer(saved(make(), tmp_path))
    text = "the lazy dogs jumped over quick foxes" if make is not llama else "then <x> ähm"
    ids = read.encode(text)
    assert read.decode([*ids, read.pad_id]) == text
    assert ids.index(read.eos_id) == len(ids) - 1


def without_decoder(made: Tokenizer, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(made.to_str()) | {"decoder": None}), encoding="utf-8")
    return path


def spaced_bpe() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=60, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    return made


def whole_words() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.train_from_iterator(LINES, trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False))
    return made


@pytest.mark.parametrize("make", [bert, gpt2, t5, spaced_bpe, whole_words])
def test_a_missing_decoder_is_added(make: Any, tmp_path: Path) -> None:
    """Without one, the library writes spaces between the pieces of a word and keeps their marks."""
    read = reuse_tokenizer(without_decoder(make(), tmp_path))
    text = "the lazy dogs jumped over quick foxes"
    assert read.decode(read.encode(text)) == text
    assert Ours.from_json(read.to_json(), "x").decode(read.encode(text)) == text


def test_a_tokenizer_file_may_be_a_link_but_not_a_pipe_or_a_sparse_file(tmp_path: Path) -> None:
    link, pipe, sparse = (tmp_path / name for name in ("link.json", "pipe.json", "sparse.json"))
    (tmp_path / "away").mkdir()
    link.symlink_to(saved(gpt2(), tmp_path / "away"))
    assert reuse_tokenizer(link).encode("dogs") == reuse_tokenizer(link.resolve()).encode("dogs")
    os.mkfifo(pipe)
    with pytest.raises(FolderError, match=r"pipe\.json is a named pipe instead of a file"):
        reuse_tokenizer(pipe)
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FolderError, match=r"sparse\.json has 1,099,511,627,776 bytes, over the 400,000,000"):
        reuse_tokenizer(sparse)


def test_a_missing_decoder_that_cannot_be_guessed_is_refused(tmp_path: Path) -> None:
    path = without_decoder(llama(), tmp_path)
    with pytest.raises(DataError) as caught:
        reuse_tokenizer(path)
    assert str(caught.value) == (
        f'{path} has no "decoder", so pieces could not be joined to words; add one with the program that made it, '
        "or leave out text.tokenizer_file"
    )


@pytest.mark.parametrize("make", [bert, gpt2, t5, llama])
def test_special_strings_are_text(make: Any, tmp_path: Path) -> None:
    made = make()
    read = reuse_tokenizer(saved(made, tmp_path))
    specials = [token.content for token in made.get_added_tokens_decoder().values() if token.special]
    for name in [special for special in [*specials, "<pad>", "</s>"] if "unk" not in special.lower()]:
        ids = read.encode(f"the {name}dogs")
        assert read.eos_id not in ids[:-1]
        assert read.pad_id not in ids
        assert not {name, "[CLS]", "<s>"} & {read.piece_at(number) for number in ids[:-1]}


@pytest.mark.parametrize("make", [gpt2, t5, llama])
def test_special_strings_round_trip_if_the_vocabulary_can_spell_them(make: Any, tmp_path: Path) -> None:
    read = reuse_tokenizer(saved(make(), tmp_path))
    assert read.decode(read.encode("the </s><pad> dogs")) == "the </s><pad> dogs"


@given(text=st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_a_foreign_byte_level_tokenizer_is_exact(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    read = reuse_tokenizer(saved(gpt2(), tmp_path_factory.getbasetemp()))
    assert read.decode(read.encode(text)) == text


@pytest.mark.parametrize("make", [bert, gpt2, t5, llama])
def test_a_reused_tokenizer_is_the_same_after_saving(make: Any, tmp_path: Path) -> None:
    read = reuse_tokenizer(saved(make(), tmp_path))
    again = Ours.from_json(read.to_json(), "tokenizer.json")
    texts = ["the </s> dogs <pad>[SEP]", "", "字 quick <unk>"]
    assert again.to_json() == read.to_json()
    assert again.encode_all(texts) == read.encode_all(texts)
    assert (again.kind, again.pad_id, again.eos_id) == ("foreign", read.pad_id, read.eos_id)
    assert again.vocabulary_size == read.vocabulary_size


def test_pieces_of_foreign_tokenizers_are_shown_unchanged(tmp_path: Path) -> None:
    byte_level = reuse_tokenizer(saved(gpt2(), tmp_path))
    assert "".join(byte_level.pieces(byte_level.encode("the dogs"))) == "the▁dogs</s>"
    marked = reuse_tokenizer(saved(bert(), tmp_path))
    assert marked.pieces(marked.encode("xyz")) in (["[UNK]", "</s>"], ["x", "##y", "##z", "</s>"])


def test_an_old_file_does_not_name_its_type_of_model(tmp_path: Path) -> None:
    for make in (gpt2, bert, t5):
        data = json.loads(make().to_str())
        del data["model"]["type"]
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        read = reuse_tokenizer(path)
        assert read.decode(read.encode("lazy dogs")) == "lazy dogs"


def test_dropout_in_a_file_is_switched_off(tmp_path: Path) -> None:
    made = gpt2()
    made.model.dropout = 0.9
    read = reuse_tokenizer(saved(made, tmp_path))
    assert len({tuple(read.encode("the quick brown foxes")) for _ in range(20)}) == 1


def test_a_compiled_map_of_sentencepiece_is_read(tmp_path: Path) -> None:
    data = json.loads(t5().to_str())
    data["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": charsmap()}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    read = reuse_tokenizer(path)
    assert read.decode(read.encode("lazy dogs")) == "lazy dogs"


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json cannot be read \(No such file or directory\); name an existing"):
        reuse_tokenizer(tmp_path / "none.json")


def test_a_file_that_is_not_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(DataError, match=r"weights\.bin is not JSON \(it is not UTF-8\); give a tokenizer\.json$"):
        reuse_tokenizer(tmp_path / "weights.bin")


@pytest.mark.parametrize("text", ["", "not json", "[" * 100_000, '{"model": '])
def test_a_file_that_is_not_json_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(DataError, match=r"^my\.json is not JSON \(.*\); give a tokenizer\.json$"):
        Ours.from_json(text, "my.json")


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"model": 5}', '{"model_type": "bert"}'])
def test_json_that_is_not_a_tokenizer_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(
        DataError, match=r"^my\.json is not a tokenizer, because it has no model; give a tokenizer\.json$"
    ):
        Ours.from_json(text, "my.json")


def test_a_different_version_is_an_error_that_names_both() -> None:
    text = json.dumps({**json.loads(gpt2().to_str()), "version": "2.0"})
    with pytest.raises(DataError, match=r'^my\.json has tokenizer version "2\.0", but heedful reads version "1\.0"$'):
        Ours.from_json(text, "my.json")


def test_a_saved_file_without_padding_is_an_error_with_the_way_out() -> None:
    message = r"^my\.json has no padding piece such as <pad>; name the file as text\.tokenizer_file to have it added$"
    with pytest.raises(DataError, match=message):
        Ours.from_json(gpt2().to_str(), "my.json")


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("normalizer", {"type": "Evil"}, "its normalizer is 'Evil', and known ones are Sequence, Prepend, "),
        ("normalizer", {}, "its normalizer is not a component with a type"),
        ("normalizer", [], "its normalizer is not a component with a type"),
        ("pre_tokenizer", {"type": "UnicodeScripts"}, "its pre_tokenizer is 'UnicodeScripts', and known ones are "),
        ("decoder", {"type": "CTC"}, "its decoder is 'CTC', and known ones are Sequence, ByteLevel, "),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [REPLACE] * 17},
            "its normalizer is not a sequence of at most 16 components",
        ),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": []}]},
            "its normalizer has a sequence inside a sequence",
        ),
        (
            "normalizer",
            {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap()}] * 2},
            "its normalizer has more than one Precompiled",
        ),
        ("normalizer", {**REPLACE, "content": "aa"}, 'its normalizer replaces {"String": "a"} with something longer'),
        (
            "normalizer",
            {**REPLACE, "pattern": {"String": ""}},
            'its normalizer has the pattern {"String": ""}, which is not on the allow-list',
        ),
        (
            "pre_tokenizer",
            {**SPLIT, "pattern": {"Regex": "((a*)*)*b"}},
            'its pre_tokenizer has the pattern {"Regex": "((a*)*)*b"}, which is not on the allow-list',
        ),
        (
            "pre_tokenizer",
            {**SPLIT, "pattern": "a"},
            'its pre_tokenizer has the pattern "a", which is not on the allow-list',
        ),
        (
            "normalizer",
            {"type": "Prepend", "prepend": "a" * 257},
            "its normalizer has a 'prepend' that is too large or of the wrong type",
        ),
        (
            "normalizer",
            {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
            "its normalizer has a damaged precompiled_charsmap",
        ),
        ("normalizer", {"type": "Precompiled"}, "its normalizer has a damaged precompiled_charsmap"),
        (
            "normalizer",
            {"type": "Precompiled", "precompiled_charsmap": 5},
            "its normalizer has a damaged precompiled_charsmap",
        ),
        (
            "normalizer",
            {
                "type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(b"\x04\0\0\0" + bytes(4) + b"a" * 65).decode(),
            },
            "its normalizer turns one character into more than 64 bytes",
        ),
        ("added_tokens", {}, "its added_tokens are not a list of at most 20000"),
        ("added_tokens", [{"content": ""}], "an added token does not have 1 to 256 characters"),
        ("added_tokens", ["</s>"], "an added token does not have 1 to 256 characters"),
        ("type", "Python", "its model is 'Python', and known ones are BPE, Unigram, WordLevel, WordPiece"),
        ("vocab", {}, "its vocabulary does not have 1 to 1000000 pieces"),
        ("vocab", {"a": 0, "b": 2}, "the ids of its 2 pieces are not 0 to 1"),
        ("vocab", {"a": 0, "b": True}, "the ids of its 2 pieces are not 0 to 1"),
        ("merges", {}, "its merges are not a list of at most 2000000"),
        ("merges", [["zz", "yy"]], "Token `zz` out of vocabulary"),
        ("max_input_chars_per_word", 100_000, "max_input_chars_per_word is 100000, not 1 to 256"),
    ],
)
def test_a_part_that_is_not_on_the_allow_list_is_an_error_that_names_it(
    part: str, value: Any, reason: str, tmp_path: Path
) -> None:
    assert reason in refusal(tmp_path, gpt2(), part, value)


@pytest.mark.parametrize(
    ("vocab", "reason"),
    [
        ([], "its vocabulary does not have 1 to 1000000 pieces"),
        ([["a", float("nan")]], '["a", NaN] is not a piece and its score'),
        ([["a"]], '["a"] is not a piece and its score'),
        ([[5, 0.5]], "[5, 0.5] is not a piece and its score"),
    ],
)
def test_invalid_scores_are_an_error_that_names_them(vocab: Any, reason: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, t5(), "vocab", vocab) == reason


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.text.tokenizer_allowlist.MAX_FILE_CHARACTERS", 30)
    with pytest.raises(DataError, match=r"my\.json .* it has 31 characters, and the limit is 30$"):
        Ours.from_json("x" * 31, "my.json")


def test_a_text_that_a_foreign_vocabulary_cannot_take_is_an_error(tmp_path: Path) -> None:
    data = json.loads(t5().to_str())
    data["model"]["unk_id"] = None
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(DataError, match=r"^this text cannot be encoded: "):
        reuse_tokenizer(path).encode("字")


def test_an_eos_that_is_also_the_unknown_piece_never_comes_from_text(tmp_path: Path) -> None:
    data = json.loads(t5().to_str())
    data["model"]["unk_id"] = 1
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    read = reuse_tokenizer(path)
    assert read.decode(read.encode("dogs字 </s>")).startswith("dogs")
    assert read.encode("dogs字 </s>").count(read.eos_id) == 1


def test_a_real_panic_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    reason = refusal(tmp_path, gpt2(), "continuing_subword_prefix", "longer than any piece")
    assert reason.startswith("range end index")


def test_a_panic_of_the_library_becomes_a_data_error() -> None:
    from heedful.text.tokenizer import rust_errors

    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(DataError, match=r"^x\.json is broken: index out of range$"), rust_errors("x.json is broken"):
        raise panic("index out of range")
    with pytest.raises(KeyboardInterrupt), rust_errors("x.json is broken"):
        raise KeyboardInterrupt

"""A model with fewer pieces."""

from pathlib import Path

import pytest
from cut_vocabulary import cut_vocabulary, kept_ids, with_pieces

from heedful import Translator
from heedful.config import TextConfig
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer_training import learn_tokenizer

TEXT = ["the house of the mother", "das Haus der Mutter", "la maison de la mère", "other houses, other mothers"] * 20


def test_a_text_of_kept_pieces_stays_as_it_was() -> None:
    tokenizer = learn_tokenizer(TEXT, TextConfig(kind="bpe", vocabulary_size=300))
    wanted = [line for line in TEXT if "maison" not in line]
    ids = kept_ids(tokenizer, wanted, least=1)
    smaller = with_pieces(tokenizer, ids)
    assert smaller.vocabulary_size == len(ids) < tokenizer.vocabulary_size
    assert (smaller.pad_id, smaller.eos_id) == (tokenizer.pad_id, tokenizer.eos_id)
    for before, after in zip(tokenizer.encode_all(wanted), smaller.encode_all(wanted), strict=True):
        assert [ids[number] for number in after] == before
    assert smaller.decode(smaller.encode("la maison ß 日")) == "la maison ß 日"
    assert len(smaller.encode("la maison")) > len(tokenizer.encode("la maison"))


def test_pieces_that_are_seldom_are_left_out() -> None:
    tokenizer = learn_tokenizer(TEXT, TextConfig(kind="bpe", vocabulary_size=300))
    sizes = [len(kept_ids(tokenizer, TEXT, least)) for least in (1, 25, 10**6)]
    assert sizes[0] > sizes[1] > sizes[2] == 258  # bytes and two symbols


def test_a_smaller_model_says_the_same(trained: Path, tmp_path: Path) -> None:
    run = RunFolder.open(trained / "run")
    cut = cut_vocabulary(run, tmp_path / "cut", [trained / "train.en", trained / "train.de"], least=1)
    lines = (trained / "test.en").read_text().splitlines()
    ours, theirs = (Translator.load(one.path, engine="torch").translate(lines) for one in (cut, run))
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=0.05)

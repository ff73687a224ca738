"""Tiny runs of the families that read instead of writing, and of T5."""

from pathlib import Path

import label_examples
import picture_examples
import text_examples
import toy

_SHORT = ("train.max_steps=20", "train.validate_every=20", "train.save_every=20")
_SMALL = (
    *("model.d_model=32", "model.d_ff=64", "model.num_heads=2", "model.encoder_layers=2", "model.decoder_layers=1"),
    *("train.batch_tokens=600", "train.threads=1", "train.warmup_steps=5", "seed=3"),
)


def train_all(folder: Path) -> dict[str, Path]:
    """Runs by name: a classifier, a tagger, a model of hidden words, one of pictures, and a T5 that restores spans."""
    for name in ("sorter", "tagger"):
        (folder / name).mkdir()
    labels = label_examples.write_labels(folder / "texts.tsv", 100)
    words = label_examples.write_conllu(folder / "words.conllu", 100)
    pictures = picture_examples.write_pictures(folder / "pictures")
    book = text_examples.write_text(folder / "book.txt", text_examples.rhymes(200))
    spans = [part for setting in ("model.preset=t5", *_SMALL, *_SHORT) for part in ("--set", setting)]
    masked = label_examples.options(*_SHORT, "text.vocabulary_size=270")
    return {
        "sorter": label_examples.train_bert(folder / "sorter", labels, *_SHORT, "text.vocabulary_size=270"),
        "tagger": label_examples.train_bert(folder / "tagger", words, *_SHORT, "text.vocabulary_size=270"),
        "vit": picture_examples.train_vit(pictures, folder / "vit", "train.max_steps=30", "model.encoder_layers=2"),
        "masked": _pre_train(book, folder / "masked", "masked", masked),
        "t5": _pre_train(book, folder / "t5", "spans", spans),
    }


def _pre_train(book: Path, out: Path, objective: str, options: list[str]) -> Path:
    with toy.plain_log():
        ran = toy.run("train", "--text", book, "--objective", objective, "--out", out, *options)
    assert ran.code == 0, ran.err
    return out

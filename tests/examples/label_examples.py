"""Labelled texts that a tiny BERT learns in seconds, and such models."""

import random
from pathlib import Path

import toy

TINY_BERT = (
    *("seed=3", "train.threads=1", "model.d_model=32", "model.d_ff=64", "model.num_heads=2"),
    *("model.encoder_layers=2", "model.dropout=0.1", "text.vocabulary_size=300", "text.bpe_variants=2"),
    *("train.batch_tokens=300", "train.warmup_steps=5", "train.learning_rate=0.01"),
    *("train.max_steps=60", "train.validate_every=20", "train.save_every=20"),
)
_WORDS = {
    "Lob": ("schön", "wunderbar", "gut gemacht"),
    "Frage nach Geld": ("Rechnung", "was kostet", "Preis"),
    "weg": ("kündigen", "Vertrag endet", "nie wieder"),
}
_TAGGED = {"the": "DET", "a": "DET", "cat": "NOUN", "dog": "NOUN", "New York": "NOUN", "ran": "VERB", "sees": "VERB"}


def labelled(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Labels and texts; one word among others tells the label."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        label = chance.choices(tuple(_WORDS), (5, 3, 2))[0]
        noise = [chance.choice(("hallo", "heute", "das", "bitte", "und")) for _ in range(chance.randint(1, 5))]
        noise.insert(chance.randint(0, len(noise)), chance.choice(_WORDS[label]))
        found.append((label, " ".join(noise)))
    return found


def write_labels(path: Path, count: int = 300, seed: int = 1) -> Path:
    path.write_bytes("".join(f"{label}\t{text}\n" for label, text in labelled(count, seed)).encode())
    return path


def tagged(count: int, seed: int = 1) -> list[list[tuple[str, str]]]:
    """Sentences of words with tags; one word has a space."""
    chance = random.Random(seed)
    return [[chance.choice(tuple(_TAGGED.items())) for _ in range(chance.randint(1, 7))] for _ in range(count)]


def write_conllu(path: Path, count: int = 200, seed: int = 1) -> Path:
    lines = []
    for number, sentence in enumerate(tagged(count, seed)):
        lines.append(f"# sent_id = {number}")
        for place, (word, tag) in enumerate(sentence, 1):
            lines.append(f"{place}\t{word}\t_\t{tag}\t_\t_\t0\t_\t_\t_")
        lines.append("")
    path.write_bytes("\n".join([*lines, ""]).encode())
    return path


def options(*more: str) -> list[str]:
    """Options of `heedful train` for the tiny model, and others."""
    return [part for setting in (*TINY_BERT, *more) for part in ("--set", setting)]


def pretrain_bert(folder: Path, text: Path, *more: str) -> Path:
    """A run folder whose model finds hidden tokens of this text."""
    with toy.plain_log():
        ran = toy.run("train", "--text", text, "--objective", "masked", "--out", folder / "pre", *options(*more))
    assert ran.code == 0, ran.err
    return folder / "pre"


def train_bert(folder: Path, file: Path, *more: str) -> Path:
    """A run folder whose model knows the labels of this file."""
    with toy.plain_log():
        ran = toy.run("train", "--labels", file, "--out", folder / "run", *options(*more))
    assert ran.code == 0, ran.err
    return folder / "run"

"""The rivals and T5 in whole runs: they are trained, resumed, decoded, inspected and described like a Transformer."""

import json
from pathlib import Path

import pytest
import toy

SETTINGS = (
    "train.threads=1",
    "model.d_model=32",
    "model.dropout=0.1",
    "text.kind=words",
    "text.vocabulary_size=400",
    "train.batch_tokens=384",
    "train.learning_rate=0.01",
    "train.warmup_steps=20",
)


def training(folder: Path, out: Path, name: str, *more: str) -> list[object]:
    """Arguments that train a preset in miniature."""
    settings = [part for setting in (*SETTINGS, f"model.preset={name}", *more) for part in ("--set", setting)]
    data = ("--source", folder / "train.en", "--target", folder / "train.de")
    valid = ("--valid-source", folder / "valid.en", "--valid-target", folder / "valid.de")
    return ["train", *data, *valid, "--out", out, *settings]


def train(folder: Path, out: Path, name: str, *more: str) -> None:
    with toy.plain_log():
        ran = toy.run(*training(folder, out, name, *more))
    assert ran.code == 0, ran.err


LEARNT = ("bahdanau", "convs2s", "t5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rivals")
    toy.write_pairs(path, "train", 1500, seed=11)
    toy.write_pairs(path, "valid", 40, seed=12)
    return path


@pytest.fixture(scope="module")
def learnt(folder: Path) -> dict[str, Path]:
    """Run folders of two rivals with attention to the source, and of T5."""
    runs = {name: folder / name for name in LEARNT}
    wanted = ("train.validate_every=200", "train.save_every=200")
    steps = {name: f"train.max_steps={400 if name == 't5' else 200}" for name in runs}
    # In their own processes, where shapes are not checked.
    processes = [toy.start(*training(folder, out, name, *wanted, steps[name])) for name, out in runs.items()]
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err.decode()
    return runs


@pytest.mark.parametrize("name", LEARNT)
def test_a_rival_learns_the_toy_language(learnt: dict[str, Path], name: str) -> None:
    assert toy.events(learnt[name], "Validated")[-1]["score"] > 90.0


@pytest.mark.parametrize("name", LEARNT)
def test_it_translates_and_aligns(learnt: dict[str, Path], name: str) -> None:
    sentence = toy.sentences(1, 13)[0]
    ran = toy.run("translate", learnt[name], sentence, "--alignments")
    assert ran.code == 0, ran.err
    text, _, links = ran.lines[0].partition(" ||| ")
    assert text == toy.translated(sentence)
    last = len(sentence.split()) - 1
    assert links.split() == [f"{i}-{last - i}" for i in range(last + 1)]  # the toy language reverses the order


@pytest.mark.parametrize(("name", "layers"), [("bahdanau", 1), ("convs2s", 3)])
def test_its_heads_are_shown_and_can_be_switched_off(learnt: dict[str, Path], name: str, layers: int) -> None:
    out, sentence = learnt[name] / "look.json", toy.sentences(1, 13)[0]
    assert toy.run("heads", learnt[name], sentence, "--out", out).code == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    hypothesis = found["hypotheses"][0]
    assert (len(found["encoder"]), len(hypothesis["decoder"]), len(hypothesis["cross"])) == (0, 0, layers)
    off = [part for layer in range(layers) for part in ("--off", f"cross.{layer + 1}.1")]
    without = toy.run("heads", learnt[name], sentence, "--out", out, *off)
    assert without.code == 0, without.err
    assert without.lines[0] != toy.translated(sentence)


def test_t5_shows_all_its_heads(learnt: dict[str, Path]) -> None:
    out, sentence = learnt["t5"] / "look.json", toy.sentences(1, 13)[0]
    assert toy.run("heads", learnt["t5"], sentence, "--out", out).code == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    hypothesis = found["hypotheses"][0]
    assert (len(found["encoder"]), len(hypothesis["decoder"]), len(hypothesis["cross"])) == (4, 4, 4)


def test_t5_is_evaluated(learnt: dict[str, Path], folder: Path) -> None:
    ran = toy.run(
        *("evaluate", learnt["t5"], "--source", folder / "valid.en", "--reference", folder / "valid.de", "--json")
    )
    assert ran.code == 0, ran.err
    assert json.loads(ran.lines[0])["scores"][0]["value"] > 90.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("export", "RUN", "OUT", "--to", "ctranslate2"),
            "heedful exports only Transformers to CTranslate2, but this model is a T5",
        ),
        (
            ("export", "RUN", "OUT", "--to", "onnx"),
            "only Transformers are exported to ONNX, but this model is a T5",
        ),
        (
            ("prune", "RUN", "--keep", "0.5", "--source", "TEXT", "--target", "TRUE", "--out", "OUT"),
            "RUN is a T5, but only Transformers can be pruned",
        ),
    ],
)
def test_what_t5_cannot_do_is_said_in_a_sentence(
    learnt: dict[str, Path], folder: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    text = {"TEXT": str(folder / "valid.en"), "TRUE": str(folder / "valid.de")}
    places = {"RUN": str(learnt["t5"]), "OUT": str(tmp_path / "out"), **text}
    ran = toy.run(*(places.get(argument, argument) for argument in arguments))
    assert ran.code == 2
    assert message.replace("RUN", places["RUN"]) in ran.err


def test_the_papers_figures_need_self_attention(learnt: dict[str, Path], tmp_path: Path) -> None:
    ran = toy.run("heads", learnt["convs2s"], "--paper", tmp_path / "figures")
    assert ran.code == 2
    assert f"{learnt['convs2s']} has no attention in its encoder, which the figures show; use a Transformer" in ran.err


@pytest.mark.parametrize(
    ("name", "family", "words"),
    [
        ("bahdanau", "recurrent", "A recurrent model"),
        ("convs2s", "convolutional", "A convolutional model"),
        ("t5", "t5", "A T5"),
    ],
)
def test_its_folder_describes_it(learnt: dict[str, Path], name: str, family: str, words: str) -> None:
    config = json.loads((learnt[name] / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["architectures"]) == (f"heedful-{family}", [family.capitalize()])
    parameters = sum(weight.numel() for weight in toy.weights(learnt[name]).values())
    card = (learnt[name] / "README.md").read_text(encoding="utf-8")
    assert f"{words} of {parameters:,} parameters (preset `{name}`)" in card


@pytest.mark.parametrize("name", ["lstm", "luong", "convs2s", "t5"])
def test_resuming_is_exact(folder: Path, tmp_path: Path, name: str) -> None:
    steady = ("train.schedule=constant", "train.learning_rate=0.003", "train.save_every=3", "train.validate_every=3")
    train(folder, tmp_path / "whole", name, *steady, "train.max_steps=6")
    train(folder, tmp_path / "parts", name, *steady, "train.max_steps=3")
    with toy.plain_log():
        ran = toy.run("train", "--resume", tmp_path / "parts", "--set", "train.max_steps=6")
    assert ran.code == 0, ran.err
    assert toy.same_bits(*(toy.last_checkpoint(tmp_path / part) for part in ("whole", "parts")))

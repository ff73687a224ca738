"""`heedful train --objective masked`, and labels that start from such a model."""

from pathlib import Path

import label_examples
import pytest
import text_examples
import torch
import toy

from heedful.storage.run_folder import RunFolder
from heedful.training.finetune import load_parent_weights

SHORT = ("train.max_steps=3", "train.validate_every=3", "train.save_every=3", "text.vocabulary_size=265")
MASKED = (
    *("text.vocabulary_size=265", "text.bpe_variants=8", "model.max_positions=32", "model.dropout=0"),
    *("train.max_steps=100", "train.batch_tokens=600", "train.learning_rate=0.02", "train.ema_decay=0.9"),
)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pre")
    text = text_examples.write_text(folder / "text.txt", text_examples.rhymes(300))
    options = label_examples.options(*MASKED)
    with toy.plain_log():
        ran = toy.run("train", "--text", text, "--objective", "masked", "--out", folder / "run", *options)
    assert ran.code == 0, ran.err
    assert "objective: 15 % of the tokens are hidden" in ran.err
    assert f"teach it your labels with: heedful train --init {folder / 'run'} --labels FILE --out OUT" in ran.err
    return folder / "run"


def test_hidden_tokens_are_learnt(pretrained: Path) -> None:
    losses = [event["loss"] for event in RunFolder.open(pretrained).read_events("Validated")]
    assert losses[-1] < 0.6  # of about 17 tokens that occur, only those of two words cannot be known from the others


def test_labels_start_from_its_encoder_with_a_new_head(pretrained: Path, tmp_path: Path) -> None:
    file = label_examples.write_labels(tmp_path / "train.tsv", 60)
    short = [part for setting in SHORT[:3] for part in ("--set", setting)]
    with toy.plain_log():
        ran = toy.run("train", "--init", pretrained, "--labels", file, "--out", tmp_path / "run", *short)
    assert ran.code == 0, ran.err
    assert "learning rate: " in ran.err
    run, before = RunFolder.open(tmp_path / "run"), dict(RunFolder.open(pretrained).model().named_parameters())
    assert run.tokenizers().source.to_json() == RunFolder.open(pretrained).tokenizers().source.to_json()
    model = run.model()
    load_parent_weights(model, run)
    for name, weight in model.named_parameters():
        if not name.startswith("head."):
            assert torch.equal(weight, before[name])
    assert model.output_weight.shape[0] == 3
    again = toy.run("train", "--init", tmp_path / "run", "--labels", file, "--out", tmp_path / "more", *short)
    assert again.code == 0, again.err
    assert RunFolder.open(tmp_path / "more").experiment().model.labels == run.experiment().model.labels


def test_a_model_of_hidden_tokens_answers_nothing(pretrained: Path) -> None:
    for command in ("classify", "translate", "complete"):
        assert toy.run(command, pretrained, "x").code == 2
    refused = toy.run("train", "--text", "x", "--objective", "span", "--out", "y")
    assert refused.code == 2
    assert "--objective must be one of" in refused.err
    assert "but is span; did you mean 'spans'?" in refused.err

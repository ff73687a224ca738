"""The race to a score, without training."""

import json
from pathlib import Path

import pytest
import torch
from quality import Curve, mean_of, read_hypotheses, read_result, translate_greedily
from torch import Tensor

from heedful.config import TextConfig
from heedful.storage.run_folder import Tokenizers
from heedful.text.tokenizer_training import learn_tokenizer


def test_a_curve_ends_when_the_score_is_reached(tmp_path: Path) -> None:
    curve = Curve(tmp_path / "curve.jsonl", bleu=20.0)
    curve.pause()
    assert not curve.add(5, 19.9)
    assert read_result(tmp_path / "curve.jsonl") is None
    assert curve.add(10, 20.0)
    first, last = (json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines())
    assert (last["step"], last["score"]) == (10, 20.0)
    assert first["seconds"] == last["seconds"]  # time that is not counted does not pass
    assert read_result(tmp_path / "curve.jsonl") == (last["seconds"], 20.0)


def test_a_contender_that_was_never_run_has_no_result(tmp_path: Path) -> None:
    assert read_result(tmp_path / "curve.jsonl") is None


def test_the_mean_of_snapshots() -> None:
    assert torch.equal(mean_of([torch.tensor([1.0, 2.0]), torch.tensor([2.0, 6.0])]), torch.tensor([1.5, 4.0]))


class Copier(torch.nn.Module):
    """Writes the source, whatever it has written before."""

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
        here = torch.arange(target.shape[1]).clamp(max=source.shape[1] - 1)
        return torch.nn.functional.one_hot(source[:, here], 300).float()


@pytest.mark.parametrize("texts", [["red fox"], ["a", "red fox runs", "fox", "runs red"]])
def test_greedy_translations_are_in_the_order_of_their_texts(texts: list[str]) -> None:
    tokenizer = learn_tokenizer(["a red fox runs"], TextConfig(kind="words", vocabulary_size=300))
    assert translate_greedily(Copier(), Tokenizers(tokenizer, tokenizer), texts) == texts


def test_joeynmt_s_lines_of_ids_become_text_again(tmp_path: Path) -> None:
    tokenizer = learn_tokenizer(["a red fox runs"], TextConfig(kind="words", vocabulary_size=300))
    ids = tokenizer.encode("red fox")
    words = " ".join(f"w{number}" for number in ids if number != tokenizer.eos_id)
    hypotheses = tmp_path / "3.hyps"
    hypotheses.write_text(f"{words}\n\n{words} <unk>\n", encoding="utf-8")
    assert read_hypotheses(hypotheses, tokenizer) == ["red fox", "", "red fox"]

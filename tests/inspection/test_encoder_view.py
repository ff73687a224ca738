"""The heads of models without a decoder, and of those that restore spans: as data, as a page, and in a browser."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import toy
from browser import chromium, watched

from heedful import Classifier, MaskFiller, PictureClassifier
from heedful.errors import DataError
from heedful.inspection.attention_page import make_attention_page
from heedful.inspection.encoder_view import EncoderViewer
from heedful.nn.attention import SelfAttention
from heedful.storage.run_folder import RunFolder
from heedful.translation.span_filler import SpanFiller

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXT, SENTENCE, HIDDEN = "hallo was kostet das", "the cat sees New York", "the [MASK] sat on the mät and [MASK] off"
SPANS = "the cat <extra_id_0> the mät and <extra_id_1>;"


@pytest.fixture(scope="module")
def runs(encoder_runs: dict[str, Path]) -> dict[str, Path]:
    return encoder_runs


@pytest.fixture(scope="module")
def picture(runs: dict[str, Path]) -> Path:
    return runs["vit"].parent / "pictures" / "down" / "1.png"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


def page_of(viewer: EncoderViewer, text: str, off: Sequence[str] = ()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(viewer.view(text, off).page()))
    return found


def weights_of(layer: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(base64.b64decode(layer["weights"]), "<u2")
    shares: np.ndarray = values.reshape(layer["heads"], layer["queries"], layer["keys"]) / 65535
    return shares


def first_layer(attention: SelfAttention, rows: torch.Tensor) -> np.ndarray:
    """Equation 1 for the first layer, from what the layer reads."""
    q, k, _ = attention.query_key_value(rows).split(attention.sizes, dim=1)
    heads = [part.view(len(rows), attention.num_heads, -1).transpose(0, 1) for part in (q, k)]
    scores = heads[0] @ heads[1].transpose(1, 2) / heads[0].shape[-1] ** 0.5
    if attention.bias is not None:
        places = torch.arange(len(rows))
        scores = scores + attention.bias(places[None] - places[:, None])
    found: np.ndarray = scores.softmax(-1).numpy()
    return found


@torch.inference_mode()
def test_a_classifiers_page_has_its_label_and_the_weights_of_equation_1(runs: dict[str, Path]) -> None:
    classifier = Classifier.load(runs["sorter"], "cpu")
    page = page_of(EncoderViewer(runs["sorter"], classifier), TEXT)
    (expected,) = classifier.classify([TEXT])
    (answer,) = page["hypotheses"]
    assert (answer["pieces"], answer["asked"], page["titles"]) == ([expected.label], [""], ["Text", "Label"])
    assert answer["tokens"][0]["probability"] == pytest.approx(expected.probability, abs=1e-5)
    told = {each["piece"]: each["probability"] for each in answer["tokens"][0]["alternatives"]}
    assert told == pytest.approx(expected.probabilities, abs=1e-5)
    assert page["source"]["pieces"][0] == "[CLS]"
    model, ids = classifier.model, torch.tensor(classifier.look(TEXT).question.source)
    x = model.embedding_norm(model.embedding.weight[ids] + model.token_types[0])
    layer = model.encoder[0]
    rows = layer.attention_residual.norm(x) if model.config.norm == "pre" else x
    assert weights_of(page["encoder"][0]) == pytest.approx(first_layer(layer.attention, rows), abs=1e-4)


@torch.inference_mode()
def test_a_pictures_page_has_its_pixels_and_the_weights_of_equation_1(runs: dict[str, Path], picture: Path) -> None:
    classifier = PictureClassifier.load(runs["vit"], "cpu")
    page = page_of(EncoderViewer(runs["vit"], classifier), str(picture))
    (expected,) = classifier.classify([picture])
    assert page["hypotheses"][0]["text"] == f"{expected.label} ({100 * expected.probability:.1f} %)"
    assert page["source"]["text"] == "1.png"  # not where it is
    assert page["source"]["pieces"][:4] == ["[CLS]", "1,1", "1,2", "1,3"]
    assert page["picture"]["across"] == 3
    model, look = classifier.model, classifier.look(picture)
    pixels = np.asarray(look.question.pixels, np.float32)[..., 0] / 127.5 - 1
    patches = [pixels[y : y + 4, x : x + 4].ravel() for y in (0, 4, 8) for x in (0, 4, 8)]
    x = torch.cat([model.class_token[None], model.patches(torch.from_numpy(np.stack(patches)))]) + model.positions
    layer = model.encoder[0]
    expected_weights = first_layer(layer.attention, layer.attention_residual.norm(x))
    assert weights_of(page["encoder"][0]) == pytest.approx(expected_weights, abs=1e-4)


def test_a_page_that_is_served_shows_its_own_picture_whatever_file_it_names(
    runs: dict[str, Path], picture: Path
) -> None:
    classifier = PictureClassifier.load(runs["vit"], "cpu")
    viewer = EncoderViewer(runs["vit"], classifier, str(picture))
    shown = viewer.view("/etc/passwd", ["encoder.1.1"], live=True)
    assert dict(shown.page())["source"] == {"text": "1.png", "pieces": list(classifier.look(picture).question.pieces)}
    assert shown.baseline == viewer.view("").text


@pytest.mark.parametrize("name", ["sorter", "vit"])
def test_the_cost_of_a_head_is_that_of_its_columns_being_zero(name: str, runs: dict[str, Path], picture: Path) -> None:
    reader = Classifier.load(runs[name], "cpu") if name == "sorter" else PictureClassifier.load(runs[name], "cpu")
    text = TEXT if name == "sorter" else str(picture)
    page = page_of(EncoderViewer(runs[name], reader), text)
    before = reader.look(text)
    attention = reader.model.encoder[1].attention
    width = attention.head_sizes.d_v
    with torch.no_grad():
        attention.output.weight[:, width : 2 * width] = 0
    without = reader.look(text, before.answers)
    assert page["costs"]["encoder.2.2"] == pytest.approx(before.log_prob - without.log_prob, abs=2e-4)
    assert set(page["costs"]) == {"encoder.1.1", "encoder.1.2", "encoder.2.1", "encoder.2.2"}


def test_heads_that_are_off_change_the_answer_and_the_page_has_both(runs: dict[str, Path]) -> None:
    classifier = Classifier.load(runs["tagger"], "cpu")
    viewer = EncoderViewer(runs["tagger"], classifier)
    page = page_of(viewer, SENTENCE, ["encoder.1.1", "encoder.1.2", "encoder.2.1", "encoder.2.2"])
    (tagged,) = classifier.tag([SENTENCE])
    assert page["baseline"] == str(tagged)
    assert page["hypotheses"][0]["asked"] == [one.word for one in tagged.words]
    assert page["off"] == ["encoder.1.1", "encoder.1.2", "encoder.2.1", "encoder.2.2"]
    assert "costs" not in page
    # Without attention, a word of one piece has the same tag wherever it stands.
    moved = page_of(viewer, "sees New York the cat", page["off"])["hypotheses"][0]
    for first, second in ((2, 0), (0, 3)):
        assert moved["tokens"][second] == page["hypotheses"][0]["tokens"][first]


def test_hidden_words_are_found_where_they_are_hidden(runs: dict[str, Path]) -> None:
    filler = MaskFiller.load(runs["masked"], "cpu")
    look = filler.look(HIDDEN)
    question = look.question
    assert [question.pieces[place] for place in question.places] == ["[MASK]", "[MASK]"]
    page = page_of(EncoderViewer(runs["masked"], filler), HIDDEN)
    assert page["hypotheses"][0]["asked"] == ["[MASK] 1", "[MASK] 2"]
    assert page["titles"] == ["Text", "Hidden words"]
    given = filler.look(HIDDEN, [";", "the"])
    assert given.answers == (";", "▁the")
    assert given.log_prob < look.log_prob
    assert given.log_prob == pytest.approx(given.inside.log_probs[[0, 1], given.answer_ids].sum(), abs=1e-5)
    with pytest.raises(DataError, match=r"the text has no \[MASK\]; write \[MASK\] in place of each word"):
        filler.look("the cat sat")
    with pytest.raises(DataError, match="zebra is no single piece of this vocabulary"):
        filler.look(HIDDEN, ["zebra", "on"])
    with pytest.raises(DataError, match="1 given, but the model is asked for 2 answers; give as many"):
        filler.look(HIDDEN, look.answers[:1])


def test_spans_are_written_behind_their_marks_and_given_ones_are_looked_at(runs: dict[str, Path]) -> None:
    filler = SpanFiller.open(RunFolder.open(runs["t5"]), "cpu")
    pieces = filler.tokenizers.source.pieces(filler.encode([SPANS])[0])
    assert [piece for piece in pieces if piece.startswith("<extra")] == ["<extra_id_0>", "<extra_id_1>"]
    written = "<extra_id_0> sat on <extra_id_1> ran off"
    look = filler.look(SPANS, translation=written)
    assert look.translation.text == written
    assert look.translation.pieces[0] == "<extra_id_0>"
    assert filler.spell(filler.encode_target("<extra_id_0>ing <extra_id_1>")) == "<extra_id_0>ing <extra_id_1>"
    search = replace(filler.search, beam=2, max_extra=3)
    assert filler.look(SPANS, search=search).translation.text == filler.fill(SPANS, search).text
    with pytest.raises(DataError, match="the text has no <extra_id_0>; write <extra_id_0>"):
        filler.look("the cat sat")


def test_the_command_line_writes_pages_pictures_and_data(runs: dict[str, Path], picture: Path, tmp_path: Path) -> None:
    for name, text, kinds in (
        ("sorter", TEXT, 1),
        ("tagger", SENTENCE, 1),
        ("masked", HIDDEN, 1),
        ("vit", picture, 1),
        ("t5", SPANS, 3),
    ):
        assert toy.run("heads", runs[name], text, "--out", tmp_path / "heads.html").code == 0
        ran = toy.run("heads", runs[name], text, "--out", tmp_path / "heads.json", "--json")
        printed = json.loads(ran.out)
        listed = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
        assert listed["hypotheses"][0]["text"] == printed["text"]
        shown = [listed["encoder"], listed["hypotheses"][0]["decoder"], listed["hypotheses"][0]["cross"]]
        assert sum(map(bool, shown)) == kinds
        toy.run("heads", runs[name], text, "--out", tmp_path / "heads.npz")
        with np.load(tmp_path / "heads.npz") as arrays:
            assert arrays["encoder.2"].shape[0] == 2
            assert arrays["encoder.2"].sum(-1) == pytest.approx(1.0, abs=1e-5)
    pytest.importorskip("matplotlib")
    for name, text in (("sorter", TEXT), ("vit", picture)):
        assert toy.run("heads", runs[name], text, "--out", tmp_path / "heads.png").code == 0
        assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_sentence(runs: dict[str, Path], tmp_path: Path) -> None:
    for line, message in (
        ((runs["sorter"], "a", "--n-best", "2"), "--n-best goes with a model that writes text"),
        ((runs["sorter"], "a", "--beam", "2"), "--beam goes with a model that writes text"),
        ((runs["sorter"], " "), "there is nothing to look at in an empty text"),
        ((runs["sorter"], "--serve"), "--serve needs a text, or a picture, to begin with"),
        ((runs["sorter"], "--input", runs["sorter"]), "--input goes with a model that translates"),
        ((runs["vit"], tmp_path / "none.png"), "none.png does not exist; name a PNG or JPEG picture"),
        ((runs["sorter"], "a", "--off", "cross.1.1"), "this model has no cross attention"),
    ):
        out = () if {"--serve", "--input"} & {*map(str, line)} else ("--out", tmp_path / "a.html")
        ran = toy.run("heads", *line, *out)
        assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
        assert message in ran.err


def test_a_patch_shows_where_it_looks(browser: "Browser", runs: dict[str, Path], picture: Path, tmp_path: Path) -> None:
    classifier = PictureClassifier.load(runs["vit"], "cpu")
    view = EncoderViewer(runs["vit"], classifier).view(str(picture))
    page = dict(view.page())
    (tmp_path / "heads.html").write_text(make_attention_page(page), encoding="utf-8")
    weights = classifier.look(picture).inside.attention.encoder
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        shown = seen.page
        shown.goto((tmp_path / "heads.html").as_uri())
        assert shown.locator(".patch").count() == 9
        assert shown.locator("#from-all").get_attribute("aria-pressed") == "true"  # this model reads the mean
        assert shown.locator("#lines-box").is_hidden()
        assert shown.locator("#stepping").is_hidden()
        for number, row in ((0, "#from-class"), (5, "[data-patch='5']")):
            shown.click(row)
            labels = [patch.get_attribute("aria-label") for patch in shown.locator(".patch").all()]
            told = [float(str(label).rsplit(": ", maxsplit=1)[1]) for label in labels]
            assert told == pytest.approx(weights[0][0, number, 1:], abs=6e-4)
        assert labels[4] is not None
        assert labels[4].startswith("row 2, column 2: ")
        shown.locator("[data-patch='5']").focus()
        shown.keyboard.press("ArrowDown")
        assert shown.evaluate("document.activeElement.dataset.patch") == "8"
        shown.click("#open-encoder\\.2\\.2")
        labels = [patch.get_attribute("aria-label") for patch in shown.locator(".patch").all()]
        told = [float(str(label).rsplit(": ", maxsplit=1)[1]) for label in labels]
        assert told == pytest.approx(weights[1][1, 5, 1:], abs=6e-4)
        best = classifier.classify([picture])[0]
        assert shown.locator("#alternatives-list li").first.inner_text().split("\n")[0] == best.label
        assert seen.misdeeds == []


def test_the_answers_of_a_tagger_stand_under_their_words(
    browser: "Browser", runs: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "heads.html"
    assert toy.run("heads", runs["tagger"], SENTENCE, "--out", out).code == 0
    with watched(browser, viewport={"width": 1280, "height": 900}, reduced_motion="reduce") as seen:
        page = seen.page
        page.goto(out.as_uri())
        assert page.locator("#produced .about").all_inner_texts() == SENTENCE.split()
        assert page.locator("#target-label").inner_text() == "Tags"
        assert page.locator("#stepping").is_hidden()
        assert page.locator("#queries li").count() == page.locator("#keys li").count()
        page.locator("#produced li").nth(1).focus()
        assert page.locator("#alternatives-of").inner_text() == "Most likely answers for 'cat'"
        assert seen.misdeeds == []

"""The attention of a translation, from Python and by `heedful heads`."""

import base64
import json
import shutil
import signal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import toy

from heedful import Head, Translator
from heedful.attention.head_names import KINDS
from heedful.config import SearchConfig
from heedful.errors import DataError, FolderError
from heedful.inspection.attention_view import AttentionViewer, pack_weights, read_roles
from heedful.models.transformer import Transformer
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder

TEXT = "word"


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


@pytest.fixture(scope="module")
def text() -> str:
    return toy.sentences(20, seed=13)[3]


def test_inspect_shows_the_translation_that_translate_returns(translator: Translator, text: str) -> None:
    (expected,) = translator.translate([text], n_best=3)
    inspection = translator.look(text, n_best=3)
    assert inspection.translation == expected
    assert len(inspection.inside) == 3
    for alternative, inside in zip(inspection.translation.alternatives, inspection.inside, strict=True):
        n, m = len(inspection.translation.source_pieces), len(alternative.pieces)
        assert inside.attention.cross[0].shape == (2, m, n)
        assert inside.attention[Head("decoder", 0, 1)].shape == (m, m)
        assert inside.log_probs.sum() == pytest.approx(alternative.log_prob, abs=1e-4)


def test_inspect_explains_a_given_translation(translator: Translator, text: str) -> None:
    (best,) = translator.translate([text], n_best=2)
    second = best.alternatives[1]
    found = translator.look(text, translation=second.text, n_best=2)
    assert [each.text for each in found.translation.alternatives] == [second.text, best.text]
    assert found.translation.text == second.text
    expected = translator.look(text, n_best=2).inside[1]
    assert found.translation.alternatives[0].score == pytest.approx(second.score, abs=1e-4)
    np.testing.assert_allclose(found.inside[0].attention.cross[0], expected.attention.cross[0], atol=1e-5)
    alone = translator.look(text, translation="<unheard of>")
    assert [each.text for each in alone.translation.alternatives] == ["<unheard of>"]
    with pytest.raises(DataError, match=r"the translation has .* pieces, over the 400 that can be shown; shorten it"):
        translator.look(text, translation="a " * 400)


def test_the_baseline_comes_from_the_engine_that_translates_without_heads(
    trained: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="needs ctranslate2")
    from heedful.decoding.ctranslate2_engine import CTranslate2Engine

    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    assert toy.run("export", run, "--to", "ctranslate2").code == 0

    def refuse(*_: object) -> None:
        raise AssertionError("this engine has all heads on, always")

    monkeypatch.setattr(CTranslate2Engine, "decode", refuse)
    exported = Translator.load(run)
    assert exported.engine.name == "ctranslate2"
    assert AttentionViewer(run, exported, exported.search).baseline(text) == toy.translated(text)


def test_a_model_that_reverses_attends_from_the_end(translator: Translator) -> None:
    words = " ".join(list(toy.dictionary())[:5])
    attention = translator.look(words).inside[0].attention.cross[0].sum(0)
    assert attention[:5, :5].argmax(-1).tolist() == [4, 3, 2, 1, 0]


def test_a_translation_changes_without_heads_and_returns_with_them(translator: Translator, text: str) -> None:
    before = translator.look(text)
    with translator.switch_off_heads(["cross.1.1", "cross.1.2"]):
        without = translator.look(text)
    assert without.translation.text != before.translation.text
    assert translator.look(text).translation == before.translation


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is nothing to look at in an empty text; give a sentence"),
        ("  \n", "there is nothing to look at in an empty text; give a sentence"),
        ("a " * 400, "the text has .* pieces, over the 400 that can be shown; split it into sentences"),
    ],
)
def test_a_text_that_cannot_be_inspected_is_refused_in_a_sentence(
    translator: Translator, text: str, sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        translator.look(text)


def test_the_page_gets_all_weights_with_sixteen_bits(trained: Path, translator: Translator, text: str) -> None:
    viewer = AttentionViewer(trained / "run", translator, SearchConfig(beam=4))
    inspection = viewer.look(text, n_best=2)
    document = json.loads(json.dumps(viewer.document(inspection)))
    assert document["source"] == {"text": text, "pieces": list(inspection.translation.source_pieces)}
    assert (document["off"], document["baseline"], document["live"]) == ([], None, False)
    layer = document["hypotheses"][1]["cross"][0]
    shape = (layer["heads"], layer["queries"], layer["keys"])
    found = np.frombuffer(base64.b64decode(layer["weights"]), "<u2").reshape(shape) / 65535
    np.testing.assert_allclose(found, inspection.inside[1].attention.cross[0], atol=1e-5)
    token = document["hypotheses"][0]["tokens"][0]
    assert token["alternatives"][0]["piece"] == inspection.translation.pieces[0]
    assert token["probability"] == token["alternatives"][0]["probability"] > 0.5
    assert len(token["alternatives"]) == 5


def test_a_weight_of_one_is_packed_as_the_largest_number() -> None:
    (layer,) = pack_weights([np.array([[[1.0, 0.0]]], dtype=np.float32)])
    assert layer == {"heads": 1, "queries": 1, "keys": 2, "weights": base64.b64encode(b"\xff\xff\0\0").decode()}


# The command


def test_the_command_writes_a_page_and_prints_the_translation(trained: Path, tmp_path: Path, text: str) -> None:
    ran = toy.run("heads", trained / "run", text, "--out", tmp_path / "a.html")
    assert (ran.code, ran.lines) == (0, [toy.translated(text)])
    assert ran.err == f"{tmp_path / 'a.html'} shows every head; open it in a browser\n"
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert text in page
    assert '"model":"run"' in page
    assert str(trained) not in page  # a page is passed on; paths are not


def test_open_opens_the_page_in_a_browser(trained: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "a page.html"
    for works in (True, False):
        with mock.patch("webbrowser.open", return_value=works) as opened:
            ran = toy.run("heads", trained / "run", text, "--out", out, "--open")
        opened.assert_called_once_with(out.as_uri())
        assert ("no browser found" in ran.err) is not works


def test_json_and_npz_files_hold_the_same_weights(trained: Path, tmp_path: Path, text: str) -> None:
    for name in ("a.json", "a.npz"):
        assert toy.run("heads", trained / "run", text, "--out", tmp_path / name, "--n-best", 2).code == 0
    listed = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert arrays["source_pieces"].tolist() == listed["source"]["pieces"]
        assert arrays["target_pieces"].tolist() == listed["hypotheses"][0]["pieces"]
        for kind in KINDS:
            holder = listed if kind == "encoder" else listed["hypotheses"][0]
            np.testing.assert_allclose(arrays[f"{kind}.1"], holder[kind][0], atol=1e-6)
            np.testing.assert_allclose(arrays[f"{kind}.1"].sum(-1), 1.0, atol=1e-5)
    assert len(listed["hypotheses"]) == 2


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_the_command_draws_a_picture(trained: Path, tmp_path: Path, text: str, name: str, start: bytes) -> None:
    ran = toy.run("heads", trained / "run", text, "--out", tmp_path / name)
    assert (ran.code, ran.err) == (0, f"{tmp_path / name} shows every head\n")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_heads_can_be_switched_off(trained: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "a.html"
    off = ("--off", "cross.1.1", "--off", "cross.1.2")
    ran = toy.run("heads", trained / "run", text, *off, "--out", out)
    assert ran.code == 0
    assert ran.lines != [toy.translated(text)]
    assert f"with all heads: {toy.translated(text)}\n" in ran.err
    printed = json.loads(toy.run("heads", trained / "run", text, *off, *off, "--out", out, "--json").out)
    assert printed == {"text": ran.lines[0], "baseline": toy.translated(text), "out": str(out)}
    assert '"off":["cross.1.1","cross.1.2"]' in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give a text, --input FILE, --paper FOLDER or --serve"),
        ("text --input a.en", "give a text, --input FILE, --paper FOLDER or --serve"),
        ("--serve --input a.en", "give a text, --input FILE, --paper FOLDER or --serve"),
        ("text --report a.html", "--report goes with --input; leave it out here"),
        ("text --target a.de", "--target goes with --input; leave it out here"),
        ("--input a.en --off cross.1.1", "--off goes with a text or --serve; leave it out here"),
        ("--input a.en --n-best 2", "--n-best goes with a text or --serve; leave it out here"),
        ("--paper figures --open", "--open goes with a text or --serve; leave it out here"),
        ("--input a.en --out a.html", "--out goes with a text; leave it out here"),
        ("--serve --out a.html", "--out goes with a text; leave it out here"),
        ("text --port 80", "--port goes with --serve; leave it out here"),
        ("--input a.en --report a.txt", "--report a.txt must end in one of .html, .png, .svg, but ends in '.txt'"),
        ("text --out a.htm", "--out a.htm must end in one of .html, .png, .svg, .json, .npz, but ends in '.htm'"),
        ("text --out no/a.png", "--out no/a.png: there is no folder no; create it first"),
        ("text --off encoder.9.1", "unknown head: encoder.9.1; encoder attention has layers 1 to 1"),
        ("text --off mean", "unknown head: mean; a name is kind.layer.head, with one of encoder, decoder, cross"),
        ("--input missing.en", "there is no file missing.en"),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = toy.run("heads", trained / "run", *line.split())
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_serve_puts_the_model_behind_the_page(trained: Path, text: str) -> None:
    httpx = pytest.importorskip("httpx", reason="needs httpx")
    server = toy.start("heads", trained / "run", "--serve")
    assert server.stderr
    url, *rest = server.stderr.readline().decode().split(" ", 1)
    assert (url.startswith("http://127.0.0.1:"), rest) == (True, ["shows every head; stop it with Ctrl-C\n"])
    try:
        page = httpx.get(url, timeout=20)
        assert (page.status_code, '"live":true' in page.text) == (200, True)
        headers = {"X-Heedful": "1"}
        asked = {"text": text, "off": ["cross.1.1", "cross.1.2"], "n_best": 1}
        answer = httpx.post(f"{url}attention", json=asked, headers=headers, timeout=20)
        document = answer.json()
        assert (answer.status_code, document["live"]) == (200, True)
        assert (document["baseline"], document["off"]) == (toy.translated(text), ["cross.1.1", "cross.1.2"])
        wrong = httpx.post(f"{url}attention", json=asked | {"off": ["cross.7.2"]}, headers=headers, timeout=20)
        assert (wrong.status_code, "unknown head: cross.7.2" in wrong.json()["error"]) == (422, True)
    finally:
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out, err) == (0, b"", b"")


# What each head does


@pytest.fixture(scope="module")
def copy(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that tests may write to."""
    return Path(shutil.copytree(trained / "run", tmp_path_factory.mktemp("copy") / "run"))


def test_a_report_names_the_role_of_each_head_and_later_pages_show_it(
    trained: Path, copy: Path, tmp_path: Path, text: str
) -> None:
    report = tmp_path / "report.html"
    corpus = toy.write_lines(tmp_path / "corpus.en", ["  ", *toy.lines_of(trained / "test.en"), "x " * 500])
    ran = toy.run("heads", copy, "--input", corpus, "--report", report)
    assert ran.code == 0, ran.err
    assert ran.lines[0].split() == ["head", "role", "entropy", "distance", "stability", "evidence"]
    assert [line.split()[0] for line in ran.lines[1:]] == [f"{kind}.1.{head}" for kind in KINDS for head in (1, 2)]
    assert "skipped 2 of 52 lines that are empty or too long\n" in ran.err
    assert "heads of <strong>run</strong>, measured on 50 sentences" in report.read_text(encoding="utf-8")
    assert str(copy) not in report.read_text(encoding="utf-8")
    assert toy.run("heads", copy, text, "--out", tmp_path / "a.html").code == 0
    role = ran.lines[1].split()[1]
    assert f'"encoder.1.1":{{"name":"{role}' in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_the_report_can_be_a_picture(trained: Path, copy: Path, tmp_path: Path) -> None:
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        ran = toy.run("heads", copy, "--input", trained / "few.en", "--report", tmp_path / name)
        assert (ran.code, ran.err) == (0, f"{tmp_path / name} shows what each head does\n")
        assert (tmp_path / name).read_bytes().startswith(start)


def test_the_page_shows_the_translation_that_translate_gives_and_ranks_the_heads(
    trained: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another engine searches for `translate`: it may find something that PyTorch would not.
    monkeypatch.setattr(AttentionViewer, "translate", lambda self, text: "ein anderer Satz")
    page = tmp_path / "a.html"
    assert toy.run("heads", trained / "run", text, "--out", page).out == "ein anderer Satz\n"
    shown = json.loads(page.read_text(encoding="utf-8").split('id="document">')[1].split("</script>")[0])
    assert shown["hypotheses"][0]["text"] == "ein anderer Satz"
    assert set(shown["costs"]) == {f"{kind}.1.{head}" for kind in KINDS for head in (1, 2)}


def test_a_head_costs_what_the_translation_loses_without_it(trained: Path, translator: Translator, text: str) -> None:
    viewer = AttentionViewer(trained / "run", translator, SearchConfig())
    translation = viewer.translate(text)
    assert translation == translator.translate([text], search=SearchConfig())[0].text
    costs = viewer.rank_heads(text, translation)
    whole = float(translator.look(text, translation=translation).inside[0].log_probs.sum())
    with translator.switch_off_heads(["cross.1.2"]):
        without = float(translator.look(text, translation=translation).inside[0].log_probs.sum())
    assert costs["cross.1.2"] == pytest.approx(whole - without, abs=0.01)


def test_roles_of_an_exported_model_belong_to_its_weights(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(find_model("en-de"), tmp_path / "en-de"))
    weights = RunFolder(folder).weights_id
    RunFolder(folder).write_about({"heads": {"weights": weights, "roles": {"cross.1.1": {"name": "broad"}}}})
    assert read_roles(folder) == {"cross.1.1": {"name": "broad"}}
    config = folder / "ctranslate2" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace(weights, "0" * 64), encoding="utf-8")
    assert read_roles(folder) == {}


def test_roles_are_dropped_when_the_weights_change(copy: Path, translator: Translator) -> None:
    viewer = AttentionViewer(copy, translator, SearchConfig())
    viewer.keep_roles({"cross.1.1": {"name": "broad", "evidence": "", "figure": ""}})
    assert list(viewer.roles()) == ["cross.1.1"]
    run = RunFolder(copy)
    run.write_weights({name: weight.detach() for name, weight in run.model().named_parameters()}, "trained on")
    assert viewer.roles() == {}


def test_a_report_with_references_measures_the_importance_of_each_head(trained: Path, copy: Path) -> None:
    ran = toy.run("heads", copy, "--input", trained / "test.en", "--target", trained / "test.de", "--json")
    found = json.loads(ran.out)
    assert set(found) == {f"{kind}.1.{head}" for kind in KINDS for head in (1, 2)}
    importance = [head["importance"] for head in found.values()]
    assert min(importance) > 0.0  # a model of this size needs every head
    assert max(importance) > 0.3
    assert found["encoder.1.1"]["sentences"] == 50


def test_the_report_is_printed_even_if_the_folder_is_read_only(
    trained: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise FolderError("it is read-only")

    monkeypatch.setattr("heedful.storage.run_folder.RunFolder.write_about", refuse)
    ran = toy.run("heads", copy, "--input", trained / "test.en")
    assert (ran.code, len(ran.lines)) == (0, 7)
    assert ran.err.endswith("the roles of the heads are not stored in the run folder: it is read-only\n")


def test_a_corpus_without_text_is_refused_in_a_sentence(trained: Path, tmp_path: Path) -> None:
    empty = toy.write_lines(tmp_path / "empty.en", ["", ""])
    ran = toy.run("heads", trained / "run", "--input", empty)
    assert (ran.code, ran.err) == (2, "heedful: none of 2 lines has text of at most 400 pieces; give other text\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (TEXT, "this model has no attention, so there are no heads to see; it can only translate"),
        ("--input test.en", "holds a model without attention, so there are no heads to measure"),
        ("--serve", "this model has no attention, so there are no heads to see; it can only translate"),
        (f"{TEXT} --off cross.1.1", "this model has no attention"),
    ],
)
def test_a_model_without_attention_is_refused_in_a_sentence(
    trained: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(trained)
    monkeypatch.setattr(Transformer, "attentions", {})
    ran = toy.run("heads", trained / "run", *line.split())
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


# The sentences of the paper


def test_the_papers_sentences_have_pages_and_links(trained: Path, tmp_path: Path) -> None:
    ran = toy.run("heads", trained / "run", "--paper", tmp_path / "figures", "--json")
    links = json.loads(ran.out)
    assert [(link["from"], link["to"]) for link in links] == [("making", "more difficult")] * 2 + [("its", "Law")] * 2
    assert all(0.0 <= link["share"] <= 1.0 and 0.0 < link["chance"] < 0.5 for link in links)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"figure-3.html", "figures-4-5.html"}
    assert "more difficult" in (tmp_path / "figures" / "figure-3.html").read_text()
    shown = toy.run("heads", trained / "run", "--paper", tmp_path / "figures")
    assert shown.lines[0].split() == ["page", "from", "to", "head", "share", "chance"]
    shutil.rmtree(tmp_path / "figures")

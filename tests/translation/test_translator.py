"""Translators: a translation depends only on its text, not on the texts around it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.attention.record import record_attention
from heedful.config import SearchConfig
from heedful.data import stream
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, DataError, FolderError
from heedful.translation import pipeline
from heedful.translation.result import Translation
from heedful.translation.translator import Translator

# Texts of many lengths, some of which the model has never seen, and with unknown characters.
SENTENCES = [
    " ".join(random.Random(n).choices([*toy.dictionary(), *toy.dictionary(), "?", "ö", "🙂"], k=1 + n % 9))
    for n in range(40)
]


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


def assert_equal(left: Sequence[Translation], right: Sequence[Translation]) -> None:
    """The texts are equal; scores may differ by rounding, because another batch adds in another order."""
    for one, other in zip(left, right, strict=True):
        assert (one.source, one.source_pieces) == (other.source, other.source_pieces)
        assert [a.text for a in one.alternatives] == [a.text for a in other.alternatives]
        assert [a.pieces for a in one.alternatives] == [a.pieces for a in other.alternatives]
        assert [a.score for a in one.alternatives] == pytest.approx([a.score for a in other.alternatives], abs=2e-5)


@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (4, 1), (4, 3)])
def test_a_translation_does_not_depend_on_its_batch(translator: Translator, beam: int, n_best: int) -> None:
    search = replace(translator.search, beam=beam, max_extra=3)
    together = translator.translate(SENTENCES, search=search, n_best=n_best)
    alone = [translator.translate([text], search=search, n_best=n_best)[0] for text in SENTENCES]
    assert_equal(together, alone)
    assert {len(translation.alternatives) for translation in together} == {n_best}


def test_the_order_is_that_of_the_texts(translator: Translator) -> None:
    order = random.Random(3).sample(range(len(SENTENCES)), len(SENTENCES))
    search = replace(translator.search, beam=1, max_extra=5)
    straight = translator.translate(SENTENCES, search=search)
    shuffled = translator.translate([SENTENCES[index] for index in order], search=search)
    assert_equal([straight[index] for index in order], shuffled)


def test_the_size_of_windows_and_batches_does_not_matter(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["", *SENTENCES[:7], "  ", SENTENCES[2]]
    whole = translator.translate(texts, beam=2)
    for window, tokens in ((1, 1), (3, 30), (4, 10_000)):
        monkeypatch.setattr(stream, "WINDOW", window)
        monkeypatch.setattr(TorchEngine, "batch_tokens", tokens)
        assert_equal(whole, translator.translate(texts, beam=2))


def test_the_toy_model_translates_its_language(translator: Translator) -> None:
    texts = toy.sentences(30, seed=99, longest=3)
    found = [translation.text for translation in translator.translate(texts)]
    assert sum(text == toy.translated(source) for text, source in zip(found, texts, strict=True)) >= 27


def test_white_space_is_not_translated(translator: Translator) -> None:
    text = toy.sentences(1, seed=5)[0]
    found = translator.translate(["", text, " \t "])
    assert [translation.text for translation in found][::2] == ["", ""]
    assert (found[0].alternatives, found[0].pieces, found[0].score) == ((), (), 0.0)
    assert found[1].pieces == found[1].alternatives[0].pieces != ()
    assert translator.translate([]) == []


# The search


def test_alternatives_are_ordered_by_score(translator: Translator) -> None:
    for translation in translator.translate(SENTENCES[:6], beam=5, n_best=5):
        scores = [alternative.score for alternative in translation.alternatives]
        assert scores == sorted(scores, reverse=True)
        assert translation.score == scores[0]
        assert len({alternative.pieces for alternative in translation.alternatives}) == 5


def test_the_width_of_the_beam_is_the_only_thing_that_beam_changes(translator: Translator) -> None:
    search = SearchConfig(beam=4, alpha=0.0, max_extra=3)
    by_width = translator.translate(SENTENCES[:9], search=search, beam=1)
    assert_equal(by_width, translator.translate(SENTENCES[:9], search=replace(search, beam=1)))
    assert all(t.score == pytest.approx(t.alternatives[0].log_prob) for t in by_width)


def test_an_output_is_cut_off_at_its_maximum(translator: Translator) -> None:
    search = replace(translator.search, beam=1, max_extra=0, min_length=50)
    (found,) = translator.translate([SENTENCES[3]], search=search)
    assert not found.alternatives[0].finished
    assert len(found.pieces) == len(found.source_pieces)


def test_more_translations_than_the_beam_holds_are_refused(translator: Translator) -> None:
    with pytest.raises(ConfigError, match=r"^you asked for 3 translations, but search\.beam is 2; set --beam to at"):
        translator.translate(["x"], beam=2, n_best=3)


# Errors


def test_a_single_string_is_refused(translator: Translator) -> None:
    message = r"^translate\(\) takes a list of texts, but got one string; write translate\(\[text\]\)$"
    with pytest.raises(DataError, match=message):
        translator.translate("A man rides a horse.")
    with pytest.raises(DataError, match=message):
        next(translator.translate_lines("A man rides a horse."))


def test_a_text_over_the_limit_is_reported_by_its_number(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "WINDOW", 3)
    monkeypatch.setattr(pipeline, "_MAX_PIECES", 20)
    long = " ".join(["x"] * 20)
    found = translator.translate_lines(["x", "x", "x", "x", long])
    assert [next(found).source for _ in range(3)] == ["x"] * 3
    with pytest.raises(DataError, match=r"^text 5 has \d+ pieces, over 20; split it into sentences$"):
        next(found)


def test_text_that_is_not_unicode_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError):
        translator.translate(["a\ud800b"])


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"^no run folder {tmp_path}/x; make one with: heedful train --source"):
        Translator.load(str(tmp_path / "x"))


# Looking inside


def test_attention_is_recorded_while_an_exported_run_translates(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")
    assert toy.run("export", trained / "run", tmp_path / "exported", "--to", "ctranslate2").code == 0
    translator = Translator.load(tmp_path / "exported")
    assert translator.engine.name == "ctranslate2"
    text = " ".join(list(toy.dictionary())[:3])
    with record_attention(translator.model) as record:
        recorded = translator.translate([text])
    assert record.weights("encoder", 0).shape == (1, 2, 4, 4)  # three words and EOS
    calls = len(record.calls["cross", 0])
    assert_equal(recorded, translator.translate([text]))
    assert len(record.calls["cross", 0]) == calls  # CTranslate2 translates again
    named = Translator.load(tmp_path / "exported", engine="ctranslate2")
    with (
        record_attention(named.model),
        pytest.raises(ConfigError, match="attention is recorded or changed, which the ctranslate2 engine cannot do"),
    ):
        named.translate([text])


# Streams


def test_a_stream_is_read_window_by_window(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", 8)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield SENTENCES[read % 3]

    search = replace(translator.search, beam=1, max_extra=2)
    found = translator.translate_lines(endless(), search=search)
    assert read == 0
    for number in range(20):
        assert next(found).source == SENTENCES[(number + 1) % 3]
        assert read == 8 * (number // 8 + 1)


def test_progress_is_reported_up_to_the_last_text(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", 4)
    monkeypatch.setattr(TorchEngine, "batch_tokens", 9)
    told: list[int] = []
    texts = [*SENTENCES[:3], "", *SENTENCES[:5]]
    search = replace(translator.search, beam=1, max_extra=2)
    assert len(list(translator.translate_lines(texts, search=search, done=told.append))) == 9
    assert told == sorted(told)
    assert told[-1] == 9


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 400), max_size=60), beam=st.integers(1, 9))
def test_every_text_is_in_exactly_one_batch_within_the_budget(lengths: list[int], beam: int) -> None:
    sources = [[0] * length for length in lengths]
    wanted = [index for index in range(len(lengths)) if index % 7]
    batches = list(stream.batches_by_length(wanted, sources, beam, 3000))
    assert sorted(index for batch in batches for index in batch) == wanted
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * longest * beam <= 3000

"""Hidden tokens: which are asked about, what stands in their place, and that an epoch is always the same."""

from itertools import pairwise

import numpy as np
import pytest
import text_examples

from heedful.config import TextConfig
from heedful.data.masking import MaskedEpochs, MaskedWindows, SpecialIds
from heedful.data.text import TextCorpus, TextSpan, measure_text, write_text_corpus
from heedful.text.tokenizer import CLS, MASK, Tokenizer
from heedful.text.tokenizer_training import learn_tokenizer

CONTEXT = 22


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_tokenizer([text_examples.rhymes(30)], TextConfig(kind="bpe", vocabulary_size=275), (CLS, MASK))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> TextCorpus:
    folder = tmp_path_factory.mktemp("text")
    path = str(text_examples.write_text(folder / "rhymes.txt", text_examples.rhymes(900)))
    return write_text_corpus(folder / "corpus", TextSpan((path,), 0, measure_text([path]).characters), tokenizer)


def windows(text: TextCorpus, tokenizer: Tokenizer, epoch: int = 3) -> MaskedWindows:
    return MaskedWindows(text, CONTEXT, SpecialIds.of(tokenizer), epoch)


@pytest.mark.parametrize("epoch", [0, 1, 2, 7])
def test_with_the_answers_in_place_the_windows_are_the_text(text: TextCorpus, tokenizer: Tokenizer, epoch: int) -> None:
    hidden, restored = windows(text, tokenizer, epoch), list[int]()
    for index in range(len(hidden)):
        batch = hidden.batch([index], 0)
        ids = batch.source.clone()
        ids[batch.target_in] = batch.target_out
        assert [int(ids[0]), int(ids[-1])] == [tokenizer.cls_id, tokenizer.eos_id]
        assert len(ids) <= CONTEXT
        restored += ids[1:-1].tolist()
    assert restored == text.ids.tolist()


def test_15_percent_are_asked_about_and_80_percent_of_them_masked(text: TextCorpus, tokenizer: Tokenizer) -> None:
    hidden = windows(text, tokenizer)
    batch = hidden.batch(range(len(hidden)), 0)
    source, target = hidden.lengths()
    assert batch.source_lengths.tolist() == source.tolist()
    assert batch.target_lengths.tolist() == target.tolist()
    assert len(batch.target_out) / len(text) == pytest.approx(0.15, abs=0.01)
    first = batch.source_lengths.cumsum(0) - batch.source_lengths
    shown = batch.source[first.repeat_interleave(batch.target_lengths) + batch.target_in]
    assert len(shown) > 1000
    masked, kept = shown == tokenizer.mask_id, shown == batch.target_out
    assert masked.float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert kept.float().mean().item() == pytest.approx(0.1, abs=0.03)
    drawn = shown[~masked & ~kept]
    assert int(drawn.min()) >= 2
    assert int(drawn.max()) < min(tokenizer.cls_id, tokenizer.mask_id)


def test_places_rise_and_are_never_those_of_the_frame(text: TextCorpus, tokenizer: Tokenizer) -> None:
    batch = windows(text, tokenizer).batch(range(9), 0)
    sizes = batch.source_lengths.tolist()
    for size, places in zip(sizes, batch.target_in.split(batch.target_lengths.tolist()), strict=True):
        assert all(a < b for a, b in pairwise([0, *places.tolist(), size - 1]))


def test_an_epoch_is_always_the_same_and_another_hides_others(text: TextCorpus, tokenizer: Tokenizer) -> None:
    epochs = MaskedEpochs(text, CONTEXT, SpecialIds.of(tokenizer))
    one, again, other = (epochs[epoch].batch([0, 2], 0) for epoch in (4, 4, 5))
    assert one.source.tolist() == again.source.tolist()
    assert one.target_in.tolist() == again.target_in.tolist()
    assert one.target_in.tolist() != other.target_in.tolist()
    assert not np.array_equal(epochs[0].lengths()[0], windows(text, tokenizer, 0).lengths()[0])

"""Continuing texts: draws, greedy search, streams, and independence of the batch."""

from pathlib import Path

import numpy as np
import pytest
import text_examples
import torch
import toy

from heedful import Completer, ConfigError, DataError
from heedful.completion.completer import Continuation
from heedful.data.batch import pack
from heedful.decoding.sampling import trace_draws

PROMPTS = ["the cat", "the dog sat on the mät and", "", "o"]


LEARNT = ("train.max_steps=300", "train.learning_rate=0.02", "train.batch_tokens=320", "train.validate_every=200")


@pytest.fixture(scope="module")
def completer(tmp_path_factory: pytest.TempPathFactory) -> Completer:
    return Completer.load(text_examples.train_gpt(tmp_path_factory.mktemp("gpt"), *LEARNT))


@pytest.fixture(scope="module")
def by_pieces(tmp_path_factory: pytest.TempPathFactory) -> Completer:
    more = ("text.kind=bpe", "text.vocabulary_size=270")
    return Completer.load(text_examples.train_gpt(tmp_path_factory.mktemp("pieces"), *LEARNT, *more))


def test_the_likeliest_text_is_what_the_model_has_learnt(completer: Completer) -> None:
    (found,) = completer.complete(["the dog sat on the m"], temperature=0, length=26)
    assert found.text.startswith("the dog sat on the mät and ran off;\nthe ")
    assert found.continuations[0].tokens == 26
    assert not found.continuations[0].finished


@torch.no_grad()
def test_the_likeliest_text_is_that_of_reading_everything_again_for_each_token(completer: Completer) -> None:
    model, ids = completer.model, completer.tokenizer.encode("the c")[:-1]
    for _ in range(11):  # within the 16 positions
        prompt = model.encode(*pack([ids[:1]]))
        logits = model.decode(*pack([[model.pad_id, *ids[1:]]]), prompt)[-1]
        logits[model.pad_id] = -torch.inf
        ids.append(int(logits.argmax()))
    (found,) = completer.complete(["the c"], temperature=0, length=11)
    assert found.text == completer.tokenizer.decode(ids)


def test_a_continuation_does_not_depend_on_the_batch(completer: Completer) -> None:
    together = completer.complete(PROMPTS, n=3, length=40, seed=5)
    assert [found.prompt for found in together] == PROMPTS
    for prompt, found in zip(PROMPTS, together, strict=True):
        (alone,) = completer.complete([prompt], n=2, length=40, seed=5)
        assert [one.text for one in alone.continuations] == [one.text for one in found.continuations[:2]]


def test_the_same_seed_gives_the_same_text_and_another_seed_another(completer: Completer) -> None:
    def draw(seed: int) -> tuple[Continuation, ...]:
        return completer.complete(["the"], n=4, length=30, temperature=1.5, top_p=1.0, seed=seed)[0].continuations

    assert draw(1) == draw(1)
    assert {one.text for one in draw(1)} != {one.text for one in draw(2)}
    assert len({one.text for one in draw(1)}) > 1


def test_a_draw_from_one_token_is_the_likeliest(completer: Completer) -> None:
    (likeliest,) = completer.complete(["the "], temperature=0, length=20)
    (drawn,) = completer.complete(["the "], top_k=1, temperature=2.0, length=20)
    assert drawn.text == likeliest.text


def test_log_probabilities_are_those_of_the_tokens(completer: Completer) -> None:
    (found,) = completer.complete(["the cat"], length=8, temperature=1.3)
    ids = completer.tokenizer.encode(found.text)[:-1]
    before = len(completer.tokenizer.encode("the cat")) - 1
    expected = sum(completer.log_probs([ids])[0][before - 1 :])
    assert found.continuations[0].log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_stream_joins_to_the_continuation(
    completer: Completer, by_pieces: Completer, prompt: str, temperature: float
) -> None:
    for one in (completer, by_pieces):
        for number in range(1 if temperature == 0 else 2):
            pieces = list(one.stream(prompt, number=number, temperature=temperature, length=50))
            (found,) = one.complete([prompt], n=number + 1, temperature=temperature, length=50)
            assert "".join(pieces) == found.continuations[number].text
            assert len(pieces) > 5


def test_a_stream_holds_back_the_first_byte_of_a_character(by_pieces: Completer) -> None:
    written = "".join(by_pieces.stream("the dog sat on the m", temperature=0, length=60))
    assert "ä" in written
    assert "\ufffd" not in written


def test_a_space_before_the_first_new_word_is_kept(by_pieces: Completer) -> None:
    (found,) = by_pieces.complete(["the dog sat on"], temperature=0, length=12)
    assert found.text.startswith("the dog sat on the")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "you asked for 0 continuations; ask for at least 1"),
        ({"n": 2, "temperature": 0}, "with temperature 0 there is only the most probable one"),
        ({"length": 0}, "the length is 0; ask for at least 1 token"),
        ({"temperature": -1}, r"search\.temperature must be above 0, but is -1"),
        ({"top_p": 2.0}, r"search\.top_p must be above 0 and at most 1"),
        ({"top_k": -1}, r"search\.top_k must be at least 0"),
        ({"seed": -1}, r"search\.seed must be at least 0"),
    ],
)
def test_impossible_options_are_refused(completer: Completer, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        completer.complete(["the"], **options)  # type: ignore[arg-type]


def test_one_string_instead_of_a_list_is_refused(completer: Completer) -> None:
    with pytest.raises(DataError, match="takes a list of prompts, but got one string"):
        completer.complete("the cat")


def test_a_translator_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a model for translation, which cannot continue a text"):
        Completer.load("en-de")


def test_the_end_of_a_text_ends_a_continuation(tmp_path: Path) -> None:
    for number in range(60):
        text_examples.write_text(tmp_path / f"{number:02}.txt", "tick tock")
    with toy.plain_log():
        options = text_examples.options(*LEARNT)
        ran = toy.run("train", "--text", tmp_path / "*.txt", "--out", tmp_path / "run", *options)
    assert ran.code == 0, ran.err
    (found,) = Completer.load(tmp_path / "run").complete(["tick "], temperature=0)
    assert found.text == "tick tock"
    assert found.continuations[0].finished


def test_a_look_shows_the_continuation_that_complete_gives(completer: Completer) -> None:
    look = completer.look("the dog", n=2, length=8)
    (found,) = completer.complete(["the dog"], n=2, length=8)
    assert [one.text for one in look.completion.continuations] == [one.text for one in found.continuations]
    assert [one.log_prob for one in look.completion.continuations] == pytest.approx(
        [float(inside.log_probs.sum()) for inside in look.inside], abs=1e-4
    )
    read = len(look.prompt_pieces) + 7
    assert look.inside[0].attention.decoder[1].shape == (2, read, read)
    assert look.steps["decoder.2.attention.weights"] == pytest.approx(look.inside[0].attention.decoder[1], abs=1e-5)
    own = look.steps["log_probs"][np.arange(read), look.steps["target"]][len(look.prompt_pieces) - 1 :]
    assert own == pytest.approx(look.inside[0].log_probs, abs=1e-4)
    assert look.prompt_pieces == ("t", "h", "e", "▁", "d", "o", "g")


def test_a_look_takes_a_continuation_by_somebody_else(completer: Completer, by_pieces: Completer) -> None:
    for each in (completer, by_pieces):
        look = each.look("the dog", continuation=" ran", n=2)
        assert look.completion.continuations[0].text == " ran"
        assert each.tokenizer.decode([*each.encode("the dog"), *look.targets[0]]) == "the dog ran"
        assert len(look.inside) == 2


def test_a_look_is_at_most_as_long_as_the_model_sees(completer: Completer) -> None:
    look = completer.look("the dog")
    assert len(look.steps["target_in"]) == 16
    assert (
        completer.complete(["the dog"], length=30)[0]
        .continuations[0]
        .text.startswith(look.completion.continuations[0].text)
    )
    with pytest.raises(DataError, match="prompt and continuation have 7 and 11 tokens, but this model sees at most 16"):
        completer.look("the dog", length=11)
    with pytest.raises(DataError, match="the continuation is empty; give at least one character"):
        completer.look("the dog", continuation="")


@pytest.mark.parametrize("changes", [{}, {"top_k": 3}, {"top_p": 1.0, "temperature": 1.7}, {"seed": 9, "top_p": 0.5}])
def test_a_traced_draw_is_the_token_that_was_drawn(completer: Completer, changes: dict[str, float]) -> None:
    search = completer.change_search(length=10, **changes)  # type: ignore[arg-type]
    source = completer.encode("the")
    tokens = completer.decode([source], search, 1)[0][0].tokens
    logits = torch.from_numpy(completer.look("the", length=10, search=search).steps["logits"][len(source) - 1 :])
    draws = trace_draws(logits, source, tokens, completer.special, search)
    assert [draw.token for draw in draws] == list(tokens)
    for draw in draws:
        shares = draw.scaled.softmax(0).sort(descending=True)
        if search.top_k:
            assert 1 <= int(draw.kept.sum()) <= 3
        assert bool(draw.kept[shares.indices[0]])

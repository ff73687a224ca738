"""The pipeline with fake engines: which engine decodes what, what is retried, and the order of the results."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from heedful.config import SearchConfig, TextConfig
from heedful.decoding.engine import EngineName, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.token_constraints import NO_BOUNDARIES, TokenConstraints, WordBoundaries
from heedful.errors import ConfigError
from heedful.storage.run_folder import Tokenizers
from heedful.tasks.translation import TRANSLATION
from heedful.text.constraints import Constraints
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.translation.engines import Engines, _NotifyOnce, _refuse
from heedful.translation.pipeline import ConstraintEncoder, Pipeline, TokenizedText, TranslationOptions, _Unit

TOKENIZER = learn_tokenizer(["abcdefgh "], TextConfig(kind="characters"))
TEXTS = ["aaaaaa", "", "bb", "cccc", "d", "eee"]
LONG = 5  # from this number of source tokens on, the first engine cannot decode a text


class Echo:
    """Repeats the source; in the first attempt, texts in `looping` are repeated ten times."""

    name: EngineName = "ctranslate2"
    batch_tokens = 8
    workers = 3
    is_instrumented = False

    def __init__(self, limitation: Callable[[int], str] = lambda length: "", looping: Sequence[str] = ()) -> None:
        self.limitation = limitation
        self.looping = [tuple(TOKENIZER.encode(text)) for text in looping]
        self.decoded: list[tuple[str, int]] = []  # texts, and the size of n-grams that may not repeat

    def share_threads(self, workers: int) -> AbstractContextManager[None]:
        return nullcontext()

    def find_limitation(self, search: SearchConfig, constraints: TokenConstraints, length: int = 0) -> str:
        return self.limitation(length)

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        constraints: Sequence[TokenConstraints] = (),
        boundaries: WordBoundaries = NO_BOUNDARIES,
    ) -> list[list[Hypothesis]]:
        self.decoded += [(TOKENIZER.decode(source), search.no_repeat_ngram) for source in sources]
        return [[self._say(tuple(source), search.no_repeat_ngram)] for source in sources]

    def _say(self, source: tuple[int, ...], ngram: int) -> Hypothesis:
        if source in self.looping and not ngram:
            return Hypothesis((*source[:-1] * 10, source[-1]), -1.0, -1.0)
        return Hypothesis(source, -1.0, -1.0)

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        raise NotImplementedError


def engines_of(first: Echo, second: Echo, on_limitation: Callable[[str], None] = _refuse) -> Engines:
    return Engines(first, lambda: cast(Any, second), on_limitation)


def translate(engines: Engines, texts: Sequence[str] = TEXTS, workers: int = 0) -> list[tuple[str, str, bool]]:
    options = TranslationOptions(
        SearchConfig(beam=1, guard=True), 1, ConstraintEncoder(TOKENIZER, Constraints()), workers=workers
    )
    pipeline = Pipeline(engines, Tokenizers(TOKENIZER, TOKENIZER), TRANSLATION)
    found = pipeline.translate(texts, options, lambda _: None)
    return [(one.source, one.text, one.redone) for one in found]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_translations_come_in_the_order_of_the_texts(workers: int) -> None:
    engine = Echo()
    assert translate(engines_of(engine, Echo()), workers=workers) == [(text, text, False) for text in TEXTS]
    assert sorted(engine.decoded) == sorted((text, 0) for text in TEXTS if text)  # an empty text is not decoded


def test_each_text_goes_to_a_capable_engine_and_the_reason_is_given_once() -> None:
    heard: list[str] = []
    first, second = Echo(lambda length: "too long" if length >= LONG else ""), Echo()
    engines = engines_of(first, second, _NotifyOnce(heard.append))
    for _ in range(2):
        assert translate(engines) == [(text, text, False) for text in TEXTS]
    assert {text for text, _ in first.decoded} == {"bb", "d", "eee"}
    assert {text for text, _ in second.decoded} == {"aaaaaa", "cccc"}
    assert heard == ["too long, which the ctranslate2 engine cannot do; the torch engine does it"]


def test_an_engine_chosen_by_name_refuses_what_it_cannot_do() -> None:
    engines = engines_of(Echo(lambda length: "too long" if length >= LONG else ""), Echo())
    with pytest.raises(ConfigError, match=r"^too long, which the ctranslate2 engine cannot do; use --engine torch$"):
        translate(engines)


def test_only_torch_translates_while_its_model_is_recorded() -> None:
    heard: list[str] = []
    first, second = Echo(), Echo()
    engines = engines_of(first, second, _NotifyOnce(heard.append))
    assert cast(Any, engines.torch) is second
    second.is_instrumented = True
    assert translate(engines) == [(text, text, False) for text in TEXTS]
    assert (len(first.decoded), len(second.decoded)) == (0, 5)
    assert heard == [
        "attention is recorded or changed, which the ctranslate2 engine cannot do; the torch engine does it"
    ]
    second.is_instrumented = False
    translate(engines)
    assert (len(first.decoded), len(second.decoded)) == (5, 5)


CAPITALS = {  # what a vocabulary was learnt from, and what is decoded instead of "ABCD EF."
    "Abcd ef.": ["Abcd ef.", "abcd ef."],
    "abcd ef.": ["Abcd ef.", "abcd ef."],
    "ABCD EF.": ["ABCD EF."],
}


@pytest.mark.parametrize("line", CAPITALS)
def test_a_sentence_in_capitals_has_the_forms_that_the_vocabulary_knows_better(line: str) -> None:
    tokenizer = learn_tokenizer([line] * 9, TextConfig(kind="bpe", vocabulary_size=264))
    pipeline = Pipeline(engines_of(Echo(), Echo()), Tokenizers(tokenizer, tokenizer), TRANSLATION)
    options = TranslationOptions(SearchConfig(), 1, ConstraintEncoder(tokenizer, Constraints()), split_sentences=True)
    several: list[str | TokenizedText] = ["ABCD EF.", *pipeline.tokenize(["ABCD EF."])]
    for given in several:
        (unit,) = pipeline._split(given, options).units
        assert [form.text if isinstance(form, TokenizedText) else form for form in unit.forms] == CAPITALS[line]
    for text in ("Abcd ef.", "ABC", "ab CD"):
        (unit,) = pipeline._split(text, options).units
        assert unit == _Unit((text,))


def test_where_every_letter_is_a_piece_capitals_stay() -> None:
    tokenizer = learn_tokenizer(["abcdABCD "], TextConfig(kind="characters"))
    pipeline = Pipeline(engines_of(Echo(), Echo()), Tokenizers(tokenizer, tokenizer), TRANSLATION)
    options = TranslationOptions(SearchConfig(), 1, ConstraintEncoder(tokenizer, Constraints()), split_sentences=True)
    assert pipeline._split("ABCD DC", options).forms == ["ABCD DC"]


def test_looping_outputs_are_decoded_again_at_the_end() -> None:
    engine = Echo(looping=["bb", "d"])
    assert translate(engines_of(engine, Echo())) == [(text, text, text in ("bb", "d")) for text in TEXTS]
    assert sorted(engine.decoded[-2:]) == [("bb", 3), ("d", 3)]


def test_the_first_output_stays_if_the_retry_loops_too() -> None:
    engine = Echo()
    engine._say = lambda source, ngram: Hypothesis((*source[:-1] * (9 if ngram else 10), source[-1]), -1.0, -1.0)  # type: ignore[method-assign]
    assert translate(engines_of(engine, Echo()), ["d"]) == [("d", "d" * 10, False)]


class Lossy(Echo):
    """Writes words in reverse order and in capitals, names as they are, and nothing of a word that has other signs."""

    def __init__(self, n_best: int = 1, looping: Sequence[str] = ()) -> None:
        super().__init__(looping=looping)
        self.n_best = n_best

    def decode(
        self,
        sources: Sequence[Ids],
        search: SearchConfig,
        n_best: int,
        constraints: Sequence[TokenConstraints] = (),
        boundaries: WordBoundaries = NO_BOUNDARIES,
    ) -> list[list[Hypothesis]]:
        texts = [TOKENIZER.decode(source) for source in sources]
        self.decoded += [(text, search.no_repeat_ngram) for text in texts]
        return [[self._write(text, rank) for rank in range(self.n_best)] for text in texts]

    def _write(self, text: str, rank: int) -> Hypothesis:
        words = [word if word in ("Tom", "Paris") else word.upper() for word in reversed(text.split())]
        words = [word for word in words if word.isalpha()]
        return Hypothesis(tuple(TOKENIZER.encode(" ".join([*words, *["x"] * rank]))), -1.0 - rank, -1.0 - rank)


def translate_lossy(
    engine: Lossy, texts: Sequence[str], *, n_best: int = 1, split_sentences: bool = True
) -> list[list[str]]:
    options = TranslationOptions(
        SearchConfig(beam=max(2, n_best), guard=True),
        n_best,
        ConstraintEncoder(TOKENIZER, Constraints()),
        split_sentences=split_sentences,
    )
    pipeline = Pipeline(engines_of(engine, Echo()), Tokenizers(TOKENIZER, TOKENIZER), TRANSLATION)
    return [[one.text for one in found.alternatives] for found in pipeline.translate(texts, options, lambda _: None)]


def test_a_sentence_whose_translation_lost_an_address_is_decoded_again_with_a_name_in_its_place() -> None:
    engine = Lossy()
    texts = ["see a@b.org now", "only words", "it is 5 km to c.org now"]
    assert translate_lossy(engine, texts) == [["NOW a@b.org SEE"], ["WORDS ONLY"], ["NOW c.org TO 5 km IS IT"]]
    first, again = engine.decoded[: len(texts)], engine.decoded[len(texts) :]
    assert sorted(first) == sorted((text, 0) for text in texts)
    assert sorted(again) == [("it is Tom to Paris now", 0), ("see Tom now", 0)]  # what lost nothing is not repeated


def test_a_sentence_whose_translation_kept_its_parts_is_decoded_once() -> None:
    engine = Echo()
    assert translate(engines_of(engine, Echo()), ["a@b.org is 5 km away"]) == [
        ("a@b.org is 5 km away", "a@b.org is 5 km away", False)
    ]
    assert engine.decoded == [("a@b.org is 5 km away", 0)]


def test_parts_are_put_back_into_every_alternative() -> None:
    assert translate_lossy(Lossy(3), ["see a@b.org now"], n_best=3) == [
        ["NOW a@b.org SEE", "NOW a@b.org SEE x", "NOW a@b.org SEE x x"]
    ]


def test_units_of_a_test_set_are_not_decoded_again() -> None:
    """Scores must be those of the model itself."""
    engine = Lossy()
    assert translate_lossy(engine, ["see a@b.org now"], split_sentences=False) == [["NOW SEE"]]
    assert engine.decoded == [("see a@b.org now", 0)]


def test_emoji_at_an_end_are_kept_without_the_model() -> None:
    engine = Lossy()
    assert translate_lossy(engine, ["go now 🙂"]) == [["NOW GO 🙂"]]
    assert [text for text, _ in engine.decoded] == ["go now 🙂", "go now"]


def test_the_torch_engine_is_loaded_once_and_only_when_needed() -> None:
    loads: list[Echo] = []

    def load() -> Any:
        loads.append(Echo())
        return loads[-1]

    engines = Engines(Echo(), load, _refuse)
    translate(engines)
    assert loads == []
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(lambda _: id(engines.torch), range(8)))) == 1
    assert len(loads) == 1

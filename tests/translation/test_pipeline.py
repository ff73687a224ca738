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
from heedful.translation.pipeline import ConstraintEncoder, Pipeline, TranslationOptions

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


def test_looping_outputs_are_decoded_again_at_the_end() -> None:
    engine = Echo(looping=["bb", "d"])
    assert translate(engines_of(engine, Echo())) == [(text, text, text in ("bb", "d")) for text in TEXTS]
    assert sorted(engine.decoded[-2:]) == [("bb", 3), ("d", 3)]


def test_the_first_output_stays_if_the_retry_loops_too() -> None:
    engine = Echo()
    engine._say = lambda source, ngram: Hypothesis((*source[:-1] * (9 if ngram else 10), source[-1]), -1.0, -1.0)  # type: ignore[method-assign]
    assert translate(engines_of(engine, Echo()), ["d"]) == [("d", "d" * 10, False)]


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

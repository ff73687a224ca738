"""Language detection."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.languages import (
    CODE,
    NOISE,
    Detection,
    Detector,
    count_trigrams,
    judge,
    known_languages,
    learn_language,
    match_language,
    tabulate,
)

ENGLISH = ("Where is the station?", "I have never seen him before.", "How much does it cost?", "She's reading a book.")
GERMAN = ("Wo ist der Bahnhof?", "Ich habe ihn noch nie gesehen.", "Wie viel kostet das?", "Sie liest gerade ein Buch.")
FRENCH = ("Où est la gare ?", "Je ne l'ai jamais vu.", "Combien ça coûte ?", "Elle est en train de lire un livre.")
SPANISH = ("¿Dónde está la estación?", "La casa de mi abuela es muy grande.", "Buenos días, ¿cómo estás?")
SENTENCES = [("en", ENGLISH), ("de", GERMAN), ("fr", FRENCH), ("es", SPANISH)]
OTHERS = (
    "今日はとても暑いです。",
    "コーヒーを一杯ください。",
    "Я не понимаю, что ты говоришь.",
    "Dzisiaj jest bardzo gorąco.",
    "Bugün hava çok sıcak.",
    "Jag förstår inte vad du säger.",
    "Il cane è sotto il tavolo.",
    "Waar is het station?",
)
CODE_TEXTS = (
    "for (let i = 0; i < n; i++) { console.log(i); }",
    "def add(self, x):\n    return self.total + x",
    "if (user_name == NULL) return;",
    "const total = items.reduce((sum, each) => sum + each.price, 0);",
)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(known_languages())


@pytest.mark.parametrize(("code", "texts"), SENTENCES)
def test_sentences_of_known_languages_are_sure(detector: Detector, code: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        found = detector.detect(text, ["en", "de", "fr", "es"])
        assert found.shares[0][0] == code, text
        assert found.recognition == "sure", text
        assert found.choose_source() == code


@pytest.mark.parametrize(("code", "texts"), SENTENCES)
def test_a_language_that_is_not_served_is_unknown_and_named(
    detector: Detector, code: str, texts: tuple[str, ...]
) -> None:
    served = {"en", "de", "fr", "es"} - {code}
    for text in texts:
        found = detector.detect(text, served)
        assert (found.recognition, found.other, found.choose_source()) == ("unknown", code, ""), text


@pytest.mark.parametrize("text", OTHERS)
def test_a_sentence_in_another_language_is_unknown(detector: Detector, text: str) -> None:
    assert detector.detect(text, ["en", "de", "fr", "es"]).recognition == "unknown"


@pytest.mark.parametrize("text", ["asdf qwer zxcv", "qwertzuiop", "xkcdq wvbnz prtlk", "今日は", "Где вокзал?"])
def test_letters_in_no_known_language_are_noise(detector: Detector, text: str) -> None:
    found = detector.detect(text, ["en", "de", "fr", "es"])
    assert (found.recognition, found.other) == ("unknown", NOISE)


@pytest.mark.parametrize("text", CODE_TEXTS)
def test_program_code_is_no_language(detector: Detector, text: str) -> None:
    found = detector.detect(text, ["en", "de", "fr"])
    assert (found.recognition, found.other) == ("unknown", CODE)


@pytest.mark.parametrize(
    "text",
    ["Delete {name}?", "Visit https://example.org/a_b=c to read more.", "I paid $5 (or 10 %) in 2024.", "OK, go!"],
)
def test_prose_with_a_few_signs_of_code_is_prose(detector: Detector, text: str) -> None:
    assert detector.detect(text, ["en", "de", "fr"]).shares[0][0] == "en"
    assert detector.detect(text, ["en", "de", "fr"]).recognition != "unknown"


@pytest.mark.parametrize("text", ["", "123 ?!", "12:30", "🙂", "https://example.org"])
def test_a_text_without_letters_is_in_no_language(detector: Detector, text: str) -> None:
    found = detector.detect(text, ["en", "fr"])
    assert found.shares == (("en", 0.0), ("fr", 0.0))
    assert found.recognition == "unknown"


def test_one_word_of_many_languages_is_a_guess_and_never_the_target(detector: Detector) -> None:
    found = detector.detect("Taxi", ["en", "de", "fr"])
    assert found.recognition == "guess"
    assert found.choose_source() == "en"
    assert found.choose_source("en") in ("de", "fr")
    for word, code in (("Hello", "en"), ("Danke", "de"), ("merci", "fr"), ("Monday", "en")):
        assert detector.detect(word, ["en", "de", "fr"]).choose_source(code) == code, word


def test_of_guesses_that_are_equally_likely_english_is_taken() -> None:
    assert Detection((("fr", 0.4), ("en", 0.35)), NOISE).choose_source() == "en"
    assert Detection((("fr", 0.5), ("en", 0.35)), NOISE).choose_source() == "fr"
    assert Detection((("fr", 0.5), ("en", 0.35)), NOISE).choose_source("fr") == "en"
    assert Detection((("fr", 0.6), ("en", 0.05)), NOISE).choose_source("fr") == "fr"
    assert Detection((("fr", 0.3), ("en", 0.1)), NOISE).choose_source() == ""
    assert Detection((("fr", 0.9), ("en", 0.1)), NOISE).choose_source("fr") == "fr"


@given(st.text(max_size=80))
def test_probabilities_are_probabilities_whatever_the_text(text: str) -> None:
    found = Detector(_SMALL).detect(text, ["x", "y"])
    shares = [share for _, share in found.shares]
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share <= 1 for share in shares)
    assert sum(shares) <= 1 + 1e-9
    assert found.other in ("z", NOISE, CODE)


def test_the_languages_of_your_own_runs_are_detected_too(detector: Detector) -> None:
    own = learn_language(["kiki ikik kuku", "kuku kiki", "iki kuk"] * 20)
    both = Detector(known_languages(), {"q": own})
    assert both.languages == [*detector.languages, "q"]
    assert both.detect("kuku iki", ["q", "en"]).choose_source() == "q"
    assert detector.detect("kuku iki", ["q", "en"]).choose_source() != "q"
    more = Detector(known_languages(), {"en": own})  # which adds to the English that is known
    assert {more.detect(text, ["en", "de"]).choose_source() for text in ("kuku iki", ENGLISH[0])} == {"en"}


def test_a_language_without_a_sample_is_never_detected() -> None:
    assert Detector({"z": learn_language([])}).languages == []
    assert Detector({"z": learn_language([])}).detect("abc").shares == ()


def test_every_context_of_a_table_counts_the_letters_after_it() -> None:
    table = tabulate(count_trigrams(["Ab, ab a"]), {})
    assert table["letters"][" a"] == {"b": 2, " ": 1}
    assert table["letters"][" "] == {"a": 3}
    assert table["letters"]["b"] == {" ": 2}
    assert table["letters"][""] == {"a": 3, "b": 2, " ": 3}


def test_more_evidence_makes_a_language_surer(detector: Detector) -> None:
    last = -inf
    for count in range(1, len(GERMAN) + 1):
        evidence = detector.weigh(" ".join(GERMAN[:count]))
        share = dict(judge(evidence, ["de", "en", "fr"]).shares)["de"]
        assert share >= last - 1e-9
        last = share
    assert last > 0.999


_SMALL = {"x": learn_language(["aba abab"]), "y": learn_language(["kiki ikik"]), "z": learn_language(["lulo ulol"])}


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        *(("de", "de"), ("DE", "de"), ("de-DE", "de"), ("de_AT", "de"), ("de-Latn-CH", "de"), ("DE_ch.UTF-8", "de")),
        *(("pt_br", "pt-BR"), ("pt", "pt"), ("pt-PT", "pt"), ("xx", "xx"), ("deu", "deu"), ("", ""), ("auto", "auto")),
    ],
)
def test_a_code_may_have_any_case_and_a_region(code: str, meant: str) -> None:
    assert match_language(code, ["de", "en", "pt", "pt-BR"]) == meant

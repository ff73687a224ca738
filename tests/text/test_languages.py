"""Language detection."""

import pytest

from heedful.text.languages import Detector, count_trigrams, known_languages

ENGLISH = ("Where is the station?", "I have never seen him before.", "How much does it cost?", "She's reading a book.")
GERMAN = ("Wo ist der Bahnhof?", "Ich habe ihn noch nie gesehen.", "Wie viel kostet das?", "Sie liest gerade ein Buch.")
FRENCH = ("Où est la gare ?", "Je ne l'ai jamais vu.", "Combien ça coûte ?", "Elle est en train de lire un livre.")


@pytest.mark.parametrize(("code", "texts"), [("en", ENGLISH), ("de", GERMAN), ("fr", FRENCH)])
def test_the_built_in_table_recognises_sentences(code: str, texts: tuple[str, ...]) -> None:
    detector = Detector(known_languages())
    for text in texts:
        (best, share), *_ = detector.detect(text)
        assert best == code, text
        assert share > 0.9, text


def test_a_text_without_letters_is_in_any_language() -> None:
    detector = Detector(known_languages())
    assert detector.languages == ["en", "de", "fr"]
    assert {share for _, share in detector.detect("123 ?!")} == {1 / 3}
    assert [code for code, _ in detector.detect("Wo ist er?", ["en", "fr"])] == ["en", "fr"]


def test_a_language_without_a_sample_is_never_detected() -> None:
    detector = Detector({"x": count_trigrams(["aba abab"]), "y": count_trigrams(["kiki ikik"]), "z": {}})
    assert detector.languages == ["x", "y"]
    assert detector.detect("baba")[0][0] == "x"
    assert sum(share for _, share in detector.detect("kika")) == pytest.approx(1)


OTHERS = (
    "¿Dónde está la estación?",
    "¿Cuánto cuesta este vestido?",
    "Buenos días, ¿cómo estás?",
    "今日はとても暑いです。",
    "コーヒーを一杯ください。",
    "Я не понимаю, что ты говоришь.",
    "Dzisiaj jest bardzo gorąco.",
    "Bugün hava çok sıcak.",
    "Jag förstår inte vad du säger.",
)


@pytest.mark.parametrize(("code", "texts"), [("en", ENGLISH), ("de", GERMAN), ("fr", FRENCH)])
def test_a_sentence_is_recognised_in_its_own_language_only(code: str, texts: tuple[str, ...]) -> None:
    detector = Detector(known_languages())
    for text in texts:
        assert detector.recognise(text, code) in ("sure", "guess"), text
        assert {detector.recognise(text, other) for other in {"en", "de", "fr"} - {code}} == {"unknown"}, text
    assert detector.recognise(" ".join(texts), code) == "sure"


@pytest.mark.parametrize("text", OTHERS)
def test_a_sentence_in_another_language_is_unknown(text: str) -> None:
    detector = Detector(known_languages())
    assert {detector.recognise(text, code) for code in detector.languages} == {"unknown"}


def test_a_sentence_that_resembles_a_known_language_is_at_most_a_guess() -> None:
    detector = Detector(known_languages())
    assert detector.recognise("La casa de mi abuela es muy grande.", "fr") == "guess"


def test_german_is_unknown_to_a_detector_without_it() -> None:
    counts = known_languages()
    del counts["de"]
    detector = Detector(counts)
    assert {detector.recognise(" ".join(GERMAN), code) for code in counts} == {"unknown"}


def test_a_single_word_is_a_guess_and_no_word_is_unknown() -> None:
    detector = Detector(known_languages())
    assert detector.recognise("Taxi", detector.detect("Taxi")[0][0]) == "guess"
    assert detector.recognise("123", "en") == "unknown"
    assert detector.recognise("Taxi", "es") == "unknown"  # without a sample

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

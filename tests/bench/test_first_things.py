"""The list of first things, and how translations are compared with it."""

import pytest
from first_things import LIST, letters, list_wrong, read_things

things = read_things(LIST)


def test_there_are_a_hundred_different_things_with_translations_in_three_languages() -> None:
    assert len({thing.english for thing in things}) == len(things) == 100
    assert all(all(map(letters, texts)) for thing in things for texts in thing.translations.values())


@pytest.mark.parametrize("language", ["de", "fr", "es"])
def test_every_translation_of_the_list_is_right(language: str) -> None:
    for place in (0, -1):
        assert not list_wrong(things, [thing.translations[language][place] for thing in things], language)


def test_a_translation_that_is_not_in_the_list_is_wrong() -> None:
    outputs = ["Il fait du mal.", *(thing.translations["fr"][0] for thing in things[1:])]
    assert list_wrong(things, outputs, "fr") == [(things[0], "Il fait du mal.")]


def test_only_letters_and_digits_count() -> None:
    assert letters("« Où est la SŒUR ? »") == letters("où est la soeur") != letters("ou est la soeur")
    assert letters("10:30") != letters("10:31")

"""Pairs from gettext catalogues."""

import io
import zipfile
from pathlib import Path

import messages
import pytest
from hypothesis import given
from hypothesis import strategies as st
from package_index import Archive, digest

from heedful.errors import DataError

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def entry(english: str, german: str) -> str:
    return f'msgid "{english}"\nmsgstr "{german}"\n\n'


CATALOGUE = (
    HEAD
    + entry("Volume %s is gone.", "Datenträger %s ist weg.")
    + 'msgid ""\n"Two lines\\n"\n"  of one"\nmsgstr "Zwei Zeilen  in einer"\n\n'
    + "#, fuzzy\n"
    + entry("unsure", "unsicher")
    + entry("not yet", "")
    + 'msgid "a file"\nmsgid_plural "files"\nmsgstr[0] "eine Datei"\nmsgstr[1] "Dateien"\n\n'
    + '#~ msgid "gone"\n#~ msgstr "fort"\n'
)


class TestRead:
    def test_translated_messages_are_read_with_placeholders_and_plain_spaces(self) -> None:
        assert messages.read_messages(CATALOGUE.encode(), "de.po") == [
            ("Volume %s is gone.", "Datenträger %s ist weg."),
            ("Two lines of one", "Zwei Zeilen in einer"),
        ]

    @pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"this is no catalogue"])
    def test_a_file_that_is_not_a_catalogue_is_named(self, content: bytes) -> None:
        with pytest.raises(DataError, match=r"^x\.po is not a gettext catalogue in UTF-8 \(.+\); give a \.po file$"):
            messages.read_messages(content, "x.po")

    def test_text_that_names_a_file_does_not_open_it(self, tmp_path: Path) -> None:
        (tmp_path / "de.po").write_text(CATALOGUE, encoding="utf-8")
        with pytest.raises(DataError):
            messages.read_messages(str(tmp_path / "de.po").encode(), "x.po")


class TestLetters:
    def test_messages_that_differ_in_marks_and_capitals_are_the_same(self) -> None:
        assert len({messages.letters(text) for text in ("Save file", "Save File...", "&Save_File", "save  file:")}) == 1
        assert messages.letters("Save %s files") != messages.letters("Save files")

    @given(st.text())
    def test_duplicates_are_dropped(self, text: str) -> None:
        assert messages.letters(messages.letters(text)) == messages.letters(text)


def wheel_of(folder: Path, names: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in names.items():
            archive.writestr(name, text)
    (folder / messages.HORIZON.name).write_bytes(file.getvalue())
    return file.getvalue()


class TestHorizon:
    def names(self) -> list[str]:
        return [f"{part.format('locale/de/LC_MESSAGES')}.po" for part in messages.CATALOGUES]

    def test_each_message_comes_once_and_paragraphs_are_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = " ".join(["word"] * (messages.MAX_WORDS + 1))
        text = HEAD + entry("Volume", "Datenträger") + entry(long, "Wort")
        content = wheel_of(tmp_path, dict.fromkeys(self.names(), text))
        monkeypatch.setattr(messages, "HORIZON", Archive("horizon", messages.HORIZON.name, digest(content), ""))
        assert messages.messages_of_horizon("de", tmp_path) == [("Volume", "Datenträger")]

    def test_a_missing_catalogue_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        content = wheel_of(tmp_path, {"other.py": "raise SystemExit"})
        monkeypatch.setattr(messages, "HORIZON", Archive("horizon", messages.HORIZON.name, digest(content), ""))
        with pytest.raises(DataError, match=r"the archive has no openstack_dashboard/locale/de/LC_MESSAGES/django\.po"):
            messages.messages_of_horizon("de", tmp_path)


class TestPrograms:
    def test_all_catalogues_of_a_language_are_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = HEAD + entry("Volume", "Datenträger")
        names = {
            "a/locale/de/LC_MESSAGES/django.po": text,
            "b/locale/de/LC_MESSAGES/other.po": HEAD + entry("Save", "Speichern") + entry("Volume", "Datenträger"),
            "b/locale/fr/LC_MESSAGES/other.po": HEAD + entry("Save", "Enregistrer"),
            "a/locale/de/LC_MESSAGES/django.mo": "binary",
        }
        content = wheel_of(tmp_path, names)
        program = Archive("program", messages.HORIZON.name, digest(content), "")
        monkeypatch.setattr(messages, "PROGRAMS", (program,))
        assert messages.messages_of_programs("de", tmp_path) == [("Volume", "Datenträger"), ("Save", "Speichern")]
        assert messages.messages_of_programs("fr", tmp_path) == [("Save", "Enregistrer")]


class TestConvert:
    def test_a_catalogue_becomes_two_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "de.po").write_text(CATALOGUE, encoding="utf-8")
        assert messages.convert(tmp_path / "de.po", tmp_path / "my", ("en", "de")) == 0
        assert (tmp_path / "my.de").read_text("utf-8") == "Datenträger %s ist weg.\nZwei Zeilen in einer\n"
        assert "2 messages" in capsys.readouterr().out

    def test_a_missing_catalogue_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "de.po").touch()
        with pytest.raises(DataError, match=r"there is no file .*dee\.po; did you mean 'de\.po'\?"):
            messages.convert(tmp_path / "dee.po", tmp_path / "my", ("en", "de"))

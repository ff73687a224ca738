"""Problems of plain text, by hand-made files that have one each."""

import json
from pathlib import Path

import pytest
import toy
from text_examples import write_text

from heedful import DataError, doctor_text

GOOD = [f"line {number} of a book has words that no other one has in this order" for number in range(40)]


def found(path: Path, *lines: str | bytes) -> dict[str, tuple[int, tuple[int, ...], str]]:
    raw = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return {one.kind: (one.count, one.lines, one.severity) for one in doctor_text(path).findings}


def test_good_text_has_no_problems(tmp_path: Path) -> None:
    assert found(tmp_path / "text", *GOOD, "  indented", "", "", "the end") == {}


@pytest.mark.parametrize(
    ("line", "kind", "severity"),
    [
        (b"caf\xe9", "encoding", "error"),
        (b"a\0b", "binary", "error"),
        ("schÃ¶n", "mojibake", "warning"),
        ("lost \ufffd text", "replacement", "warning"),
        ("a\x07b", "control", "warning"),
        ("<b>bold</b>", "markup", "note"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str | bytes, kind: str, severity: str) -> None:
    assert found(tmp_path / "text", *GOOD[:3], line, *GOOD[3:])[kind] == (1, (4,), severity)


def test_a_long_line_that_occurs_again_is_named_and_a_short_one_is_not(tmp_path: Path) -> None:
    assert found(tmp_path / "text", *GOOD[:3], "Amen.", GOOD[1], "Amen.", *GOOD[3:]) == {
        "duplicate": (1, (5,), "warning")
    }


def test_text_of_the_end_that_occurs_before_is_named(tmp_path: Path) -> None:
    assert found(tmp_path / "text", *GOOD, GOOD[0])["overlap-pair"] == (1, (41,), "warning")


def test_a_file_that_is_there_twice_or_empty_is_named(tmp_path: Path) -> None:
    one, two = write_text(tmp_path / "one", "\n".join(GOOD)), write_text(tmp_path / "two", "\n".join(GOOD))
    messages = [finding.message for finding in doctor_text([one, two, write_text(tmp_path / "three", "")]).findings]
    assert f"{tmp_path / 'three'} is empty" in messages
    assert f"{two} has the same text as {one}; leave out one of them" in messages


def test_text_in_one_long_line_is_read(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text", "wörter " * 300_000)
    diagnosis = doctor_text(text)
    assert (diagnosis.lines, diagnosis.findings) == (1, ())


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        doctor_text(tmp_path / "none")
    with pytest.raises(DataError, match="standard input"):
        doctor_text("-")


class TestCommand:
    def test_it_counts_and_names(self, tmp_path: Path) -> None:
        text = write_text(tmp_path / "text", "\n".join([*GOOD, "schÃ¶n"]) + "\n")
        ran = toy.run("doctor", "--text", text)
        assert ran.code == 0
        words, characters = sum(len(line.split()) for line in GOOD) + 1, len(text.read_text(encoding="utf-8"))
        assert ran.lines == [
            f"1 text of 41 lines, {words} words and {characters:,} characters",
            "warning: 1 of 41 lines holds UTF-8 that was read as Windows-1252 ('Ã¤' for 'ä') (line 41)",
        ]
        assert json.loads(toy.run("doctor", "--text", text, "--json").out)["characters"] == characters

    def test_errors_have_exit_code_1(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_bytes(b"caf\xe9\n")
        assert toy.run("doctor", "--text", tmp_path / "text").code == 1

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ((), "give --source and --target, --text, --labels, --images or --captions"),
            (("--source", "a"), "give --source and --target, --text, --labels, --images or --captions"),
            (("--text", "a", "--source", "a"), "--text is examined alone"),
            (("--text", "a", "--clean", "b"), "--text is examined alone"),
        ],
    )
    def test_a_mistake_gets_one_sentence(self, arguments: tuple[str, ...], sentence: str) -> None:
        ran = toy.run("doctor", *arguments)
        assert ran.code == 2
        assert sentence in ran.err

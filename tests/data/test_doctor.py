"""The doctor finds each problem that is put into a healthy corpus, and none in a healthy one."""

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.corpus_profile import guess_divergence
from heedful.data.doctor import (
    FINDING_KINDS,
    CleanedCorpus,
    Diagnosis,
    Finding,
    FindingKind,
    clean_corpus,
    describe_finding,
    doctor,
    severity_of,
    tidy_line,
)
from heedful.data.pairs import MAX_LINE_BYTES, read_lines, read_parallel
from heedful.errors import DataError, OutOfSpace

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
WORDS = {
    "the": "der", "old": "alte", "young": "junge", "man": "Mann", "woman": "Frau", "child": "Kind", "house": "Haus",
    "sees": "sieht", "buys": "kauft", "often": "häufig", "today": "heute", "small": "kleine", "bread": "Brot",
    "never": "niemals", "water": "Wasser", "writes": "schreibt", "letter": "Brief", "with": "mit", "without": "ohne",
    "bicycle": "Fahrrad", "always": "immer", "yesterday": "gestern", "quickly": "schnell", "thinks": "überlegt",
}  # fmt: skip


def healthy(count: int, seed: int = 5) -> list[tuple[str, str]]:
    """Pairs word by word, all different, of 6 to 14 words."""
    chance, pairs = random.Random(seed), dict[str, str]()
    while len(pairs) < count:
        english = chance.choices(list(WORDS), k=chance.randint(6, 14))
        pairs[" ".join(english)] = " ".join(WORDS[word] for word in english)
    return list(pairs.items())


class Corpus:
    """Two parallel files that a test damages."""

    def __init__(self, folder: Path, pairs: list[tuple[str, str]], suffix: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.source, self.target = folder / f"train.en{suffix}", folder / f"train.de{suffix}"
        pack: Callable[[bytes], bytes] = gzip.compress if suffix else bytes
        for path, side in ((self.source, 0), (self.target, 1)):
            path.write_bytes(pack("".join(pair[side] + "\n" for pair in pairs).encode()))

    def examine(self, *tests: tuple[str, str]) -> Diagnosis:
        return doctor([str(self.source)], [str(self.target)], tests)

    def clean(self, out: Path, *tests: tuple[str, str]) -> CleanedCorpus:
        return clean_corpus(self.source, self.target, out, tests)


def found(diagnosis: Diagnosis, kind: FindingKind) -> Finding:
    (finding,) = (finding for finding in diagnosis.findings if finding.kind == kind)
    return finding


def kinds(diagnosis: Diagnosis) -> set[FindingKind]:
    return {finding.kind for finding in diagnosis.findings}


def kept(out: Path) -> list[tuple[str, str]]:
    pairs = read_parallel([str(out / "train.en")], [str(out / "train.de")])
    return [(pair.source, pair.target) for pair in pairs]


def ill(pairs: list[tuple[str, str]], *changes: tuple[int, tuple[str, str]]) -> list[tuple[str, str]]:
    """Replace pairs by line number (from 1)."""
    for line, pair in changes:
        pairs[line - 1] = pair
    return pairs


def test_a_healthy_corpus_is_counted_and_has_no_findings(tmp_path: Path) -> None:
    pairs = healthy(300)
    diagnosis = Corpus(tmp_path, pairs).examine()
    assert diagnosis.findings == ()
    assert diagnosis.pairs == 300
    assert diagnosis.source_words == diagnosis.target_words == sum(len(a.split()) for a, _ in pairs)
    assert diagnosis.source_characters == sum(len(a) for a, _ in pairs)
    assert diagnosis.target_characters == sum(len(b) for _, b in pairs)
    assert diagnosis.mean_source_words == diagnosis.source_words / 300 == diagnosis.mean_target_words


@pytest.mark.parametrize(
    ("kind", "pair"),
    [
        ("empty", ("", "ohne Anfang")),
        ("empty", ("without end", "   ")),
        ("empty", ("", "")),
        ("copy", ("the old man writes today", "the old man writes today")),
        ("swapped", ("der alte Mann schreibt heute häufig Brief", "the old man writes today often letter")),
        ("ratio", ("the old man often writes the young child the small letter today", "ja")),
        ("ratio", ("no", "der alte Mann schreibt heute dem kleine Kind mit Brot ohne Wasser Brief schnell gestern")),
        ("long", ("the man " * 126 + "end", "der Mann " * 126 + "Ende")),
        ("mojibake", ("the water always often", "Wasser immer hÃ¤ufig Mann")),
        ("mojibake", ("the woman thinks itâ€™s bread", "die Frau denkt Brot heute")),
        ("replacement", ("the water always often", "Wasser immer h\ufffdufig Mann")),
        ("control", ("the water\x07 always often", "Wasser immer der Mann")),
        ("control", ("the water always often", "Wasser\u2028immer der Mann")),
        ("white-space", ("the water always often ", "Wasser immer der Mann")),
        ("white-space", ("the water always often", "\u3000Wasser immer der Mann")),
        ("markup", ("the <b>water</b> always", "Wasser immer der Mann")),
        ("markup", ("the water always &amp; often", "Wasser immer der Mann")),
        ("binary", ("the water\0 always often", "Wasser immer der Mann")),
    ],
)
def test_each_problem_is_found_with_its_line_and_without_others(
    tmp_path: Path, kind: FindingKind, pair: tuple[str, str]
) -> None:
    diagnosis = Corpus(tmp_path, ill(healthy(300), (217, pair))).examine()
    finding = found(diagnosis, kind)
    assert (finding.count, finding.lines, finding.severity) == (1, (217,), severity_of(kind))
    assert finding.message == describe_finding(kind, 1, 300)
    assert kinds(diagnosis) - {kind} <= {"control", "white-space"}


@pytest.mark.parametrize(
    "pair",
    [
        ("1984 - 2001", "1984 - 2001"),
        ("Google, Samsung, Huawei and Nortel", "Google, Samsung, Huawei und Nortel"),
        ("5 < 7 & 8 > 3 of the water", "5 < 7 & 8 > 3 der Wasser"),
        ("“the old” man’s bread – often", "„der alte“ Mann – häufig"),
        ("the man", "der Mann"),
    ],
)
def test_odd_but_sound_pairs_are_left_alone(tmp_path: Path, pair: tuple[str, str]) -> None:
    assert Corpus(tmp_path, ill(healthy(300), (33, pair))).examine().findings == ()


def test_repeated_pairs_are_counted_from_the_second_on_and_several_targets_are_a_note(tmp_path: Path) -> None:
    pairs = healthy(300)
    pairs = ill(pairs, (50, pairs[9]), (70, (pairs[9][0] + " ", pairs[9][1])), (90, (pairs[9][0], pairs[199][1])))
    diagnosis = Corpus(tmp_path, pairs).examine()
    assert found(diagnosis, "duplicate").lines == (50, 70)
    assert found(diagnosis, "duplicate").message == "2 of 300 pairs repeat an earlier pair"
    assert found(diagnosis, "many-targets").lines == (10, 90)
    assert found(diagnosis, "many-targets").severity == "note"


def test_overlap_with_a_test_set_is_found_by_pair_source_and_target(tmp_path: Path) -> None:
    pairs, tests = healthy(300), healthy(40, seed=9)
    pairs = ill(pairs, (11, tests[3]), (22, (tests[4][0], pairs[21][1])), (44, (pairs[43][0], tests[5][1])))
    test = Corpus(tmp_path / "test", tests)
    diagnosis = Corpus(tmp_path, pairs).examine((str(test.source), str(test.target)))
    assert found(diagnosis, "overlap-pair").lines == (11,)
    assert found(diagnosis, "overlap-source").lines == (22,)
    assert found(diagnosis, "overlap-target").lines == (44,)


def test_bytes_that_are_not_utf8_are_a_finding_not_an_exception(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, healthy(120))
    lines = corpus.target.read_bytes().split(b"\n")
    lines[76] = "häufig Mann Frau Kind Haus Brot".encode("latin-1")
    corpus.target.write_bytes(b"\n".join(lines))
    finding = found(corpus.examine(), "encoding")
    assert (finding.lines, finding.severity) == ((77,), "error")
    assert kinds(corpus.examine()) <= {"encoding", "ratio"}


def test_a_line_that_is_too_long_is_a_finding(tmp_path: Path) -> None:
    pair = ("x" * (MAX_LINE_BYTES + 5), "Wasser")
    finding = found(Corpus(tmp_path, ill(healthy(120), (99, pair))).examine(), "oversized")
    assert (finding.lines, finding.severity) == ((99,), "error")


def test_only_the_first_lines_are_named_however_many_there_are(tmp_path: Path) -> None:
    finding = found(Corpus(tmp_path, [("a", "")] * 1000).examine(), "empty")
    assert (finding.count, finding.lines) == (1000, (1, 2, 3, 4, 5))


def test_lines_are_counted_through_all_files(tmp_path: Path) -> None:
    pairs = healthy(300)
    first = Corpus(tmp_path / "1", pairs[:130])
    second = Corpus(tmp_path / "2", ill(pairs[130:], (7, ("", "x"))), suffix=".gz")
    diagnosis = doctor([str(first.source), str(second.source)], [str(first.target), str(second.target)])
    assert (diagnosis.pairs, found(diagnosis, "empty").lines) == (300, (137,))


def test_every_swapped_pair_is_found_if_one_in_ten_is_swapped(tmp_path: Path) -> None:
    pairs = healthy(1000)
    for place in range(0, 1000, 10):
        pairs[place] = pairs[place][::-1]
    finding = found(Corpus(tmp_path, pairs).examine(), "swapped")
    assert (finding.count, finding.lines[:3]) == (100, (1, 11, 21))


def test_the_same_language_on_both_sides_is_found(tmp_path: Path) -> None:
    pairs = [(a, b) for (a, _), (b, _) in zip(healthy(400), healthy(400, seed=6), strict=True)]
    diagnosis = Corpus(tmp_path, pairs).examine()
    assert found(diagnosis, "same-language").message == (
        "source and target look like the same language in a sample of 400 pairs"
    )
    assert "swapped" not in kinds(diagnosis)


def test_a_handful_of_pairs_is_not_judged_by_what_is_usual(tmp_path: Path) -> None:
    assert (
        Corpus(tmp_path, [("the man", "der Mann"), ("no", "nein " * 40 + "!"), ("Brot", "bread")]).examine().findings
        == ()
    )


@settings(max_examples=20, deadline=None)
@given(place=st.integers(10, 380), missing=st.integers(1, 4), from_source=st.booleans())
def test_the_line_where_files_get_out_of_step_is_found_by_lengths(place: int, missing: int, from_source: bool) -> None:
    chance = np.random.default_rng(place)
    lengths = chance.integers(10, 200, 400)
    source, target = lengths, (lengths * chance.uniform(0.95, 1.3, 400)).astype(np.int64)
    cut = np.delete(source if from_source else target, range(place - 1, place - 1 + missing))
    guess = guess_divergence(cut, target) if from_source else guess_divergence(source, cut)
    assert abs(guess - place) <= 8


def test_unequal_files_are_reported_with_counts_and_line(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, healthy(400))
    lines = corpus.target.read_text().splitlines()
    corpus.target.write_text("\n".join(lines[:250] + lines[251:]) + "\n")
    finding = found(corpus.examine(), "line-counts")
    told = re.fullmatch(
        rf"{corpus.source} has 400 lines but {corpus.target} has 399; they seem to get out of step at about line (\d+)",
        finding.message,
    )
    assert told
    assert abs(int(told[1]) - 251) <= 5
    assert (finding.count, finding.lines, finding.severity) == (1, (int(told[1]),), "error")
    corpus.target.write_text("\n".join(lines[:-30]) + "\n")
    assert found(corpus.examine(), "line-counts").message.endswith(
        "; they seem to match up to line 370, where the shorter file ends"
    )


def test_empty_and_broken_files_are_findings(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, healthy(120), suffix=".gz")
    corpus.target.write_bytes(corpus.target.read_bytes()[:-400])
    assert "ends in the middle" in found(corpus.examine(), "unreadable").message
    plain = Corpus(tmp_path, healthy(120))
    plain.source.write_bytes(b"")
    assert found(plain.examine(), "empty-file").message == f"{plain.source} is empty"
    assert found(plain.examine(), "line-counts").message == f"{plain.source} has 0 lines but {plain.target} has 120"
    assert plain.examine().pairs == 0


def test_missing_files_and_standard_input_are_refused(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, healthy(20))
    with pytest.raises(DataError, match=r"there is no file .*; did you mean 'train.en'\?"):
        doctor([str(tmp_path / "trian.en")], [str(corpus.target)])
    with pytest.raises(DataError, match="there is no file"):
        corpus.examine((str(tmp_path / "x"), str(corpus.target)))
    with pytest.raises(DataError, match=r"standard input \(-\) cannot be examined"):
        doctor(["-"], [str(corpus.target)])


def test_every_kind_of_finding_has_a_severity_and_a_sentence() -> None:
    assert {severity_of(kind) for kind in FINDING_KINDS} == {"error", "warning", "note"}
    assert len({describe_finding(kind, 7, 11) for kind in FINDING_KINDS}) == len(FINDING_KINDS) - 2
    assert all("7" in describe_finding(kind, 7, 11) for kind in FINDING_KINDS)


def test_findings_are_sorted_by_severity(tmp_path: Path) -> None:
    pairs = ill(healthy(120), (5, ("a <br> b", "a & b")), (6, ("x\0y", "z")), (7, ("", "z")))
    gravity = [finding.severity for finding in Corpus(tmp_path, pairs).examine().findings]
    assert gravity == sorted(gravity, key=["error", "warning", "note"].index)
    assert set(gravity) == {"error", "warning", "note"}


def test_cleaning_drops_each_problem_for_its_reason_and_keeps_the_rest_in_order(tmp_path: Path) -> None:
    tests = healthy(30, seed=9)
    test = Corpus(tmp_path / "test", tests)
    pairs = healthy(300)
    whole = list(pairs)
    ills: dict[int, tuple[str, str]] = {
        20: ("", "leer"),
        40: pairs[0],
        60: tests[2],
        80: (pairs[79][0], tests[1][1]),
        100: ("the man sees the woman", "the man sees the woman"),
        120: pairs[119][::-1],
        140: ("the man " * 126, "der Mann " * 126),
        160: ("the old man often writes the young child the small letter today", "ja"),
        180: (f"  {pairs[179][0]}\x07", pairs[179][1].replace(" ", "\u2028", 1)),
    }
    corpus = Corpus(tmp_path, ill(pairs, *ills.items()))
    broken = corpus.target.read_bytes().split(b"\n")
    broken[199] = b"\xff\xfe Mann Frau Kind Haus Brot Wasser"
    corpus.target.write_bytes(b"\n".join(broken))
    result = corpus.clean(tmp_path / "out", (str(test.source), str(test.target)))
    assert result.dropped == {
        "encoding": 1, "empty": 1, "overlap-pair": 1, "overlap-target": 1, "copy": 1, "swapped": 1, "long": 1,
        "ratio": 1, "duplicate": 1,
    }  # fmt: skip
    assert (result.pairs, result.kept, result.tidied) == (300, 291, 1)
    gone = {line - 1 for line in (*ills, 200)} - {179}
    assert kept(tmp_path / "out") == [pair for place, pair in enumerate(whole) if place not in gone]
    assert result.files == (tmp_path / "out" / "train.en", tmp_path / "out" / "train.de")


rough = st.text(st.sampled_from("ab \x07\u2028\u200b\tä"), max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(rough, rough), min_size=1, max_size=25))
def test_cleaning_twice_is_cleaning_once(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("twice")
    first = Corpus(folder, [*pairs, ("sure", "sicher")]).clean(folder / "1")
    assert first.kept + sum(first.dropped.values()) == first.pairs == len(pairs) + 1
    again = clean_corpus([str(folder / "1" / "train.en")], [str(folder / "1" / "train.de")], folder / "2")
    assert (again.kept, again.dropped, again.tidied) == (first.kept, {}, 0)
    assert kept(folder / "1") == kept(folder / "2")


@given(st.binary(max_size=40).filter(lambda raw: b"\n" not in raw))
def test_a_tidy_line_stays_as_it_is(raw: bytes) -> None:
    text, _ = tidy_line(raw)
    assert tidy_line(text.encode())[0] == text
    assert text == text.strip()
    assert "\n" not in text


def test_gzip_files_stay_gzip_and_have_the_same_bytes_each_time(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, ill(healthy(150), (9, ("", ""))), suffix=".gz")
    corpus.clean(tmp_path / "1")
    corpus.clean(tmp_path / "2")
    assert len(list(read_lines(tmp_path / "1" / "train.en.gz"))) == 149
    assert (tmp_path / "1" / "train.en.gz").read_bytes() == (tmp_path / "2" / "train.en.gz").read_bytes()
    assert {path.name for path in (tmp_path / "1").iterdir()} == {"train.en.gz", "train.de.gz"}


def test_cleaning_never_overwrites_its_input_nor_mixes_files_of_one_name(tmp_path: Path) -> None:
    corpus, other = Corpus(tmp_path, healthy(20)), Corpus(tmp_path / "other", healthy(20))
    before = corpus.source.read_bytes()
    with pytest.raises(DataError, match=r"the cleaned copy of .*train\.en would overwrite it; give a different folder"):
        corpus.clean(tmp_path)
    with pytest.raises(DataError, match=r"two of the files are called train\.en, and .*out cannot hold both"):
        clean_corpus([str(corpus.source), str(other.source)], [str(corpus.target), str(other.target)], tmp_path / "out")
    with pytest.raises(DataError, match=r"train\.de is a file; give a folder for the cleaned copies"):
        corpus.clean(corpus.target)
    assert corpus.source.read_bytes() == before


def test_files_that_do_not_pair_up_are_not_cleaned(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, healthy(50))
    corpus.target.write_text("one\ntwo\n")
    with pytest.raises(DataError, match=r"train\.en has 50 lines but .*train\.de has 2.*; cleaning cannot repair that"):
        corpus.clean(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("number", "error"), [(28, OutOfSpace), (30, DataError)])
def test_a_full_disk_leaves_no_partial_copy_and_keeps_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    corpus, out = Corpus(tmp_path, healthy(50)), tmp_path / "out"
    out.mkdir()
    (out / "train.en").write_text("from before\n")

    def full(file: int) -> None:
        raise OSError(number, "no room")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(error, match="out cannot be written: no room"):
        corpus.clean(out)
    assert [path.name for path in out.iterdir()] == ["train.en"]
    assert (out / "train.en").read_text() == "from before\n"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared corpora are not here")
def test_a_real_corpus_is_judged_fairly() -> None:
    folder = SHARED / "tatoeba-en-de"
    tests = [(str(folder / f"{name}.en"), str(folder / f"{name}.de")) for name in ("val", "test")]
    diagnosis = doctor([str(folder / "train.en")], [str(folder / "train.de")], tests)
    assert diagnosis.pairs == 154_014
    # Golden: four free translations, and four targets with zero-width spaces inside.
    assert kinds(diagnosis) == {"ratio", "control", "many-targets"}
    assert found(diagnosis, "ratio").lines == (15899, 31733, 77036, 103323)
    assert found(diagnosis, "control").lines == (35823, 76968, 94267, 120663)

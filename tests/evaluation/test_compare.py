"""`heedful compare`: models and files side by side, the page, and a sentence for every mistake."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import toy
from browser import chromium, watched

from heedful.cli.console import table
from heedful.evaluation.compare import short_names
from heedful.evaluation.comparison_page import comparison_page
from heedful.metrics import bleu as translation
from heedful.metrics import comparison
from heedful.metrics.comparison import Comparison, EvaluationSet, System, compare_outputs
from heedful.pages.inline import digest
from heedful.tasks import make_experiment

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028"


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few trials, which take no time."""
    monkeypatch.setattr(translation, "_MAX_RESAMPLED_SENTENCES", 600)
    monkeypatch.setattr(comparison, "_MAX_SHUFFLED_SENTENCES", 600)


@pytest.fixture(scope="module")
def files(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A test set of 12 lines, two files of translations, and a run without a model."""
    d = tmp_path_factory.mktemp("compare")
    source, target = (toy.lines_of(trained / f"test.{side}")[:12] for side in ("en", "de"))
    toy.write_lines(d / "test.en", source)
    toy.write_lines(d / "test.de", target)
    toy.write_lines(d / "cut.de", [line[: len(line) // 2] for line in target])
    toy.write_lines(d / "short.de", target[:11])
    shutil.copytree(trained / "run", d / "bare")
    (d / "bare/model.safetensors").unlink()
    return d


def compared(*arguments: object) -> dict[str, Any]:
    ran = toy.run("compare", *arguments, "--json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


# The command


def test_a_run_translates_with_its_own_search_and_is_compared_with_a_file(trained: Path, files: Path) -> None:
    found = compared(trained / "run", files / "cut.de", "--source", files / "test.en", "--reference", files / "test.de")
    expected = toy.run("translate", trained / "run", "--input", files / "test.en").lines
    assert [sentence["outputs"][0] for sentence in found["sentences"]] == expected
    assert [sentence["outputs"][1] for sentence in found["sentences"]] == toy.lines_of(files / "cut.de")
    assert found["names"] == ["run", "cut.de"]
    assert found["counted_in"] == "the training text of run"
    printed = toy.run(
        *("evaluate", trained / "run", "--source", files / "test.en", "--reference", files / "test.de", "--json")
    )
    evaluated = {score["metric"]: score["value"] for score in json.loads(printed.out)["scores"]}
    assert {test["metric"]: test["systems"][0]["score"]["value"] for test in found["tests"]} == pytest.approx(
        {name: evaluated[name] for name in ("BLEU", "chrF")}
    )


def test_word_frequencies_come_from_the_training_text(trained: Path, files: Path) -> None:
    text = toy.lines_of(trained / "train.de")
    wanted = toy.lines_of(files / "test.de")
    seen = [sum(line.split().count(word) for line in text) for line in wanted for word in line.split()]
    found = compared(trained / "run", files / "cut.de", "--source", files / "test.en", "--reference", files / "test.de")
    words = {part["name"]: part["count"] for part in found["by_frequency"]}
    assert words.get("10 to 99", 0) == sum(10 <= number <= 99 for number in seen)
    assert sum(words.values()) == len(seen)


def test_search_options_apply_to_all_runs(trained: Path, files: Path) -> None:
    data = ("--source", files / "test.en", "--reference", files / "test.de")
    found = compared(trained / "run", trained / "run", *data, "--set", "search.max_extra=0", "--beam", "1")
    greedy = toy.run(
        *("translate", trained / "run", "--input", files / "test.en", "--beam", "1", "--set", "search.max_extra=0")
    )
    assert {tuple(sentence["outputs"]) for sentence in found["sentences"]} == {(line, line) for line in greedy.lines}
    assert found["wins"] == [{"better": 0, "worse": 0, "equal": 12, "identical": 12}]


def test_the_terminal_shows_scores_breakdowns_and_the_largest_differences(files: Path) -> None:
    ran = toy.run("compare", files / "test.de", files / "cut.de", "--reference", files / "test.de")
    assert ran.code == 0
    rows = [line.split() for line in ran.lines]
    assert ["test.de", "100.00", "100.00", "to", "100.00", "baseline"] in rows
    assert next(row for row in rows if row[:1] == ["cut.de"])[-1] == "significant"
    assert ["cut.de", "0", "12", "0", "0"] in [row[:5] for row in rows]
    assert "BLEU by words of the reference" in ran.lines
    assert "F1 of words by how often they are in the references" in ran.lines
    assert "where cut.de loses most against test.de" in ran.lines
    assert "where cut.de gains most over test.de" not in ran.out
    assert ran.out.count("  line ") == 5
    assert "nrefs:1|ar:50|seed:12345" in ran.out


def test_all_references_count(files: Path) -> None:
    both = compared(
        *(files / "test.de", files / "cut.de", "--reference", files / "cut.de", "--reference", files / "test.de")
    )
    assert [system["score"]["value"] for system in both["tests"][1]["systems"]] == pytest.approx([100.0, 100.0])
    assert len(both["sentences"][0]["references"]) == 2


def test_two_systems_with_one_name_are_called_by_their_paths() -> None:
    assert short_names(["a/run", "b/other"]) == ["run", "other"]
    assert short_names(["a/run", "b/run"]) == ["a/run", "b/run"]
    assert short_names(["/home/ann/a/run", "/home/ann/b/run", "x"]) == ["a/run", "b/run", "x"]
    assert short_names(["/home/ann/run", "/home/ann/run"]) == ["run", "run"]
    assert short_names(["/", "-"]) == ["/", "-"]


def test_a_signed_number_is_aligned_to_the_right() -> None:
    assert table([("difference",), ("+1.50",)]).splitlines()[1] == "     +1.50"


MISTAKES = [
    ("compare {d}/cut.de --reference {d}/test.de", "give two or more systems to compare, not only {d}/cut.de"),
    ("compare {d}/cut.de {d}/test.de", "missing option '--reference'"),
    ("compare {d}/cut.de {d}/short.de --reference {d}/test.de", "{d}/test.de has 12 lines but {d}/short.de has 11"),
    ("compare {d}/cut.de {d}/cut.de --reference {d}/short.de", "{d}/short.de has 11 lines but {d}/cut.de has 12"),
    ("compare {d}/cut.de {d}/cit.de --reference {d}/test.de", "there is no file {d}/cit.de; did you mean 'cut.de'?"),
    ("compare {d}/cut.de {d}/cut.de --reference {d}/none.de", "there is no file {d}/none.de"),
    (
        "compare {d}/bare {d}/cut.de --reference {d}/test.de",
        "{d}/bare is a model, so it needs a text to translate; give it with --source",
    ),
    ("compare {d}/bare {d}/cut.de --reference {d}/test.de --source {d}/test.en", "{d}/bare has no model yet"),
    ("compare {d} {d}/cut.de --reference {d}/test.de --source {d}/test.en", "{d} is not a run folder"),
    ("compare {d}/cut.de {d}/cut.de --reference {d}/test.de --tokenize 13b", "--tokenize must be one of 13a"),
    ("compare {d}/cut.de {d}/cut.de --reference {d}/test.de --html {d}", "--html {d} is a folder; name a file in it"),
    ("compare - - --reference {d}/test.de", "standard input (-) can be read only once; give files for the others"),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_mistake_is_answered_in_one_sentence(line: str, sentence: str, files: Path) -> None:
    ran = toy.run(*line.format(d=files).split())
    assert ran.code == 2
    assert ran.err.startswith("heedful: ")
    assert sentence.format(d=files) in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_model_of_another_task_is_refused(trained: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsing = make_experiment({"task": "parsing"})
    monkeypatch.setattr("heedful.storage.run_folder.RunFolder.experiment", lambda _: parsing)
    ran = toy.run(
        *("compare", trained / "run", files / "cut.de"),
        *("--source", files / "test.en", "--reference", files / "test.de"),
    )
    assert ran.code == 2
    assert "is a model for parsing, but only translations are compared; score it with: heedful evaluate" in ran.err


def test_runs_with_different_tokenizers_need_the_tokenize_option(trained: Path, tmp_path: Path) -> None:
    from heedful.errors import ConfigError
    from heedful.evaluation.compare import common_tokenizer
    from heedful.storage.run_folder import RunFolder

    class Other(RunFolder):
        def experiment(self) -> Any:
            return make_experiment({"evaluate": {"tokenize": "none"}})

    runs = [RunFolder(trained / "run"), Other(tmp_path)]
    with pytest.raises(ConfigError, match=r"run '13a', .* 'none'; choose one with --tokenize$"):
        common_tokenizer(runs)
    assert (common_tokenizer(runs[:1]), common_tokenizer(runs[1:]), common_tokenizer([])) == ("13a", "none", "13a")


# The page


def example(names: tuple[str, ...] = ("one", "two", "three")) -> Comparison:
    """Fifty sentences; the second system is better in the first, and worse in the third."""
    same = [f"word{number} and more" for number in range(47)]
    outputs = (
        ("a red house here", HOSTILE, "the long way home", *same),
        ("a blue house here", HOSTILE, "the way", *same),
        ("a blue house here", "", "the long way home", *same),
    )
    sources = ("rot", HOSTILE, "weg nach haus und noch mehr", *same)
    references = ("a blue house here", HOSTILE, "the long way home", *same)
    return compare_outputs(
        [System(name, lines) for name, lines in zip(names, outputs, strict=True)],
        EvaluationSet((references,), sources),
        "13a",
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_the_policy_allows_only_the_pages_own_style_and_script() -> None:
    page = comparison_page(example())
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)[0]
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (inside,) = re.findall(f'<{tag}(?: type="module")?>(.*?)</{tag}>', page, re.DOTALL)
        assert f"{tag}-src '{digest(inside)}'" in policy
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"\sstyle=|\son\w+=", re.sub(r"<script type.*?</script>", "", page))
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_text_is_never_markup(tmp_path: Path, browser: Any) -> None:
    page = comparison_page(example((HOSTILE, HOSTILE + "\udc80", "three")))
    assert "<img" not in page
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with watched(browser) as seen:
        seen.page.goto((tmp_path / "page.html").as_uri())
        seen.page.select_option("#sort", "file")
        second = seen.page.locator("#sentences > li").nth(1)
        assert second.locator("dd").all_inner_texts() == [HOSTILE] * 4
        assert seen.page.locator("img").count() == 0
        assert seen.misdeeds == []


@pytest.fixture
def shown(tmp_path: Path, browser: Any) -> Iterator[Any]:
    """The example on a phone."""
    (tmp_path / "page.html").write_text(comparison_page(example()), encoding="utf-8")
    with watched(browser, viewport={"width": 390, "height": 800}) as seen:
        seen.page.goto((tmp_path / "page.html").as_uri())
        yield seen.page
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390  # only tables scroll
        assert seen.misdeeds == []


def numbers(page: Any) -> list[int]:
    lines: list[str] = page.locator("#sentences .line span:first-child").all_inner_texts()
    return [int(line.split()[1]) for line in lines]


def test_sentences_are_sorted_and_filtered(shown: Any) -> None:
    assert numbers(shown)[:2] == [3, 1]
    assert shown.locator("#found").inner_text() == "50 of 50 sentences"
    shown.select_option("#sort", "gain")
    assert numbers(shown)[0] == 1
    shown.select_option("#sort", "loss")
    assert numbers(shown)[0] == 3
    shown.select_option("#kind", "better")
    assert numbers(shown) == [1]
    shown.select_option("#kind", "differ")
    assert numbers(shown) == [3, 1]
    shown.select_option("#length", "6 to 10")
    assert numbers(shown) == [3]
    shown.select_option("#length", "")
    shown.select_option("#with", "2")  # the third system
    shown.select_option("#sort", "file")
    assert numbers(shown) == [1, 2]
    shown.select_option("#kind", "all")
    shown.fill("#search", "WORD7")
    assert numbers(shown) == [11]
    shown.fill("#search", "nowhere")
    assert numbers(shown) == []
    assert shown.locator("#found").inner_text() == "0 of 50 sentences"


def test_different_words_are_marked_by_whether_they_are_in_the_reference(shown: Any) -> None:
    shown.select_option("#sort", "file")
    first, third = (shown.locator("#sentences > li").nth(place) for place in (0, 2))
    assert first.locator("mark.miss").all_inner_texts() == ["red"]
    assert first.locator("mark.hit").all_inner_texts() == ["blue"]
    assert third.locator("mark.hit").all_inner_texts() == ["long", "home"]
    assert third.locator("dd").nth(3).locator("mark").count() == 0
    assert shown.locator("#sentences > li").nth(5).locator("mark").count() == 0


def test_the_keyboard_reaches_the_remaining_sentences(shown: Any) -> None:
    assert len(numbers(shown)) == 40
    shown.focus("#search")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.id") == "more"
    shown.keyboard.press("Enter")
    assert sorted(numbers(shown)) == list(range(1, 51))
    assert shown.evaluate("document.activeElement === document.querySelectorAll('#sentences > li')[40]")
    assert shown.locator("#more").is_hidden()


def test_the_page_explains_the_scores(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = toy.run(*("compare", files / "test.de", files / "cut.de", "--reference", files / "test.de"), "--html", page)
    assert ran.err == f"{page} shows every sentence; open it in a browser\n"
    plain = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
    assert re.search(r"B&nbsp;cut.de scores [\d.]+ BLEU lower than A&nbsp;test.de; both tests find this signif", plain)
    assert "12 worse" in plain

"""The report on all heads: the page, the table for a terminal, the JSON."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import chromium, watched
from heads_examples import dirichlet, looking_at, marked, only

from heedful.attention.head_names import Head
from heedful.attention.measures import HeadMeasures, HeadStatistics
from heedful.attention.roles import Role, name_roles
from heedful.inspection.head_report import report_json, report_page, report_text

HOSTILE = "<img src=x onerror=alert(1)>\"'&\udc80"


def example() -> tuple[dict[Head, HeadMeasures], dict[Head, Role]]:
    """Encoder layers of two heads and of one, and one cross head."""
    statistics = HeadStatistics()
    layers = (dirichlet("encoder", 2, 6, 6, 1), looking_at([0, 0, 1, 2, 3, 4], 6))
    statistics.add(only("encoder", *layers), marked(6), marked(4))
    statistics.add(only("cross", dirichlet("cross", 1, 4, 6, 3)), marked(6), marked(4))
    measures = statistics.measures()
    return measures, name_roles(measures)


class ParsedPage(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_head_has_a_row_and_a_box_that_links_to_it() -> None:
    measures, roles = example()
    page = ParsedPage(report_page("e2", measures, roles))
    rows = [attributes["id"] for tag, attributes in page.tags if tag == "tr" and "id" in attributes]
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert rows == ["encoder.1.1", "encoder.1.2", "encoder.2.1", "cross.1.1"]
    assert links == [f"#{row}" for row in rows]
    assert "4 heads of e2, measured on 1 sentence and its translation." in page.text
    assert "100 % of its weight on the previous token" in page.text
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.tags if tag == "th")


def test_the_name_of_a_model_is_never_markup() -> None:
    page = report_page(HOSTILE, *example())
    page.encode("utf-8")
    read = ParsedPage(page)
    assert "img" not in [tag for tag, _ in read.tags]
    assert "<img src=x onerror=alert(1)>\"'&?" in read.text


def test_the_policy_allows_only_the_pages_own_style_and_script() -> None:
    page = report_page("e2", *example())
    policy = next(a["content"] for tag, a in ParsedPage(page).tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for tag in ("style", "script"):
        (inside,) = re.findall(f'<{tag}(?: type="module")?>(.*?)</{tag}>', page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "http" not in page.replace("http-equiv", "")
    assert not [attributes for _, attributes in ParsedPage(page).tags if "style" in attributes]


def test_positions_that_a_decoder_cannot_see_have_no_share() -> None:
    statistics = HeadStatistics()
    statistics.add(only("decoder", dirichlet("decoder", 1, 5, 5, 1)), marked(3), marked(5))
    measures = statistics.measures()
    assert report_page("e2", measures, name_roles(measures)).count("–</td>") == 2  # same and next


def test_importance_is_an_extra_column_if_it_was_measured() -> None:
    measures, roles = example()
    importance = {Head("encoder", 0, 0): 0.01234, Head("cross", 0, 0): -0.5}
    assert "importance" not in ParsedPage(report_page("e2", measures, roles)).text
    text = ParsedPage(report_page("e2", measures, roles, importance)).text
    assert "0.0123" in text
    assert "How much the loss on the given translations rises when the head is switched off" in text
    titles, first, second, *_ = report_text(measures, roles, importance)
    assert titles == ("head", "role", "entropy", "distance", "stability", "importance", "evidence")
    assert (first[5], second[5]) == ("0.0123", "–")
    found = report_json(measures, roles, importance)
    assert [entry["importance"] for entry in found.values()] == [0.01234, None, None, -0.5]  # type: ignore[index]


def test_all_rows_for_the_terminal_have_the_same_columns() -> None:
    rows = report_text(*example())
    assert len({len(row) for row in rows}) == 1
    assert rows[3] == (
        *("encoder.2.1", "previous token", "0.00", "0.8", "1.00"),
        "100 % of its weight on the previous token (by chance 17 %)",
    )


def test_the_json_has_every_number() -> None:
    measures, roles = example()
    found = json.loads(json.dumps(report_json(measures, roles), allow_nan=False))
    assert list(found) == [str(head) for head in measures]
    entry = found["encoder.2.1"]
    assert entry["role"] == "previous token"
    assert entry["previous"] == {"share": 1.0, "chance": pytest.approx(1 / 6)}
    assert (entry["entropy"], entry["sentences"], entry["rows"]) == (0.0, 1, 6)
    assert "importance" not in entry


def test_clicking_a_title_sorts_the_table(tmp_path: Path) -> None:
    measures, roles = example()
    file = tmp_path / "heads.html"
    file.write_text(report_page(HOSTILE, measures, roles, {Head("cross", 0, 0): -0.5}), encoding="utf-8")
    by_entropy = [str(head) for head in sorted(measures, key=lambda head: measures[head].entropy)]
    with chromium() as browser, watched(browser, viewport={"width": 390, "height": 800}) as seen:
        page = seen.page
        page.goto(file.as_uri())

        def press(title: str) -> list[str]:
            page.get_by_role("button", name=title, exact=True).click()
            return page.locator(".numbers tbody th").all_inner_texts()

        assert press("entropy") == by_entropy[::-1]
        assert page.get_by_role("columnheader", name="entropy").get_attribute("aria-sort") == "descending"
        assert press("entropy") == by_entropy
        assert press("head") == [str(head) for head in measures]
        assert page.locator("[aria-sort]").count() == 1
        assert press("importance")[0] == "cross.1.1"  # those without one come last
        assert page.evaluate("document.documentElement.scrollWidth") <= 390  # only the tables scroll
        assert seen.misdeeds == []


def test_the_grids_line_up_and_nothing_is_cut_off_on_paper(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page("e2", *example()), encoding="utf-8")
    with chromium() as browser, watched(browser, viewport={"width": 1280, "height": 900}) as seen:
        seen.page.goto(path.as_uri())
        edges = seen.page.eval_on_selector_all(
            ".grid thead th:nth-child(2)", "(all) => all.map((each) => each.getBoundingClientRect().left)"
        )
        assert len(edges) == 2
        assert edges[0] == edges[1]
        seen.page.emulate_media(media="print")
        heights = seen.page.eval_on_selector_all(
            ".scroll", "(all) => all.map((box) => getComputedStyle(box).maxHeight)"
        )
        assert set(heights) == {"none"}
        assert seen.misdeeds == []

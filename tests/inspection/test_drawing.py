"""Pictures of attention and of roles."""

import io
import xml.etree.ElementTree as ET
from typing import get_args

import numpy as np
import pytest
from heads_examples import dirichlet, only

from heedful.attention.head_names import Head
from heedful.attention.record import Attention
from heedful.attention.roles import ROLE_COLOURS, Role
from heedful.errors import ConfigError
from heedful.inspection import drawing
from heedful.inspection.drawing import PictureFormat, draw_attention, draw_roles, shorten_label

HOSTILE = ["$x_1$", "<script>alert(1)</script>", "\x00\u202e", "漢字", "\ud800", "a" * 99, "]]>&amp;", "</s>"]
TARGET = ["▁ein", "$", "</s>"]
ATTENTION = Attention(
    (dirichlet("encoder", 2, 8, 8, 1), dirichlet("encoder", 1, 8, 8, 2)),  # the second layer was pruned
    (dirichlet("decoder", 3, 3, 3, 3),),
    (dirichlet("cross", 2, 3, 8, 4),),
)
ROLES = {
    Head("encoder", 0, 0): Role("previous token", "78 % of its weight on the previous token", "78 %"),
    Head("encoder", 1, 2): Role("mixed", "nothing stands out", ""),
    Head("cross", 0, 0): Role("alignment", "64 % of its weight within one token of the diagonal", "64 %"),
}


def texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def images(svg: bytes) -> int:
    return sum(1 for _ in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}image"))


def test_a_png_is_not_blank() -> None:
    from matplotlib.image import imread

    for picture in (draw_attention(ATTENTION, HOSTILE, TARGET, "png"), draw_roles(ROLES, "png")):
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        pixels = imread(io.BytesIO(picture))
        assert min(pixels.shape[:2]) > 100
        assert len(np.unique(pixels[..., 0])) > 20


def test_pieces_are_drawn_as_text_and_never_as_markup() -> None:
    picture = draw_attention(ATTENTION, HOSTILE, TARGET, "svg")
    shown = texts(picture)
    assert {"$x_1$", "<script>ale…", "\ufffd\ufffd", "漢字", "\ufffd", "a" * 11 + "…", "]]>&amp;"} <= set(shown)
    assert not list(ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}script"))
    assert {"Encoder self-attention", "Decoder self-attention", "Cross attention", "<s>"} <= set(shown)


def test_every_head_is_an_image_with_its_number() -> None:
    picture = draw_attention(ATTENTION, HOSTILE, TARGET, "svg")
    assert images(picture) == 2 + 1 + 3 + 2
    assert texts(picture).count("1.3") == 1
    assert texts(picture).count("2.1") == 1


def test_one_attention_can_be_drawn_alone() -> None:
    picture = draw_attention(ATTENTION, HOSTILE, TARGET, "svg", "cross")
    assert images(picture) == 2
    assert "Encoder self-attention" not in texts(picture)


def test_a_long_sentence_has_no_labels() -> None:
    attention = only("cross", dirichlet("cross", 2, 90, 3, 1))
    shown = texts(draw_attention(attention, ["q", "r", "s"], ["▁word"] * 90, "svg"))
    assert shown.count("▁word") == 0
    assert shown.count("q") == 2  # below each head


def test_a_missing_kind_of_attention_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="this model has no encoder attention to draw; draw another kind"):
        draw_attention(only("cross", dirichlet("cross", 2, 3, 8, 1)), HOSTILE, TARGET, "svg", "encoder")


@pytest.mark.parametrize("form", get_args(PictureFormat))
def test_the_same_picture_has_the_same_bytes(form: PictureFormat) -> None:
    assert draw_roles(ROLES, form) == draw_roles(ROLES, form)
    first, second = (draw_attention(ATTENTION, HOSTILE, TARGET, form, "cross") for _ in range(2))
    assert first == second


def test_each_role_is_a_box_with_its_name_figure_and_colour() -> None:
    picture = draw_roles(ROLES, "svg")
    assert {"previous token", "78 %", "mixed", "alignment", "64 %", "head 3"} <= set(texts(picture))
    for name in ("previous token", "mixed", "alignment"):
        assert ROLE_COLOURS[name].encode() in picture


def test_the_users_matplotlib_settings_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    before = draw_attention(ATTENTION, HOSTILE, TARGET, "svg", "cross")
    monkeypatch.setitem(matplotlib.rcParams, "text.parse_math", True)
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "path")
    assert draw_attention(ATTENTION, HOSTILE, TARGET, "svg", "cross") == before


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pictures need matplotlib, .* run: pip install 'heedful\[plot\]'"):
        draw_roles(ROLES, "png")


def test_a_label_is_one_short_line() -> None:
    assert shorten_label("▁word") == "▁word"
    assert shorten_label("two\nlines") == "two\ufffdlines"
    assert len(shorten_label("x" * 50)) == 12

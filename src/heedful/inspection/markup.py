"""Mathematics as MathML, numbers and pieces, as the pages about a sentence write them."""

import difflib
from collections.abc import Iterable
from html import escape
from math import exp, log

import numpy as np

from heedful.pages.inline import text_in_page


def equation(*parts: str) -> str:
    """A formula on a line of its own."""
    # On a phone a long formula scrolls sideways, and the keyboard must reach it.
    return (
        '<div class="formula" role="region" aria-label="Formula" tabindex="0">'
        f'<math display="block">{"".join(parts)}</math></div>'
    )


def mi(name: str) -> str:
    return f"<mi>{name}</mi>"


def mo(sign: str) -> str:
    return f"<mo>{sign}</mo>"


def mn(value: float | int | str) -> str:
    return f"<mn>{value if isinstance(value, (int, str)) else number(value)}</mn>"


def sub(base: str, index: str) -> str:
    letters = "".join(map(mi, index)) if index in ("ij", "ik") else mi(index)
    return f"<msub>{mi(base)}<mrow>{letters}</mrow></msub>"


def sup(base: str, index: str) -> str:
    return f"<msup>{mi(base)}{mi(index)}</msup>"


def root(inner: str) -> str:
    return f"<msqrt>{inner}</msqrt>"


def space() -> str:
    return '<mspace width="1.4em"/>'


def fraction(above: str, below: str) -> str:
    return f"<mfrac><mrow>{above}</mrow><mrow>{below}</mrow></mfrac>"


def words(text: str) -> str:
    """Text in an equation; spaces at its ends would be trimmed if they could break."""
    return f"<mtext>{escape(text).replace(' ', '&nbsp;')}</mtext>"


def number(value: float) -> str:
    """A number as the page writes it: as many decimals as the page's 16 bits hold, and a true minus sign."""
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")  # + 0.0: no minus before a zero


def power(value: float, digits: int = 1) -> str:
    """A number that may be very small, with a power of ten in place of many zeros."""
    if not value or abs(value) >= 1e-4:
        return f"{value:.{digits}g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa} × 10<sup>{int(exponent)}</sup>".replace("-", "−")


_VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥"})


def visible(pieces: Iterable[str]) -> list[str]:
    """Pieces as pages show them: new lines and tabs can be seen."""
    return [text.translate(_VISIBLE) for text in pieces]


def piece(text: str) -> str:
    """A piece as the page shows it, isolated from the direction of the text around it."""
    return f'<bdi class="piece">{text_in_page(text.translate(_VISIBLE))}</bdi>'


def times_less_likely(cost: float) -> str:
    """A difference of log-probabilities in words."""
    if abs(cost) < log(1.05):
        return "as likely as before"
    more = "less" if cost > 0 else "more"
    factor = abs(cost)
    if factor < log(10):
        shown = f"{exp(factor):.1f}"
    elif factor < log(10_000):
        shown = f"{float(f'{exp(factor):.1e}'):,.0f}"
    else:
        shown = f"10<sup>{round(factor / log(10))}</sup>"
    return f"{shown} times {more} likely"


def mark_differences(before: str, after: str) -> str:
    """The second text, with the words marked that the first does not have there."""
    old, new = before.split(), after.split()
    shown = []
    for kind, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        words = text_in_page(" ".join(new[start:end]))
        if words:
            shown.append(words if kind == "equal" else f"<mark>{words}</mark>")
    return " ".join(shown)


def entropy_in_bits(rows: np.ndarray) -> float:
    """The mean entropy of rows of weights, in bits."""
    shares = np.where(rows > 0, rows, 1.0)
    return float(-(rows * np.log2(shares)).sum(-1).mean())


def softmax(rows: np.ndarray) -> np.ndarray:
    powers = np.exp(rows - rows.max(-1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(-1, keepdims=True)
    return shares


def amount(value: float) -> str:
    """A large number as people say it: 4.9 million."""
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"), (1e4, " thousand")):
        if value >= size:
            unit = 1e3 if size == 1e4 else size
            return f"{value / unit:.3g}{name}"
    return f"{value:,.0f}"


def byte_size(value: float) -> str:
    """A number of bytes, in the unit that makes it short."""
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:.0f} bytes"

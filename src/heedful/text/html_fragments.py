"""The texts of an HTML fragment, and the fragment with translated texts: sanitised, balanced and escaped.

Only the tags and attributes on this page are kept. Unknown tags are removed, but not the text inside them. Elements
without text for readers, such as scripts, styles and embedded pages, are removed with their content.

Python's html.parser takes minutes for some texts of 100 kB, and fails on others. This parser visits every character a
few times at most. Anything that is not clearly a tag is treated as text, which is safe, because all text is escaped.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape, unescape
from html.entities import html5


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_KEPT = _set(
    "a abbr address article aside b bdi bdo blockquote body br caption cite code col colgroup dd del details dfn div "
    "dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 head header hr html i img ins kbd li main mark nav ol p pre q "
    "rp rt ruby s samp section small span strong sub summary sup table tbody td tfoot th thead time title tr u ul "
    "var wbr"
)
_EMPTY = _set("br col hr img wbr")
_SILENT = _set(
    "applet audio canvas frameset iframe math noembed noframes noscript object script select style svg template "
    "textarea video xmp"
)
_VERBATIM = _set("code kbd pre samp var")  # code, not prose
_ATTRIBUTES = _set("alt cite class colspan dir height href id lang rowspan src start title translate width")
_ADDRESSES = _set("cite href src")
_SCHEME = re.compile(r"([^/?#]*?):")
_SCHEMES = _set("http https mailto tel")

# A tag, whose attributes may contain > in quotes; or the beginning of what a browser treats as a comment.
_TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/<>]*+)((?>[^<>"']|"[^"<]*"|'[^'<]*')*+|[^<>]*+)>|<([!?])""")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]++)(?:\s*+=\s*+("[^"]*"|'[^']*'|[^\s"'<>]++))?""")
_REFERENCE = re.compile(r"&(?:#(?:[xX][0-9a-fA-F]++|[0-9]++);?+|[a-zA-Z][a-zA-Z0-9]*+(?:;|(?!=)))")
_LONG_NUMBER = re.compile(r"&#(?:0*+[0-9]{8,}+|[xX]0*+[0-9a-fA-F]{7,}+);?+")
_DOCTYPE = re.compile(r"<!doctype\s+html\s*>", re.IGNORECASE)


class Markup:
    """A page or a part of one, split into its texts and the markup around them."""

    def __init__(self, html: str) -> None:
        writer = _Writer()
        _read(html, writer)
        self._parts = writer.parts

    @property
    def texts(self) -> list[str]:
        """The texts to translate, with entities resolved."""
        return [content for content, to_translate in self._parts if to_translate]

    def join(self, translations: Sequence[str]) -> str:
        """The page with its texts replaced by these translations."""
        given = iter(translations)
        return "".join(escape(next(given), quote=False) if text else content for content, text in self._parts)


def _read(html: str, writer: "_Writer") -> None:
    """Pass the tags and texts of a page to a writer."""
    here = text_from = 0
    while found := _TAG.search(html, here):
        name = (found[2] or "").lower()
        writer.text(html[text_from : found.start()])
        if found[4]:
            here = _after_declaration(html, found.start(), writer)
        elif found[1]:
            writer.end(name)
            here = found.end()
        elif name in _SILENT:
            end = re.compile(rf"</{name}(?=[\s/>])[^>]*+(?:>|\Z)", re.IGNORECASE).search(html, found.end())
            here = end.end() if end else len(html)
        else:
            writer.start(name, dict(_attributes(found[3])))
            here = found.end()
        text_from = here
    writer.text(html[text_from:])
    writer.end_all()


def _after_declaration(html: str, start: int, writer: "_Writer") -> int:
    """Skip a comment or a declaration; the doctype of an HTML page is kept."""
    if html.startswith("<!--", start):
        end, length = html.find("-->", start + 4), 3
    else:
        end, length = html.find(">", start), 1
        if not writer.parts and _DOCTYPE.match(html, start):
            writer.parts.append(("<!doctype html>", False))
    return end + length if end >= 0 else len(html)


class _Writer:
    """Collects the parts of a page; the flag says whether a part is translated."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, bool]] = []
        self._open: list[tuple[str, bool]] = []  # tags, and whether their content is translated
        self._count: Counter[str] = Counter()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Write an opening tag with its allowed attributes, if the tag itself is allowed."""
        if tag not in _KEPT:
            return
        kept = (f' {name}="{escape(value)}"' for name, value in attributes.items() if _is_kept(name, value))
        self.parts.append((f"<{tag}{''.join(kept)}>", False))
        if tag not in _EMPTY:
            verbatim = tag in _VERBATIM or attributes.get("translate") == "no"
            self._open.append((tag, self._translated and not verbatim))
            self._count[tag] += 1

    def end(self, tag: str) -> None:
        """Close an open tag and all tags inside it; ignore a tag that is not open."""
        if self._count[tag]:
            while self._end_last() != tag:
                pass

    def text(self, html: str) -> None:
        """Write the text between two tags."""
        text = _unescape(html)
        if text.strip() and self._translated:
            self.parts.append((text, True))
        elif text:
            self.parts.append((escape(text, quote=False), False))

    def end_all(self) -> None:
        """Close all open tags."""
        while self._open:
            self._end_last()

    @property
    def _translated(self) -> bool:
        return self._open[-1][1] if self._open else True

    def _end_last(self) -> str:
        tag, _ = self._open.pop()
        self._count[tag] -= 1
        self.parts.append((f"</{tag}>", False))
        return tag


def _attributes(written: str) -> Iterator[tuple[str, str]]:
    for name, value in _ATTRIBUTE.findall(written):
        quoted = value[:1] in ("'", '"')
        yield name.lower(), _REFERENCE.sub(_resolve, value[1:-1] if quoted else value)


def _unescape(text: str) -> str:
    """Resolve entities. A number too long for any character is replaced first, because Python refuses huge ones."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text))


def _resolve(reference: "re.Match[str]") -> str:
    """Resolve an entity in an attribute; `&sect` in `?page=2&section=3` is not one."""
    known = reference[0].startswith("&#") or reference[0][1:] in html5
    return _unescape(reference[0]) if known else reference[0]


def _is_kept(name: str, value: str) -> bool:
    return name in _ATTRIBUTES and (name not in _ADDRESSES or _is_harmless(value))


def _is_harmless(address: str) -> bool:
    # A browser ignores control characters and spaces in a scheme.
    scheme = _SCHEME.match("".join(character for character in address if character > " " and character != "\x7f"))
    return scheme is None or scheme[1].lower() in _SCHEMES

"""HTML: all tags stay, with styles and scripts, and the text between them is translated."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from html import escape
from itertools import islice

from heedful.documents.passages import Draft, Placed, Run
from heedful.documents.safe_input import MOST_ATTRIBUTES, MOST_XML, TOO_DEEP, Bounds, Element, TooMuch, as_text, clean
from heedful.documents.xml_text import BREAK, FIXED, HOLD, SILENT, THROUGH, Kind, Tree
from heedful.errors import DataError


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_INLINE = _set(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp small "
    "span strike strong sub sup time tt u var wbr"
)
_VERBATIM = _set("code kbd samp tt var")  # not written in any language
_SILENT = _set("img wbr")
_SKIPPED = _set("pre script style template svg math iframe object textarea noscript code kbd samp")
_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)[\s>]", re.IGNORECASE)
_CHARSET = re.compile(r"(<meta[^>]{0,200}charset=[\"']?)[\w-]+", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\r\n\f]+")
# What HTML is made of besides text: comments, what holds text only, and tags with their attributes.
_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=(?:\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+))?+)?+"""
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?--!?>|.*+)|<(?:[!?]|/[^a-z])[^>]*+|"
    r"<(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])"
    rf"((?:{_ATTRIBUTE})*+)[\s/]*+>(?:.*?</\1(?=[\s/>])|.*+)|"
    rf"</?[a-z][^\s/>]*+((?:{_ATTRIBUTE})*+)",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTES_OF = re.compile(_ATTRIBUTE)


def read_html(content: bytes, bounds: Bounds, *, attributes: bool = True) -> Draft:
    """A page, or a part of one; with attributes that people read, or without."""
    from lxml import etree

    text = clean(as_text(content).removeprefix("\ufeff"))
    if len(content) > MOST_XML:
        raise TooMuch(f"the page has {len(content):,} bytes, over the limit of {MOST_XML:,}")
    whole = _DOCUMENT.search(text) is not None
    root = _parsed(text if whole else f"<html><body>{text}</body></html>", bounds)
    elements = list(root.iter())
    _clean(elements)
    tree = Tree(_kind, spaces=lambda text: _BLANK.sub(" ", text))

    def finish(language: str) -> bytes:
        tree.finish(root)
        if not whole:
            body = root.find("body")
            inner = [
                escape(body.text or "", quote=False),
                *(etree.tostring(one, encoding="unicode", method="html") for one in body),
            ]
            return "".join(inner).encode()
        if root.get("lang"):
            root.set("lang", language)
        out = etree.tostring(root.getroottree(), encoding="unicode", method="html", doctype=_doctype(text))
        return (_CHARSET.sub(r"\g<1>utf-8", out, count=1) + text[len(text.rstrip()) :]).encode()

    draft = Draft(finish, bounds)
    for element in elements if attributes else ():  # before the text, with which elements are copied
        _add_attributes(element, draft)
    for hold in list(_stretches(root, _with_blocks(elements))):
        tree.held(hold, draft)
    return draft


def _parsed(text: str, bounds: Bounds) -> Element:
    """A tree. The time that libxml2 takes for the attributes of one tag grows with the square of their number."""
    from lxml import etree

    bounds.check(elements=text.count("<") - text.count("</"))
    for token in _TOKEN.finditer(text):
        found = _ATTRIBUTES_OF.finditer(token[2] or token[3] or "")
        if next(islice(found, MOST_ATTRIBUTES, None), None):
            raise TooMuch(f"the page has a tag with more than {MOST_ATTRIBUTES:,} attributes")
    parser = etree.HTMLParser(encoding="utf-8", no_network=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise DataError(f"the file is not HTML that can be read: {error}") from error
    if any("depth" in entry.message for entry in parser.error_log):  # what comes after that is not read
        raise DataError(TOO_DEEP)
    if root is None:
        raise DataError("the file is not HTML that can be read: there is nothing in it but remarks")
    return root


def _clean(elements: Iterable[Element]) -> None:
    """HTML may name characters that a tree cannot be given: `&#12;`."""
    for element in elements:
        for name in ("text", "tail"):
            if (own := getattr(element, name)) and clean(own) != own:
                setattr(element, name, clean(own))
        for name, own in element.attrib.items():
            if clean(own) != own:
                with suppress(ValueError):  # a name that nobody can give
                    element.set(name, clean(own))


def _doctype(text: str) -> str | None:
    found = re.match(r"\s*(<!doctype[^>]{0,300}>)", text, re.IGNORECASE)
    return found[1] if found else None


def _kind(element: Element) -> Kind:
    if element.tag == "br":
        return BREAK
    if not isinstance(element.tag, str) or element.tag in _SILENT:  # a comment has no name
        return SILENT
    return FIXED if element.tag in _VERBATIM or _is_kept(element) or not _can_be_copied(element) else THROUGH


def _can_be_copied(element: Element) -> bool:
    """Templates have attributes with names that libxml2 reads and lxml does not write: `{{`."""
    try:
        return bool(element.makeelement(element.tag, dict(element.attrib.items())).tag) if element.attrib else True
    except ValueError:
        return False


def _is_kept(element: Element) -> bool:
    return element.get("translate") == "no" or "notranslate" in element.get("class", "").split()


def _with_blocks(elements: Iterable[Element]) -> set[Element]:
    """All elements that are no inline ones, or have such in them."""
    found: set[Element] = set()
    for element in elements:
        if isinstance(element.tag, str) and element.tag not in _INLINE:
            found.add(element)
            for around in element.iterancestors():
                if around in found:
                    break
                found.add(around)
    return found


def _stretches(parent: Element, blocks: set[Element]) -> Iterator[Element]:
    """Put what is inline between two blocks into an element of its own."""
    hold = parent.makeelement(HOLD, {})
    hold.text, parent.text = parent.text, None
    children = list(parent)
    parent.insert(0, hold)
    for child in children:
        if child not in blocks:
            hold.append(child)
            continue
        after = parent.makeelement(HOLD, {})
        after.text, child.tail = child.tail, None
        child.addnext(after)
        yield hold
        if child.tag not in _SKIPPED and not _is_kept(child):
            yield from _stretches(child, blocks)
        hold = after
    yield hold


def _add_attributes(element: Element, draft: Draft) -> None:
    """What a picture shows, and hints."""
    if not isinstance(element.tag, str) or element.tag in ("style", "script") or _is_kept(element):
        return
    names = [name for name in _ATTRIBUTES if element.get(name)]
    if element.tag == "meta" and element.get("name") in ("description", "keywords"):
        names.append("content")
    for name in names:
        draft.add((Run(element.get(name)),), _setter(element, name))


def _setter(element: Element, name: str) -> Callable[[Placed], None]:
    return lambda placed: element.set(name, clean("".join(text for _, text in placed)))

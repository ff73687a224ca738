"""HTML: all tags stay, with styles and scripts, and the text between them is translated."""

import re
from collections.abc import Callable, Iterator

from heedful.documents.bounds import MOST_XML, TOO_DEEP, as_text
from heedful.documents.draft import Draft, Placed, Run
from heedful.documents.tree import BREAK, FIXED, HOLD, SILENT, THROUGH, Element, Kind, Tree
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


def read_html(content: bytes) -> Draft:
    """A page, or a part of one."""
    from lxml import etree
    from lxml import html as lxml_html

    text = as_text(content).removeprefix("\ufeff")
    if len(content) > MOST_XML:
        raise DataError(f"the page has {len(content):,} bytes, over the limit of {MOST_XML:,}")
    if "\0" in text:
        raise DataError("the file has characters that no page can have; save it anew")
    whole = _DOCUMENT.search(text) is not None
    parser = lxml_html.HTMLParser(encoding="utf-8", no_network=True)
    try:
        given = (text if whole else f"<html><body>{text}</body></html>").encode()
        root = lxml_html.document_fromstring(given, parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise DataError(f"the file is not HTML that can be read: {error}") from error

    if any("depth" in entry.message for entry in parser.error_log):  # what comes after that is not read
        raise DataError(TOO_DEEP)
    tree = Tree(_kind, spaces=lambda text: _BLANK.sub(" ", text))

    def finish(language: str) -> bytes:
        tree.finish(root)
        if not whole:
            body = root.find("body")
            inner = [body.text or "", *(etree.tostring(one, encoding="unicode", method="html") for one in body)]
            return "".join(inner).encode()
        if root.get("lang"):
            root.set("lang", language)
        out = etree.tostring(root.getroottree(), encoding="unicode", method="html", doctype=_doctype(text))
        return (_CHARSET.sub(r"\g<1>utf-8", out, count=1) + text[len(text.rstrip()) :]).encode()

    draft = Draft(finish)
    for hold in list(_stretches(root, _with_blocks(root))):
        tree.held(hold, draft)
    for element in root.iter():
        _add_attributes(element, draft)
    return draft


def _doctype(text: str) -> str | None:
    found = re.match(r"\s*(<!doctype[^>]{0,300}>)", text, re.IGNORECASE)
    return found[1] if found else None


def _kind(element: Element) -> Kind:
    if element.tag == "br":
        return BREAK
    if not isinstance(element.tag, str) or element.tag in _SILENT:  # a comment has no name
        return SILENT
    return FIXED if element.tag in _VERBATIM or _is_kept(element) else THROUGH


def _is_kept(element: Element) -> bool:
    return element.get("translate") == "no" or "notranslate" in element.get("class", "").split()


def _with_blocks(root: Element) -> set[Element]:
    """All elements that are no inline ones, or have such in them."""
    found: set[Element] = set()
    for element in root.iter():
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
    return lambda placed: element.set(name, "".join(text for _, text in placed))

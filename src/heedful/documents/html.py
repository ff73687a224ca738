"""HTML: tags, styles and scripts are kept, the text between them is translated."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from html import escape
from itertools import islice

from heedful.documents.document import Document, InlineRun, PlacedRuns
from heedful.documents.safe_parsing import (
    MOST_ATTRIBUTES,
    MOST_XML,
    TOO_DEEP,
    DocumentLimits,
    DocumentTooLarge,
    Element,
    decode_text,
    replace_invalid_characters,
)
from heedful.documents.xml_passages import BREAK, FIXED, HOLDER, INLINE, OPAQUE, ElementRole, XmlPassages
from heedful.errors import DataError


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_INLINE = _set(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark q rp rt ruby s samp small "
    "span strike strong sub sup time tt u var wbr"
)
_VERBATIM = _set("code kbd samp tt var")  # code, not prose
_OPAQUE = _set("img wbr")
_SKIPPED = _set("pre script style template svg math iframe object textarea noscript code kbd samp")
_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")
_DOCUMENT = re.compile(r"<(?:!doctype|html|head|body)[\s>]", re.IGNORECASE)
_CHARSET = re.compile(r"(<meta[^>]{0,200}charset=[\"']?)[\w-]+", re.IGNORECASE)
_BLANK = re.compile(r"[ \t\r\n\f]+")
# HTML apart from text: comments, elements that contain raw text only, and tags with their attributes.
_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=(?:\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+))?+)?+"""
_TOKEN = re.compile(
    r"<!--(?:-?>|.*?--!?>|.*+)|<(?:[!?]|/[^a-z])[^>]*+|"
    r"<(script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])"
    rf"((?:{_ATTRIBUTE})*+)[\s/]*+>(?:.*?</\1(?=[\s/>])|.*+)|"
    rf"</?[a-z][^\s/>]*+((?:{_ATTRIBUTE})*+)",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTES_OF = re.compile(_ATTRIBUTE)


def read_html(content: bytes, limits: DocumentLimits, *, attributes: bool = True) -> Document:
    """Parse a page or a fragment; `attributes` also translates those that people read, such as `alt`."""
    from lxml import etree

    text = replace_invalid_characters(decode_text(content).removeprefix("\ufeff"))
    if len(content) > MOST_XML:
        raise DocumentTooLarge(f"the page has {len(content):,} bytes, over the limit of {MOST_XML:,}; split it")
    whole = _DOCUMENT.search(text) is not None
    root = _parse(text if whole else f"<html><body>{text}</body></html>", limits)
    elements = list(root.iter())
    _clean_elements(elements)
    passages = XmlPassages(_role_of, normalise_space=lambda text: _BLANK.sub(" ", text))

    def finish(language: str) -> bytes:
        passages.remove_holders(root)
        if not whole:
            body = root.find("body")
            inner = [
                escape(body.text or "", quote=False),
                *(etree.tostring(one, encoding="unicode", method="html") for one in body),
            ]
            return "".join(inner).encode()
        if root.get("lang"):
            root.set("lang", language)
        out = etree.tostring(root.getroottree(), encoding="unicode", method="html", doctype=_find_doctype(text))
        return (_CHARSET.sub(r"\g<1>utf-8", out, count=1) + text[len(text.rstrip()) :]).encode()

    document = Document(finish, limits)
    for element in elements if attributes else ():  # before the text: filling that in copies elements
        _add_attributes(element, document)
    for holder in list(_wrap_inline(root, _find_blocks(elements))):
        passages.add_holder(holder, document)
    return document


def _parse(text: str, limits: DocumentLimits) -> Element:
    """Parse a page within the limits. libxml2 needs quadratic time for the attributes of one tag."""
    from lxml import etree

    limits.check(elements=text.count("<") - text.count("</"))
    for token in _TOKEN.finditer(text):
        found = _ATTRIBUTES_OF.finditer(token[2] or token[3] or "")
        if next(islice(found, MOST_ATTRIBUTES, None), None):
            raise DocumentTooLarge(f"the page has a tag with more than {MOST_ATTRIBUTES:,} attributes")
    parser = etree.HTMLParser(encoding="utf-8", no_network=True)
    try:
        root = etree.fromstring(text.encode(), parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise DataError(f"the file is not readable HTML: {error}") from error
    if any("depth" in entry.message for entry in parser.error_log):  # libxml2 drops the rest of the page
        raise DataError(TOO_DEEP)
    if root is None:
        raise DataError("the file is not readable HTML: it has only comments")
    return root


def _clean_elements(elements: Iterable[Element]) -> None:
    """Replace characters that HTML can express, such as `&#12;`, but an XML tree cannot hold."""
    for element in elements:
        for name in ("text", "tail"):
            if (own := getattr(element, name)) and replace_invalid_characters(own) != own:
                setattr(element, name, replace_invalid_characters(own))
        for name, own in element.attrib.items():
            if replace_invalid_characters(own) != own:
                with suppress(ValueError):  # lxml cannot set every name that it can read
                    element.set(name, replace_invalid_characters(own))


def _find_doctype(text: str) -> str | None:
    found = re.match(r"\s*(<!doctype[^>]{0,300}>)", text, re.IGNORECASE)
    return found[1] if found else None


def _role_of(element: Element) -> ElementRole:
    if element.tag == "br":
        return BREAK
    if not isinstance(element.tag, str) or element.tag in _OPAQUE:  # a comment has no tag name
        return OPAQUE
    return (
        FIXED
        if element.tag in _VERBATIM or _is_marked_untranslatable(element) or not _can_be_copied(element)
        else INLINE
    )


def _can_be_copied(element: Element) -> bool:
    """False for elements of templates with attribute names such as `{{`, which libxml2 reads but lxml cannot write."""
    try:
        return bool(element.makeelement(element.tag, dict(element.attrib.items())).tag) if element.attrib else True
    except ValueError:
        return False


def _is_marked_untranslatable(element: Element) -> bool:
    return element.get("translate") == "no" or "notranslate" in element.get("class", "").split()


def _find_blocks(elements: Iterable[Element]) -> set[Element]:
    """All block elements, and all elements that contain one."""
    found: set[Element] = set()
    for element in elements:
        if isinstance(element.tag, str) and element.tag not in _INLINE:
            found.add(element)
            for around in element.iterancestors():
                if around in found:
                    break
                found.add(around)
    return found


def _wrap_inline(parent: Element, blocks: set[Element]) -> Iterator[Element]:
    """Wrap the inline content between two blocks in a holder."""
    holder = parent.makeelement(HOLDER, {})
    holder.text, parent.text = parent.text, None
    children = list(parent)
    parent.insert(0, holder)
    for child in children:
        if child not in blocks:
            holder.append(child)
            continue
        after = parent.makeelement(HOLDER, {})
        after.text, child.tail = child.tail, None
        child.addnext(after)
        yield holder
        if child.tag not in _SKIPPED and not _is_marked_untranslatable(child):
            yield from _wrap_inline(child, blocks)
        holder = after
    yield holder


def _add_attributes(element: Element, document: Document) -> None:
    """Add descriptions of images, hints and the like."""
    if not isinstance(element.tag, str) or element.tag in ("style", "script") or _is_marked_untranslatable(element):
        return
    names = [name for name in _ATTRIBUTES if element.get(name)]
    if element.tag == "meta" and element.get("name") in ("description", "keywords"):
        names.append("content")
    for name in names:
        document.add((InlineRun(element.get(name)),), _attribute_setter(element, name))


def _attribute_setter(element: Element, name: str) -> Callable[[PlacedRuns], None]:
    return lambda placed: element.set(name, replace_invalid_characters("".join(text for _, text in placed)))

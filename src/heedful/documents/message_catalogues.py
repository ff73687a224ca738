"""Message catalogues of programs: gettext PO and XLIFF. Existing translations are kept."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from heedful.documents.document import Document, PlacedRuns
from heedful.documents.inline_markup import MarkedText, parse_markup
from heedful.documents.safe_parsing import DocumentLimits, DocumentTooLarge, Element, check_xml, decode_text, parse_xml
from heedful.documents.xml_passages import FIXED, INLINE, OPAQUE, ElementRole, XmlPassages, remove_element
from heedful.errors import DataError

_PLURALS = re.compile(r"nplurals\s*+=\s*+(\d{1,2})")
_XLIFF = re.compile(r"\{urn:oasis:names:tc:xliff:document:(1|2)\.\d\}xliff")
_MOST_LINES = 2000  # of one message
_CONTAINERS = frozenset({"g", "mrk", "pc", "sub"})


def read_po(content: bytes, limits: DocumentLimits, *, final: bool = False) -> Document:
    """Parse a PO file: entries without a translation or with a fuzzy one are translated, all else is kept.

    New translations are fuzzy, as gettext marks those that a person has to check, unless they are `final`.
    """
    import polib

    text = decode_text(content).removeprefix("\ufeff")
    _check_lines(text, limits)
    try:
        # polib opens whatever it takes for a file name. No file has a name like this.
        catalogue = polib.pofile("\n\n\n" + text, wrapwidth=78)
    except (OSError, ValueError, UnicodeError) as error:
        raise DataError("the file is not a PO catalogue: " + str(error).replace("\n", "")) from error

    def finish(language: str) -> bytes:
        catalogue.metadata["Language"] = language
        return f"{catalogue}".encode()

    document = Document(finish, limits)
    charset = str(catalogue.metadata.get("Content-Type", "utf-8")).lower()
    if "charset=" in charset and not charset.endswith(("utf-8", "utf8", "ascii", "charset=charset")):
        raise DataError(f"the catalogue declares {charset[:80]!r}; save it as UTF-8")
    forms = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    for entry in catalogue:
        if entry.obsolete or entry.translated() or not entry.msgid:
            continue
        entry.flags = [*([] if final else ["fuzzy"]), *(flag for flag in entry.flags if flag != "fuzzy")]
        _add_entry(document, entry, max(1, int(forms[1])) if forms else 2)
    return document


def _check_lines(text: str, limits: DocumentLimits) -> None:
    """Refuse messages of very many lines: polib needs quadratic time for them."""
    limits.check(elements=text.count("\n"))
    count = 0
    for line in text.splitlines():
        count = count + 1 if line.lstrip().startswith('"') else 0
        if count > _MOST_LINES:
            raise DocumentTooLarge(f"the catalogue has an entry of more than {_MOST_LINES:,} lines; split it")


def _add_entry(document: Document, entry: Any, forms: int) -> None:
    """Translate an entry; plural form 0 comes from the singular message, all others from the plural one."""
    entry.previous_msgid = entry.previous_msgid_plural = entry.previous_msgctxt = None
    first = parse_markup(entry.msgid)
    if not entry.msgid_plural:
        document.add(first.passage, _text_setter(first, lambda text: setattr(entry, "msgstr", text)))
        return
    several = parse_markup(entry.msgid_plural)
    entry.msgstr_plural = dict.fromkeys(range(forms), "")
    document.add(first.passage, _text_setter(first, lambda text: entry.msgstr_plural.update({0: text})))
    document.add(
        several.passage,
        _text_setter(
            several, lambda text: entry.msgstr_plural.update(dict.fromkeys(range(min(1, forms - 1), forms), text))
        ),
    )


def _text_setter(text: MarkedText, set_text: Callable[[str], None]) -> Callable[[PlacedRuns], None]:
    return lambda placed: set_text(text.write(placed))


def read_xliff(content: bytes, limits: DocumentLimits) -> Document:
    """Parse XLIFF 1.2 or 2: units without a target get one, with all inline codes of the source."""
    from lxml import etree

    check_xml(content, limits)
    root = parse_xml(content)
    version = _XLIFF.fullmatch(root.tag) if isinstance(root.tag, str) else None
    if not version:
        raise DataError(f"the file is not XLIFF 1.x or 2.x: its root element is {str(root.tag)[:80]}")
    passages = XmlPassages(_role_of, placeholders=True)
    space = f"{{{etree.QName(root).namespace}}}"

    def finish(language: str) -> bytes:
        passages.remove_holders(root)
        if version[1] == "2":
            root.set("trgLang", language)
        for file in root.iter(f"{space}file") if version[1] == "1" else ():
            file.set("target-language", language)
        return bytes(etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True))

    document = Document(finish, limits)
    for unit in list(root.iter(f"{space}trans-unit" if version[1] == "1" else f"{space}segment")):
        source, target = unit.find(f"{space}source"), unit.find(f"{space}target")
        if source is None or _is_translated(target) or _is_marked_untranslatable(unit) or _is_inside(unit, source.tag):
            continue
        if target is not None:
            remove_element(target)
        target = _copy_as_target(source, f"{space}target")
        after = unit.find(f"{space}seg-source")
        after = source if after is None else after
        target.tail, after.tail = after.tail, unit.text if after.getnext() is None else after.tail
        unit.insert(unit.index(after) + 1, target)
        passages.add_content(target, document)
    return document


def _is_inside(unit: Element, source: str) -> bool:
    """Whether it is part of the source of another unit, which is copied as a whole."""
    return next(unit.iterancestors(source), None) is not None


def _copy_as_target(source: Element, name: str) -> Element:
    """A copy of the source element, renamed to a target."""
    target = deepcopy(source)
    target.tag = name
    target.attrib.pop("{http://www.w3.org/XML/1998/namespace}lang", None)
    return target


def _is_translated(target: Element | None) -> bool:
    return target is not None and bool("".join(target.itertext()).strip() or len(target))


def _is_marked_untranslatable(unit: Element) -> bool:
    """Whether the unit or the nearest element around it with a `translate` attribute says no."""
    said = (one.get("translate") for one in (unit, *unit.iterancestors()))
    return next((value for value in said if value), "yes") == "no"


def _role_of(element: Element) -> ElementRole:
    name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
    if name not in _CONTAINERS:
        return OPAQUE  # a code of the original format
    return FIXED if element.get("translate") == "no" else INLINE

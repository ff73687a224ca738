"""Catalogues of programs: gettext's PO and XLIFF. What is translated already stays."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from heedful.documents.passages import Draft, Placed
from heedful.documents.placeholders import Marked, marked
from heedful.documents.safe_input import Bounds, Element, TooMuch, as_text, check_xml, parsed
from heedful.documents.xml_text import FIXED, SILENT, THROUGH, Kind, Tree
from heedful.errors import DataError

_PLURALS = re.compile(r"nplurals\s*+=\s*+(\d{1,2})")
_XLIFF = re.compile(r"\{urn:oasis:names:tc:xliff:document:(1|2)\.\d\}xliff")
_MOST_LINES = 2000  # of one text
_CONTAINERS = frozenset({"g", "mrk", "pc", "sub"})


def read_po(content: bytes, bounds: Bounds) -> Draft:
    """Entries that have no translation or a fuzzy one get one; comments, references and contexts stay."""
    import polib

    text = as_text(content).removeprefix("\ufeff")
    _check_lines(text, bounds)
    try:
        # Whatever polib takes for a name of a file it opens. No file has such a name.
        catalogue = polib.pofile("\n\n\n" + text, wrapwidth=78)
    except (OSError, ValueError, UnicodeError) as error:
        raise DataError("the file is not a PO catalogue: " + str(error).replace("\n", "")) from error

    def finish(language: str) -> bytes:
        catalogue.metadata["Language"] = language
        return f"{catalogue}".encode()

    draft = Draft(finish, bounds)
    charset = str(catalogue.metadata.get("Content-Type", "utf-8")).lower()
    if "charset=" in charset and not charset.endswith(("utf-8", "utf8", "ascii", "charset=charset")):
        raise DataError(f"the catalogue says {charset[:80]!r}; save it as UTF-8")
    forms = _PLURALS.search(catalogue.metadata.get("Plural-Forms", ""))
    for entry in catalogue:
        if entry.obsolete or entry.translated() or not entry.msgid:
            continue
        _add_entry(draft, entry, max(1, int(forms[1])) if forms else 2)
    return draft


def _check_lines(text: str, bounds: Bounds) -> None:
    """Of a text in many lines polib copies all before each of them."""
    bounds.check(elements=text.count("\n"))
    count = 0
    for line in text.splitlines():
        count = count + 1 if line.lstrip().startswith('"') else 0
        if count > _MOST_LINES:
            raise TooMuch(f"the catalogue has an entry of more than {_MOST_LINES:,} lines")


def _add_entry(draft: Draft, entry: Any, forms: int) -> None:
    """The first form of a plural is that of the singular, all others that of the plural."""
    entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
    entry.previous_msgid = entry.previous_msgid_plural = entry.previous_msgctxt = None
    first = marked(entry.msgid)
    if not entry.msgid_plural:
        draft.add(first.passage, _setter(first, lambda text: setattr(entry, "msgstr", text)))
        return
    several = marked(entry.msgid_plural)
    entry.msgstr_plural = dict.fromkeys(range(forms), "")
    draft.add(first.passage, _setter(first, lambda text: entry.msgstr_plural.update({0: text})))
    draft.add(
        several.passage,
        _setter(several, lambda text: entry.msgstr_plural.update(dict.fromkeys(range(min(1, forms - 1), forms), text))),
    )


def _setter(text: Marked, take: Callable[[str], None]) -> Callable[[Placed], None]:
    return lambda placed: take(text.joined(placed))


def read_xliff(content: bytes, bounds: Bounds) -> Draft:
    """XLIFF 1.2 and 2: units without a target get one, with all inline codes of the source."""
    from lxml import etree

    check_xml(content, bounds)
    root = parsed(content)
    version = _XLIFF.fullmatch(root.tag) if isinstance(root.tag, str) else None
    if not version:
        raise DataError(f"the file is not XLIFF 1.x or 2.x: it begins with {str(root.tag)[:80]}")
    tree = Tree(_kind, placeholders=True)
    space = f"{{{etree.QName(root).namespace}}}"

    def finish(language: str) -> bytes:
        tree.finish(root)
        if version[1] == "2":
            root.set("trgLang", language)
        for file in root.iter(f"{space}file") if version[1] == "1" else ():
            file.set("target-language", language)
        return bytes(etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True))

    draft = Draft(finish, bounds)
    for unit in list(root.iter(f"{space}trans-unit" if version[1] == "1" else f"{space}segment")):
        source, target = unit.find(f"{space}source"), unit.find(f"{space}target")
        if source is None or _is_done(target) or _is_kept(unit) or _is_inside(unit, source.tag):
            continue
        if target is not None:
            unit.remove(target)
        target = _target(source, f"{space}target")
        after = unit.find(f"{space}seg-source")
        after = source if after is None else after
        target.tail, after.tail = after.tail, unit.text if after.getnext() is None else after.tail
        unit.insert(unit.index(after) + 1, target)
        tree.whole(target, draft)
    return draft


def _is_inside(unit: Element, source: str) -> bool:
    """Whether it is in the source of another, which is copied as a whole."""
    return next(unit.iterancestors(source), None) is not None


def _target(source: Element, name: str) -> Element:
    """A copy of the source that is called a target."""
    target = deepcopy(source)
    target.tag = name
    target.attrib.pop("{http://www.w3.org/XML/1998/namespace}lang", None)
    return target


def _is_done(target: Element | None) -> bool:
    return target is not None and bool("".join(target.itertext()).strip() or len(target))


def _is_kept(unit: Element) -> bool:
    """Whether it, or what it is in, says that it is not to be translated."""
    said = (one.get("translate") for one in (unit, *unit.iterancestors()))
    return next((value for value in said if value), "yes") == "no"


def _kind(element: Element) -> Kind:
    name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
    if name not in _CONTAINERS:
        return SILENT  # it holds a code of the original format
    return FIXED if element.get("translate") == "no" else THROUGH

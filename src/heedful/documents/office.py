"""Text documents of office programs: archives of XML, in which all but the text stays, byte for byte."""

import re
from collections.abc import Callable, Iterator
from zipfile import ZipInfo

from heedful.documents.passages import Draft
from heedful.documents.safe_input import Bounds, Element, check_xml, packed, parsed, unpacked
from heedful.documents.xml_text import BREAK, DROP, FIXED, GROUP, SILENT, TEXT, THROUGH, Kind, Tree, copied
from heedful.errors import DataError

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_T = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_WORD_PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")


def _kinds(names: dict[Kind, str]) -> dict[str, Kind]:
    return {name: kind for kind, several in names.items() for name in several.split()}


_WORD_KINDS = _kinds(
    {
        THROUGH: "r hyperlink ins smartTag fldSimple sdt sdtContent moveTo dir bdo",
        TEXT: "t",
        BREAK: "br cr tab ptab",
        DROP: "rPr sdtPr sdtEndPr smartTagPr proofErr lastRenderedPageBreak softHyphen",
    }
)
_OPEN_KINDS = _kinds(
    {
        THROUGH: "span a meta ruby-base",
        BREAK: "tab line-break",
        DROP: "soft-page-break",
        FIXED: "page-number page-count date time title chapter sequence variable-get",
    }
)
_DELETED = "what was deleted under tracked changes stays in its old language"
_FIELDS = "fields, such as cross references and dates, stay as they are until the program makes them anew"
_SIGNED = "the signature of the document is no longer valid"


def read_docx(content: bytes, bounds: Bounds) -> Draft:
    """Word: paragraphs of the text, of tables, headers, footers, notes and comments."""
    archive = _Archive(content, "word/document.xml", _WORD_PARTS.fullmatch, bounds)
    draft = Draft(lambda _: archive.packed(), bounds)
    tree = Tree(_word_kind, write=_write_word, inherit=lambda old, new: copied(old, new, f"{_W}rPr", f"{_W}sdtPr"))
    archive.tree = tree
    for root in archive.roots:
        for paragraph in list(root.iter(f"{_W}p")):
            _group_fields(paragraph)
            if next(paragraph.iterancestors(f"{_W}p"), None) is None:  # else it is done
                _join_runs(paragraph)
            properties = len(paragraph) and paragraph[0].tag == f"{_W}pPr"
            tree.whole(paragraph, draft, keep=int(bool(properties)))
    for tag, note in ((f"{_W}del", _DELETED), (GROUP, _FIELDS)):
        if any(next(root.iter(tag), None) is not None for root in archive.roots):
            draft.notes.append(note)
    if any(member.filename.startswith("_xmlsignatures/") for member in archive.members):
        draft.notes.append(_SIGNED)
    return draft


def read_odt(content: bytes, bounds: Bounds) -> Draft:
    """OpenDocument text: paragraphs and headings, also in tables, headers, footers and notes."""
    archive = _Archive(content, "content.xml", re.compile(r"content\.xml|styles\.xml").fullmatch, bounds)
    draft = Draft(lambda _: archive.packed(), bounds)
    tree = Tree(_open_kind, spaces=lambda text: re.sub(r"[ \t\r\n]+", " ", text))
    archive.tree = tree
    for root in archive.roots:
        if next(root.iter(f"{_T}tracked-changes"), None) is not None:
            draft.notes.append(_DELETED)
        for paragraph in list(root.iter(f"{_T}p", f"{_T}h")):
            if next(paragraph.iterancestors(f"{_T}tracked-changes"), None) is None:
                tree.whole(paragraph, draft)
    if any(member.filename == "META-INF/documentsignatures.xml" for member in archive.members):
        draft.notes.append(_SIGNED)
    return draft


class _Archive:
    """The members of a document, and the trees of those that have text."""

    tree: Tree

    def __init__(self, content: bytes, needed: str, wanted: Callable[[str], object], bounds: Bounds) -> None:
        self.members = unpacked(content)
        names = [member.filename for member in self.members]
        if needed not in names:
            raise DataError(f"the file is not such a document: its archive has no {needed}")
        if any(b"encryption-data" in own for member, own in self.members.items() if _is_manifest(member)):
            raise DataError("the document is encrypted; save it without a password")
        self._roots: dict[ZipInfo, Element] = {}
        count = 0
        for member, own in self.members.items():
            if wanted(member.filename):
                count = check_xml(own, bounds, count)
                self._roots[member] = parsed(own)

    @property
    def roots(self) -> Iterator[Element]:
        """Trees that have text."""
        return iter(self._roots.values())

    def packed(self) -> bytes:
        """The whole again."""
        from lxml import etree

        for member, root in self._roots.items():
            self.tree.finish(root)
            self.members[member] = etree.tostring(
                root.getroottree(), encoding="UTF-8", xml_declaration=True, standalone=True
            )
        return packed(self.members)


def _is_manifest(member: ZipInfo) -> bool:
    return member.filename == "META-INF/manifest.xml"


def _name(element: Element, space: str) -> str:
    tag = element.tag if isinstance(element.tag, str) else ""
    return tag.removeprefix(space) if tag.startswith(space) else ""


def _word_kind(element: Element) -> Kind:
    return _WORD_KINDS.get(_name(element, _W), SILENT)


def _open_kind(element: Element) -> Kind:
    return _OPEN_KINDS.get(_name(element, _T), SILENT)


def _write_word(parent: Element, text: str) -> None:
    own = parent.makeelement(f"{_W}t", {_SPACE: "preserve"})
    own.text = text
    if parent.tag != f"{_W}r":  # white space between runs
        run = parent.makeelement(f"{_W}r", {})
        parent.append(run)
        parent = run
    parent.append(own)


def _group_fields(paragraph: Element) -> None:
    """A field is made of several runs, which have to stay together and in order."""
    group, depth = None, 0
    for child in list(paragraph):
        kinds = [mark.get(f"{_W}fldCharType") for mark in child.iter(f"{_W}fldChar")]
        depth += kinds.count("begin")
        if depth and group is None:
            group = paragraph.makeelement(GROUP, {})
            child.addprevious(group)
        if group is not None:
            group.append(child)
        depth -= kinds.count("end")
        if depth <= 0:
            group, depth = None, 0


def _join_runs(paragraph: Element) -> None:
    """Word cuts text that looks the same into many runs, wherever it was edited or spelt."""
    for noise in list(paragraph.iter(f"{_W}proofErr", f"{_W}lastRenderedPageBreak")):
        noise.getparent().remove(noise)
    last, look = None, b""
    texts: dict[Element, list[str]] = {}  # of the first of each
    for child in list(paragraph.iter(f"{_W}r")):
        own = _look(child)
        if own is not None and last is not None and own == look and child.getprevious() is last:
            texts.setdefault(last[-1], [last[-1].text or ""]).append(child[-1].text or "")
            child.getparent().remove(child)
        else:
            last, look = (child, own) if own is not None else (None, b"")
    for element, parts in texts.items():
        element.text = "".join(parts)


def _look(run: Element) -> bytes | None:
    """How a run of nothing but text looks; None: it has more in it."""
    from lxml import etree

    inner = [child.tag for child in run]
    if inner[-1:] != [f"{_W}t"] or inner.count(f"{_W}t") > 1 or set(inner) - {f"{_W}t", f"{_W}rPr"}:
        return None
    properties = run.find(f"{_W}rPr")
    return b"" if properties is None else bytes(etree.tostring(properties))

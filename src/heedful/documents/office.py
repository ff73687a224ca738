"""Word and OpenDocument text files: only the text is replaced, other archive members are kept byte for byte."""

import re
from collections.abc import Callable, Iterator
from zipfile import ZipInfo

from heedful.documents.document import Document
from heedful.documents.safe_parsing import DocumentLimits, Element, check_xml, pack_archive, parse_xml, unpack_archive
from heedful.documents.xml_passages import (
    BREAK,
    DROP,
    FIXED,
    GROUP,
    INLINE,
    OPAQUE,
    TEXT,
    ElementRole,
    XmlPassages,
    copy_children_with_tags,
    remove_element,
)
from heedful.errors import DataError

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_T = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_WORD_PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")


def _roles(names: dict[ElementRole, str]) -> dict[str, ElementRole]:
    return {name: role for role, several in names.items() for name in several.split()}


_WORD_ROLES = _roles(
    {
        INLINE: "r hyperlink ins smartTag fldSimple sdt sdtContent moveTo dir bdo",
        TEXT: "t",
        BREAK: "br cr tab ptab",
        DROP: "rPr sdtPr sdtEndPr smartTagPr proofErr lastRenderedPageBreak softHyphen",
    }
)
_ODT_ROLES = _roles(
    {
        INLINE: "span a meta ruby-base",
        BREAK: "tab line-break",
        DROP: "soft-page-break",
        FIXED: "page-number page-count date time title chapter sequence variable-get",
    }
)
_DELETED = "text deleted under tracked changes is not translated"
_FIELDS = "fields, such as cross-references and dates, are unchanged until the program updates them"
_SIGNED = "the signature of the document is no longer valid"


def read_docx(content: bytes, limits: DocumentLimits) -> Document:
    """Parse a Word file: paragraphs of the text, tables, headers, footers, notes and comments."""
    archive = _Archive(content, "word/document.xml", _WORD_PARTS.fullmatch, limits)
    document = Document(lambda _: archive.pack(), limits)
    passages = XmlPassages(
        _word_role,
        append_text=_append_word_text,
        copy_children=lambda old, new: copy_children_with_tags(old, new, f"{_W}rPr", f"{_W}sdtPr"),
    )
    archive.passages = passages
    for root in archive.roots:
        for paragraph in list(root.iter(f"{_W}p")):
            _group_fields(paragraph)
            if next(paragraph.iterancestors(f"{_W}p"), None) is None:  # otherwise its runs are joined already
                _join_runs(paragraph)
            properties = len(paragraph) and paragraph[0].tag == f"{_W}pPr"
            passages.add_content(paragraph, document, skip=int(bool(properties)))
    for tag, note in ((f"{_W}del", _DELETED), (GROUP, _FIELDS)):
        if any(next(root.iter(tag), None) is not None for root in archive.roots):
            document.notes.append(note)
    if any(member.filename.startswith("_xmlsignatures/") for member in archive.members):
        document.notes.append(_SIGNED)
    return document


def read_odt(content: bytes, limits: DocumentLimits) -> Document:
    """Parse an OpenDocument text file: paragraphs and headings, also in tables, headers, footers and notes."""
    archive = _Archive(content, "content.xml", re.compile(r"content\.xml|styles\.xml").fullmatch, limits)
    document = Document(lambda _: archive.pack(), limits)
    passages = XmlPassages(_odt_role, normalise_space=lambda text: re.sub(r"[ \t\r\n]+", " ", text))
    archive.passages = passages
    for root in archive.roots:
        if next(root.iter(f"{_T}tracked-changes"), None) is not None:
            document.notes.append(_DELETED)
        for paragraph in list(root.iter(f"{_T}p", f"{_T}h")):
            if next(paragraph.iterancestors(f"{_T}tracked-changes"), None) is None:
                passages.add_content(paragraph, document)
    if any(member.filename == "META-INF/documentsignatures.xml" for member in archive.members):
        document.notes.append(_SIGNED)
    return document


class _Archive:
    """The members of an office file, and the parsed trees of those with text."""

    passages: XmlPassages

    def __init__(
        self, content: bytes, required: str, has_text: Callable[[str], object], limits: DocumentLimits
    ) -> None:
        self.members = unpack_archive(content)
        names = [member.filename for member in self.members]
        if required not in names:
            raise DataError(f"the file is not a document of this type: its archive has no {required}")
        if any(b"encryption-data" in own for member, own in self.members.items() if _is_manifest(member)):
            raise DataError("the document is encrypted; save it without a password")
        self._roots: dict[ZipInfo, Element] = {}
        count = 0
        for member, own in self.members.items():
            if has_text(member.filename):
                count = check_xml(own, limits, count)
                self._roots[member] = parse_xml(own)

    @property
    def roots(self) -> Iterator[Element]:
        return iter(self._roots.values())

    def pack(self) -> bytes:
        """The archive with the current trees."""
        from lxml import etree

        for member, root in self._roots.items():
            self.passages.remove_holders(root)
            self.members[member] = etree.tostring(
                root.getroottree(), encoding="UTF-8", xml_declaration=True, standalone=True
            )
        return pack_archive(self.members)


def _is_manifest(member: ZipInfo) -> bool:
    return member.filename == "META-INF/manifest.xml"


def _name(element: Element, space: str) -> str:
    tag = element.tag if isinstance(element.tag, str) else ""
    return tag.removeprefix(space) if tag.startswith(space) else ""


def _word_role(element: Element) -> ElementRole:
    return _WORD_ROLES.get(_name(element, _W), OPAQUE)


def _odt_role(element: Element) -> ElementRole:
    return _ODT_ROLES.get(_name(element, _T), OPAQUE)


def _append_word_text(parent: Element, text: str) -> None:
    own = parent.makeelement(f"{_W}t", {_SPACE: "preserve"})
    own.text = text
    if parent.tag != f"{_W}r":  # white space between runs
        run = parent.makeelement(f"{_W}r", {})
        parent.append(run)
        parent = run
    parent.append(own)


def _group_fields(paragraph: Element) -> None:
    """Wrap each field, which consists of several runs, in a group: they must stay together and in order."""
    group, depth = None, 0
    for child in list(paragraph):
        types = [mark.get(f"{_W}fldCharType") for mark in child.iter(f"{_W}fldChar")]
        depth += types.count("begin")
        if depth and group is None:
            group = paragraph.makeelement(GROUP, {})
            child.addprevious(group)
        if group is not None:
            group.append(child)
        depth -= types.count("end")
        if depth <= 0:
            group, depth = None, 0


def _join_runs(paragraph: Element) -> None:
    """Merge runs with the same formatting: Word splits text wherever it was edited or spell-checked."""
    for noise in list(paragraph.iter(f"{_W}proofErr", f"{_W}lastRenderedPageBreak")):
        remove_element(noise)
    last, last_format = None, b""
    texts: dict[Element, list[str]] = {}  # by the text element that they are joined in
    for child in list(paragraph.iter(f"{_W}r")):
        own = _find_format(child)
        if own is not None and last is not None and own == last_format and child.getprevious() is last:
            texts.setdefault(last[-1], [last[-1].text or ""]).append(child[-1].text or "")
            remove_element(child)
        else:
            last, last_format = (child, own) if own is not None else (None, b"")
    for element, parts in texts.items():
        element.text = "".join(parts)


def _find_format(run: Element) -> bytes | None:
    """The formatting of a run that contains only text; None for any other."""
    from lxml import etree

    inner = [child.tag for child in run]
    if inner[-1:] != [f"{_W}t"] or inner.count(f"{_W}t") > 1 or set(inner) - {f"{_W}t", f"{_W}rPr"}:
        return None
    properties = run.find(f"{_W}rPr")
    return b"" if properties is None else bytes(etree.tostring(properties))

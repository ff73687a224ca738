"""Read untrusted files: text, XML without entities, and archives that cannot expand without limit."""

import re
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.parsers import expat

from heedful.errors import DataError

if TYPE_CHECKING:
    Element: TypeAlias = Any  # lxml has no types of its own
else:
    Element = Any

MOST_UNPACKED = 64 << 20  # bytes of all members of an archive together
MOST_MEMBERS = 5000
TOO_DEEP = "the elements of the file are nested too deeply; simplify it"
MOST_XML = 16 << 20  # bytes of XML in one file or archive member; the tree needs many times as much memory
MOST_ATTRIBUTES = 1000  # of an element
_MOST_NAMESPACES = 200  # in scope at one element; each copy of the element declares all of them
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class DocumentTooLarge(DataError):
    """The document exceeds a limit."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """How large a document may be. All of it is held in memory, many times larger than the file."""

    elements: int = 1_000_000  # or lines, or whatever the file consists of
    passages: int = 200_000
    characters: int = 10_000_000  # of text to translate

    def check(self, *, elements: int = 0, passages: int = 0, characters: int = 0) -> None:
        """Raise `DocumentTooLarge` if a count is over its limit."""
        counts = (
            (elements, self.elements, "elements"),
            (passages, self.passages, "passages"),
            (characters, self.characters, "characters of text"),
        )
        for count, limit, name in counts:
            if count > limit:
                raise DocumentTooLarge(f"the document has more than {limit:,} {name}; split it")


DEFAULT_LIMITS = DocumentLimits()


def replace_invalid_characters(text: str) -> str:
    """Replace characters that XML does not allow, such as form feeds, by spaces."""
    return _NOT_XML.sub(" ", text)


def decode_text(content: bytes) -> str:
    """Decode UTF-8; a byte order mark is kept."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the file is not UTF-8 text: byte {error.start + 1} cannot be read; save it as UTF-8"
        ) from error


def check_xml(content: bytes, limits: DocumentLimits, elements_before: int = 0) -> int:
    """Check that this is well-formed XML within the limits, and return its number of elements plus `elements_before`.

    Entity declarations are refused: entities can expand without limit and can name other files.
    """
    if len(content) > MOST_XML:
        raise DocumentTooLarge(f"the XML has {len(content):,} bytes, over the limit of {MOST_XML:,}; split the file")
    count, namespaces = elements_before, 0

    def refuse_entity(*_: object) -> None:
        raise DataError("the XML declares entities, which are not supported; save the file without them")

    def count_element(_: str, attributes: object = None) -> None:
        nonlocal count
        count += 1
        if count > limits.elements:
            limits.check(elements=count)
        if isinstance(attributes, list) and len(attributes) > 2 * MOST_ATTRIBUTES:  # names and values
            raise DocumentTooLarge(f"the XML has an element with more than {MOST_ATTRIBUTES:,} attributes")

    def enter_namespace(*_: object) -> None:
        nonlocal namespaces
        namespaces += 1
        if namespaces > _MOST_NAMESPACES:
            raise DocumentTooLarge(f"the XML has an element with more than {_MOST_NAMESPACES} namespaces in scope")

    def leave_namespace(*_: object) -> None:
        nonlocal namespaces
        namespaces -= 1

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.ordered_attributes = True
    parser.EntityDeclHandler = refuse_entity
    parser.StartElementHandler = parser.ProcessingInstructionHandler = parser.CommentHandler = count_element
    parser.StartNamespaceDeclHandler, parser.EndNamespaceDeclHandler = enter_namespace, leave_namespace
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two are about the encoding
        raise DataError(f"the file is not well-formed XML: {error}") from error
    return count


def parse_xml(content: bytes) -> Element:
    """Parse XML that `check_xml` has accepted. The two parsers differ in rare cases, so this may fail, too."""
    from lxml import etree

    try:
        return etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise DataError(f"the file is not readable XML: {error.msg}") from error


def unpack_archive(content: bytes) -> dict[zipfile.ZipInfo, bytes]:
    """All members of a ZIP archive in their order; nothing is written to disk."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise DocumentTooLarge(f"the archive has {len(members):,} members, over the limit of {MOST_MEMBERS:,}")
            if len({member.filename for member in members}) < len(members):
                raise DataError("the archive has two members with the same name; save the file again")
            room = MOST_UNPACKED
            found = {}
            for member in members:
                found[member] = _read_member(archive, member, room)
                room -= len(found[member])
            return found
    except (
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        zlib.error,
        NotImplementedError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        raise DataError(f"the file is not a readable archive: {error}") from error
    except RuntimeError as error:  # zipfile's way to ask for a password
        raise DataError("the file is encrypted; save it without a password") from error


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: int) -> bytes:
    """Read at most `room` bytes: the size that the archive states may be wrong."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others may need any amount of memory
        raise DataError("the archive uses an unusual compression method; save the file again")
    with archive.open(member) as file:
        content = file.read(room + 1)
    if len(content) > room:
        raise DocumentTooLarge(f"the archive unpacks to more than {MOST_UNPACKED:,} bytes, the limit; split the file")
    return content


def pack_archive(members: dict[zipfile.ZipInfo, bytes]) -> bytes:
    """A ZIP archive of these members, each compressed as it was."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()

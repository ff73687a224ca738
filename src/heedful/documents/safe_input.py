"""Files from anywhere: as text, as XML without surprises, and archives that do not grow without end."""

import re
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.parsers import expat

from heedful.errors import DataError

if TYPE_CHECKING:
    Element: TypeAlias = Any  # lxml's, which has no types of its own
else:
    Element = Any

MOST_UNPACKED = 64 << 20  # bytes of all that is in an archive
MOST_MEMBERS = 5000
TOO_DEEP = "the file has elements in elements in elements, too deep to be read"
MOST_XML = 16 << 20  # bytes of a part that is read as XML; in memory it takes many times that
MOST_ATTRIBUTES = 1000  # of an element
_MOST_SPACES = 200  # namespaces that hold at one place; every copy of an element there names them all
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class TooMuch(DataError):
    """More than is read of one document."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a document may be made of; all of it is in memory, many times as large as in the file."""

    elements: int = 1_000_000  # or lines, or whatever it is made of
    passages: int = 200_000
    characters: int = 10_000_000  # of text to translate

    def check(self, *, elements: int = 0, passages: int = 0, characters: int = 0) -> None:
        """Refuse more than that."""
        found = (
            (elements, self.elements, "elements"),
            (passages, self.passages, "passages"),
            (characters, self.characters, "characters of text"),
        )
        for count, most, what in found:
            if count > most:
                raise TooMuch(f"the document has more than {most:,} {what}; split it")


USUAL = Bounds()


def clean(text: str) -> str:
    """Without the characters that XML cannot have, such as form feeds."""
    return _NOT_XML.sub(" ", text)


def as_text(content: bytes) -> str:
    """UTF-8, with or without a mark at its beginning, which stays."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the file is not UTF-8 text: byte {error.start + 1} cannot be read; save it as UTF-8"
        ) from error


def check_xml(content: bytes, bounds: Bounds, before: int = 0) -> int:
    """Refuse what is no XML, or too much of it, or declares entities, which can grow without end and name other files.

    Gives the number of elements, with those of other parts that were read before.
    """
    if len(content) > MOST_XML:
        raise TooMuch(f"the XML has {len(content):,} bytes, over the limit of {MOST_XML:,}")
    count, spaces = before, 0

    def refuse(*_: object) -> None:
        raise DataError("the XML declares entities, which are not read; save the file without them")

    def seen(_: str, attributes: object = None) -> None:
        nonlocal count
        count += 1
        if count > bounds.elements:
            bounds.check(elements=count)
        if isinstance(attributes, list) and len(attributes) > 2 * MOST_ATTRIBUTES:  # names and values
            raise TooMuch(f"the XML has an element with more than {MOST_ATTRIBUTES:,} attributes")

    def declared(*_: object) -> None:
        nonlocal spaces
        spaces += 1
        if spaces > _MOST_SPACES:
            raise TooMuch(f"the XML has more than {_MOST_SPACES} namespaces at one place")

    def left(*_: object) -> None:
        nonlocal spaces
        spaces -= 1

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.ordered_attributes = True
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = parser.ProcessingInstructionHandler = parser.CommentHandler = seen
    parser.StartNamespaceDeclHandler, parser.EndNamespaceDeclHandler = declared, left
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two are of encodings
        raise DataError(f"the file is not well-formed XML: {error}") from error
    return count


def parsed(content: bytes) -> Element:
    """The tree of XML that was checked; what Expat takes and libxml2 does not is refused, too."""
    from lxml import etree

    try:
        return etree.fromstring(content, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise DataError(f"the file is not XML that can be read: {error.msg}") from error


def unpacked(content: bytes) -> dict[zipfile.ZipInfo, bytes]:
    """All members of an archive in their order, none of which is ever written to disk."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise TooMuch(f"the archive has {len(members):,} members, over the limit of {MOST_MEMBERS:,}")
            if len({member.filename for member in members}) < len(members):
                raise DataError("the archive has two members of one name; save the file anew")
            room = MOST_UNPACKED
            found = {}
            for member in members:
                found[member] = _read(archive, member, room)
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
        raise DataError(f"the file is not an archive that can be read: {error}") from error
    except RuntimeError as error:  # what zipfile says of a password
        raise DataError("the file is encrypted; save it without a password") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: int) -> bytes:
    """What is really in it: what it says of its size may be wrong."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others need memory at their will
        raise DataError("the archive is packed in an unusual way; save the file anew")
    with archive.open(member) as file:
        content = file.read(room + 1)
    if len(content) > room:
        raise TooMuch(f"unpacked, the archive has more than {MOST_UNPACKED:,} bytes, which is too much")
    return content


def packed(members: dict[zipfile.ZipInfo, bytes]) -> bytes:
    """An archive again, with members packed as they were."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()

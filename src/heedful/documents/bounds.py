"""Files from anywhere: as text, as XML without surprises, and archives that do not grow without end."""

import zipfile
from io import BytesIO
from xml.parsers import expat

from heedful.errors import DataError

MOST_UNPACKED = 64 << 20  # bytes of all that is in an archive
MOST_MEMBERS = 5000
TOO_DEEP = "the file has elements in elements in elements, too deep to be read"
MOST_XML = 16 << 20  # bytes of a part that is read as XML; in memory it takes many times that


def as_text(content: bytes) -> str:
    """UTF-8, with or without a mark at its beginning, which stays."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the file is not UTF-8 text: byte {error.start + 1} cannot be read; save it as UTF-8"
        ) from error


def check_xml(content: bytes) -> None:
    """Refuse what is no XML, or declares entities, which can grow without end and name other files."""
    if len(content) > MOST_XML:
        raise DataError(f"the XML has {len(content):,} bytes, over the limit of {MOST_XML:,}")

    def refuse(*_: object) -> None:
        raise DataError("the XML declares entities, which are not read; save the file without them")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise DataError(f"the file is not well-formed XML: {error}") from error


def unpacked(content: bytes) -> dict[zipfile.ZipInfo, bytes]:
    """All members of an archive in their order, none of which is ever written to disk."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise DataError(f"the archive has {len(members):,} members, over the limit of {MOST_MEMBERS:,}")
            if len({member.filename for member in members}) < len(members):
                raise DataError("the archive has two members of one name; save the file anew")
            room = MOST_UNPACKED
            found = {}
            for member in members:
                found[member] = _read(archive, member, room)
                room -= len(found[member])
            return found
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zipfile.LargeZipFile, OSError, ValueError) as error:
        raise DataError(f"the file is not an archive that can be read: {error}") from error
    except RuntimeError as error:  # what zipfile says of a password
        raise DataError("the file is encrypted; save it without a password") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, room: int) -> bytes:
    """What is really in it: what it says of its size may be wrong."""
    with archive.open(member) as file:
        content = file.read(room + 1)
    if len(content) > room:
        raise DataError(f"unpacked, the archive has more than {MOST_UNPACKED:,} bytes, which is too much")
    return content


def packed(members: dict[zipfile.ZipInfo, bytes]) -> bytes:
    """An archive again, with members packed as they were."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in members.items():
            kind = zipfile.ZIP_STORED if member.compress_type == zipfile.ZIP_STORED else zipfile.ZIP_DEFLATED
            archive.writestr(member, content, compress_type=kind)
    return file.getvalue()

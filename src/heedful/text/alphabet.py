"""The alphabet of byte-level pieces: every byte is written as one printable character, as GPT-2 does it."""

from collections.abc import Mapping


def byte_characters() -> tuple[str, ...]:
    """Give the character that stands for each byte, in the order of the bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    shifted = {byte: 256 + place for place, byte in enumerate(hidden)}
    return tuple(chr(shifted.get(byte, byte)) for byte in range(256))


# surrogateescape keeps a stray byte b as U+DC00 + b; no UTF-8 text holds such a character otherwise.
_SHOWN = {0x20: "▁"} | {0xDC00 + byte: f"<0x{byte:02X}>" for byte in range(0x80, 0x100)}


def visible(piece: str, byte_of: Mapping[str, int]) -> str:
    """Write a byte-level piece for a person: "▁" for a space, "<0xE4>" for a byte that is no whole character."""
    if not all(character in byte_of for character in piece):
        return piece  # an added token of somebody else's file, which is written as it is
    text = bytes(byte_of[character] for character in piece).decode("utf-8", errors="surrogateescape")
    return text.translate(_SHOWN)

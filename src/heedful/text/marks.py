"""Texts in which marks such as [MASK] or <extra_id_0> stand for special pieces, which no plain text can become."""

from collections.abc import Mapping

from heedful.text.tokenizer import Tokenizer

# In place of a mark, so that the words around it are encoded as in a text without it. These never occur in writing.
_PLACEHOLDERS = range(0xE000, 0xF8FF)


def encode_with_marks(tokenizer: Tokenizer, text: str, marks: Mapping[str, int]) -> list[int]:
    """The ids of a text and EOS, with the id of each mark in place of the mark and of a space in front of it."""
    stands_for: dict[str, int] = {}
    free = (chr(code) for code in _PLACEHOLDERS if chr(code) not in text)
    for mark, number in marks.items():
        if mark in text:
            placeholder = next(free)
            text = text.replace(mark, placeholder)
            stands_for[placeholder] = number
    ids: list[int] = []
    last = -1  # where the last mark was
    by_characters = tokenizer.kind in ("characters", "bytes")
    for number, (start, end) in zip(tokenizer.encode(text), tokenizer.spans(text), strict=True):
        place = next((at for at in range(start, end) if text[at] in stands_for), None)
        if place is not None:
            if place != last:
                ids.append(stands_for[text[place]])
            last = place
        elif by_characters or not _is_space_before_mark(text, start, end, stands_for):
            ids.append(number)
    return ids


def _is_space_before_mark(text: str, start: int, end: int, marks: Mapping[str, int]) -> bool:
    """Whether a piece is the space that the next word would have had as its first character."""
    return not text[start:end].strip() and start < len(text) and any(text[at : at + 1] in marks for at in (start, end))

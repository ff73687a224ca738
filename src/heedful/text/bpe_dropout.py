"""BPE dropout (Provilkov et al. 2020): merges are skipped at random, so that a model sees a word split in many ways.

The dropout of the `tokenizers` library cannot be seeded, so this module applies the merges itself.
"""

import json
import re
from collections.abc import Sequence
from random import Random

from tokenizers import Tokenizer as RustTokenizer

from heedful.errors import ConfigError
from heedful.text.byte_level_bpe import WHITE_SPACE, merge, read_merges
from heedful.text.tokenizer import Tokenizer, require_unicode, rust_errors

# Segmentations of a word that are kept for one seed. At the paper's p = 0.1 a word has few likely ones, and a seed is
# for one pass over the corpus, in which most words occur less often than this. A power of two, to index by a byte.
VARIANTS = 8

# The number of words whose segmentations are kept, and their greatest length: "words" of text without spaces do not
# occur again.
MAX_WORDS = 1_000_000
MAX_WORD_LENGTH = 64

# GPT-2's pre-tokenizer never joins a character and the space after it, so the text can be split there.
_WORD = re.compile(f"[{WHITE_SPACE}]*[^{WHITE_SPACE}]+|[{WHITE_SPACE}]+")


class BpeDropout:
    """Seeded BPE dropout: the same texts and seed give the same ids, and any seed gives the same text."""

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        """Skip each possible merge with this probability: 0 is `Tokenizer.encode_all`, 1 leaves single bytes."""
        if not 0 <= probability <= 1:
            raise ConfigError(f"text.bpe_dropout must be between 0 and 1, but is {probability}")
        if tokenizer.kind != "bpe":
            raise ConfigError(
                f"text.bpe_dropout is {probability}, but a tokenizer of kind '{tokenizer.kind}' has no merges "
                "to skip; set it to 0, or text.kind to 'bpe'"
            )
        self._probability = probability
        self._eos_id = tokenizer.eos_id
        serialised = tokenizer.to_json()
        self._pre_tokenizer = RustTokenizer.from_str(serialised).pre_tokenizer
        self._ids, self._merges = read_merges(json.loads(serialised)["model"])
        self._seed: int | None = None
        self._known: dict[str, list[list[int] | None]] = {}

    def encode_all(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """The ids of each text, split at random, and EOS."""
        require_unicode(texts)
        if seed != self._seed:
            self._seed, self._known = seed, {}
        picks = Random(seed)
        return [self._encode(text, picks) for text in texts]

    def _encode(self, text: str, picks: Random) -> list[int]:
        if not text:
            return [self._eos_id]
        words = _WORD.findall(" " + text)  # the space that our tokenizers put before every text
        ids: list[int] = []
        for word, pick in zip(words, picks.randbytes(len(words)), strict=True):
            known = self._known.get(word)
            variant = known[pick % VARIANTS] if known is not None else None
            ids += variant if variant is not None else self._draw(word, pick % VARIANTS)
        ids.append(self._eos_id)
        return ids

    def _draw(self, word: str, number: int) -> list[int]:
        """Draw a segmentation of a word. It depends only on seed, word and number, never on what is in the cache."""
        drawn = self._segment(word, Random(f"{self._seed} {number} {word}"))
        if len(word) <= MAX_WORD_LENGTH:
            if len(self._known) >= MAX_WORDS:
                self._known.clear()
            self._known.setdefault(word, [None] * VARIANTS)[number] = drawn
        return drawn

    def _segment(self, word: str, generator: Random) -> list[int]:
        with rust_errors("this text cannot be encoded"):
            stretches = self._pre_tokenizer.pre_tokenize_str(word)
        drops = lambda: generator.random() < self._probability  # noqa: E731
        return [
            number
            for stretch, _ in stretches
            for number in merge([self._ids[character] for character in stretch], self._merges, drops)
        ]

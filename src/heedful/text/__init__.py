"""Text to ids and back: the one place where they meet."""

from heedful.text.bpe_dropout import BpeDropout
from heedful.text.tokenizer import Tokenizer
from heedful.text.tokenizer_training import SAMPLE_LINES, learn_tokenizer, reuse_tokenizer

__all__ = ["SAMPLE_LINES", "BpeDropout", "Tokenizer", "learn_tokenizer", "reuse_tokenizer"]

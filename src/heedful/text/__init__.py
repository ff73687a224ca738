"""Text to ids and back: the one place where they meet."""

from heedful.text.dropout import BpeDropout
from heedful.text.learn import learn_tokenizer, reuse_tokenizer
from heedful.text.tokenizer import Tokenizer

__all__ = ["BpeDropout", "Tokenizer", "learn_tokenizer", "reuse_tokenizer"]

"""Text to ids and back: the one place where they meet."""

from heedful.text.bpe_dropout import BpeDropout
from heedful.text.tokenizer import Tokenizer
from heedful.text.tokenizer_training import learn_tokenizer, reuse_tokenizer

__all__ = ["BpeDropout", "Tokenizer", "learn_tokenizer", "reuse_tokenizer"]

"""Text to ids and back: the one place where they meet.

`learn_tokenizer` and BPE dropout are in modules of their own, because they need the `tokenizers` library.
"""

from heedful.text.tokenizer import Tokenizer

__all__ = ["Tokenizer"]

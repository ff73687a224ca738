"""Tokenizers in the shape of the public files, built with the library itself."""

import base64

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = ["the quick brown foxes", "jumped over the lazy dogs", "foxes and dogs jumping quickly"] * 4


def bert() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=90, special_tokens=specials, show_progress=False)
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(4)
    made.enable_padding(length=9)
    return made


def gpt2() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(LINES, trainer)
    return made


def charsmap() -> str:
    """SentencePiece's map with an empty trie and one string."""
    trie = bytes(1024)
    return base64.b64encode(len(trie).to_bytes(4, "little") + trie + b"a\0").decode()


def t5() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    specials = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=specials, unk_token="<unk>", show_progress=False)
    made.train_from_iterator([*LINES, "< / s p a d >"], trainer)
    made.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return made


def llama() -> Tokenizer:
    spelt = {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, **spelt, "▁": 259, "t": 260, "h": 261, "th": 262, "▁th": 263}
    model = models.BPE(vocab, [("t", "h"), ("▁", "th")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    return made

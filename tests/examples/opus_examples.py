"""A folder as OPUS-MT publishes them, made by transformers and SentencePiece themselves, with random weights."""

import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

ENGLISH = [
    *("the", "a", "man", "woman", "child", "rides", "sees", "finds", "big", "small", "red", "horse", "house", "street"),
    *("of", "in", "near", "apple,", "tree.", "why?", "it's"),
]
GERMAN = [
    *("der", "die", "das", "ein", "Mann", "Straße", "Häuser", "grüßt", "sieht", "große", "kleine", "rote", "Äpfel,"),
    *("Bäume.", "warum?", "über", "你", "ist’s"),
]
CODE = ">>deu<<"
ODD = [
    *(
        "",
        " ",
        "   ",
        "a",
        " a  b ",
        "\t",
        "\n",
        "a\tb\nc",
        "the  man",
        "the man ",
        "\u3000the\u00a0man\u200b",
        "…",
        "“the” ‘man’",
    ),
    *(
        "Straße",
        "ß",
        "ßß",
        "ßü",
        "Ｆｕｌｌ ｗｉｄｔｈ",
        "ﬁnd ½ ² ™",
        "café",
        "cafe\u0301",
        "x\u0301\u0302y",
        "naïve",
        "你好",
        "Привет мир",
    ),
    *(
        "🙂",
        "👩‍👩‍👧",
        "a\u200db",
        "▁the",
        "▁▁the man",
        "\ufdd0",
        "the\ufdd0",
        "\uffff\ufffe",
        "\x00",
        "a\x07b",
        "1,000.5",
        "<unk",
        "s>",
    ),
    *("한국어", "\u1112\u1161\u11ab", "العربية", "हिन्दी", "the" * 200, "~ ~~ \\ `` ''"),
]


def sentences(words: Sequence[str], count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=chance.randint(2, 9))) for _ in range(count)]


def odd_texts(count: int, seed: int) -> list[str]:
    """Characters of all sorts in a row; none that combines with the one before it, nor the sign for a space."""
    chance = random.Random(seed)
    pool = [
        chr(code) for code in (*range(1, 0x300), *range(0x370, 0x483), *range(0x2000, 0x20D0), *range(0x3000, 0x3099))
    ]
    pool += [chr(code) for code in (*range(0x4E00, 0x4E80), *range(0xFF00, 0xFF9E), *range(0x1F600, 0x1F640))]
    pools = ["abcdeghnorstü ß ", pool, ENGLISH]
    return ["".join(chance.choices(chance.choice(pools), k=chance.randint(1, 14))) for _ in range(count)]


def trained(lines: Sequence[str], **options: object) -> bytes:
    """A SentencePiece model of these lines."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="makes the files that are imported")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=file, hard_vocab_limit=False, minloglevel=2, **options
    )
    return file.getvalue()


def processor(content: bytes) -> Any:
    """What SentencePiece makes of a model."""
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=content)


def joint_vocabulary(models: Sequence[bytes]) -> dict[str, int]:
    """As Marian makes it of both sides' text: some pieces never came, and the padding is last."""
    chance = random.Random(2)
    found = [CODE]
    for model in map(processor, models):
        pieces = [model.id_to_piece(number) for number in range(model.get_piece_size())]
        found += [piece for piece in pieces[3:] if len(piece) == 1 or chance.random() < 0.9]
    return {piece: number for number, piece in enumerate(["</s>", "<unk>", *dict.fromkeys(found), "<pad>"])}


def opus_folder(folder: Path, **changes: object) -> Path:
    """Everything that such a folder has; `changes` are to the configuration."""
    transformers = pytest.importorskip("transformers")
    models = trained(sentences(ENGLISH, 300, 1), vocab_size=90), trained(sentences(GERMAN, 300, 2), vocab_size=90)
    vocabulary = joint_vocabulary(models)
    pad = vocabulary["<pad>"]
    options: dict[str, object] = {
        "vocab_size": len(vocabulary),
        "decoder_vocab_size": len(vocabulary),
        "d_model": 16,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 512,
        "pad_token_id": pad,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "init_std": 1.0,
    }
    for side in ("encoder", "decoder"):
        options |= {f"{side}_layers": 2, f"{side}_ffn_dim": 24, f"{side}_attention_heads": 2}
    torch.manual_seed(3)
    model = transformers.MarianMTModel(transformers.MarianConfig(**(options | changes)))
    with torch.no_grad():
        model.final_logits_bias.normal_()[0, 0] = 8.0  # sentences end soon
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.generation_config = transformers.GenerationConfig(
        num_beams=4, max_length=512, bad_words_ids=[[pad]], pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad
    )
    model.save_pretrained(folder)
    for side, content in zip(("source", "target"), models, strict=True):
        (folder / f"{side}.spm").write_bytes(content)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, indent=2))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    return folder

"""Named starting points: the paper's models, the rows of Table 3, a modern small model, rivals and descendants.

A preset holds only its differences from the paper's base model, which is the default in `experiment.py`.
"""

from collections.abc import Mapping

from heedful.errors import ConfigError, did_you_mean

Table = Mapping[str, object]
Preset = Mapping[str, Table]


def _model(**values: object) -> Preset:
    return {"model": values}


def _row(**values: object) -> Preset:
    """A row of Table 3. The paper does not average checkpoints there (section 6.2)."""
    return {"model": values, "train": {"average_checkpoints": 1}}


def _smoothing(value: float) -> Preset:
    return {"train": {"label_smoothing": value, "average_checkpoints": 1}}


_SIZES: Mapping[str, Preset] = {
    "paper": {},
    "base": {},
    "tiny": _model(d_model=128, d_ff=256, num_heads=4, encoder_layers=4, decoder_layers=4),
    "small": _model(d_model=256, d_ff=1024, num_heads=4, encoder_layers=6, decoder_layers=6),
    "restricted": _model(window=32),  # section 4: each position sees only its neighbourhood
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
        "train": {"max_steps": 300_000, "average_checkpoints": 20},
    },
}

_TABLE_3: Mapping[str, Preset] = {
    "table3-A-h1": _row(num_heads=1),
    "table3-A-h4": _row(num_heads=4),
    "table3-A-h16": _row(num_heads=16),
    "table3-A-h32": _row(num_heads=32),
    "table3-B-dk16": _row(d_k=16),
    "table3-B-dk32": _row(d_k=32),
    "table3-C-N2": _row(encoder_layers=2, decoder_layers=2),
    "table3-C-N4": _row(encoder_layers=4, decoder_layers=4),
    "table3-C-N8": _row(encoder_layers=8, decoder_layers=8),
    "table3-C-d256": _row(d_model=256),
    "table3-C-d1024": _row(d_model=1024),
    "table3-C-ff1024": _row(d_ff=1024),
    "table3-C-ff4096": _row(d_ff=4096),
    "table3-D-dropout0": _row(dropout=0.0),
    "table3-D-dropout0.2": _row(dropout=0.2),
    "table3-D-smoothing0": _smoothing(0.0),
    "table3-D-smoothing0.2": _smoothing(0.2),
    "table3-E-learned": _row(positions="learned"),
}

_SINCE: Mapping[str, Preset] = {
    # The paper's sizes overfit small corpora, and its schedule is too long for them. So: a small model, more dropout
    # once it has learnt something, a learning rate that falls to zero, and a moving average instead of checkpoint
    # averaging. Pre-norm, relative positions and Muon learn more from each update; see `docs/lab-log.md`.
    "modern": {
        "model": {
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "encoder_layers": 4,
            "decoder_layers": 4,
            "dropout": 0.3,
            "norm": "pre",
            "positions": "relative",
        },
        "text": {"vocabulary_size": 8000},
        "train": {
            "max_steps": 8000,
            "batch_tokens": 4096,
            "schedule": "cosine",
            "optimizer": "muon",
            "learning_rate": 0.003,
            "warmup_steps": 400,
            "dropout_warmup": 2500,
            "clip_norm": 1.0,
            "ema_decay": 0.995,
            "average_checkpoints": 1,
        },
    },
}


# GPT. The first is OpenAI's smallest; their optimizer is Adam with a rate that they do not name.
_GPT = {"family": "gpt", "norm": "pre", "activation": "gelu-tanh", "positions": "learned"}
_DESCENDANTS: dict[str, Preset] = {
    "gpt-2": {
        "model": {**_GPT, "d_model": 768, "d_ff": 3072, "num_heads": 12, "decoder_layers": 12, "max_positions": 1024},
        "text": {"vocabulary_size": 50_257},
        "train": {"label_smoothing": 0.0},
    },
    "gpt": {
        "model": {
            **_GPT,
            **{"d_model": 128, "d_ff": 512, "num_heads": 4, "decoder_layers": 4, "max_positions": 128, "dropout": 0.1},
        },
        "text": {"kind": "characters", "vocabulary_size": 1000},
        "train": {
            "max_steps": 4000,
            "batch_tokens": 2048,
            "label_smoothing": 0.0,
            "schedule": "cosine",
            "optimizer": "muon",
            "learning_rate": 0.003,
            "warmup_steps": 200,
            "clip_norm": 1.0,
            "ema_decay": 0.99,
            "average_checkpoints": 1,
        },
    },
}

# BERT. The first is Google's base model, with the settings of its pre-training.
_BERT = {"family": "bert", "activation": "gelu", "positions": "learned", "attention_dropout": 0.1}
_DESCENDANTS |= {
    "bert-base": {
        "model": {**_BERT, "d_model": 768, "d_ff": 3072, "num_heads": 12, "encoder_layers": 12, "max_positions": 512},
        "text": {"kind": "wordpiece", "vocabulary_size": 30_522},
        "train": {
            "max_steps": 1_000_000,
            "batch_tokens": 131_072,
            "label_smoothing": 0.0,
            "schedule": "linear",
            "learning_rate": 1e-4,
            "warmup_steps": 10_000,
            "weight_decay": 0.01,
            "clip_norm": 1.0,
            "average_checkpoints": 1,
        },
    },
    # Small, for thousands of labelled texts on a CPU, and trained like "modern".
    "bert": {
        "model": {
            **{"family": "bert", "activation": "gelu", "norm": "pre", "positions": "relative", "pooling": "mean"},
            **{"d_model": 128, "d_ff": 512, "num_heads": 4, "encoder_layers": 4, "max_positions": 256, "dropout": 0.3},
        },
        "text": {"vocabulary_size": 4000},
        "train": {
            "max_steps": 2000,
            "batch_tokens": 2048,
            "label_smoothing": 0.1,
            "schedule": "cosine",
            "optimizer": "muon",
            "learning_rate": 0.002,
            "warmup_steps": 100,
            "clip_norm": 1.0,
            "ema_decay": 0.99,
            "average_checkpoints": 1,
            "best_by": "bleu",
        },
    },
}


# T5. The first two are Google's smallest of each version; their optimizer is Adafactor. The last has the size of
# "modern", which the text and the training of small corpora suit.
_T5 = {"family": "t5", "norm": "pre", "positions": "relative", "max_distance": 128}
_T5_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}
_T5_SMALL = {**_T5, **_T5_DROPOUT, "d_model": 512, "d_k": 64, "d_v": 64}
_T5_TRAINING = {
    "text": {"kind": "unigram", "vocabulary_size": 32_128},
    "train": {
        **{"max_steps": 524_288, "batch_tokens": 65_536, "label_smoothing": 0.0, "average_checkpoints": 1},
        **{"schedule": "inverse-sqrt", "learning_rate": 0.01, "warmup_steps": 10_000},
    },
}
_DESCENDANTS |= {
    "t5-small": {"model": _T5_SMALL, **_T5_TRAINING},
    "t5-v1.1-small": {
        "model": {
            **{**_T5_SMALL, "d_ff": 1024, "num_heads": 6, "encoder_layers": 8, "decoder_layers": 8},
            **{"activation": "gated-gelu-tanh", "sharing": "inputs"},
        },
        **_T5_TRAINING,
    },
    "t5": {**_SINCE["modern"], "model": {**_SINCE["modern"]["model"], **_T5}},
}

# ViT. The first is the base model with patches of 16 pixels, with Google's settings for ImageNet alone.
_VIT = {"family": "vit", "norm": "pre", "activation": "gelu", "positions": "learned"}
_DESCENDANTS |= {
    "vit-base": {
        "model": {**_VIT, "d_model": 768, "d_ff": 3072, "num_heads": 12, "encoder_layers": 12},
        "train": {
            "max_steps": 93_600,
            "batch_tokens": 806_912,
            "label_smoothing": 0.0,
            "schedule": "cosine",
            "learning_rate": 3e-3,
            "warmup_steps": 10_000,
            "weight_decay": 0.3,
            "clip_norm": 1.0,
            "average_checkpoints": 1,
        },
    },
    # Small, for small pictures on a CPU. Its settings are like those of "bert" and "modern", not tuned for pictures.
    "vit": {
        "model": {
            **_VIT,
            **{"d_model": 128, "d_ff": 256, "num_heads": 4, "encoder_layers": 4, "dropout": 0.1, "pooling": "mean"},
            **{"image_size": 28, "patch_size": 4, "channels": 1},
        },
        "train": {
            "max_steps": 4000,
            "batch_tokens": 6400,
            "label_smoothing": 0.1,
            "schedule": "cosine",
            "optimizer": "muon",
            "learning_rate": 0.003,
            "warmup_steps": 200,
            "clip_norm": 1.0,
            "ema_decay": 0.99,
            "average_checkpoints": 1,
            "best_by": "bleu",
        },
    },
}

# CLIP. The first is OpenAI's ViT-B/32, with the settings that their paper names for it. The second is small, for
# thousands of small pictures on a CPU.
_CLIP = {
    **{"family": "clip", "norm": "pre", "activation": "quick-gelu", "positions": "learned", "norm_epsilon": 1e-5},
    "max_positions": 77,
}
_DESCENDANTS |= {
    "clip-vit-b-32": {
        "model": {
            **{**_CLIP, "d_model": 768, "d_ff": 3072, "num_heads": 12, "encoder_layers": 12, "decoder_layers": 12},
            **{"text_d_model": 512, "text_d_ff": 2048, "text_heads": 8, "projection": 512, "patch_size": 32},
            "dropout": 0.0,
        },
        "text": {"vocabulary_size": 49_408},
        "train": {
            **{"max_steps": 390_000, "batch_tokens": 32_768 * 224 * 224 * 3, "label_smoothing": 0.0},
            **{"schedule": "cosine", "learning_rate": 5e-4, "warmup_steps": 2000, "weight_decay": 0.2},
            "average_checkpoints": 1,
        },
    },
    "clip": {
        "model": {
            **{**_CLIP, "d_model": 128, "d_ff": 256, "num_heads": 4, "encoder_layers": 4, "decoder_layers": 4},
            **{"image_size": 32, "patch_size": 4, "dropout": 0.1},
        },
        "text": {"vocabulary_size": 2000},
        "train": {
            "max_steps": 4000,
            "batch_tokens": 128 * 32 * 32 * 3,
            "label_smoothing": 0.0,
            "schedule": "cosine",
            "optimizer": "muon",
            "learning_rate": 0.003,
            "warmup_steps": 200,
            "clip_norm": 1.0,
            "ema_decay": 0.99,
            "average_checkpoints": 1,
            "best_by": "bleu",
        },
    },
}


RIVAL_RATE = 0.002  # half that of a small Transformer; not tuned for each rival


def _rival(**values: object) -> Preset:
    """A rival sized for small corpora, trained by Adam with a lower learning rate than a small Transformer."""
    small = {"d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.3}
    by_adam = {"optimizer": "adam", "learning_rate": RIVAL_RATE, "warmup_steps": 1000, "ema_decay": 0.998}
    train = {**_SINCE["modern"]["train"], **by_adam, "dropout_warmup": 0}
    return {**_SINCE["modern"], "model": {**small, **values}, "train": train}


_RIVALS: Mapping[str, Preset] = {
    "lstm": _rival(family="recurrent", cell="lstm", attention="none"),
    "gru": _rival(family="recurrent", cell="gru", attention="none"),
    "bahdanau": _rival(family="recurrent", cell="gru", attention="additive", encoder_layers=1, decoder_layers=1),
    "luong": _rival(family="recurrent", cell="lstm", attention="multiplicative"),
    "convs2s": _rival(family="convolutional", positions="learned", kernel_width=3, encoder_layers=4, decoder_layers=3),
}

PRESETS: Mapping[str, Preset] = {**_SIZES, **_TABLE_3, **_SINCE, **_RIVALS, **_DESCENDANTS}


def preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        known = ", ".join(name for name in PRESETS if not name.startswith("table3"))
        raise ConfigError(
            f"unknown preset: {name}{did_you_mean(name, PRESETS) or f'; there are {known} and the rows of Table 3'}"
        )
    return PRESETS[name]

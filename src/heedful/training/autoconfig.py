"""Automatic settings that suit the data and the machine, with a reason for each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.config import DataConfig, Experiment, TokenizerKind
from heedful.data.captions import CaptionStatistics
from heedful.data.labels import LabelKind, LabelStatistics
from heedful.data.pairs import Pair
from heedful.data.pictures import PictureStatistics
from heedful.data.text import TextStatistics
from heedful.errors import counted
from heedful.training.schedule import learning_rate

Given = Mapping[str, Any]

_FEW_PAIRS = 20
_SAMPLED_PAIRS = 200_000  # distinct words are counted in these
_PIECES_A_WORD = 1.3
_ALPHABET = 258  # bytes and special pieces
_FINETUNING_RATE = 0.1  # times the highest rate that the model was trained with
_EMA_DECAY = 0.998
_SUBWORDS_FROM = 5_000_000  # characters
_CHARACTERS_A_PIECE = 3.5  # a guess, before there is a vocabulary
_TEXT_VOCABULARIES = (  # by characters
    *((1_000_000, 1000), (5_000_000, 2000), (20_000_000, 4000)),
    *((200_000_000, 8000), (2_000_000_000, 16_000)),
)
_LABELLING_RATE = 0.5  # times the highest rate of the model that labelling starts from
_FEW_EXAMPLES = 10
_NAMED_LABELS = 5  # in a warning
_LARGEST_PICTURE = 56  # pixels on a side, on a CPU
_FEW_PICTURES = 5000
_PICTURE_EPOCHS = ((1000, 100), (5000, 50), (20_000, 20))  # by the number of pictures
_CAPTION_EPOCHS = ((1000, 200), (5000, 100), (20_000, 40), (100_000, 20))  # by the number of pictures
_MANY_PICTURES = 50_000
_FEW_CAPTIONED = 100
_LITTLE_TEXT = 10_000  # characters
_DENOISING_EPOCHS = 20
_TINY = 128  # d_model of the preset "modern"
_JUDGED_BY_SCORE = range(500, 2000)  # pairs; measured with 1000: docs/results.md. Fewer may never score above zero
_DENOISING_DROPOUT = 0.1


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """The size of a corpus, measured in one pass."""

    pairs: int
    target_words: int
    distinct_words: int  # on both sides of the first pairs
    copies: int = 0  # pairs whose two sides are the same


@dataclass(frozen=True, slots=True)
class ChosenSettings:
    """Tables of an experiment, and the reason for each choice by the key that overrides it."""

    tables: dict[str, Any]
    reasons: dict[str, str]


def measure_corpus(pairs: Iterable[Pair]) -> CorpusStatistics:
    """Count pairs and words; damaged files raise their errors here, before any other work."""
    count = copies = words = 0
    distinct: set[str] = set()
    for pair in pairs:
        count += 1
        copies += pair.source == pair.target != ""
        target = pair.target.split()
        words += len(target)
        if count <= _SAMPLED_PAIRS:
            distinct.update(target)
            distinct.update(pair.source.split())
    return CorpusStatistics(count, words, len(distinct), copies)


def warn_about_corpus(corpus: CorpusStatistics, data: DataConfig) -> Iterator[str]:
    """Sentences about text that a translator cannot learn from."""
    sides = [*zip(data.source, data.target, strict=False), *zip(data.valid_source, data.valid_target, strict=False)]
    same = [source for source, target in sides if Path(source).samefile(target)]
    for name in dict.fromkeys(same):
        yield f"warning: {name} is source and target, so the model learns to copy; give its translation as the target"
    if not same and 2 * corpus.copies > corpus.pairs:
        yield (
            f"warning: {corpus.copies} of {counted(corpus.pairs, 'pair')} have a target that is the source itself, so "
            "the model learns to copy; check the files with: heedful doctor"
        )
    if corpus.pairs < _FEW_PAIRS:
        yield (
            f"warning: {counted(corpus.pairs, 'pair')} cannot teach a language, only "
            f"{'itself' if corpus.pairs == 1 else 'themselves'}; give more text, or fine-tune a model: --init en-de"
        )


def choose_settings(
    corpus: CorpusStatistics, device: str, given: Given, *, model: bool, symbols: bool = False, search: bool = False
) -> ChosenSettings:
    """Choose vocabulary, batch, schedule and, with `model`, the network by the size of the corpus and the device.

    `given` holds the keys of [train] that the user set; `symbols`: words are not split into pieces; `search`: choose
    the length penalty, too.
    """
    size, epochs, why = _choose_size(corpus.pairs, device)
    wanted = corpus.distinct_words if symbols else corpus.distinct_words // 2
    vocabulary = min(_choose_vocabulary(corpus.pairs), _ALPHABET + wanted)
    pieces = _estimate_pieces(corpus)
    batch = given.get("batch_tokens", _choose_batch(pieces, device))
    steps = given.get("max_steps", max(200, round(epochs * pieces / batch)))
    every = max(50, min(1000, steps // 20))
    tables: dict[str, Any] = {
        "model": {"preset": "modern", **size} if model else {},
        "text": {"vocabulary_size": vocabulary},
        "train": {
            "batch_tokens": batch,
            # Larger models take a batch in two halves: the activations of a whole one would exceed a gigabyte.
            "accumulate": 2 if size.get("d_model", 0) >= 256 and device == "cpu" else 1,
            "max_steps": steps,
            "warmup_steps": max(1, min(400 if model else 1000, steps // 8)),
            "validate_every": every,
            "save_every": every,
            "patience": 10,
        },
    }
    if model:
        tables["train"] |= {"dropout_warmup": steps // 3, "ema_decay": _choose_ema_decay(steps)}
        if 10_000 <= corpus.pairs < 50_000:
            tables["train"]["word_dropout"] = 0.1
        if corpus.pairs < 50_000:  # measured: docs/lab-log.md
            tables["train"]["r_drop"] = 1.0
    if search:
        tables["search"] = {"penalty": "power", "alpha": 1.0}
    words = counted(corpus.distinct_words, f"different {'symbol' if symbols else 'word'}")
    reasons = {
        "model.preset": f"model: {why}",
        "text.vocabulary_size": f"vocabulary: {vocabulary} pieces, for {words}",
        "train.batch_tokens": f"batch: {batch} tokens a side",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs",
    }
    if "r_drop" in tables["train"]:
        reasons["train.r_drop"] = (
            f"R-Drop: after {counted(steps // 3, 'update')} each pair is read twice, with different dropout, which "
            "takes twice as long and teaches more"
        )
    if search:  # measured: docs/lab-log.md
        reasons["search.penalty"] = "search: by the mean per piece, because the paper's penalty prefers short outputs"
    return ChosenSettings(tables, reasons)


def choose_denoising_settings(corpus: CorpusStatistics, device: str, asked: Given) -> ChosenSettings:
    """Choose vocabulary, network, batch and schedule for passages of plain text, of which spans are left out.

    `asked` holds the settings of the user. A text that loses other spans in each epoch is hard to memorise, so there is
    less dropout than for pairs.
    """
    given = asked.get("train", {})
    epochs, passages = _DENOISING_EPOCHS, counted(corpus.pairs, "passage")
    if "max_steps" not in given:
        batch = given.get("batch_tokens", _choose_batch(_estimate_pieces(corpus), device))
        given = {**given, "max_steps": max(200, round(epochs * _estimate_pieces(corpus) / batch))}
    chosen = choose_settings(corpus, device, given, model="preset" not in asked.get("model", {}))
    steps = given["max_steps"]
    model = dict(chosen.tables["model"])
    if "preset" in model:
        model["dropout"] = _DENOISING_DROPOUT
    wide = asked.get("model", {}).get("d_model", model.get("d_model", _TINY)) > _TINY
    # Nothing that only keeps pairs from being memorised.
    train = {key: value for key, value in chosen.tables["train"].items() if key not in ("r_drop", "word_dropout")}
    reasons = {key: why for key, why in chosen.reasons.items() if key != "train.r_drop"} | {
        "model.preset": f"model: {'small' if wide else 'tiny'}, pre-norm, dropout {_DENOISING_DROPOUT:g}: "
        f"other spans of the {passages} are left out in each epoch",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs",
    }
    return ChosenSettings({**chosen.tables, "model": model, "train": train}, reasons)


def keep_pretrained_network(chosen: ChosenSettings) -> ChosenSettings:
    """The choices for pairs, without those that a model pre-trained on plain text has made already."""
    dropout = chosen.tables["model"].get("dropout", 0.3)
    tables = {**chosen.tables, "model": {"dropout": dropout}, "text": {}}
    reasons = {key: why for key, why in chosen.reasons.items() if key not in ("model.preset", "text.vocabulary_size")}
    return ChosenSettings(tables, reasons | {"model.dropout": f"dropout: {dropout:g}, as for a new model of its size"})


def judge_few_pairs_by_score(chosen: ChosenSettings, pairs: int) -> ChosenSettings:
    """The choices for pairs; of few of them, the loss soon rises while translations go on getting better."""
    if pairs not in _JUDGED_BY_SCORE:
        return chosen
    why = "model: the moving average with the best BLEU in validation, which few pairs raise long after the lowest loss"
    tables = {**chosen.tables, "train": {**chosen.tables["train"], "best_by": "bleu"}}
    return ChosenSettings(tables, chosen.reasons | {"train.best_by": why})


def choose_text_settings(text: TextStatistics, device: str, asked: Given) -> ChosenSettings:
    """Choose tokens, network, batch and schedule for plain text by its size and the device.

    `asked` holds the settings of the user; the others are chosen to go with them.
    """
    given, network = asked.get("train", {}), asked.get("model", {})
    characters = counted(text.characters, "character", ",")
    pieces, kind, why_kind = _choose_tokens(text, asked.get("text", {}).get("kind"))
    tokens = _estimate_tokens(text, kind)
    size, epochs, why = _choose_text_size(tokens, device)
    size = {key: network.get(key, value) for key, value in size.items()}
    model = "preset" not in network
    batch = given.get("batch_tokens", _choose_text_batch(tokens, device))
    steps = given.get("max_steps", max(500, round(epochs * tokens / batch)))
    every = max(50, min(1000, steps // 20))
    tables: dict[str, Any] = {
        "model": {"preset": "gpt", **size} if model else {},
        "text": {"kind": kind, "vocabulary_size": pieces},
        "train": _plan_updates(batch, steps, every),
    }
    context = size["max_positions"]
    reasons = {
        "text.kind": f"tokens: {why_kind}",
        "model.preset": f"model: GPT, {size['decoder_layers']} layers, {size['d_model']} wide, {why}",
        "model.max_positions": f"context: {context} tokens, all that the model sees of the text so far",
        "train.batch_tokens": f"batch: {batch} tokens in {counted(batch // context, 'window')}",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs of {characters}",
        "data.hold_out": f"held out: {counted(default_text_hold_out(text.characters), 'character', ',')} "
        "at the end of the text, to validate on",
    }
    return ChosenSettings(tables, reasons)


def warn_about_text(text: TextStatistics) -> Iterator[str]:
    """Sentences about plain text that is too little to learn from."""
    if text.characters < _LITTLE_TEXT:
        yield (
            f"warning: {counted(text.characters, 'character', ',')} are too little text to learn a language from, "
            "the model will soon repeat them; give a book or more"
        )


def choose_masked_settings(text: TextStatistics, device: str, asked: Given) -> ChosenSettings:
    """Choose vocabulary, network, batch and schedule for finding hidden tokens of plain text.

    `asked` holds the settings of the user; the others are chosen to go with them.
    """
    given, network = asked.get("train", {}), asked.get("model", {})
    characters = counted(text.characters, "character", ",")
    pieces = next((size for limit, size in _TEXT_VOCABULARIES if text.characters < limit), 32_000)
    tokens = _estimate_tokens(text, "bpe")
    size: dict[str, Any] = {"d_model": 128, "d_ff": 512, "num_heads": 4, "encoder_layers": 4, "dropout": 0.1}
    if device != "cpu":
        size |= {"d_model": 512, "d_ff": 2048, "num_heads": 8, "encoder_layers": 6}
    size = {key: network.get(key, value) for key, value in size.items()}
    batch = given.get("batch_tokens", max(512, min(4096 if device == "cpu" else 32_768, tokens // 64)))
    epochs = 40 if tokens < 1_000_000 else 10
    steps = given.get("max_steps", max(500, round(epochs * tokens / batch)))
    every = max(50, min(1000, steps // 20))
    tables: dict[str, Any] = {
        "model": {"preset": "bert", **size} if "preset" not in network else {},
        "text": {"vocabulary_size": pieces},
        "train": _plan_updates(batch, steps, every),
    }
    reasons = {
        "task": "objective: 15 % of the tokens are hidden, other ones in each epoch, and the model finds them",
        "model.preset": f"model: BERT-shaped, {size['encoder_layers']} layers, {size['d_model']} wide, which a "
        "classifier can start from with --init",
        "text.vocabulary_size": f"vocabulary: {pieces} pieces, for {characters}",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs of {characters}; each asks "
        "about few tokens, so there are more than for the next token",
        "data.hold_out": f"held out: {counted(default_text_hold_out(text.characters), 'character', ',')} "
        "at the end of the text, to validate on",
    }
    return ChosenSettings(tables, reasons)


def choose_label_settings(labels: LabelStatistics, kind: LabelKind, device: str, asked: Given) -> ChosenSettings:
    """Choose network, vocabulary, batch and schedule for labelled texts by their size and the device.

    `asked` holds the settings of the user; the others are chosen to go with them.
    """
    given, network = asked.get("train", {}), asked.get("model", {})
    texts = counted(labels.texts, "text", ",")
    pieces = default_label_vocabulary(labels)
    size, epochs, why = _choose_label_size(labels, kind, device)
    size = {key: network.get(key, value) for key, value in size.items()}
    tokens = round(labels.words * _PIECES_A_WORD) + 2 * labels.texts
    batch = given.get("batch_tokens", max(256, min(2048 if device == "cpu" else 16_384, tokens // 64)))
    steps = given.get("max_steps", max(200, round(epochs * tokens / batch)))
    every = max(20, min(1000, steps // 20))
    tables: dict[str, Any] = {
        "model": {"preset": "bert", **size} if "preset" not in network else {},
        "text": {"vocabulary_size": pieces, "bpe_dropout": 0.1, "bpe_variants": 8},
        "train": _plan_updates(batch, steps, every),
    }
    what = "tags" if kind == "tagging" else "labels"
    rarest, most = labels.labels[-1], labels.labels[0]
    reasons = {
        "task": f"{kind}: {len(labels.labels)} {what} of {texts}, from {most[0]} ({most[1]:,}) to {rarest[0]} "
        f"({rarest[1]:,})",
        "model.preset": f"model: BERT-shaped, {size['encoder_layers']} layers, {size['d_model']} wide, {why}",
        "text.vocabulary_size": f"vocabulary: {pieces} pieces, for {counted(labels.words, 'word', ',')}; each epoch "
        "splits words in another way, so that rare ones share their parts with others",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs of {texts}",
        "data.hold_out": f"held out: about {counted(default_label_hold_out(labels.texts), 'text', ',')} to validate on",
        "train.best_by": "model: the moving average with the best macro F1, in which each label counts the same "
        "however rare it is",
    }
    return ChosenSettings(tables, reasons)


def keep_network(chosen: ChosenSettings, before: Experiment) -> ChosenSettings:
    """The choices for labelled texts or pictures without those that the model to start from has made."""
    rate = float(f"{_LABELLING_RATE * before.train.learning_rate:.2g}")
    made = ("model.preset", "model.image_size", "model.patch_size", "text.vocabulary_size")
    text = {key: value for key, value in chosen.tables.get("text", {}).items() if key != "vocabulary_size"}
    model = {"dropout": chosen.tables["model"]["dropout"]} if "dropout" in chosen.tables["model"] else {}
    tables = {
        "model": model,
        "text": text if before.text.kind == "bpe" else {},
        "data": chosen.tables.get("data", {}),
        "train": {**chosen.tables["train"], "learning_rate": rate},
    }
    kept = {key: why for key, why in chosen.reasons.items() if key not in made}
    return ChosenSettings(
        tables, kept | {"train.learning_rate": f"learning rate: {rate:g} at most, so that it forgets little"}
    )


def choose_picture_settings(pictures: PictureStatistics, device: str, asked: Given) -> ChosenSettings:
    """Choose size, patches, network, batch and schedule for pictures by their number and size, and by the device.

    `asked` holds the settings of the user; the others are chosen to go with them.
    """
    given, network, data = asked.get("train", {}), asked.get("model", {}), asked.get("data", {})
    many = counted(pictures.pictures, "picture", ",")
    largest = _LARGEST_PICTURE if device == "cpu" else 224
    patch = network.get("patch_size", _choose_patch(min(pictures.usual, largest)))
    size = network.get("image_size", max(patch, min(pictures.usual, largest) // patch * patch))
    channels = network.get("channels", 1 if pictures.grey else 3)
    epochs = next((epochs for limit, epochs in _PICTURE_EPOCHS if pictures.pictures < limit), 10)
    dropout = network.get("dropout", 0.2 if pictures.pictures < _FEW_PICTURES else 0.1)
    bytes_each = size * size * channels
    batch = given.get("batch_tokens", bytes_each * max(8, min(128, pictures.pictures // 64)))
    steps = given.get("max_steps", max(200, round(epochs * pictures.pictures * bytes_each / batch)))
    every = max(20, min(1000, steps // 20))
    shift = data.get("shift", max(1, size // 14))
    chosen = {"image_size": size, "patch_size": patch, "channels": channels, "dropout": dropout}
    tables: dict[str, Any] = {
        "model": {"preset": "vit", **chosen} if "preset" not in network else {},
        "data": {"shift": shift},
        "train": _plan_updates(batch, steps, every),
    }
    rarest, most = pictures.labels[-1], pictures.labels[0]
    patches = (size // patch) ** 2
    usual = "" if size == pictures.usual else f"; their shorter side has {pictures.usual} pixels in the median"
    reasons = {
        "task": f"pictures: {len(pictures.labels)} classes of {many}, from {most[0]} ({most[1]:,}) to {rarest[0]} "
        f"({rarest[1]:,})",
        "model.image_size": f"size: {size} x {size} pixels, in {'grey' if channels == 1 else 'colour'}{usual}",
        "model.patch_size": f"patches: {patches}, each of {patch} x {patch} pixels: more of "
        "them show more detail, but take longer",
        "model.preset": f"model: ViT, dropout {dropout:g} for {many}",
        "data.shift": f"augmentation: in training, each picture is moved by up to {counted(shift, 'pixel')}, so that "
        "the model learns shapes and not places; mirror half of them with: --set data.flip=true",
        "train.batch_tokens": f"batch: {counted(batch // bytes_each, 'picture')}",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} passes over {many}",
        "data.hold_out": f"held out: about {counted(default_label_hold_out(pictures.pictures), 'picture', ',')} to "
        "validate on",
        "train.best_by": "model: the moving average with the best macro F1, in which each class counts the same "
        "however rare it is",
    }
    return ChosenSettings(tables, reasons)


def choose_caption_settings(captions: CaptionStatistics, device: str, asked: Given) -> ChosenSettings:
    """Choose size, patches, network, vocabulary, batch and schedule for captioned pictures by their number and size.

    `asked` holds the settings of the user; the others are chosen to go with them.
    """
    given, network, data = asked.get("train", {}), asked.get("model", {}), asked.get("data", {})
    many, texts = counted(captions.pictures, "picture", ","), counted(captions.captions, "caption", ",")
    largest = _LARGEST_PICTURE if device == "cpu" else 224
    patch = network.get("patch_size", _choose_patch(min(captions.usual, largest)))
    size = network.get("image_size", max(patch, min(captions.usual, largest) // patch * patch))
    sizes, why = _choose_clip_size(captions, device)
    sizes = {key: network.get(key, value) for key, value in sizes.items()}
    pieces = default_caption_vocabulary(captions)
    epochs = next((epochs for limit, epochs in _CAPTION_EPOCHS if captions.pictures < limit), 10)
    bytes_each = size * size * 3
    batch = given.get("batch_tokens", bytes_each * max(8, min(256, captions.pictures // 16)))
    steps = given.get("max_steps", max(200, round(epochs * captions.pictures * bytes_each / batch)))
    every = max(20, min(1000, steps // 20))
    shift = data.get("shift", max(1, size // 14))
    tables: dict[str, Any] = {
        "model": {"preset": "clip", **sizes, "image_size": size, "patch_size": patch}
        if "preset" not in network
        else {},
        "text": {"vocabulary_size": pieces},
        "data": {"shift": shift},
        "train": _plan_updates(batch, steps, every),
    }
    usual = "" if size == captions.usual else f"; their shorter side has {captions.usual} pixels in the median"
    reasons = {
        "task": f"captions: {texts} of {many}, {captions.distinct:,} of them different",
        "model.image_size": f"size: the square in the middle of each picture, as {size} x {size} pixels{usual}",
        "model.patch_size": f"patches: {(size // patch) ** 2}, each of {patch} x {patch} pixels: more of "
        "them show more detail, but take longer",
        "model.preset": f"model: CLIP, for pictures and texts {sizes['encoder_layers']} layers each, "
        f"{sizes['d_model']} wide, {why}",
        "text.vocabulary_size": f"vocabulary: {pieces} pieces, for {counted(captions.words, 'word', ',')}",
        "data.shift": f"augmentation: in training, each picture is moved by up to {counted(shift, 'pixel')}; mirror "
        "half of them with: --set data.flip=true, if no caption says left or right",
        "train.batch_tokens": f"batch: {counted(batch // bytes_each, 'picture')}; each is told apart from all others "
        "of its batch",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} passes over {many}",
        "data.hold_out": f"held out: about {counted(default_label_hold_out(captions.pictures), 'picture', ',')} with "
        "all their captions to validate on; equal pictures are on the same side",
        "train.best_by": "model: the moving average with the best recall@5, the mean of both directions: of pictures "
        "for a caption and of captions for a picture",
    }
    return ChosenSettings(tables, reasons)


def _choose_clip_size(captions: CaptionStatistics, device: str) -> tuple[dict[str, Any], str]:
    """Changes to the preset's sizes, and the reason."""
    many = counted(captions.pictures, "picture", ",")
    if device != "cpu" and captions.pictures >= _MANY_PICTURES:
        wide = {"d_model": 512, "d_ff": 2048, "num_heads": 8, "encoder_layers": 8, "decoder_layers": 8}
        return wide | {"dropout": 0.1}, f"dropout 0.1: {many} on {device}"
    small = {"d_model": 128, "d_ff": 256, "num_heads": 4, "encoder_layers": 4, "decoder_layers": 4}
    if captions.pictures < _FEW_PICTURES:
        return small | {"dropout": 0.2}, f"dropout 0.2: {many} would soon be memorised"
    if captions.pictures < _MANY_PICTURES:
        return small | {"dropout": 0.1}, f"dropout 0.1: {many}"
    wide = {"d_model": 256, "d_ff": 512, "num_heads": 8, "encoder_layers": 6, "decoder_layers": 6}
    return wide | {"dropout": 0.1}, f"dropout 0.1: {many} on {device}"


def default_caption_vocabulary(captions: CaptionStatistics) -> int:
    """The number of pieces for captions of this size."""
    sizes = ((20_000, 1000), (100_000, 2000), (1_000_000, 4000), (10_000_000, 8000))
    wanted = next((size for limit, size in sizes if captions.words < limit), 16_000)
    return min(wanted, _ALPHABET + captions.distinct_words // 2)


def warn_about_captions(captions: CaptionStatistics) -> Iterator[str]:
    """Sentences about pictures that are too few to learn from."""
    if captions.pictures < _FEW_CAPTIONED:
        yield (
            f"warning: {counted(captions.pictures, 'picture')} are too few to learn what words mean, the model will "
            "only know them by heart; give thousands"
        )


def _choose_patch(side: int) -> int:
    """The side of a patch that cuts a picture into about 7 x 7 of them."""
    return max(2, round(side / 7))


def warn_about_labels(labels: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Sentences about labels that are too rare to learn."""
    rare = [name for name, count in labels if count < _FEW_EXAMPLES]
    if rare:
        names = ", ".join(rare[:_NAMED_LABELS]) + (", ..." if len(rare) > _NAMED_LABELS else "")
        yield (
            f"warning: fewer than {_FEW_EXAMPLES} examples have the label {names}; "
            "such labels are hardly ever found, so give more examples or join them with another label"
        )


def default_label_hold_out(texts: int) -> int:
    """The number of labelled texts to validate on: 10 %, at most 2000."""
    return min(2000, texts // 10)


def default_label_vocabulary(labels: LabelStatistics) -> int:
    """The number of pieces for labelled texts of this size."""
    sizes = ((20_000, 500), (100_000, 1000), (500_000, 2000), (5_000_000, 8000))
    wanted = next((size for limit, size in sizes if labels.words < limit), 16_000)
    return min(wanted, _ALPHABET + labels.distinct_words // 2)


def _choose_label_size(labels: LabelStatistics, kind: LabelKind, device: str) -> tuple[dict[str, Any], int, str]:
    """Changes to the preset's sizes, the number of epochs, and the reason."""
    words = counted(labels.words, "word", ",")
    small = {"d_model": 128, "d_ff": 512, "num_heads": 4, "encoder_layers": 4}
    if labels.words < 200_000:
        return (
            small | {"dropout": 0.3},
            20 if kind == "tagging" else 12,
            f"dropout 0.3: {words} would soon be memorised",
        )
    if labels.words < 5_000_000 or device == "cpu":
        return small | {"dropout": 0.2}, 6, f"dropout 0.2: {words} on {device}"
    wide = {"d_model": 512, "d_ff": 2048, "num_heads": 8, "encoder_layers": 6}
    return wide | {"dropout": 0.1}, 5, f"dropout 0.1: {words} on {device}"


def _choose_tokens(text: TextStatistics, wanted: TokenizerKind | None) -> tuple[int, TokenizerKind, str]:
    """The size of the vocabulary, what its tokens are, and the reason."""
    characters = counted(text.characters, "character", ",")
    if wanted == "characters" or (not wanted and text.characters < _SUBWORDS_FROM):
        size = min(8000, _ALPHABET + text.beyond_ascii)
        return (
            size,
            "characters",
            (
                f"{counted(text.distinct, 'different character')}, because in {characters} "
                "most pieces of words are too rare to be learnt"
            ),
        )
    size = next((size for limit, size in _TEXT_VOCABULARIES if text.characters < limit), 32_000)
    return size, wanted or "bpe", f"{size} pieces of words, because {characters} show each of them often enough"


def _estimate_tokens(text: TextStatistics, kind: TokenizerKind) -> int:
    return text.characters if kind in ("characters", "bytes") else round(text.characters / _CHARACTERS_A_PIECE)


def _choose_text_size(tokens: int, device: str) -> tuple[dict[str, Any], int, str]:
    """Changes to the preset's sizes, the number of epochs, and the reason."""
    if device != "cpu" and tokens > 100_000_000:
        sizes = {"d_model": 768, "d_ff": 3072, "num_heads": 12, "decoder_layers": 12, "max_positions": 1024}
        return sizes | {"dropout": 0.0}, 1, f"the size of GPT-2: {tokens:,} tokens on {device}"
    if device != "cpu":
        sizes = {"d_model": 384, "d_ff": 1536, "num_heads": 6, "decoder_layers": 6, "max_positions": 256}
        return sizes | {"dropout": 0.2}, 10, f"dropout 0.2: {tokens:,} tokens on {device}"
    if tokens > 20_000_000:
        sizes = {"d_model": 256, "d_ff": 1024, "num_heads": 4, "decoder_layers": 6, "max_positions": 256}
        return sizes | {"dropout": 0.0}, 1, f"without dropout: {tokens:,} tokens are read about once"
    sizes = {"d_model": 128, "d_ff": 512, "num_heads": 4, "decoder_layers": 4, "max_positions": 128}
    epochs = 10 if tokens < 2_000_000 else 4
    return sizes | {"dropout": 0.1}, epochs, f"dropout 0.1: {counted(tokens, 'token', ',')} would overfit a larger one"


def _choose_text_batch(tokens: int, device: str) -> int:
    return max(512, min(2048 if device == "cpu" else 16_384, tokens // 64))


def default_text_hold_out(characters: int) -> int:
    """The number of characters at the end of a text to validate on: 10 %, at most 200 000."""
    return min(200_000, characters - int(0.9 * characters))


def choose_finetuning_settings(
    corpus: CorpusStatistics | TextStatistics, before: Experiment, device: str, given: Given, *, hold_out: bool
) -> ChosenSettings:
    """Choose small steps and frequent validations, so that the model forgets little.

    `before` is the experiment that the model was trained with, `given` holds the keys of [train] that the user set;
    `hold_out`: hold out pairs, because there are none to validate on.
    """
    peak = learning_rate(max(1, before.train.warmup_steps), before.model.d_model, before.train)
    # A model that was itself fine-tuned had a low rate already.
    share, why = (1.0, "the same as") if before.train.init else (_FINETUNING_RATE, "10 % of")
    rate = float(f"{share * peak:.2g}")
    if isinstance(corpus, TextStatistics):
        pieces, epochs = _estimate_tokens(corpus, before.text.kind), 5
        held_out, what, side = default_text_hold_out(corpus.characters), "character", ""
        batch = given.get("batch_tokens", _choose_text_batch(pieces, device))
    else:
        pieces, epochs = _estimate_pieces(corpus), _choose_epochs(corpus.pairs)
        held_out, what, side = default_hold_out(corpus.pairs), "pair", " a side"
        batch = given.get("batch_tokens", _choose_batch(pieces, device))
    steps = given.get("max_steps", max(50, round(epochs * pieces / batch)))
    every, warmup = max(5, min(500, steps // 20)), max(1, min(500, steps // 10))
    tables: dict[str, Any] = {
        "data": {"hold_out": held_out} if hold_out else {},
        "train": {
            "batch_tokens": batch,
            "accumulate": 2 if before.model.d_model >= 256 and device == "cpu" else 1,
            "max_steps": steps,
            "schedule": "cosine",
            "learning_rate": rate,
            "warmup_steps": warmup,
            "ema_decay": _EMA_DECAY,
            "average_checkpoints": 1,
            "best_by": "loss",
            "validate_every": every,
            "save_every": every,
            "patience": 5,
        },
    }
    reasons = {
        "train.batch_tokens": f"batch: {batch} tokens{side}",
        "train.learning_rate": f"learning rate: {rate:g} at most, {why} the rate that the model was trained "
        "with, so that it forgets little",
        "train.max_steps": f"schedule: {counted(steps, 'update')}, about {epochs} epochs",
        "train.warmup_steps": f"warm-up: {counted(warmup, 'update')}",
    }
    if held_out or not hold_out:
        reasons |= {
            "train.validate_every": f"validation: every {every} updates",
            "train.patience": "end: after 5 validations without a better model, or after all updates",
            "train.best_by": "model: the moving average with the lowest validation loss, "
            "or the unchanged model if none is better",
        }
    if hold_out:
        reasons["data.hold_out"] = f"held out: about {counted(held_out, what)} to validate on"
    return ChosenSettings(tables, reasons)


def default_hold_out(pairs: int) -> int:
    """The number of pairs to validate on: 2 %, at most 1000; 10 % of small corpora, up to 200 pairs."""
    return min(1000, max(round(0.02 * pairs), min(200, pairs // 10)))


def _plan_updates(batch: int, steps: int, every: int) -> dict[str, Any]:
    """The table [train] of a model that learns from plain text, labels or pictures."""
    return {
        "batch_tokens": batch,
        "max_steps": steps,
        "warmup_steps": max(1, min(200, steps // 10)),
        "ema_decay": _choose_ema_decay(steps),
        "validate_every": every,
        "save_every": every,
        "patience": 10,
    }


def _choose_ema_decay(steps: int) -> float:
    """A moving average over about 2 % of the updates: a longer one lags behind the weights."""
    return min(0.9999, round(1.0 - 1.0 / max(10.0, 0.02 * steps), 4))


def _choose_epochs(pairs: int) -> int:
    for limit, epochs in ((10_000, 20), (100_000, 10), (1_000_000, 5)):
        if pairs < limit:
            return epochs
    return 2


def _estimate_pieces(corpus: CorpusStatistics) -> int:
    return max(1, round(corpus.target_words * _PIECES_A_WORD) + corpus.pairs)


def _choose_batch(pieces: int, device: str) -> int:
    return max(256, min(4096 if device == "cpu" else 25_000, pieces // 16))


def _choose_size(pairs: int, device: str) -> tuple[dict[str, Any], int, str]:
    """Changes to the preset's sizes, the number of epochs, and the reason."""
    if pairs < 10_000:  # measured with 3000 pairs: docs/results.md
        return {"dropout": 0.4}, 75, f"tiny, pre-norm, dropout 0.4: {counted(pairs, 'pair')} would soon be memorised"
    if pairs < 50_000:  # measured with 29 000 pairs: docs/lab-log.md
        wider = {"d_model": 192, "d_ff": 512, "num_heads": 6}
        return wider, 40, f"192 wide, pre-norm, dropout 0.3: {counted(pairs, 'pair')} would overfit a larger one"
    if pairs < 200_000:
        return {}, 20, f"tiny, pre-norm, dropout 0.3: {counted(pairs, 'pair')} would overfit a larger one"
    wide = {"d_model": 256, "d_ff": 1024, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.2}
    if pairs < 2_000_000 or device == "cpu":
        return wide, 10 if pairs < 2_000_000 else 3, f"small, pre-norm: {pairs} pairs on {device}"
    base = {"d_model": 512, "d_ff": 2048, "num_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1}
    return base, 10, f"base, pre-norm: {pairs} pairs on {device}"


def _choose_vocabulary(pairs: int) -> int:
    for limit, size in ((20_000, 4000), (200_000, 8000), (2_000_000, 16_000)):
        if pairs < limit:
            return size
    return 32_000

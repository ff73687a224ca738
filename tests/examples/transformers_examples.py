"""Folders of GPT-2, BERT and ViT as transformers writes them, with random weights that make clear differences."""

import json
from pathlib import Path
from typing import Any

import text_examples
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"
LABELS = {0: "cat", 1: "dog", 2: "plane"}


def learnt_bpe() -> Any:
    """Byte-level BPE as GPT-2 has it, with the end of a text as its last piece."""
    rust = Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    rust.train_from_iterator([text_examples.rhymes(50)], trainer)
    rust.add_special_tokens([END])
    return rust


def gpt2_folder(folder: Path, **changes: Any) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    rust = learnt_bpe()
    end = rust.token_to_id(END)
    sizes = {"vocab_size": end + 1, "n_positions": 64, "n_embd": 24, "n_layer": 3, "n_head": 4}
    config = GPT2Config(**{**sizes, "eos_token_id": end, "bos_token_id": end, **changes})
    torch.manual_seed(4)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=rust, eos_token=END, bos_token=END, unk_token=END).save_pretrained(folder)
    return folder


def wordpieces() -> list[str]:
    """Google's special pieces, then letters of several scripts at the beginning of a word and inside one, and words."""
    letters = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789äéñßøїя中文の.,!?'-"]
    words = ["the", "cat", "sat", "##at", "un", "##able", "über", "ΣΊΣΥΦΟΣ".lower(), "New", "york"]
    specials = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*specials, *letters, *(f"##{letter}" for letter in letters), *words]


def bert_folder(folder: Path, architecture: str = "BertModel", lower: bool = True, **changes: Any) -> Path:
    import transformers

    pieces = wordpieces()
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    config = transformers.BertConfig(
        **{**sizes, "vocab_size": len(pieces) + 3, "max_position_embeddings": 40, "id2label": LABELS, **changes}
    )
    torch.manual_seed(4)
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    ids = {piece: number for number, piece in enumerate(pieces)}
    transformers.BertTokenizer(vocab=ids, do_lower_case=lower).save_pretrained(folder)
    return folder


def sentence_folder(folder: Path, pooling: str = "mean_tokens", normalize: bool = True, longest: int = 12) -> Path:
    """A folder as sentence-transformers writes it."""
    bert_folder(folder)
    kinds = ("Transformer", "Pooling", "Normalize") if normalize else ("Transformer", "Pooling")
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest, "do_lower_case": False}))
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **modes}))
    return folder


def vit_folder(folder: Path, **changes: Any) -> Path:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    config = ViTConfig(**{**sizes, "image_size": 16, "patch_size": 4, "id2label": LABELS, **changes})
    torch.manual_seed(4)
    model = ViTForImageClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder

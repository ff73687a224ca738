"""Build the model that a configuration describes."""

from typing import assert_never

from heedful.config import ModelConfig
from heedful.models.bert import BERT
from heedful.models.clip import CLIP
from heedful.models.convolutional import Convolutional
from heedful.models.gpt import GPT
from heedful.models.predictor import AnyPredictor
from heedful.models.recurrent import Recurrent
from heedful.models.seq2seq import AnySeq2Seq, require_seq2seq
from heedful.models.size import Vocabulary
from heedful.models.t5 import T5
from heedful.models.transformer import Transformer
from heedful.models.vit import ViT


def build_model(config: ModelConfig, vocabulary: Vocabulary) -> AnyPredictor:
    """A model with random weights from PyTorch's generator."""
    match config.family:
        case "transformer":
            return Transformer(config, vocabulary.source, vocabulary.target, vocabulary.pad_id)
        case "recurrent":
            return Recurrent(config, vocabulary.source, vocabulary.target, vocabulary.pad_id)
        case "convolutional":
            return Convolutional(config, vocabulary.source, vocabulary.target, vocabulary.pad_id)
        case "gpt":
            return GPT(config, vocabulary.target, vocabulary.pad_id)
        case "bert":
            return BERT(config, vocabulary.target, vocabulary.pad_id)
        case "t5":
            return T5(config, vocabulary.source, vocabulary.target, vocabulary.pad_id)
        case "vit":
            return ViT(config)
        case "clip":
            return CLIP(config, vocabulary.target, vocabulary.pad_id)
        case _:
            assert_never(config.family)


def build_seq2seq(config: ModelConfig, vocabulary: Vocabulary) -> AnySeq2Seq:
    """The same, of a family that writes a target token by token."""
    return require_seq2seq(build_model(config, vocabulary), f"model.family '{config.family}'")

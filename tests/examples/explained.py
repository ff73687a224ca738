"""Models that have learnt nothing, for pages whose text and numbers do not depend on it."""

import torch

from heedful.config import ModelConfig, SearchConfig
from heedful.models.build import build_model
from heedful.models.seq2seq import require_seq2seq
from heedful.models.size import Vocabulary
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import Translator


def untrained(config: ModelConfig, search: SearchConfig) -> Translator:
    """A model of this shape with random weights, with the vocabulary of a built-in model."""
    tokenizers = RunFolder.open(find_model("en-de")).tokenizers()
    torch.manual_seed(7)
    size, target = tokenizers.target.vocabulary_size, tokenizers.target
    model = require_seq2seq(build_model(config, Vocabulary(size, size, target.pad_id, target.eos_id)).eval(), "this")
    return Translator.from_model(model, tokenizers, search)

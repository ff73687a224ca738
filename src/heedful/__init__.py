"""heedful: the Transformer of "Attention Is All You Need", from two text files to a translator.

>>> from heedful import Translator, train
>>> result = train(source="train.en", target="train.de", out="runs/en-de")  # doctest: +SKIP
>>> Translator.load(result.folder).translate(["A man rides a horse."])  # doctest: +SKIP
"""

import logging
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from heedful.config import Experiment
from heedful.errors import (
    ConfigError,
    DataError,
    Diverged,
    FolderError,
    HeedfulError,
    OutOfSpace,
    UserError,
    missing_library,
)

# A program that uses heedful decides what is logged and where; without a handler, Python would print to stderr.
logging.getLogger("heedful").addHandler(logging.NullHandler())

# PyTorch's threads spin while they wait, which made them five times slower beside other programs. This is read when
# PyTorch is imported, so it is set here, before any module of heedful can do that. Your own choice stays.
if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from heedful.attention.head_names import Head
    from heedful.attention.record import Attention, AttentionRecord, record_attention
    from heedful.classification.classifier import Classification, Classifier, TaggedText, TaggedWord
    from heedful.classification.picture_classifier import PictureClassification, PictureClassifier
    from heedful.completion.completer import Completer, Completion, Continuation, TextLook
    from heedful.data.doctor import CleanedCorpus, Diagnosis, clean_corpus, doctor
    from heedful.data.label_doctor import LabelDiagnosis, doctor_labels
    from heedful.data.picture_doctor import PictureDiagnosis, doctor_pictures
    from heedful.data.text_doctor import TextDiagnosis, doctor_text
    from heedful.embedding.embedder import Embedder, SimilarText
    from heedful.evaluation.compare import compare
    from heedful.evaluation.comparison_page import comparison_page
    from heedful.evaluation.evaluate import Evaluation, evaluate
    from heedful.formats.export import export
    from heedful.formats.parity import Proof
    from heedful.metrics import Score
    from heedful.metrics.comparison import Comparison
    from heedful.text import Tokenizer
    from heedful.text.constraints import Constraints
    from heedful.training.train import TrainingResult, resume, train
    from heedful.translation.pivot import PivotTranslator
    from heedful.translation.result import Alternative, Look, Translation
    from heedful.translation.translator import Translator

    __version__: str

__all__ = [
    "Alternative",
    "Attention",
    "AttentionRecord",
    "Classification",
    "Classifier",
    "CleanedCorpus",
    "Comparison",
    "Completer",
    "Completion",
    "ConfigError",
    "Constraints",
    "Continuation",
    "DataError",
    "Diagnosis",
    "Diverged",
    "Embedder",
    "Evaluation",
    "Experiment",
    "FolderError",
    "Head",
    "HeedfulError",
    "LabelDiagnosis",
    "Look",
    "OutOfSpace",
    "PictureClassification",
    "PictureClassifier",
    "PictureDiagnosis",
    "PivotTranslator",
    "Proof",
    "Score",
    "SimilarText",
    "TaggedText",
    "TaggedWord",
    "TextDiagnosis",
    "TextLook",
    "Tokenizer",
    "TrainingResult",
    "Translation",
    "Translator",
    "UserError",
    "__version__",
    "clean_corpus",
    "compare",
    "comparison_page",
    "doctor",
    "doctor_labels",
    "doctor_pictures",
    "doctor_text",
    "evaluate",
    "export",
    "record_attention",
    "resume",
    "train",
]

# These import PyTorch or other libraries that take seconds, so they are imported when they are first used.
_LAZY = {
    "Alternative": "heedful.translation.result",
    "Attention": "heedful.attention.record",
    "AttentionRecord": "heedful.attention.record",
    "Classification": "heedful.classification.classifier",
    "Classifier": "heedful.classification.classifier",
    "CleanedCorpus": "heedful.data.doctor",
    "Comparison": "heedful.metrics.comparison",
    "Completer": "heedful.completion.completer",
    "Completion": "heedful.completion.completer",
    "Constraints": "heedful.text.constraints",
    "Continuation": "heedful.completion.completer",
    "Diagnosis": "heedful.data.doctor",
    "Embedder": "heedful.embedding.embedder",
    "Evaluation": "heedful.evaluation.evaluate",
    "Head": "heedful.attention.head_names",
    "LabelDiagnosis": "heedful.data.label_doctor",
    "Look": "heedful.translation.result",
    "PictureClassification": "heedful.classification.picture_classifier",
    "PictureClassifier": "heedful.classification.picture_classifier",
    "PictureDiagnosis": "heedful.data.picture_doctor",
    "PivotTranslator": "heedful.translation.pivot",
    "Proof": "heedful.formats.parity",
    "Score": "heedful.metrics",
    "SimilarText": "heedful.embedding.embedder",
    "TaggedText": "heedful.classification.classifier",
    "TaggedWord": "heedful.classification.classifier",
    "TextDiagnosis": "heedful.data.text_doctor",
    "TextLook": "heedful.completion.completer",
    "Tokenizer": "heedful.text",
    "TrainingResult": "heedful.training.train",
    "Translation": "heedful.translation.result",
    "Translator": "heedful.translation.translator",
    "clean_corpus": "heedful.data.doctor",
    "compare": "heedful.evaluation.compare",
    "comparison_page": "heedful.evaluation.comparison_page",
    "doctor": "heedful.data.doctor",
    "doctor_labels": "heedful.data.label_doctor",
    "doctor_pictures": "heedful.data.picture_doctor",
    "doctor_text": "heedful.data.text_doctor",
    "evaluate": "heedful.evaluation.evaluate",
    "export": "heedful.formats.export",
    "record_attention": "heedful.attention.record",
    "resume": "heedful.training.train",
    "train": "heedful.training.train",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("heedful")
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            raise missing_library(f"heedful.{name}", error.name) from error
    raise AttributeError(f"module 'heedful' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__

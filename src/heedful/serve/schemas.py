"""The bodies of requests and answers: LibreTranslate's and our own."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Term = Annotated[str, Field(min_length=1, max_length=1000)]
Terms = Annotated[dict[Term, Term], Field(max_length=100, description="source terms and their required translations")]


class ErrorAnswer(BaseModel):
    """The answer to every request that fails."""

    error: str


# LibreTranslate's API


class LibreRequest(BaseModel):
    """Text to translate; unknown fields are ignored."""

    q: Text | Annotated[list[str], Field(min_length=1)] = Field(description="one text, or a list of texts")
    source: Text = Field(description="a language code from /languages, or auto", examples=["en"])
    target: Text = Field(examples=["de"])
    format: str | None = Field(None, json_schema_extra={"enum": ["text", "html", None]}, description="default: text")
    alternatives: int = Field(0, ge=0, description="number of alternative translations")
    api_key: str | None = None


Unchanged = Literal["target", "unknown"]


class DetectedLanguage(BaseModel):
    """A language that a text may be in, and the probability in percent."""

    confidence: float = Field(ge=0, le=100)
    language: str


class LibreAnswer(BaseModel):
    """For a list of texts, every field is a list; fields that were not requested are left out."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = Field(None)  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    via: str | list[str | None] | None = Field(None, description="the language that two models went through")
    unchanged: Unchanged | list[Unchanged | None] | None = Field(
        None,
        description="why a text whose language was to be detected is returned as it is: it is in the target language "
        "already, or in none of the served languages",
    )


class FileAnswer(BaseModel):
    """The address of the translated file, valid for ten minutes, and notes on what it does not keep."""

    translatedFileUrl: str  # noqa: N815
    notes: list[str]


class DetectRequest(BaseModel):
    """A text whose language is to be detected."""

    q: Text
    api_key: str | None = None


class LanguageAnswer(BaseModel):
    """A language, and the languages it can be translated into."""

    code: str
    name: str
    targets: list[str]


class HealthAnswer(BaseModel):
    """Whether the server takes requests."""

    status: Literal["ok"] = "ok"


class DefaultLanguage(BaseModel):
    """A language that a page starts with."""

    code: str
    name: str


class DefaultLanguages(BaseModel):
    """The two languages that a page starts with."""

    source: DefaultLanguage
    target: DefaultLanguage


class FrontendSettings(BaseModel):
    """The settings that LibreTranslate's page requests when it starts."""

    charLimit: int  # noqa: N815
    frontendTimeout: int = 500  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool = False
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: DefaultLanguages


# Our own API


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ModelSelector(_StrictModel):
    """Selects a model by its name or its languages; not needed if there is only one."""

    model: Text | None = Field(None, description="a name from /v1/models")
    source: Text | None = Field(None, examples=["en"])
    target: Text | None = Field(None, examples=["de"])


class TranslateRequest(ModelSelector):
    """Texts, and what to report about their translations."""

    text: Text | Texts
    n_best: int = Field(1, ge=1, le=10)
    beam: int | None = Field(None, ge=1, le=32, description="beam size; default: that of the model")
    confidence: bool = Field(False, description="report the model's confidence in each word")
    alignments: bool = Field(False, description="report which source word each target word comes from")
    glossary: Terms = {}
    prefix: str = Field(
        "", max_length=1000, description="the beginning of every translation; for a text of one sentence"
    )
    diverse: bool = Field(False, description="make the translations differ, especially right after the prefix")
    stream: bool = Field(False, description="answer with server-sent events, one for each sentence when it is ready")


class WordAnswer(BaseModel):
    """A word, and the mean and the lowest probability of its tokens."""

    word: str
    mean: float
    least: float


class AlternativeAnswer(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float
    log_prob: float
    finished: bool = Field(description="false: cut off at the maximum length")
    repeats: bool = Field(description="true: it repeats itself many times in a row")
    unsure: bool = Field(description="true: the model hesitated between many options; check this translation")
    words: list[WordAnswer] | None = None
    alignment: list[tuple[int, int]] | None = Field(
        None, description="pairs of a source word and a target word, from 0"
    )


class SentenceAnswer(BaseModel):
    """A sentence: its position in the text, its translation and the alternatives."""

    start: int
    end: int
    text: str
    redone: bool = Field(description="true: the first translation looped or did not end, and was replaced")
    pivot: str | None = Field(None, description="the sentence in the language that two models went through")
    failed_terms: list[str] | None = Field(
        None, description="terms of the glossary that were given up, because they would have damaged the sentence"
    )
    alternatives: list[AlternativeAnswer]


class TextAnswer(BaseModel):
    """The translation of a text, and its sentences."""

    text: str
    sentences: list[SentenceAnswer]


class TranslateAnswer(BaseModel):
    """The translations of all texts."""

    model: str = Field(description="its name, or the names of two that translated one after the other: fr-en+en-de")
    source: str
    via: str | None = Field(None, description="the language that two models went through; not there: one translated")
    target: str
    texts: list[TextAnswer]


class ScoreRequest(ModelSelector):
    """Texts, and a translation of each."""

    texts: Texts
    translations: Texts


class ScoreAnswer(BaseModel):
    """The log probability of a translation: in total, per token, and by word."""

    log_prob: float
    per_piece: float
    pieces: list[str]
    log_probs: list[float]
    words: list[WordAnswer]


class ScoresAnswer(BaseModel):
    """One score for each pair."""

    model: str
    scores: list[ScoreAnswer]


class ModelAnswer(BaseModel):
    """A loaded model."""

    name: str
    source: str
    target: str
    engine: str
    weights: str = Field(description="the beginning of their checksum; it changes when a new version is loaded")


class PivotAnswer(BaseModel):
    """Two models that translate one after the other, through the language that they share."""

    source: str
    via: str
    target: str
    models: list[str]


class ModelsAnswer(BaseModel):
    """All loaded models, and the pairs of languages for which there are two."""

    models: list[ModelAnswer]
    pivots: list[PivotAnswer]
    classification: list[str] = Field([], description="names of the models that label texts, for /v1/classify")
    pictures: list[str] = Field([], description="names of the models that label pictures, for /v1/classify")
    embedding: list[str] = Field([], description="names of the models that turn texts into vectors, for /v1/embed")
    completion: list[str] = Field([], description="names of the models that continue texts, for /v1/complete")
    finding: list[str] = Field([], description="names of the models that find pictures, for /v1/find")


class CompleteRequest(_StrictModel):
    """The beginning of a text, and how to continue it; what is missing is as the model was trained to be used."""

    model: Text | None = Field(None, description="a name from /v1/models, under completion")
    prompt: str = Field(description="an empty one begins a new line", examples=["ROMEO:"])
    n: int = Field(1, ge=1, le=10, description="number of continuations")
    length: int | None = Field(None, ge=1, le=2000, description="most new tokens")
    temperature: float | None = Field(None, ge=0, le=100, description="0: always the most probable token")
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="draw from this many likely tokens; 0: from all")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from likely tokens with this probability together")
    seed: int | None = Field(None, ge=0, lt=2**63, description="the same seed gives the same text")
    stream: bool = Field(False, description="answer with server-sent events, one for each piece of the text")


class ContinuationAnswer(BaseModel):
    """One way to continue the text."""

    text: str
    log_prob: float
    tokens: int
    finished: bool = Field(description="false: cut off at the length")


class CompleteAnswer(BaseModel):
    """All continuations of a text."""

    model: str
    prompt: str
    continuations: list[ContinuationAnswer]


class PieceAnswer(BaseModel):
    """A piece of the continuation with this number."""

    index: int
    text: str


class EndAnswer(BaseModel):
    """All continuations are complete."""

    model: str


class ClassifyRequest(_StrictModel):
    """Texts to label, or whose words to tag."""

    model: Text | None = Field(None, description="a name from /v1/models, under classification")
    text: str | Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="a text or several", examples=["Where is my parcel?"]
    )


class TaggedWordAnswer(BaseModel):
    """A word and its most probable tag."""

    word: str
    tag: str
    probability: float


class LabelledTextAnswer(BaseModel):
    """A text with its most probable label and the probability of each, or with its words and their tags."""

    text: str
    label: str | None = None
    probability: float | None = None
    probabilities: dict[str, float] | None = None
    words: list[TaggedWordAnswer] | None = None


class LabelledPictureAnswer(BaseModel):
    """A picture with its most probable label and the probability of each."""

    picture: str = Field(description="the name of its file")
    label: str
    probability: float
    probabilities: dict[str, float]


class ClassifyAnswer(BaseModel):
    """All texts or all pictures, in their order."""

    model: str
    texts: list[LabelledTextAnswer] | None = None
    pictures: list[LabelledPictureAnswer] | None = None


class FindRequest(_StrictModel):
    """What pictures should show, in words, or the served picture that they should be like; one of the two."""

    model: Text | None = Field(None, description="a name from /v1/models, under finding")
    text: Text | None = Field(None, description="what the pictures should show", examples=["a red car"])
    like: Text | None = Field(None, description="the name of a served picture, as an answer has it")
    n: int = Field(10, ge=1, le=100, description="how many pictures")


class FoundPictureAnswer(BaseModel):
    """A served picture, and the cosine of the angle between its vector and that of the query."""

    picture: str = Field(description="the name of its file below its folder")
    score: float
    thumbnail: str = Field(description="the address of a small JPEG copy, relative to that of the server")


class FindAnswer(BaseModel):
    """The pictures that fit best, the best first."""

    model: str
    pictures: list[FoundPictureAnswer]


class EmbedRequest(_StrictModel):
    """Texts to turn into vectors."""

    model: Text | None = Field(None, description="a name from /v1/models, under embedding")
    text: str | Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="a text or several", examples=["Where is my parcel?"]
    )


class EmbedAnswer(BaseModel):
    """A vector for each text, in their order."""

    model: str
    dimensions: int = Field(description="the length of each vector")
    vectors: list[list[float]]


class AttentionRequest(ModelSelector):
    """A sentence whose attention is to be shown, and its translation; without one, the model translates it."""

    text: Text
    translation: Text | None = Field(None, description="the translation to explain, while all heads are on")
    n_best: int = Field(1, ge=1, le=10)
    glossary: Terms = {}
    heads_off: list[Text] = Field([], max_length=1000, description="heads to switch off, for example encoder.1.2")
    rank: bool = Field(False, description="also say what the translation loses without each head, as `costs`")

"""What goes over the wire: LibreTranslate's requests and answers, and our own."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Term = Annotated[str, Field(min_length=1, max_length=1000)]
Terms = Annotated[dict[Term, Term], Field(max_length=100, description="source terms and what must stand for them")]


class Failure(BaseModel):
    """Why there is no answer."""

    error: str


# LibreTranslate's


class LibreRequest(BaseModel):
    """Text to translate; fields that are not known here are passed over."""

    q: Text | Annotated[list[str], Field(min_length=1)] = Field(description="one text, or a list of them")
    source: Text = Field(description="a language of /languages, or auto", examples=["en"])
    target: Text = Field(examples=["de"])
    format: str | None = Field(
        None, json_schema_extra={"enum": ["text", "html", None]}, description="text if not given"
    )
    alternatives: int = Field(0, ge=0, description="how many other translations to give")
    api_key: str | None = None


class Detected(BaseModel):
    """A language that a text may be in."""

    confidence: float = Field(ge=0, le=100)
    language: str


class LibreAnswer(BaseModel):
    """Of a list, every field is a list; what was not asked for is left out."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detected | list[Detected] | None = Field(None)  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class FileAnswer(BaseModel):
    """Where the translated file is, for ten minutes, and what of it could not be kept."""

    translatedFileUrl: str  # noqa: N815
    notes: list[str]


class DetectRequest(BaseModel):
    """A text whose language is to be found."""

    q: Text
    api_key: str | None = None


class LanguageFacts(BaseModel):
    """A language, and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """Whether requests are taken."""

    status: Literal["ok"] = "ok"


class Side(BaseModel):
    """A language to begin with."""

    code: str
    name: str


class Sides(BaseModel):
    """The two that a page begins with."""

    source: Side
    target: Side


class Settings(BaseModel):
    """What LibreTranslate's page asks for when it starts."""

    charLimit: int  # noqa: N815
    frontendTimeout: int = 500  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool = False
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: Sides


# Our own


class _Ours(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Which(_Ours):
    """Which model: by its name, by its languages, or the only one there is."""

    model: Text | None = Field(None, description="a name of /v1/models")
    source: Text | None = Field(None, examples=["en"])
    target: Text | None = Field(None, examples=["de"])


class TranslateRequest(Which):
    """Texts, and what to tell of their translations."""

    text: Text | Texts
    n_best: int = Field(1, ge=1, le=10)
    beam: int | None = Field(None, ge=1, le=32, description="hypotheses kept; else the model's own number")
    confidence: bool = Field(False, description="how sure the model is of each word")
    alignments: bool = Field(False, description="which source word each word comes from")
    glossary: Terms = {}
    prefix: str = Field(
        "", max_length=1000, description="what every translation begins with; for a text of one sentence"
    )
    diverse: bool = Field(False, description="have translations differ from each other, first of all after the prefix")
    stream: bool = Field(False, description="as server-sent events, a sentence each as soon as it is there")


class Word(BaseModel):
    """A word, and the probabilities of its pieces."""

    word: str
    mean: float
    least: float


class Option(BaseModel):
    """One way to say a sentence."""

    text: str
    score: float
    log_prob: float
    finished: bool = Field(description="false: cut off at the maximum length")
    repeats: bool = Field(description="true: it says the same many times in a row")
    unsure: bool = Field(description="true: the model had many other ideas; it had better be checked")
    words: list[Word] | None = None
    alignment: list[tuple[int, int]] | None = Field(
        None, description="pairs of a source word and a target word, from 0"
    )


class SentenceAnswer(BaseModel):
    """A sentence: where it stands in its text, and all that was found for it."""

    start: int
    end: int
    text: str
    redone: bool = Field(description="true: the first search found one that loops or does not end")
    alternatives: list[Option]


class TextAnswer(BaseModel):
    """A text as a whole, and its sentences."""

    text: str
    sentences: list[SentenceAnswer]


class TranslateAnswer(BaseModel):
    """What became of each text."""

    model: str
    source: str
    target: str
    texts: list[TextAnswer]


class ScoreRequest(Which):
    """Texts and translations of them."""

    texts: Texts
    translations: Texts


class ScoreAnswer(BaseModel):
    """How probable a translation is to the model, as a whole, by pieces and by words."""

    log_prob: float
    per_piece: float
    pieces: list[str]
    log_probs: list[float]
    words: list[Word]


class ScoresAnswer(BaseModel):
    """One for each pair."""

    model: str
    scores: list[ScoreAnswer]


class ModelFacts(BaseModel):
    """A model that is loaded."""

    name: str
    source: str
    target: str
    engine: str
    weights: str = Field(description="the beginning of their checksum: another one after a new version was loaded")


class ModelsAnswer(BaseModel):
    """All models."""

    models: list[ModelFacts]


class AttentionRequest(Which):
    """A sentence to look into."""

    text: Text
    n_best: int = Field(1, ge=1, le=10)
    heads_off: list[Text] = Field([], max_length=1000, description="heads to switch off, say encoder.1.2")

"""LibreTranslate's API, so that its clients work with this server."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from heedful.documents import SUFFIXES
from heedful.documents.segmentation import TranslatedSentence
from heedful.serve.batcher import JobItem
from heedful.serve.http_errors import RequestError
from heedful.serve.jobs import TranslationJob
from heedful.serve.model_registry import PivotModel, ServedModel
from heedful.serve.openapi import describe_body, describe_errors
from heedful.serve.request_body import Parameters
from heedful.serve.schemas import (
    DefaultLanguage,
    DefaultLanguages,
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    HealthAnswer,
    LanguageAnswer,
    LibreAnswer,
    LibreRequest,
    Unchanged,
)
from heedful.serve.segments import SegmentedTexts
from heedful.serve.service import Service, ServiceDependency, can_translate_files, run_in_thread_if_long
from heedful.text.html_fragments import Markup
from heedful.text.languages import Detection, language_name
from heedful.translation.result import Translation

_MOST_ALIGNED = 100  # sentences; alignment takes longer than translation
_SHOWN = 40  # characters of an unknown name that an error repeats
_DETECTABLE = 40  # characters that suffice to detect the language of a text, as in LibreTranslate

router = APIRouter(tags=["LibreTranslate"])


@router.post(
    "/translate",
    openapi_extra=describe_body(LibreRequest, form=True),
    response_model_exclude_none=True,
    responses=describe_errors(400, 408, 413, 415, 429, 503),
)
async def translate(
    request: Request, service: ServiceDependency, body: Annotated[LibreRequest, Depends(Parameters(LibreRequest))]
) -> LibreAnswer:
    """Translate one text or several."""
    service.admit(request, body.api_key)
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts)
    if body.alternatives > service.limits.alternatives:
        limit = service.limits.alternatives
        raise RequestError(400, f"Invalid request: alternatives parameter must be <= {limit}")
    if body.format not in (None, "", "text", "html"):
        raise RequestError(400, f"{body.format[:_SHOWN]} format is not supported")
    meant = service.registry.match_language
    body = body.model_copy(update={"source": meant(body.source), "target": meant(body.target)})
    guesses = _detect_sources(service, texts, body.target) if body.source == "auto" else None
    detected = [guess.language for guess in guesses] if guesses else None
    sources = [guess.source for guess in guesses] if guesses else [body.source] * len(texts)
    unchanged = [guess.unchanged for guess in guesses] if guesses else []
    found = await _translate_by_source(service, request, body, list(zip(texts, sources, strict=True)))
    answers = [next(found[source]) for source in sources]
    through = [_find_via(service, source, body.target) for source in sources]
    if isinstance(body.q, str):
        (best, *others) = answers[0]
        return LibreAnswer(
            translatedText=best,
            detectedLanguage=detected[0] if detected else None,
            alternatives=others if body.alternatives else None,
            via=through[0],
            unchanged=unchanged[0] if unchanged else None,
        )
    return LibreAnswer(
        translatedText=[best for best, *_ in answers],
        detectedLanguage=detected,
        alternatives=[others for _, *others in answers] if body.alternatives else None,
        via=through if any(through) else None,
        unchanged=unchanged if any(unchanged) else None,
    )


@router.post(
    "/detect",
    openapi_extra=describe_body(DetectRequest, form=True),
    responses=describe_errors(400, 408, 413, 415, 429),
)
async def detect(
    request: Request, service: ServiceDependency, body: Annotated[DetectRequest, Depends(Parameters(DetectRequest))]
) -> list[DetectedLanguage]:
    """Detect which of the served languages a text is in.

    Confidence is the probability in percent. If all together have less than 50, the text is probably in none of them.
    """
    service.admit(request, body.api_key)
    service.check_texts([body.q])
    possible = list(service.registry.targets)
    return _list_languages(service.detector.detect(body.q, possible), possible)


@router.get("/languages", responses=describe_errors())
async def languages(service: ServiceDependency) -> list[LanguageAnswer]:
    """List all languages, and the languages they can be translated into."""
    known = service.registry.targets.items()
    return [LanguageAnswer(code=code, name=language_name(code), targets=targets) for code, targets in known]


@router.get("/health", responses=describe_errors())
async def health() -> HealthAnswer:
    """Report that the server takes requests."""
    return HealthAnswer()


@router.get("/frontend/settings", responses=describe_errors())
async def settings(service: ServiceDependency) -> FrontendSettings:
    """Return the settings that LibreTranslate's page requests when it starts."""
    first = service.registry.models[0]
    source, target = (DefaultLanguage(code=code, name=language_name(code)) for code in (first.source, first.target))
    suffixes = list(SUFFIXES) if can_translate_files() else []
    return FrontendSettings(
        charLimit=service.limits.characters,
        apiKeys=service.keys.required,
        keyRequired=service.keys.required,
        filesTranslation=bool(suffixes),
        supportedFilesFormat=suffixes,
        language=DefaultLanguages(source=source, target=target),
    )


async def _translate_by_source(
    service: Service, request: Request, body: LibreRequest, texts: Sequence[tuple[str, str]]
) -> dict[str, Iterator[list[str]]]:
    """Translations and their alternatives, by source language. A text in the target language is kept as it is."""
    html = body.format == "html"
    groups: dict[str, list[str]] = {}
    for text, source in texts:
        groups.setdefault(source, []).append(text)
    unchanged = groups.pop(body.target, []) if body.target in service.registry.targets else []
    works = [
        await run_in_thread_if_long(
            sum(map(len, group)), _LanguageGroup, find_model_between(service, source, body.target), group, body
        )
        for source, group in groups.items()
    ]
    beam = max((work.job.search.beam for work in works), default=1)
    service.check_items([item for work in works for item in (*work.plain, *work.mixed)], beam)
    jobs = [(work.job, work.plain) for work in works]
    jobs += [(await work.make_mixed_job(), work.mixed) for work in works if work.mixed]
    results: Iterator[list[Translation]] = iter(await service.run_jobs(request, jobs))
    for work in works:
        service.metrics.count_characters(work.model.name, work.size)
    plain = [next(results) for _ in works]
    mixed = [next(results) if work.mixed else [] for work in works]
    found = {work.model.source: iter(work.rank_texts(*both)) for work, *both in zip(works, plain, mixed, strict=True)}
    return {body.target: iter([[_sanitise(text) if html else text] for text in unchanged])} | found


class _LanguageGroup:
    """The texts of a request that are in one language."""

    def __init__(self, model: ServedModel | PivotModel, texts: Sequence[str], body: LibreRequest) -> None:
        self.model = model
        self.size = sum(map(len, texts))
        self.job = TranslationJob(model, n_best=body.alternatives + 1)
        self._segmented = SegmentedTexts(texts, model.source, html=body.format == "html")
        self.plain: list[JobItem] = self.job.make_items(self._segmented.sentences)
        self.mixed: list[JobItem] = self.job.make_items(self._segmented.mixed)

    async def make_mixed_job(self) -> TranslationJob:
        """The job for sentences with inline markup: with alignments, if there are few and the model can align."""
        few = len(self.mixed) <= _MOST_ALIGNED
        return replace(self.job, alignments=few and await asyncio.to_thread(self.model.can_align))

    def rank_texts(self, plain: Sequence[Translation], mixed: Sequence[Translation]) -> list[list[str]]:
        """The translations of each text, best first."""
        ranks = [
            self._segmented.join(
                [_pick_rank(one, rank).text for one in plain],
                self.model.target,
                [_pick_rank(one, rank) for one in mixed],
            )
            for rank in range(self.job.n_best)
        ]
        return [list(dict.fromkeys(several)) for several in zip(*ranks, strict=True)]


def _pick_rank(translation: Translation, rank: int) -> TranslatedSentence:
    """The alternative of this rank, or the last one."""
    alternatives = translation.alternatives
    if not alternatives:
        return TranslatedSentence(translation.text)
    one = alternatives[min(rank, len(alternatives) - 1)]
    return TranslatedSentence(one.text, tuple((link[0], link[1]) for link in one.alignment or ()))


def _sanitise(page: str) -> str:
    """An HTML page that is not translated, without scripts and the like."""
    markup = Markup(page)
    return markup.join(markup.texts)


def detect_source(service: Service, texts: Sequence[str], target: str) -> str:
    """The language to translate from into this one; an error if there is nothing to translate."""
    possible = _list_sources(service, target)
    guess = _guess_source(service, "\n".join(texts), possible, target)
    match guess.unchanged:
        case None:
            return guess.source
        case "target":
            raise RequestError(400, f"the text seems to be {language_name(target)} already; choose its language")
        case "unknown":
            raise RequestError(400, "the text seems to be in none of the served languages; choose its language")


@dataclass(frozen=True, slots=True)
class _SourceGuess:
    """The language that a text is translated from: that of the target if it is returned as it is."""

    source: str
    language: DetectedLanguage
    unchanged: Unchanged | None
    sure: bool


def _detect_sources(service: Service, texts: Sequence[str], target: str) -> list[_SourceGuess]:
    """The language of each text; if a very short text is not sure, the language of all texts together."""
    possible = _list_sources(service, target)
    together = _guess_source(service, "\n".join(texts), possible, target)
    own = [_guess_source(service, text, possible, target) for text in texts]
    return [
        guess if guess.sure or len(text) > _DETECTABLE else together for guess, text in zip(own, texts, strict=True)
    ]


def _list_sources(service: Service, target: str) -> list[str]:
    """The target itself and the languages that can be translated into it."""
    possible = [code for code, targets in service.registry.targets.items() if target in (code, *targets)]
    if not possible:
        raise RequestError(400, f"{target[:_SHOWN]} is not supported")
    return possible


def _guess_source(service: Service, text: str, possible: Sequence[str], target: str) -> _SourceGuess:
    known = [code for code in possible if code != target]
    if known and not set(known) & set(service.detector.languages):  # nothing is known about any of them
        return _SourceGuess(known[0], DetectedLanguage(language=known[0], confidence=0.0), None, sure=False)
    found = service.detector.detect(text, possible)
    source = found.choose_source(target) if text.strip() else next(iter(known), target)
    language = next(one for one in _list_languages(found, possible) if not source or one.language == source)
    unchanged: Unchanged | None = "unknown" if not source else "target" if source == target else None
    return _SourceGuess(source or target, language, unchanged, sure=found.recognition == "sure")


def _list_languages(found: Detection, possible: Sequence[str]) -> list[DetectedLanguage]:
    """The possible languages, the likeliest first; those that cannot be detected have no confidence."""
    shares = dict(found.shares) | {code: 0.0 for code in possible if code not in dict(found.shares)}
    return [DetectedLanguage(language=code, confidence=round(100 * share, 1)) for code, share in shares.items()]


def _find_via(service: Service, source: str, target: str) -> str | None:
    """The language that two models go through."""
    model = service.registry.find(source, target)
    return (model and model.via) or None


def find_model_between(service: Service, source: str, target: str) -> ServedModel | PivotModel:
    """The model or the two models for these languages, or an error in LibreTranslate's words."""
    known = service.registry.targets
    for code in (source, target):
        if code not in known:
            raise RequestError(400, f"{code[:_SHOWN]} is not supported")
    if model := service.registry.find(source, target):
        return model
    names = f"{language_name(target)} ({target})", f"{language_name(source)} ({source})"
    raise RequestError(400, f"{names[0]} is not available as a target language from {names[1]}")

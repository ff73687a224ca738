"""LibreTranslate's endpoints, so that its clients need not know that this is another server."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request, Response

from heedful.documents.work import Rendered
from heedful.serve.batcher import Piece
from heedful.serve.body import read_body
from heedful.serve.document import gives, takes
from heedful.serve.orders import Translating
from heedful.serve.parts import Parts
from heedful.serve.refusal import Refused
from heedful.serve.service import Service, prepared, while_there
from heedful.serve.shelf import Model
from heedful.serve.wire import (
    Detected,
    DetectRequest,
    Health,
    LanguageFacts,
    LibreAnswer,
    LibreRequest,
    Settings,
    Side,
    Sides,
)
from heedful.text.languages import language_name
from heedful.translation import Translation

_MOST_ALIGNED = 100  # sentences; alignments take longer than translating
_SHOWN = 40  # characters of a name that is not known


def libre(service: Service, files: Sequence[str] = ()) -> APIRouter:
    """Its routes but that for files, of which it only tells that these kinds are taken."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate",
        openapi_extra=takes(LibreRequest, form=True),
        responses=gives(LibreAnswer, 400, 408, 413, 415, 429, 503),
        response_model=None,
    )
    async def translate(request: Request) -> Response:
        """Translate a text or several."""
        asked = await read_body(request, LibreRequest, service.limits)
        service.admit(request, asked.api_key)
        answer = await _translated(service, request, asked)
        return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")

    @router.post(
        "/detect",
        openapi_extra=takes(DetectRequest, form=True),
        responses=gives(list[Detected], 400, 408, 413, 415, 429),
        response_model=None,
    )
    async def detect(request: Request) -> list[dict[str, object]]:
        """Which of the languages that are served a text is in."""
        asked = await read_body(request, DetectRequest, service.limits)
        service.admit(request, asked.api_key)
        service.check_texts([asked.q])
        found = service.detector.detect(asked.q) or [(next(iter(service.shelf.targets)), 0.0)]
        return [_detected(code, share).model_dump() for code, share in found]

    @router.get("/languages", responses=gives(list[LanguageFacts]), response_model=None)
    async def languages() -> list[dict[str, object]]:
        """All languages, and those that they can be translated into."""
        known = service.shelf.targets.items()
        return [
            LanguageFacts(code=code, name=language_name(code), targets=targets).model_dump() for code, targets in known
        ]

    @router.get("/health", responses=gives(Health), response_model=None)
    async def health() -> dict[str, object]:
        """Whether the server takes requests."""
        return Health().model_dump()

    @router.get("/frontend/settings", responses=gives(Settings), response_model=None)
    async def settings() -> dict[str, object]:
        """What LibreTranslate's page asks for when it starts."""
        return _settings(service, files).model_dump()

    return router


async def _translated(service: Service, request: Request, asked: LibreRequest) -> LibreAnswer:
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    service.check_texts(texts)
    if asked.alternatives > (most := service.limits.alternatives):
        raise Refused(400, f"Invalid request: alternatives parameter must be <= {most}")
    detected = found_source(service, texts, asked.target) if asked.source == "auto" else None
    model = model_between(service, detected.language if detected else asked.source, asked.target)
    order = Translating(model, n_best=asked.alternatives + 1)
    size = sum(map(len, texts))
    parts, pieces, mixed = await prepared(size, _taken_apart, texts, order, asked.format == "html")
    service.check_pieces([*pieces, *mixed])
    aligned = bool(mixed) and len(mixed) <= _MOST_ALIGNED and await asyncio.to_thread(model.can_align)
    with service.submit(order, pieces) as one, service.submit(replace(order, alignments=aligned), mixed) as other:
        both = asyncio.gather(one.results(), other.results())
        found, marked = await service.in_time(while_there(request, both))
    service.metrics.translated(model.name, size)
    ranks = [
        parts.joined([_ranked(one, rank).text for one in found], model.target, [_ranked(one, rank) for one in marked])
        for rank in range(order.n_best)
    ]
    answers = [list(dict.fromkeys(several)) for several in zip(*ranks, strict=True)]
    if isinstance(asked.q, str):
        (best, *others) = answers[0]
        return LibreAnswer(
            translatedText=best, detectedLanguage=detected, alternatives=others if asked.alternatives else None
        )
    return LibreAnswer(
        translatedText=[best for best, *_ in answers],
        detectedLanguage=[detected] * len(texts) if detected else None,
        alternatives=[others for _, *others in answers] if asked.alternatives else None,
    )


def _taken_apart(texts: Sequence[str], order: Translating, markup: bool) -> tuple[Parts, list[Piece], list[Piece]]:
    parts = Parts(texts, order.model.source, markup=markup)
    return parts, order.pieces(parts.sentences), order.pieces(parts.mixed)


def _ranked(translation: Translation, rank: int) -> Rendered:
    """The translation of this rank, or the last there is."""
    several = translation.alternatives
    if not several:
        return Rendered(translation.text)
    one = several[min(rank, len(several) - 1)]
    return Rendered(one.text, tuple((link[0], link[1]) for link in one.alignment or ()))


def found_source(service: Service, texts: Sequence[str], target: str) -> Detected:
    """The likeliest of the languages that can be translated into this one."""
    able = [code for code, targets in service.shelf.targets.items() if target in targets]
    if not able:
        raise Refused(400, f"{target[:_SHOWN]} is not supported")
    text = "\n".join(texts)
    shares = dict(service.detector.detect(text))
    best = service.detector.detect(text, able)
    code = best[0][0] if best else able[0]
    return _detected(code, shares.get(code, 0.0))


def _detected(code: str, share: float) -> Detected:
    return Detected(confidence=round(100 * share, 1), language=code)


def model_between(service: Service, source: str, target: str) -> Model:
    """The model for these languages, or a refusal in LibreTranslate's words."""
    known = service.shelf.targets
    for code in (source, target):
        if code not in known:
            raise Refused(400, f"{code[:_SHOWN]} is not supported")
    if model := service.shelf.between(source, target):
        return model
    names = f"{language_name(target)} ({target})", f"{language_name(source)} ({source})"
    raise Refused(400, f"{names[0]} is not available as a target language from {names[1]}")


def _settings(service: Service, files: Sequence[str]) -> Settings:
    first = service.shelf.models[0]
    source, target = (Side(code=code, name=language_name(code)) for code in (first.source, first.target))
    needed = service.keys.needed
    return Settings(
        charLimit=service.limits.characters,
        apiKeys=needed,
        keyRequired=needed,
        filesTranslation=bool(files),
        supportedFilesFormat=list(files),
        language=Sides(source=source, target=target),
    )

"""LibreTranslate's endpoints, so that its clients need not know that this is another server."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fastapi import APIRouter, Request, Response

from heedful.documents.segmentation import TranslatedSentence
from heedful.serve.batcher import Piece
from heedful.serve.http_errors import Refused
from heedful.serve.jobs import Translating
from heedful.serve.model_registry import Model
from heedful.serve.openapi import gives, takes
from heedful.serve.request_body import read_values
from heedful.serve.schemas import (
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
from heedful.serve.segments import Parts
from heedful.serve.service import Service, prepared
from heedful.text.html_fragments import Markup
from heedful.text.language_names import language_name
from heedful.translation.result import Translation

_MOST_ALIGNED = 100  # sentences; alignments take longer than translating
_SHOWN = 40  # characters of a name that is not known
_TELLING = 40  # characters of a text whose language can be told, as LibreTranslate has it


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
        asked = await read_values(request, LibreRequest, service.limits)
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
        asked = await read_values(request, DetectRequest, service.limits)
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
    if asked.format not in (None, "", "text", "html"):
        raise Refused(400, f"{asked.format[:_SHOWN]} format is not supported")
    detected = _sources(service, texts, asked.target) if asked.source == "auto" else None
    sources = [found.language for found in detected] if detected else [asked.source] * len(texts)
    found = await _by_source(service, request, asked, list(zip(texts, sources, strict=True)))
    answers = [next(found[source]) for source in sources]
    if isinstance(asked.q, str):
        (best, *others) = answers[0]
        return LibreAnswer(
            translatedText=best,
            detectedLanguage=detected[0] if detected else None,
            alternatives=others if asked.alternatives else None,
        )
    return LibreAnswer(
        translatedText=[best for best, *_ in answers],
        detectedLanguage=detected,
        alternatives=[others for _, *others in answers] if asked.alternatives else None,
    )


async def _by_source(
    service: Service, request: Request, asked: LibreRequest, texts: Sequence[tuple[str, str]]
) -> dict[str, Iterator[list[str]]]:
    """What texts become, and their alternatives, by the language that they are in. Into its own, one stays as it is."""
    html = asked.format == "html"
    groups: dict[str, list[str]] = {}
    for text, source in texts:
        groups.setdefault(source, []).append(text)
    own = groups.pop(asked.target, []) if asked.target in service.shelf.targets else []
    jobs = [
        await prepared(sum(map(len, group)), _Job, model_between(service, source, asked.target), group, asked)
        for source, group in groups.items()
    ]
    service.check_pieces([piece for job in jobs for piece in (*job.plain, *job.mixed)])
    work = [part for job in jobs for part in ((job.order, job.plain), (await job.aligning(), job.mixed))]
    results: list[list[Translation]] = await service.all_done(request, work)
    for job in jobs:
        service.metrics.translated(job.model.name, job.size)
    both = zip(jobs, results[::2], results[1::2], strict=True)
    found = {job.model.source: iter(job.answers(plain, mixed)) for job, plain, mixed in both}
    return {asked.target: iter([[_cleaned(text) if html else text] for text in own])} | found


class _Job:
    """Texts of one language, on their way."""

    def __init__(self, model: Model, texts: Sequence[str], asked: LibreRequest) -> None:
        self.model = model
        self.size = sum(map(len, texts))
        self.order = Translating(model, n_best=asked.alternatives + 1)
        self._parts = Parts(texts, model.source, markup=asked.format == "html")
        self.plain: list[Piece] = self.order.pieces(self._parts.sentences)
        self.mixed: list[Piece] = self.order.pieces(self._parts.mixed)

    async def aligning(self) -> Translating:
        """What is done with sentences that have mark-up inside, so that it is known where that goes."""
        few = 0 < len(self.mixed) <= _MOST_ALIGNED
        return replace(self.order, alignments=few and await asyncio.to_thread(self.model.can_align))

    def answers(self, plain: Sequence[Translation], mixed: Sequence[Translation]) -> list[list[str]]:
        """What each text becomes, the best first."""
        ranks = [
            self._parts.joined(
                [_ranked(one, rank).text for one in plain], self.model.target, [_ranked(one, rank) for one in mixed]
            )
            for rank in range(self.order.n_best)
        ]
        return [list(dict.fromkeys(several)) for several in zip(*ranks, strict=True)]


def _ranked(translation: Translation, rank: int) -> TranslatedSentence:
    """The translation of this rank, or the last there is."""
    several = translation.alternatives
    if not several:
        return TranslatedSentence(translation.text)
    one = several[min(rank, len(several) - 1)]
    return TranslatedSentence(one.text, tuple((link[0], link[1]) for link in one.alignment or ()))


def _cleaned(page: str) -> str:
    """A page that is not to be translated, without what is left out of all."""
    markup = Markup(page)
    return markup.joined(markup.texts)


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


def _sources(service: Service, texts: Sequence[str], target: str) -> list[Detected]:
    """The language of each text; one that is too short to tell is in that of all together."""
    able = [code for code, targets in service.shelf.targets.items() if target in (code, *targets)]
    if not able:
        raise Refused(400, f"{target[:_SHOWN]} is not supported")

    def likeliest(text: str) -> Detected:
        code, share = next(iter(service.detector.detect(text, able)), (able[0], 0.0))
        return _detected(code, share)

    together = likeliest("\n".join(texts))
    return [likeliest(text) if len(text) > _TELLING else together for text in texts]


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

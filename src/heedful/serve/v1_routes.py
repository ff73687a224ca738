"""Our own endpoints: all that is known of a translation."""

from collections.abc import AsyncIterator, Sequence

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from heedful.evaluation.score_pairs import PairScore
from heedful.serve import schemas as wire
from heedful.serve.batcher import Piece, Ticket
from heedful.serve.http_errors import Refused
from heedful.serve.jobs import Looking, Scoring, Translating
from heedful.serve.model_registry import Model
from heedful.serve.openapi import gives, takes
from heedful.serve.request_body import read_body
from heedful.serve.segments import Parts
from heedful.serve.service import Service, prepared
from heedful.translation.confidence import WordConfidence
from heedful.translation.result import Alternative, Translation

_USUAL = (400, 404, 408, 413, 415, 429, 503)


def v1(service: Service) -> APIRouter:
    """Its routes."""
    router = APIRouter(prefix="/v1", tags=["heedful"])

    @router.post(
        "/translate",
        openapi_extra=takes(wire.TranslateRequest),
        responses=gives(wire.TranslateAnswer, *_USUAL, events=True),
        response_model=None,
    )
    async def translate(request: Request) -> Response:
        """Translate texts, sentence by sentence, with n-best lists, scores, word confidence and alignments.

        With `stream`, the answer is text/event-stream: a `sentence` each, in order, then `end`; or `error`.
        """
        return await _translated(service, request)

    @router.post(
        "/score",
        openapi_extra=takes(wire.ScoreRequest),
        responses=gives(wire.ScoresAnswer, *_USUAL),
        response_model=None,
    )
    async def score(request: Request) -> Response:
        """How probable given translations are."""
        return await _scored(service, request)

    @router.post(
        "/attention",
        openapi_extra=takes(wire.AttentionRequest),
        responses=gives(dict[str, object], *_USUAL),
        response_model=None,
    )
    async def attention(request: Request) -> Response:
        """What every head attended to; weights are 16 bits each, in base64."""
        return await _looked_into(service, request)

    @router.get("/models", responses=gives(wire.ModelsAnswer), response_model=None)
    async def models() -> Response:
        """The models that are loaded."""
        return _json(wire.ModelsAnswer(models=[_facts(model) for model in service.shelf.models]))

    return router


async def _translated(service: Service, request: Request) -> Response:
    asked = await read_body(request, wire.TranslateRequest, service.limits)
    service.admit(request)
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    service.check_texts(texts, [asked.prefix, *asked.glossary, *asked.glossary.values()])
    order = _order(_model(service, asked), asked)
    size = sum(map(len, texts))
    parts, pieces = await prepared(size, _taken_apart, texts, order)
    service.check_pieces(pieces)
    if asked.prefix and len(pieces) != 1:
        raise Refused(400, f"Invalid request: a prefix is for one sentence, but there are {len(pieces)}")
    if asked.stream:
        return _Stream(service, service.submit(order, pieces), order.model, parts)
    found = await service.done(request, order, pieces)
    service.metrics.translated(order.model.name, size)
    return _json(_answer(order.model, parts, found))


async def _scored(service: Service, request: Request) -> Response:
    asked = await read_body(request, wire.ScoreRequest, service.limits)
    service.admit(request)
    if len(asked.texts) != len(asked.translations):
        counts = f"{len(asked.texts)} texts but {len(asked.translations)} translations"
        raise Refused(400, f"Invalid request: there are {counts}; give one for each")
    service.check_texts([*asked.texts, *asked.translations])
    order = Scoring(_model(service, asked))
    size = sum(map(len, [*asked.texts, *asked.translations]))
    pieces = await prepared(size, order.pieces, asked.texts, asked.translations)
    service.check_pieces(pieces)
    found = await service.done(request, order, pieces)
    return _json(wire.ScoresAnswer(model=order.model.name, scores=[_score(one) for one in found]))


async def _looked_into(service: Service, request: Request) -> Response:
    asked = await read_body(request, wire.AttentionRequest, service.limits)
    service.admit(request)
    service.check_texts([asked.text])
    order = Looking(_model(service, asked), tuple(asked.heads_off), asked.n_best)
    pieces = await prepared(len(asked.text), order.pieces, [asked.text])
    (document,) = await service.done(request, order, pieces)
    return Response(document, media_type="application/json")


def _model(service: Service, asked: wire.Which) -> Model:
    """The one that is meant, if it is one."""
    fitting = [
        model
        for model in service.shelf.models
        if asked.model in (None, model.name)
        and asked.source in (None, model.source)
        and asked.target in (None, model.target)
    ]
    if not fitting:
        raise Refused(404, "no such model is loaded; /v1/models lists those that are")
    if len(fitting) > 1 and not (asked.source and asked.target):
        raise Refused(400, "Invalid request: several models fit; name one of /v1/models, or source and target")
    return fitting[0]


def _order(model: Model, asked: wire.TranslateRequest) -> Translating:
    terms = tuple(sorted(asked.glossary.items()))
    return Translating(
        model, asked.n_best, asked.beam, asked.confidence, asked.alignments, terms, asked.prefix, asked.diverse
    )


def _taken_apart(texts: Sequence[str], order: Translating) -> tuple[Parts, list[Piece]]:
    parts = Parts(texts, order.model.source)
    return parts, order.pieces(parts.sentences)


def _answer(model: Model, parts: Parts, found: Sequence[Translation]) -> wire.TranslateAnswer:
    joined = parts.joined([translation.text for translation in found], model.target)
    translations = iter(found)
    texts = [
        wire.TextAnswer(text=text, sentences=[_sentence(span, next(translations)) for span in sentences.spans])
        for text, sentences in zip(joined, parts.by_text, strict=True)
    ]
    return wire.TranslateAnswer(model=model.name, source=model.source, target=model.target, texts=texts)


def _sentence(span: tuple[int, int], found: Translation) -> wire.SentenceAnswer:
    several = [_option(alternative) for alternative in found.alternatives]
    return wire.SentenceAnswer(start=span[0], end=span[1], text=found.text, redone=found.redone, alternatives=several)


def _option(found: Alternative) -> wire.Option:
    return wire.Option(
        text=found.text,
        score=found.score,
        log_prob=found.log_prob,
        finished=found.finished,
        repeats=found.repeats,
        unsure=found.unsure,
        words=None if found.confidence is None else _words(found.confidence),
        alignment=None if found.alignment is None else [(link[0], link[1]) for link in found.alignment],
    )


def _words(words: Sequence[WordConfidence]) -> list[wire.Word]:
    return [wire.Word(word=word.word, mean=word.mean, least=word.least) for word in words]


def _score(found: PairScore) -> wire.ScoreAnswer:
    return wire.ScoreAnswer(
        log_prob=found.log_prob,
        per_piece=found.per_piece,
        pieces=list(found.pieces),
        log_probs=list(found.log_probs),
        words=_words(found.words),
    )


def _facts(model: Model) -> wire.ModelFacts:
    return wire.ModelFacts(
        name=model.name,
        source=model.source,
        target=model.target,
        engine=model.translator.engine.name,
        weights=model.weights,
    )


class _Stream(StreamingResponse):
    """Events. When the client goes, even before the first, the work ends, too."""

    def __init__(self, service: Service, ticket: Ticket, model: Model, parts: Parts) -> None:
        super().__init__(_events(service, ticket, model, parts), media_type="text/event-stream")
        self._ticket = ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        with self._ticket:
            await super().__call__(scope, receive, send)


async def _events(service: Service, ticket: Ticket, model: Model, parts: Parts) -> AsyncIterator[str]:
    """Each sentence as soon as it and those before it are there, while the time of the request is not over."""
    found: list[Translation] = []
    results, until = iter(ticket), service.deadline()
    try:
        for number, sentences in enumerate(parts.by_text):
            for span in sentences.spans:
                found.append(await service.in_time(next(results), until))
                yield _event("sentence", _sentence(span, found[-1]), f'{{"index":{number},')
        service.metrics.translated(model.name, sum(len(translation.source) for translation in found))
        yield _event("end", _answer(model, parts, found))
    except Refused as refused:
        yield _event("error", wire.Failure(error=refused.detail))


def _event(name: str, content: BaseModel, begin: str = "{") -> str:
    return f"event: {name}\ndata: {begin}{content.model_dump_json(exclude_none=True)[1:]}\n\n"


def _json(answer: BaseModel) -> Response:
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")

"""Our own API under /v1: everything that is known about a translation."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from heedful.evaluation.score_pairs import PairScore
from heedful.serve import schemas
from heedful.serve.batcher import JobItem, PendingJob
from heedful.serve.classification_routes import ClassificationDependency
from heedful.serve.completion_routes import DeskDependency
from heedful.serve.embedding_routes import EmbeddingDependency
from heedful.serve.finder_routes import FindingDependency
from heedful.serve.http_errors import RequestError
from heedful.serve.jobs import AttentionJob, ScoringJob, TranslationJob
from heedful.serve.model_registry import PivotModel, ServedModel
from heedful.serve.openapi import EVENT_STREAM, describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.segments import SegmentedTexts
from heedful.serve.service import Service, ServiceDependency, run_in_thread_if_long
from heedful.translation.result import Alternative, Translation, WordConfidence

_ERRORS = describe_errors(400, 404, 408, 413, 415, 429, 503)

router = APIRouter(prefix="/v1", tags=["heedful"])


@router.post(
    "/translate",
    openapi_extra=describe_body(schemas.TranslateRequest),
    response_model=schemas.TranslateAnswer,
    response_model_exclude_none=True,
    responses=EVENT_STREAM | _ERRORS,
)
async def translate(
    request: Request,
    service: ServiceDependency,
    body: Annotated[schemas.TranslateRequest, Depends(Body(schemas.TranslateRequest))],
) -> schemas.TranslateAnswer | Response:
    """Translate texts, sentence by sentence, with n-best lists, scores, word confidence and alignments.

    With `stream`, the answer is text/event-stream: one `sentence` event each, in order, then `end`; or `error`.
    """
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts, [body.prefix, *body.glossary, *body.glossary.values()])
    job = _make_translation_job(_select_any_model(service, body), body)
    size = sum(map(len, texts))
    segmented, items = await run_in_thread_if_long(size, _segment, texts, job)
    service.check_items(items, job.search.beam)
    if body.prefix and len(items) != 1:
        message = f"a prefix is for one sentence, but the text has {len(items)}"
        raise RequestError(400, f"Invalid request: {message}")
    if body.stream:
        return _EventStream(service, service.submit(job, items), job.model, segmented)
    translations = await service.run_job(request, job, items)
    service.metrics.count_characters(job.model.name, size)
    return _make_answer(job.model, segmented, translations)


@router.post(
    "/score",
    openapi_extra=describe_body(schemas.ScoreRequest),
    response_model=schemas.ScoresAnswer,
    response_model_exclude_none=True,
    responses=_ERRORS,
)
async def score(
    request: Request,
    service: ServiceDependency,
    body: Annotated[schemas.ScoreRequest, Depends(Body(schemas.ScoreRequest))],
) -> schemas.ScoresAnswer:
    """Score given translations: their probabilities by token and by word."""
    if len(body.texts) != len(body.translations):
        counts = f"texts ({len(body.texts)}) and translations ({len(body.translations)}) differ in number"
        raise RequestError(400, f"Invalid request: {counts}; give one translation for each text")
    service.check_texts([*body.texts, *body.translations])
    job = ScoringJob(_select_model(service, body))
    size = sum(map(len, [*body.texts, *body.translations]))
    items = await run_in_thread_if_long(size, job.make_items, body.texts, body.translations)
    service.check_items(items)
    scores = await service.run_job(request, job, items)
    return schemas.ScoresAnswer(model=job.model.name, scores=[_make_score(pair) for pair in scores])


@router.post(
    "/attention",
    openapi_extra=describe_body(schemas.AttentionRequest),
    response_model=None,
    responses={200: {"model": dict[str, object]}, **_ERRORS},
)
async def attention(
    request: Request,
    service: ServiceDependency,
    body: Annotated[schemas.AttentionRequest, Depends(Body(schemas.AttentionRequest))],
) -> Response:
    """Show the attention of every head; the weights are 16-bit numbers in base64.

    Give the `translation` that you have, and the answer explains exactly that; otherwise the model translates the text
    anew, which may have a different result if another engine or a glossary made yours. With `heads_off`, the model
    translates without these heads, and `baseline` is its translation with all of them. With `rank`, `costs` has the
    log-probability that the translation loses without each head.
    """
    translation = body.translation or ""
    service.check_texts([body.text], [translation, *body.glossary, *body.glossary.values()])
    glossary = tuple(sorted(body.glossary.items()))
    model, off = _select_model(service, body), tuple(body.heads_off)
    job = AttentionJob(model, off, body.n_best, body.translation, glossary, body.rank)
    items = await run_in_thread_if_long(len(body.text) + len(translation), job.make_items, [body.text])
    (document,) = await service.run_job(request, job, items)
    return Response(document, media_type="application/json")


@router.get("/models", responses=describe_errors())
async def models(
    service: ServiceDependency,
    desk: DeskDependency,
    labels: ClassificationDependency,
    vectors: EmbeddingDependency,
    pictures: FindingDependency,
) -> schemas.ModelsAnswer:
    """List the loaded models, and the languages between which two of them translate, one after the other."""
    return schemas.ModelsAnswer(
        models=[
            schemas.ModelAnswer(
                name=model.name,
                source=model.source,
                target=model.target,
                engine=model.translator.engine.name,
                weights=model.weights,
            )
            for model in service.registry.models
        ],
        pivots=[
            schemas.PivotAnswer(
                source=model.source, via=model.via, target=model.target, models=[model.first.name, model.second.name]
            )
            for model in service.registry.pivots
        ],
        classification=labels.names,
        pictures=labels.pictures.names,
        embedding=vectors.names,
        completion=desk.names,
        finding=pictures.names,
    )


def _select_any_model(service: Service, selector: schemas.ModelSelector) -> ServedModel | PivotModel:
    """The selected model, or two that translate between the selected languages."""
    return _find_pivot(service, selector) or _select_model(service, selector)


def _find_pivot(service: Service, selector: schemas.ModelSelector) -> PivotModel | None:
    if selector.model or not selector.source or not selector.target:
        return None
    found = service.registry.find(*map(service.registry.match_language, (selector.source, selector.target)))
    return found if isinstance(found, PivotModel) else None


def _select_model(service: Service, selector: schemas.ModelSelector) -> ServedModel:
    if pivot := _find_pivot(service, selector):
        message = f"{pivot.first.name} and {pivot.second.name} translate one after the other; name one of them"
        raise RequestError(400, f"Invalid request: {message}")
    meant = [code and service.registry.match_language(code) for code in (selector.source, selector.target)]
    fitting = [
        model
        for model in service.registry.models
        if selector.model in (None, model.name)
        and meant[0] in (None, model.source)
        and meant[1] in (None, model.target)
    ]
    if not fitting:
        raise RequestError(404, "no such model is loaded; /v1/models lists the loaded models")
    if len(fitting) > 1 and not (selector.source and selector.target):
        message = "several models match; give a model from /v1/models, or source and target"
        raise RequestError(400, f"Invalid request: {message}")
    return fitting[0]


def _make_translation_job(model: ServedModel | PivotModel, body: schemas.TranslateRequest) -> TranslationJob:
    glossary = tuple(sorted(body.glossary.items()))
    return TranslationJob(
        model, body.n_best, body.beam, body.confidence, body.alignments, glossary, body.prefix, body.diverse
    )


def _segment(texts: Sequence[str], job: TranslationJob) -> tuple[SegmentedTexts, list[JobItem]]:
    segmented = SegmentedTexts(texts, job.model.source)
    return segmented, job.make_items(segmented.sentences)


def _make_answer(
    model: ServedModel | PivotModel, segmented: SegmentedTexts, translations: Sequence[Translation]
) -> schemas.TranslateAnswer:
    joined = segmented.join([translation.text for translation in translations], model.target)
    left = iter(translations)
    texts = [
        schemas.TextAnswer(text=text, sentences=[_make_sentence(span, next(left)) for span in sentences.spans])
        for text, sentences in zip(joined, segmented.by_text, strict=True)
    ]
    return schemas.TranslateAnswer(
        model=model.name, source=model.source, via=model.via or None, target=model.target, texts=texts
    )


def _make_sentence(span: tuple[int, int], translation: Translation) -> schemas.SentenceAnswer:
    pivot = translation.alternatives[0].pivot if translation.alternatives else None
    return schemas.SentenceAnswer(
        start=span[0],
        end=span[1],
        text=translation.text,
        redone=translation.redone,
        pivot=pivot.text if pivot else None,
        failed_terms=list(translation.failed_terms) or None,
        alternatives=[_make_alternative(alternative) for alternative in translation.alternatives],
    )


def _make_alternative(alternative: Alternative) -> schemas.AlternativeAnswer:
    alignment, words = alternative.alignment, alternative.confidence
    return schemas.AlternativeAnswer(
        text=alternative.text,
        score=alternative.score,
        log_prob=alternative.log_prob,
        finished=alternative.finished,
        repeats=alternative.repeats,
        unsure=alternative.unsure,
        words=None if words is None else _make_words(words),
        alignment=None if alignment is None else [(link[0], link[1]) for link in alignment],
    )


def _make_words(words: Sequence[WordConfidence]) -> list[schemas.WordAnswer]:
    return [schemas.WordAnswer(word=word.word, mean=word.mean, least=word.least) for word in words]


def _make_score(pair: PairScore) -> schemas.ScoreAnswer:
    return schemas.ScoreAnswer(
        log_prob=pair.log_prob,
        per_piece=pair.per_piece,
        pieces=list(pair.pieces),
        log_probs=list(pair.log_probs),
        words=_make_words(pair.words),
    )


class _EventStream(StreamingResponse):
    """Events of a translation. When the client disconnects, even before the first event, its work is dropped."""

    def __init__(
        self, service: Service, job: PendingJob, model: ServedModel | PivotModel, segmented: SegmentedTexts
    ) -> None:
        super().__init__(_write_events(service, job, model, segmented), media_type="text/event-stream")
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._job:
            await super().__call__(scope, receive, send)


async def _write_events(
    service: Service, job: PendingJob, model: ServedModel | PivotModel, segmented: SegmentedTexts
) -> AsyncIterator[str]:
    """Write each sentence as soon as it and all before it are translated, within the time of the request."""
    translations: list[Translation] = []
    results, until = iter(job), service.deadline()
    try:
        for number, sentences in enumerate(segmented.by_text):
            for span in sentences.spans:
                translations.append(await service.wait_for(next(results), until))
                yield _format_event("sentence", _make_sentence(span, translations[-1]), f'{{"index":{number},')
        service.metrics.count_characters(model.name, sum(len(translation.source) for translation in translations))
        yield _format_event("end", _make_answer(model, segmented, translations))
    except RequestError as error:
        yield _format_event("error", schemas.ErrorAnswer(error=error.detail))


def _format_event(name: str, content: BaseModel, opening: str = "{") -> str:
    return f"event: {name}\ndata: {opening}{content.model_dump_json(exclude_none=True)[1:]}\n\n"

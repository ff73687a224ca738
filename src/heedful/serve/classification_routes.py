"""`/v1/classify`: label texts, or tag their words, with a served model that has learnt from labelled texts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request

from heedful.config import Device
from heedful.errors import require_library
from heedful.serve import schemas
from heedful.serve.model_desk import ModelDesk
from heedful.serve.openapi import describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.service import ServiceDependency, cancel_on_disconnect

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.classification.classifier import Classifier

_MOST_WAITING = 32

router = APIRouter(prefix="/v1", tags=["heedful"])


class ClassificationDesk(ModelDesk["Classifier"]):
    """The served models that label texts or tag words."""

    def __init__(self, classifiers: "Mapping[str, Classifier]") -> None:
        super().__init__(classifiers, _MOST_WAITING, "labels", "classification")


def load_classifiers(folders: Mapping[str, Path], device: Device) -> ClassificationDesk:
    """Load the models of labels in these folders."""
    if not folders:
        return ClassificationDesk({})
    require_library("classifying a text", "torch")
    from heedful.classification.classifier import Classifier

    return ClassificationDesk({name: Classifier.load(folder, device) for name, folder in folders.items()})


async def get_classification_desk(request: Request) -> ClassificationDesk:
    """The models of this application, for routes."""
    desk: ClassificationDesk = request.app.state.classifications
    return desk


ClassificationDependency = Annotated[ClassificationDesk, Depends(get_classification_desk)]


@router.post(
    "/classify",
    openapi_extra=describe_body(schemas.ClassifyRequest),
    response_model=schemas.ClassifyAnswer,
    response_model_exclude_none=True,
    responses=describe_errors(400, 404, 408, 413, 415, 429, 503),
)
async def classify(
    request: Request,
    service: ServiceDependency,
    desk: ClassificationDependency,
    body: Annotated[schemas.ClassifyRequest, Depends(Body(schemas.ClassifyRequest))],
) -> schemas.ClassifyAnswer:
    """Label texts with the probability of each label, or tag each of their words, whichever the model has learnt."""
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts)
    name, classifier = desk.select(body.model)
    return await service.wait_for(cancel_on_disconnect(request, _answer(desk, name, classifier, texts)))


async def _answer(
    desk: ClassificationDesk, name: str, classifier: "Classifier", texts: list[str]
) -> schemas.ClassifyAnswer:
    async with desk.turns.take():
        return await asyncio.to_thread(_label, name, classifier, texts)


def _label(name: str, classifier: "Classifier", texts: list[str]) -> schemas.ClassifyAnswer:
    if classifier.tags_words:
        tagged = [
            schemas.LabelledTextAnswer(
                text=found.text,
                words=[
                    schemas.TaggedWordAnswer(word=one.word, tag=one.tag, probability=one.probability)
                    for one in found.words
                ],
            )
            for found in classifier.tag(texts)
        ]
        return schemas.ClassifyAnswer(model=name, texts=tagged)
    labelled = [
        schemas.LabelledTextAnswer(
            text=found.text,
            label=found.label,
            probability=found.probability,
            probabilities=dict(found.probabilities),
        )
        for found in classifier.classify(texts)
    ]
    return schemas.ClassifyAnswer(model=name, texts=labelled)

"""`/v1/classify`: label texts, or tag their words, with a served model that has learnt from labelled texts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request

from heedful.config import Device
from heedful.errors import require_library
from heedful.serve import schemas
from heedful.serve.http_errors import RequestError
from heedful.serve.openapi import describe_body, describe_errors
from heedful.serve.request_body import Body
from heedful.serve.service import ServiceDependency, cancel_on_disconnect
from heedful.serve.turns import Turns

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.classification.classifier import Classifier

_MOST_WAITING = 32

router = APIRouter(prefix="/v1", tags=["heedful"])


class ClassificationDesk:
    """The served models that label texts or tag words, by name, and the turns that requests take."""

    def __init__(self, classifiers: "Mapping[str, Classifier]") -> None:
        self._classifiers = classifiers
        self.turns = Turns(_MOST_WAITING)

    @property
    def names(self) -> list[str]:
        """The names of the models, in the order of the command line."""
        return list(self._classifiers)

    def select(self, name: str | None) -> "tuple[str, Classifier]":
        """The model of this name, or the only one."""
        if name is None and len(self._classifiers) == 1:
            return next(iter(self._classifiers.items()))
        if name is None and self._classifiers:
            raise RequestError(400, f"Invalid request: name a model, one of {', '.join(self._classifiers)}")
        if name is None or name not in self._classifiers:
            raise RequestError(404, "no such model of labels is loaded; /v1/models lists them under classification")
        return name, self._classifiers[name]


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

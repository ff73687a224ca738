"""`/v1/classify`: label texts, tag their words, or label pictures, with a served model that has learnt it."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Request

from heedful.config import Device
from heedful.errors import require_library
from heedful.serve import schemas
from heedful.serve.http_errors import RequestError
from heedful.serve.model_desk import ModelDesk
from heedful.serve.openapi import describe_body_or_pictures, describe_errors
from heedful.serve.request_body import MULTIPART, media_type_of, read_body, read_pictures
from heedful.serve.service import Service, ServiceDependency, cancel_on_disconnect
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

if TYPE_CHECKING:  # translating needs no PyTorch
    from heedful.classification.classifier import Classifier
    from heedful.classification.picture_classifier import PictureClassifier

_MOST_WAITING = 32
_MOST_PICTURES = 16  # in a request

router = APIRouter(prefix="/v1", tags=["heedful"])


class ClassificationDesk(ModelDesk["Classifier"]):
    """The served models that label texts or tag words, and those that label pictures."""

    def __init__(
        self,
        classifiers: "Mapping[str, Classifier]",
        picture_classifiers: "Mapping[str, PictureClassifier] | None" = None,
    ) -> None:
        super().__init__(classifiers, _MOST_WAITING, "labels", "classification")
        self.pictures = ModelDesk(picture_classifiers or {}, _MOST_WAITING, "pictures", "pictures")

    def select(self, name: str | None) -> "tuple[str, Classifier]":
        """The model of texts with this name, or the only one."""
        if name in self.pictures.names or (not self.names and self.pictures.names):
            raise RequestError(
                400, f"Invalid request: {name or 'the model'} labels pictures; send them as {MULTIPART}, field picture"
            )
        return super().select(name)

    def select_for_pictures(self, name: str | None) -> "tuple[str, PictureClassifier]":
        """The model of pictures with this name, or the only one."""
        if name in self.names:
            raise RequestError(400, f"Invalid request: {name} labels texts; send them as JSON, field text")
        return self.pictures.select(name)


def load_classifiers(folders: Mapping[str, Path], device: Device) -> ClassificationDesk:
    """Load the models of labels in these folders."""
    if not folders:
        return ClassificationDesk({})
    require_library("classifying a text", "torch")
    from heedful.classification.classifier import Classifier
    from heedful.classification.picture_classifier import PictureClassifier

    texts, pictures = dict[str, Classifier](), dict[str, PictureClassifier]()
    for name, folder in folders.items():
        if find_task(RunFolder.open(folder).experiment().task).reads_pictures:
            require_library("classifying a picture", "PIL")
            pictures[name] = PictureClassifier.load(folder, device)
        else:
            texts[name] = Classifier.load(folder, device)
    return ClassificationDesk(texts, pictures)


async def get_classification_desk(request: Request) -> ClassificationDesk:
    """The models of this application, for routes."""
    desk: ClassificationDesk = request.app.state.classifications
    return desk


ClassificationDependency = Annotated[ClassificationDesk, Depends(get_classification_desk)]


@router.post(
    "/classify",
    openapi_extra=describe_body_or_pictures(
        schemas.ClassifyRequest, f"a PNG or JPEG file; up to {_MOST_PICTURES} fields with this name", "pictures"
    ),
    response_model=schemas.ClassifyAnswer,
    response_model_exclude_none=True,
    responses=describe_errors(400, 404, 408, 413, 415, 429, 503),
)
async def classify(
    request: Request, service: ServiceDependency, desk: ClassificationDependency
) -> schemas.ClassifyAnswer:
    """Label texts with the probability of each label, or tag each of their words, whichever the model has learnt.

    A model of pictures labels the PNG or JPEG files of a form, in fields named `picture`.
    """
    if media_type_of(request) == MULTIPART:
        return await _classify_pictures(request, service, desk)
    service.admit(request)
    body = await read_body(request, schemas.ClassifyRequest, service.limits, service.bodies(request))
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts)
    name, classifier = desk.select(body.model)

    async def answer() -> schemas.ClassifyAnswer:
        async with desk.turns.take():
            return await asyncio.to_thread(_label, name, classifier, texts)

    return await service.wait_for(cancel_on_disconnect(request, answer()))


async def _classify_pictures(request: Request, service: Service, desk: ClassificationDesk) -> schemas.ClassifyAnswer:
    fields, pictures = await read_pictures(request, service, _MOST_PICTURES)
    name, classifier = desk.select_for_pictures(fields.get("model") or None)

    async def answer() -> schemas.ClassifyAnswer:
        async with desk.turns.take():
            return await asyncio.to_thread(_label_pictures, name, classifier, pictures)

    return await service.wait_for(cancel_on_disconnect(request, answer()))


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


def _label_pictures(
    name: str, classifier: "PictureClassifier", pictures: Sequence[tuple[str, bytes]]
) -> schemas.ClassifyAnswer:
    labelled = [
        schemas.LabelledPictureAnswer(
            picture=found.picture,
            label=found.label,
            probability=found.probability,
            probabilities=dict(found.probabilities),
        )
        for found in classifier.classify_contents(pictures)
    ]
    return schemas.ClassifyAnswer(model=name, pictures=labelled)

"""Texts to vectors, and pairs of texts to scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelbackend.v1 import inference_pb2

from .generation import Embedded, EmbedWork
from .refusals import Reason, Refusal
from .wire import Reader


def embed_work(reader: Reader, request: inference_pb2.EmbedRequest, inputs_max: int) -> EmbedWork | Refusal:
    if reader.loaded.mode != "embed":
        words = "this ModelBackend generates text; ask one of mode Embed for vectors"
        return Refusal(Reason.MODEL_CANNOT, words)
    if reader.loaded.ranks:
        return Refusal(Reason.MODEL_CANNOT, "this model ranks documents; it makes no vectors")
    if refusal := _wrong_count(len(request.inputs), "inputs", inputs_max):
        return refusal
    texts: list[list[int]] = []
    for index, text in enumerate(request.inputs):
        tokens = reader.loaded.vocabulary.tokenize(text, add_special=True, parse_special=False)
        field = f"inputs[{index}]"
        if not text or not tokens:
            return Refusal(Reason.BAD_REQUEST, f"{field} is empty", field)
        if len(tokens) > reader.loaded.context_length:
            return reader.too_long(f"{field} is {len(tokens)}", 0, field)
        texts.append(tokens)
    return EmbedWork(tuple(texts), normalise=request.normalize if request.HasField("normalize") else True)


def rerank_work(reader: Reader, request: inference_pb2.RerankRequest, inputs_max: int) -> EmbedWork | Refusal:
    if not reader.loaded.ranks:
        return Refusal(Reason.MODEL_CANNOT, "this model ranks no documents; that takes one with pooling Rank")
    if refusal := _wrong_count(len(request.documents), "documents", inputs_max):
        return refusal
    if request.HasField("top_n") and request.top_n == 0:
        return Refusal(Reason.BAD_REQUEST, "top_n is 0, it must be at least 1", "top_n")
    pairs: list[list[int]] = []
    for index, document in enumerate(request.documents):
        tokens = reader.loaded.vocabulary.pair(request.query, document)
        if len(tokens) > reader.loaded.context_length:
            field = f"documents[{index}]"
            return reader.too_long(f"{field} with the query is {len(tokens)}", 0, field)
        pairs.append(tokens)
    return EmbedWork(tuple(pairs), normalise=False)


def _wrong_count(count: int, field: str, most: int) -> Refusal | None:
    if 1 <= count <= most:
        return None
    return Refusal(Reason.BAD_REQUEST, f"{count} {field}, 1 to {most} are taken in one request", field)


# -- answers ---------------------------------------------------------------------------------------------------------


def rows(embedded: Sequence[Embedded]) -> npt.NDArray[np.float32]:
    """One row for each text, in the order of the request: parts come in order."""
    return np.concatenate([part.vectors for part in embedded])


def embeddings(work: EmbedWork, embedded: Sequence[Embedded]) -> inference_pb2.EmbedResponse:
    return inference_pb2.EmbedResponse(
        embeddings=[
            inference_pb2.Embedding(values=row, prompt_tokens=len(text))
            for row, text in zip(rows(embedded).tolist(), work.texts, strict=True)
        ]
    )


def ranking(
    request: inference_pb2.RerankRequest, work: EmbedWork, embedded: Sequence[Embedded]
) -> inference_pb2.RerankResponse:
    """By the first number of each row, best first; of two alike, the earlier one."""
    scores = rows(embedded)[:, 0]
    order = np.argsort(-scores, kind="stable")
    kept = order[: request.top_n] if request.HasField("top_n") else order
    documents = [inference_pb2.RankedDocument(index=int(index), score=float(scores[index])) for index in kept]
    return inference_pb2.RerankResponse(documents=documents, prompt_tokens=work.prompt_tokens)

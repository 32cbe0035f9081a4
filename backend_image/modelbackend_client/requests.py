"""Puts requests together, for both clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modelbackend.v1 import inference_pb2

from .routing import Endpoint

UID_KEY = "x-modelbackend-uid"
POD_UID_KEY = "x-modelbackend-pod-uid"
MODEL_KEY = "x-modelbackend-model"
TOKEN_KEY = "authorization"
WAITING_MAX = 1000
"""So many calls of one client may wait for an instance at a time."""

StreamEvent = inference_pb2.TextDelta | inference_pb2.Finished

# A text to continue, or the messages of a chat.
Input = str | Sequence[inference_pb2.ChatMessage]

# Of a decision: the possible answers, whole numbers without gaps, or `bool` for yes or no.
Question = Sequence[str] | range | type[bool]


def system(content: str) -> inference_pb2.ChatMessage:
    return inference_pb2.ChatMessage(role=inference_pb2.ROLE_SYSTEM, content=content)


def user(content: str) -> inference_pb2.ChatMessage:
    return inference_pb2.ChatMessage(role=inference_pb2.ROLE_USER, content=content)


def assistant(content: str) -> inference_pb2.ChatMessage:
    return inference_pb2.ChatMessage(role=inference_pb2.ROLE_ASSISTANT, content=content)


def generate(
    given: Input, max_tokens: int | None, sampling: inference_pb2.Sampling | None
) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(max_tokens=max_tokens, sampling=sampling)
    if isinstance(given, str):
        request.prompt = given
    else:
        request.chat.messages.extend(given)
    return request


def tokenize(given: Input) -> inference_pb2.TokenizeRequest:
    if isinstance(given, str):
        return inference_pb2.TokenizeRequest(prompt=given)
    return inference_pb2.TokenizeRequest(chat=inference_pb2.Chat(messages=given))


def apply_template(messages: Sequence[inference_pb2.ChatMessage]) -> inference_pb2.ApplyTemplateRequest:
    return inference_pb2.ApplyTemplateRequest(chat=inference_pb2.Chat(messages=messages))


def embed(inputs: Sequence[str], normalize: bool | None) -> inference_pb2.EmbedRequest:
    return inference_pb2.EmbedRequest(inputs=inputs, normalize=normalize)


def rerank(query: str, documents: Sequence[str], top_n: int | None) -> inference_pb2.RerankRequest:
    return inference_pb2.RerankRequest(query=query, documents=documents, top_n=top_n)


def score(given: Input, choices: Sequence[str]) -> inference_pb2.ScoreChoicesRequest:
    request = inference_pb2.ScoreChoicesRequest(choices=choices)
    if isinstance(given, str):
        request.prompt = given
    else:
        request.chat.messages.extend(given)
    return request


def decide(given: Input, question: Question) -> inference_pb2.DecideRequest:
    request = inference_pb2.DecideRequest()
    if isinstance(given, str):
        request.prompt = given
    else:
        request.chat.messages.extend(given)
    if question is bool:
        request.yes_no.SetInParent()
    elif isinstance(question, range):
        request.range.low, request.range.high = question[0], question[-1]
    elif not isinstance(question, type):
        request.options.options.extend(question)
    return request


@dataclass(frozen=True, slots=True)
class Caller:
    """What a client says about itself, and about whom it means, with each call."""

    model: str | None = None
    token: str | None = None

    def metadata(self, endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
        """By it a server that is not the one meant refuses the call."""
        pairs = (
            (UID_KEY, endpoint.backend_uid),
            (POD_UID_KEY, endpoint.pod_uid),
            (MODEL_KEY, self.model),
            (TOKEN_KEY, None if self.token is None else f"Bearer {self.token}"),
        )
        return tuple((key, value) for key, value in pairs if value is not None)

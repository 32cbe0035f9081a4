"""Puts requests together, for both clients."""

from __future__ import annotations

from collections.abc import Sequence

from modelbackend.v1 import inference_pb2

UID_KEY = "x-modelbackend-uid"
MODEL_KEY = "x-modelbackend-model"

StreamEvent = inference_pb2.TextDelta | inference_pb2.Finished

# A text to continue, or the messages of a chat.
Input = str | Sequence[inference_pb2.ChatMessage]


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


def identity(uid: str | None, model: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata by which a server that is not the one meant refuses the call."""
    pairs = ((UID_KEY, uid), (MODEL_KEY, model))
    return tuple((key, value) for key, value in pairs if value is not None)

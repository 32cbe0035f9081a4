"""From the JSON of OpenAI's API to the messages of our own protocol, and back.

Of a request, what changes the answer is either honoured or refused by name; what cannot change it (who asks, where the
provider keeps it) is taken and left alone.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from modelbackend.v1 import inference_pb2

from .openai_messages import ChatMessage, Json, NamedTool, Part, Tool, ToolChoice
from .refusals import Reason, Refusal
from .tools import CLOSE

UINT32_MAX, UINT64_MAX = 2**32 - 1, 2**64 - 1
COMPLETION_TOKENS = 16
"""OpenAI's own default of /v1/completions; /v1/chat/completions has none."""
FINISH_REASONS = {inference_pb2.FINISH_REASON_STOP: "stop", inference_pb2.FINISH_REASON_LENGTH: "length"}
# Names of our fields that OpenAI's API gives another name to.
PARAMETERS = {
    "chat": "messages",
    "json_schema": "response_format",
    "top_logprobs": "logprobs",
    "inputs": "input",
    "must_call": "tool_choice",
}
PREFIXES = ("chat.", "sampling.")
# Of other servers' parameters, what to do instead.
UNKNOWN = {
    "lora": "adapters are loaded with the model, at one scale for all requests, which share their steps; leave it out",
}


def _text_as_list(text: Any) -> Any:
    return [text] if isinstance(text, str) else text


Count = Annotated[int, Field(ge=1, le=UINT32_MAX)]


def parameter_name(field: str) -> str:
    """What OpenAI's API calls the parameter that fills this field of ours."""
    for prefix in PREFIXES:
        field = field.removeprefix(prefix)
    name, bracket, rest = field.partition("[")
    return PARAMETERS.get(name, name) + bracket + rest


class StreamOptions(Part):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(Part):
    name: str
    description: str | None = None
    schema_: Json = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(Part):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Body(Part):
    """What chat and plain completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    n: Literal[1] | None = None
    stop: Annotated[list[str], BeforeValidator(_text_as_list), Field(default_factory=list)]
    seed: Annotated[int, Field(ge=0, le=UINT64_MAX)] | None = None
    logit_bias: dict[Annotated[int, Field(ge=0, le=UINT32_MAX)], float] | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    # Ours, for `extra_body` of the official clients; named as llama-server names them.
    top_k: Annotated[int, Field(ge=0, le=UINT32_MAX)] | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    grammar: str | None = None

    # They change nothing here.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def _request(self, max_tokens: int | None) -> inference_pb2.GenerateRequest:
        sampling = inference_pb2.Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            typical_p=self.typical_p,
            repeat_penalty=self.repeat_penalty,
            # Some clients send the 0 that changes nothing.
            frequency_penalty=self.frequency_penalty or None,
            presence_penalty=self.presence_penalty or None,
            seed=self.seed,
            logit_bias=self.logit_bias or {},
        )
        request = inference_pb2.GenerateRequest(max_tokens=max_tokens, sampling=sampling, stop=self.stop)
        if self.grammar is not None:
            request.grammar = self.grammar
        return request


class ChatCompletion(Body):
    messages: list[ChatMessage]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(default_factory=list)]
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True

    @model_validator(mode="after")
    def _fits_together(self) -> ChatCompletion:
        if self.tool_choice not in ("none", "auto") and not self.tools:
            raise ValueError("tool_choice asks for a call, and there are no tools")
        if self.may_call and self.response_format is not None and self.response_format.type != "text":
            raise ValueError("response_format cannot be kept together with tools; set tool_choice to none")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs is given, and logprobs is not true")
        wanted = self.response_format
        if wanted is not None and (wanted.type == "json_schema") != (wanted.json_schema is not None):
            raise ValueError("response_format of the type json_schema, and no other, has a json_schema")
        return self

    @property
    def may_call(self) -> bool:
        return bool(self.tools) and self.tool_choice != "none"

    def request(self) -> inference_pb2.GenerateRequest:
        request = self._request(self.max_completion_tokens or self.max_tokens)
        request.chat.messages.extend(message.message() for message in self.messages)
        if not self.messages:
            request.chat.SetInParent()
        if self.logprobs:
            request.top_logprobs = self.top_logprobs or 0
        if self.response_format is not None and self.response_format.type != "text":
            wanted = self.response_format.json_schema
            request.json_schema = json.dumps({"type": "object"} if wanted is None else wanted.schema_)
        if self.may_call:
            self._offer_tools(request)
        return request

    def _offer_tools(self, request: inference_pb2.GenerateRequest) -> None:
        request.chat.tools.extend(tool.tool() for tool in self.tools)
        if isinstance(self.tool_choice, NamedTool):
            request.chat.must_call.append(self.tool_choice.function.name)
        elif self.tool_choice == "required":
            request.chat.must_call.extend(tool.function.name for tool in self.tools)
        elif not self.parallel_tool_calls:
            # The text ends where its first call does.
            request.stop.append(CLOSE)


class Completion(Body):
    prompt: Annotated[list[str], BeforeValidator(_text_as_list), Field(min_length=1, max_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None

    def request(self) -> inference_pb2.GenerateRequest:
        request = self._request(self.max_tokens or COMPLETION_TOKENS)
        (request.prompt,) = self.prompt
        if self.logprobs is not None:
            request.top_logprobs = self.logprobs
        return request


class Embeddings(Part):
    model: str | None = None
    input: Annotated[list[str], BeforeValidator(_text_as_list)]
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None

    def request(self) -> inference_pb2.EmbedRequest:
        return inference_pb2.EmbedRequest(inputs=self.input)


class Rerank(Part):
    """Not OpenAI's: the form that Jina's, Cohere's and llama-server's `/v1/rerank` share."""

    model: str | None = None
    query: str
    documents: list[str]
    top_n: Count | None = None
    return_documents: bool = False

    def request(self) -> inference_pb2.RerankRequest:
        return inference_pb2.RerankRequest(query=self.query, documents=self.documents, top_n=self.top_n)


Kind = TypeVar("Kind", ChatCompletion, Completion, Embeddings, Rerank)


def read(kind: type[Kind], body: bytes) -> Kind | Refusal:
    try:
        return kind.model_validate_json(body)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(step) for step in first["loc"])
        words = {
            "extra_forbidden": UNKNOWN.get(path, "this server knows no such parameter; leave it out"),
            "literal_error": f"{first['msg']}; this server can do nothing else",
        }.get(first["type"], first["msg"].removeprefix("Value error, "))
        return Refusal(Reason.BAD_REQUEST, f"{path}: {words}" if path else words, path)


# -- answers ---------------------------------------------------------------------------------------------------------


def embeddings(body: Embeddings, response: inference_pb2.EmbedResponse) -> Json:
    tokens = sum(embedding.prompt_tokens for embedding in response.embeddings)
    data = []
    for index, embedding in enumerate(response.embeddings):
        vector: object = list(embedding.values)
        if body.encoding_format == "base64":
            # Little-endian float32, as the official clients read it.
            vector = base64.b64encode(struct.pack(f"<{len(embedding.values)}f", *embedding.values)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    return {"object": "list", "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def ranking(body: Rerank, response: inference_pb2.RerankResponse) -> Json:
    results = []
    for ranked in response.documents:
        result: Json = {"index": ranked.index, "relevance_score": ranked.score}
        if body.return_documents:
            result["document"] = {"text": body.documents[ranked.index]}
        results.append(result)
    tokens = response.prompt_tokens
    return {"object": "list", "results": results, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def usage(finished: inference_pb2.Finished) -> Json:
    prompt, completion = finished.usage.prompt_tokens, finished.usage.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def chat_logprobs(logprobs: Any) -> Json | None:
    if not logprobs:
        return None
    entries = []
    for each in logprobs:
        top = [_chat_token(candidate.token, candidate.logprob) for candidate in each.top]
        entries.append({**_chat_token(each.token, each.logprob), "top_logprobs": top})
    return {"content": entries, "refusal": None}


def _chat_token(token: inference_pb2.Token, logprob: float) -> Json:
    return {"token": token.piece.decode(errors="replace"), "logprob": logprob, "bytes": list(token.piece)}


def completion_logprobs(logprobs: Any, offset: int) -> Json | None:
    """`offset`: characters of the completion before the first of these tokens."""
    if not logprobs:
        return None
    tokens = [each.token.piece.decode(errors="replace") for each in logprobs]
    offsets = [offset + sum(len(token) for token in tokens[:index]) for index in range(len(tokens))]
    top = [{one.token.piece.decode(errors="replace"): one.logprob for one in each.top} for each in logprobs]
    return {
        "tokens": tokens,
        "token_logprobs": [each.logprob for each in logprobs],
        "top_logprobs": top,
        "text_offset": offsets,
    }

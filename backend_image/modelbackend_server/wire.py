"""From the messages of the protocol to checked values of ours. Nothing is corrected in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateSyntaxError

from modelbackend.v1 import inference_pb2, model_info_pb2

from . import parameters
from .chat import ChatTemplate, Message, TemplateRefusalError
from .engine import Loaded
from .generation import Work
from .log import logger
from .refusals import Reason, Refusal
from .tools import Tool, ToolCall, is_object

ROLES = {
    inference_pb2.ROLE_SYSTEM: "system",
    inference_pb2.ROLE_USER: "user",
    inference_pb2.ROLE_ASSISTANT: "assistant",
    inference_pb2.ROLE_TOOL: "tool",
}

Input = (
    inference_pb2.GenerateRequest
    | inference_pb2.TokenizeRequest
    | inference_pb2.ScoreChoicesRequest
    | inference_pb2.DecideRequest
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads requests for one loaded model. Tokenising takes about 0.3 ms per 1,000 tokens: not on the event loop."""

    loaded: Loaded
    template: ChatTemplate | None

    @classmethod
    def of(cls, loaded: Loaded) -> Reader:
        vocabulary = loaded.vocabulary
        if not loaded.facts.chat_template:
            return cls(loaded, None)
        bos, eos = (
            vocabulary.piece(token, special=True).decode(errors="replace") if token >= 0 else ""
            for token in (vocabulary.bos, vocabulary.eos)
        )
        try:
            return cls(loaded, ChatTemplate(loaded.facts.chat_template, bos=bos, eos=eos))
        except TemplateSyntaxError as error:
            logger().warning("the model's chat template cannot be used; chat is refused", words=str(error))
            return cls(loaded, None)

    @property
    def cached_tokens_per_slot(self) -> int:
        return self.loaded.context_length if self.loaded.mode == "generate" else 0

    def work(self, request: inference_pb2.GenerateRequest) -> Work | Refusal:
        if self.loaded.mode != "generate":
            return Refusal(Reason.MODEL_CANNOT, "this ModelBackend makes vectors of texts; it generates none")
        refusal = parameters.why_not(request)
        sampling = refusal or parameters.sampling(request.sampling, self.loaded.facts.vocabulary_size)
        if isinstance(sampling, Refusal):
            return sampling
        prompt = self.tokens(request)
        if isinstance(prompt, Refusal):
            return prompt
        room = self.loaded.context_length - len(prompt)
        if room < 1:
            return self.too_long(f"the prompt is {len(prompt)}", 1, request.WhichOneof("input") or "")
        grammar = parameters.grammar(request, self.loaded.vocabulary)
        if isinstance(grammar, Refusal):
            return grammar
        return Work(
            prompt,
            min(request.max_tokens, room) if request.HasField("max_tokens") else room,
            sampling,
            stop=tuple(request.stop),
            logprobs=request.top_logprobs if request.HasField("top_logprobs") else None,
            grammar=grammar,
        )

    def too_long(self, what: str, with_tokens: int, field: str) -> Refusal:
        length = self.loaded.context_length
        words = f"{what} tokens long, at most {length - with_tokens} fit a context of {length}"
        more = " with one token of completion" if with_tokens else ""
        return Refusal(Reason.PROMPT_TOO_LONG, words + more, field)

    def tokens(self, request: Input) -> list[int] | Refusal:
        """What the model evaluates for this input: 1 token or more."""
        match request.WhichOneof("input"):
            case "prompt":
                tokens = self.loaded.vocabulary.tokenize(request.prompt, add_special=True, parse_special=False)
                return tokens or Refusal(Reason.BAD_REQUEST, "the prompt is empty", "prompt")
            case "chat":
                return self._chat_tokens(request.chat)
            case _:
                return Refusal(Reason.BAD_REQUEST, "neither prompt nor chat is given", "prompt")

    def text(self, ids: Sequence[int]) -> str | Refusal:
        """The text of tokens, special ones written out."""
        if len(ids) > self.loaded.context_length:
            words = f"{len(ids)} ids are more than the {self.loaded.context_length} tokens of the context"
            return Refusal(Reason.BAD_REQUEST, words, "ids")
        size = self.loaded.facts.vocabulary_size
        for index, token in enumerate(ids):
            if token >= size:
                field = f"ids[{index}]"
                return Refusal(Reason.BAD_REQUEST, f"{field} is {token}, the vocabulary ends at {size - 1}", field)
        pieces = (self.loaded.vocabulary.piece(token, special=True) for token in ids)
        return b"".join(pieces).decode(errors="replace")

    def layout(self, chat: inference_pb2.Chat) -> str | Refusal:
        """What the chat template makes of messages."""
        if self.template is None:
            return Refusal(Reason.BAD_REQUEST, "this model has no chat template; send a prompt instead", "chat")
        if not chat.messages:
            return Refusal(Reason.BAD_REQUEST, "chat has no messages", "chat.messages")
        tools = self._tools(self.template, chat)
        if isinstance(tools, Refusal):
            return tools
        messages = [_message(index, message) for index, message in enumerate(chat.messages)]
        if wrong := [message for message in messages if isinstance(message, Refusal)]:
            return wrong[0]
        try:
            return self.template.render([message for message in messages if isinstance(message, Message)], tools)
        except TemplateRefusalError as refused:
            words = f"the model's chat template refuses these messages: {refused}"
            return Refusal(Reason.BAD_REQUEST, words, "chat.messages")

    def _tools(self, template: ChatTemplate, chat: inference_pb2.Chat) -> list[Tool] | Refusal:
        about_tools = chat.tools or any(message.tool_calls or message.tool_call_id for message in chat.messages)
        if about_tools and not template.carries_tools:
            words = (
                "this model's chat template has no place for tools, or has calls written in a way that is not read here"
            )
            return Refusal(Reason.UNSUPPORTED, words, "chat.tools")
        return parameters.tools(chat)

    def laid_out_tokens(self, text: str) -> list[int]:
        """Of what a template made: it writes special tokens out, the first one too, or leaves that one to us."""
        vocabulary = self.loaded.vocabulary
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
        if vocabulary.adds_bos and tokens[:1] != [vocabulary.bos]:
            tokens.insert(0, vocabulary.bos)
        return tokens

    def _chat_tokens(self, chat: inference_pb2.Chat) -> list[int] | Refusal:
        text = self.layout(chat)
        if isinstance(text, Refusal):
            return text
        return self.laid_out_tokens(text) or Refusal(
            Reason.BAD_REQUEST, "the chat template makes nothing of these messages", "chat"
        )


def _message(index: int, message: inference_pb2.ChatMessage) -> Message | Refusal:
    field = f"chat.messages[{index}]"
    if message.role not in ROLES:
        words = f"{field}.role is {message.role}, which is none of {', '.join(ROLES.values())}"
        return Refusal(Reason.BAD_REQUEST, words, f"{field}.role")
    calls = tuple(ToolCall(call.name, call.arguments) for call in message.tool_calls)
    for at, call in enumerate(calls):
        if not is_object(call.arguments):
            words = f"{field}.tool_calls[{at}].arguments is no JSON object"
            return Refusal(Reason.BAD_REQUEST, words, f"{field}.tool_calls[{at}].arguments")
    return Message(ROLES[message.role], message.content, calls, message.tool_call_id)


def model_info(loaded: Loaded, sha256: str) -> model_info_pb2.ModelInfo:
    facts = loaded.facts
    return model_info_pb2.ModelInfo(
        description=facts.description,
        architecture=facts.architecture,
        weights_name=facts.weights_name,
        parameter_count=facts.parameter_count,
        size_bytes=facts.size_bytes,
        vocabulary_size=facts.vocabulary_size,
        layer_count=facts.layer_count,
        embedding_length=facts.embedding_length,
        context_length=loaded.context_length,
        trained_context_length=facts.trained_context_length,
        has_chat_template=bool(facts.chat_template),
        sha256=sha256.lower(),
    )

"""From the messages of the protocol to checked values of ours. Nothing is corrected in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateSyntaxError

from modelbackend.v1 import inference_pb2, model_info_pb2

from .chat import ChatTemplate, Message, TemplateRefusalError
from .engine import Loaded
from .generation import Work
from .log import logger
from .refusals import Reason, Refusal
from .sampling import SamplingParameters, draw_seed

ROLES = {
    inference_pb2.ROLE_SYSTEM: "system",
    inference_pb2.ROLE_USER: "user",
    inference_pb2.ROLE_ASSISTANT: "assistant",
}
TOP_K_MAX = 2**31 - 1
DEFAULTS = SamplingParameters()
UNSUPPORTED = frozenset({"stop", "top_logprobs", "grammar", "json_schema"})
UNSUPPORTED_SAMPLING = frozenset({"logit_bias", "frequency_penalty", "presence_penalty", "typical_p"})

Input = inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest


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

    def work(self, request: inference_pb2.GenerateRequest) -> Work | Refusal:
        if unsupported := unsupported_field(request):
            words = f"this version of the server does not support {unsupported}; leave it out"
            return Refusal(Reason.UNSUPPORTED, words, unsupported)
        sampling = sampling_parameters(request.sampling)
        if isinstance(sampling, Refusal):
            return sampling
        if request.HasField("max_tokens") and request.max_tokens == 0:
            return Refusal(Reason.BAD_REQUEST, "max_tokens is 0, it must be at least 1", "max_tokens")
        prompt = self.tokens(request)
        if isinstance(prompt, Refusal):
            return prompt
        room = self.loaded.context_length - len(prompt)
        if room < 1:
            return Refusal(
                Reason.PROMPT_TOO_LONG,
                f"the prompt is {len(prompt)} tokens long, at most {self.loaded.context_length - 1} fit a context of "
                f"{self.loaded.context_length} with one token of completion",
                request.WhichOneof("input") or "",
            )
        return Work(prompt, min(request.max_tokens, room) if request.HasField("max_tokens") else room, sampling)

    def tokens(self, request: Input) -> list[int] | Refusal:
        """What the model evaluates for this input: 1 token or more."""
        match request.WhichOneof("input"):
            case "prompt":
                tokens = self.loaded.vocabulary.tokenize(request.prompt, add_special=True, parse_special=False)
                return tokens or Refusal(Reason.BAD_REQUEST, "the prompt is empty", "prompt")
            case "chat":
                return self._chat_tokens(request.chat.messages)
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

    def layout(self, messages: Sequence[inference_pb2.ChatMessage]) -> str | Refusal:
        """What the chat template makes of messages."""
        if self.template is None:
            return Refusal(Reason.BAD_REQUEST, "this model has no chat template; send a prompt instead", "chat")
        if not messages:
            return Refusal(Reason.BAD_REQUEST, "chat has no messages", "chat.messages")
        for index, message in enumerate(messages):
            if message.role not in ROLES:
                field = f"chat.messages[{index}].role"
                words = f"{field} is {message.role}, which is none of {', '.join(ROLES.values())}"
                return Refusal(Reason.BAD_REQUEST, words, field)
        try:
            return self.template.render([Message(ROLES[message.role], message.content) for message in messages])
        except TemplateRefusalError as refused:
            words = f"the model's chat template refuses these messages: {refused}"
            return Refusal(Reason.BAD_REQUEST, words, "chat.messages")

    def _chat_tokens(self, messages: Sequence[inference_pb2.ChatMessage]) -> list[int] | Refusal:
        text = self.layout(messages)
        if isinstance(text, Refusal):
            return text
        # Templates write special tokens out, the first one too, or leave that one to the tokenizer.
        vocabulary = self.loaded.vocabulary
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=True)
        if vocabulary.adds_bos and tokens[:1] != [vocabulary.bos]:
            tokens.insert(0, vocabulary.bos)
        return tokens or Refusal(Reason.BAD_REQUEST, "the chat template makes nothing of these messages", "chat")


def unsupported_field(request: inference_pb2.GenerateRequest) -> str:
    """The path of the first field that the engine cannot honour yet; "" if there is none."""
    given = {descriptor.name for descriptor, _ in request.ListFields()}
    sampling = {descriptor.name for descriptor, _ in request.sampling.ListFields()}
    paths = [*(given & UNSUPPORTED), *(f"sampling.{name}" for name in sampling & UNSUPPORTED_SAMPLING)]
    return min(paths, default="")


def sampling_parameters(sampling: inference_pb2.Sampling) -> SamplingParameters | Refusal:
    """Defaults filled in and ranges checked, as Sampling in inference.proto gives them."""
    given = {descriptor.name for descriptor, _ in sampling.ListFields()}
    values = SamplingParameters(
        repeat_penalty=sampling.repeat_penalty if "repeat_penalty" in given else DEFAULTS.repeat_penalty,
        top_k=sampling.top_k if "top_k" in given else DEFAULTS.top_k,
        top_p=sampling.top_p if "top_p" in given else DEFAULTS.top_p,
        min_p=sampling.min_p if "min_p" in given else DEFAULTS.min_p,
        temperature=sampling.temperature if "temperature" in given else DEFAULTS.temperature,
        seed=sampling.seed if "seed" in given else draw_seed(),
    )
    ranges = (
        ("repeat_penalty", 0 < values.repeat_penalty <= 10, "more than 0 and at most 10"),
        ("top_k", values.top_k <= TOP_K_MAX, f"0 to {TOP_K_MAX}"),
        ("top_p", 0 < values.top_p <= 1, "more than 0 and at most 1"),
        ("min_p", 0 <= values.min_p <= 1, "0 to 1"),
        ("temperature", 0 <= values.temperature <= 10, "0 to 10"),
    )
    for name, inside, words in ranges:
        if not inside:
            message = f"sampling.{name} is {getattr(values, name):g}, it must be {words}"
            return Refusal(Reason.BAD_REQUEST, message, f"sampling.{name}")
    return values


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

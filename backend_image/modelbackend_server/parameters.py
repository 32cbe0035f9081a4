"""The parameters of a generation, checked: ranges are those that inference.proto tells."""

from __future__ import annotations

import json

from modelbackend.v1 import inference_pb2

from .json_schema import SchemaError, to_gbnf
from .llama import Grammar, GrammarError, Vocabulary
from .refusals import Reason, Refusal
from .sampling import SamplingParameters, draw_seed
from .tools import ANYTHING, NAME, TOOLS_MAX, Tool, call_grammar, free_grammar, is_object

TOP_K_MAX = 2**31 - 1
STOPS_MAX, STOP_BYTES_MAX = 16, 256
TOP_LOGPROBS_MAX = 20
LOGIT_BIASES_MAX, LOGIT_BIAS_MAX = 1024, 100.0
DEFAULTS = SamplingParameters()
RANGES: tuple[tuple[str, float, float], ...] = (
    ("repeat_penalty", 0, 10),
    ("frequency_penalty", -2, 2),
    ("presence_penalty", -2, 2),
    ("top_k", 0, TOP_K_MAX),
    ("typical_p", 0, 1),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("temperature", 0, 10),
)
NOT_ZERO = frozenset({"repeat_penalty", "typical_p", "top_p"})


def why_not(request: inference_pb2.GenerateRequest) -> Refusal | None:
    """What is wrong beside the sampling, the input and the grammar."""
    if request.HasField("max_tokens") and request.max_tokens == 0:
        return Refusal(Reason.BAD_REQUEST, "max_tokens is 0, it must be at least 1", "max_tokens")
    if request.top_logprobs > TOP_LOGPROBS_MAX:
        words = f"top_logprobs is {request.top_logprobs}, it must be 0 to {TOP_LOGPROBS_MAX}"
        return Refusal(Reason.BAD_REQUEST, words, "top_logprobs")
    if len(request.stop) > STOPS_MAX:
        return Refusal(Reason.BAD_REQUEST, f"{len(request.stop)} stop strings, at most {STOPS_MAX} are taken", "stop")
    for index, stop in enumerate(request.stop):
        if not 0 < len(stop.encode()) <= STOP_BYTES_MAX:
            field = f"stop[{index}]"
            return Refusal(Reason.BAD_REQUEST, f"{field} must have 1 to {STOP_BYTES_MAX} bytes", field)
    return None


def sampling(given: inference_pb2.Sampling, vocabulary_size: int) -> SamplingParameters | Refusal:
    """Defaults filled in, ranges checked."""
    names = {descriptor.name for descriptor, _ in given.ListFields()}

    def value(name: str) -> float:
        number: float = getattr(given if name in names else DEFAULTS, name)
        return number

    for name, least, most in RANGES:
        # What is not a number at all is in no range either.
        if not least <= value(name) <= most or (name in NOT_ZERO and value(name) == 0):
            words = f"more than 0 and at most {most:g}" if name in NOT_ZERO else f"{least:g} to {most:g}"
            message = f"sampling.{name} is {value(name):g}, it must be {words}"
            return Refusal(Reason.BAD_REQUEST, message, f"sampling.{name}")
    biases = tuple(sorted(given.logit_bias.items()))
    if wrong := _wrong_bias(biases, vocabulary_size):
        return Refusal(Reason.BAD_REQUEST, wrong, "sampling.logit_bias")
    return SamplingParameters(
        repeat_penalty=value("repeat_penalty"),
        frequency_penalty=value("frequency_penalty"),
        presence_penalty=value("presence_penalty"),
        top_k=int(value("top_k")),
        typical_p=value("typical_p"),
        top_p=value("top_p"),
        min_p=value("min_p"),
        temperature=value("temperature"),
        seed=given.seed if "seed" in names else draw_seed(),
        logit_bias=biases,
    )


def _wrong_bias(biases: tuple[tuple[int, float], ...], vocabulary_size: int) -> str:
    if len(biases) > LOGIT_BIASES_MAX:
        return f"logit_bias names {len(biases)} tokens, at most {LOGIT_BIASES_MAX} are taken"
    for token, bias in biases:
        if token >= vocabulary_size:
            return f"logit_bias names the token {token}, the vocabulary ends at {vocabulary_size - 1}"
        if not -LOGIT_BIAS_MAX <= bias <= LOGIT_BIAS_MAX:
            return f"logit_bias of the token {token} is {bias:g}, it must be {-LOGIT_BIAS_MAX:g} to {LOGIT_BIAS_MAX:g}"
    return ""


def tools(chat: inference_pb2.Chat) -> list[Tool] | Refusal:
    """Checked, but for what only a call that must be made asks of their parameters."""
    if len(chat.tools) > TOOLS_MAX:
        return Refusal(Reason.BAD_REQUEST, f"{len(chat.tools)} tools, at most {TOOLS_MAX} are taken", "chat.tools")
    names: set[str] = set()
    for index, tool in enumerate(chat.tools):
        field = f"chat.tools[{index}]"
        if not NAME.fullmatch(tool.name) or tool.name in names:
            words = f"{field}.name must be 1 to 64 letters, digits, _ and -, and another one than the other tools'"
            return Refusal(Reason.BAD_REQUEST, words, f"{field}.name")
        names.add(tool.name)
        if tool.parameters and not is_object(tool.parameters):
            return Refusal(Reason.BAD_REQUEST, f"{field}.parameters is no JSON object", f"{field}.parameters")
    if unknown := [name for name in chat.must_call if name not in names]:
        words = f"must_call names {unknown[0]!r}, which is none of the tools"
        return Refusal(Reason.BAD_REQUEST, words, "chat.must_call")
    return [
        Tool(tool.name, tool.description, json.loads(tool.parameters) if tool.parameters else ANYTHING, tool.strict)
        for tool in chat.tools
    ]


def grammar(request: inference_pb2.GenerateRequest, vocabulary: Vocabulary) -> Grammar | Refusal | None:
    """Compiled for this request alone. Never without the constraint that was asked for."""
    if request.chat.must_call or any(tool.strict for tool in request.chat.tools):
        return _grammar_of_calls(request, vocabulary)
    match request.WhichOneof("constraint"):
        case None:
            return None
        case "json_schema":
            try:
                return Grammar(vocabulary, to_gbnf(request.json_schema))
            except (SchemaError, GrammarError) as error:
                return Refusal(Reason.BAD_REQUEST, str(error), "json_schema")
        case "grammar":
            try:
                return Grammar(vocabulary, request.grammar)
            except GrammarError as error:
                return Refusal(Reason.BAD_REQUEST, str(error), "grammar")


def _grammar_of_calls(request: inference_pb2.GenerateRequest, vocabulary: Vocabulary) -> Grammar | Refusal:
    """The tools were checked when the prompt was laid out."""
    if request.WhichOneof("constraint") is not None:
        words = "a text that must be a call of a tool, or whose calls are strict, can have no other constraint"
        return Refusal(Reason.BAD_REQUEST, words, "chat.must_call" if request.chat.must_call else "chat.tools")
    known = tools(request.chat)
    if isinstance(known, Refusal):
        return known
    try:
        wanted = [tool for tool in known if tool.name in request.chat.must_call]
        return Grammar(vocabulary, call_grammar(wanted) if wanted else free_grammar(known))
    except (SchemaError, GrammarError) as error:
        return Refusal(Reason.BAD_REQUEST, f"the tools' parameters: {error}", "chat.tools")

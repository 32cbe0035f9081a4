"""From settings to a model that works, or to the words that say why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from . import memory, variants
from .embedding import Embedding
from .exits import ExitCode, UnservableError
from .fitting import Needs, fitting
from .generating import Counters, Emit, Generator
from .generation import Ending, Generation
from .llama import Context, ContextShape, Embedder, Model, ModelFacts, Vocabulary
from .model_file import verify
from .plan import Pace
from .prompt_cache import PromptCache
from .settings import Settings, adapters

DEFAULT_CONTEXT_LENGTH = 4096

Progress = Callable[[float, str], bool]
"""The fraction done, and what is being done; False ends the loading."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the event loop may use of the model, from its own thread."""

    facts: ModelFacts
    vocabulary: Vocabulary
    context_length: int
    # "generate" or "embed".
    mode: str = "generate"
    # Numbers in a vector; 1 for a reranker, whose number is a score.
    embedding_width: int = 0
    # An embedding model that judges pairs of texts (pooling rank).
    ranks: bool = False


class Evaluator(Protocol):
    """A context of llama.cpp, as far as the engine itself uses it."""

    def warm_up(self) -> None: ...
    def abort(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Work(Protocol):
    """What the engine's thread does, step by step, for those it has admitted."""

    @property
    def context(self) -> Evaluator: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def busy(self) -> bool: ...
    @property
    def has_room(self) -> bool: ...
    @property
    def generations(self) -> list[Generation]: ...
    def admit(self, generation: Generation) -> None: ...
    def drop(self, generation: Generation) -> None: ...
    def end(self, generation: Generation, ending: Ending) -> None: ...
    def lose(self) -> None: ...
    def step(self) -> None: ...


class LoadCancelledError(Exception):
    """The process is to end before the model is loaded."""


def load(settings: Settings, progress: Progress, emit: Emit) -> tuple[Work, Loaded]:
    """On the thread that will evaluate. Raises UnservableError and LoadCancelledError."""
    verify(settings.model_path, settings.model_sha256, lambda done: progress(done, "checking the sha256"))
    if not progress(0.0, "loading the weights"):
        raise LoadCancelledError
    variants.load()
    wanted = True

    def loading(done: float) -> bool:
        nonlocal wanted
        wanted = progress(done, "loading the weights")
        return wanted

    try:
        model = Model.load(settings.model_path, gpu_layers=settings.gpu_layers, progress=loading)
    except UnservableError:
        if not wanted:
            raise LoadCancelledError from None
        raise
    for path, scale in adapters(settings.lora):
        verify(path, "", lambda _: True)
        model.add_adapter(path, scale)
    if not progress(1.0, "warming up"):
        raise LoadCancelledError
    return _embedding(settings, model, emit) if settings.mode == "embed" else _generator(settings, model, emit)


def _generator(settings: Settings, model: Model, emit: Emit) -> tuple[Work, Loaded]:
    if why_not := model.why_not_generative():
        raise UnservableError(
            ExitCode.BAD_MODEL,
            f"{settings.model_path} ({model.facts.description}) cannot generate text: {why_not}. Take another model.",
        )
    on_gpu = settings.gpu_layers != 0 and model.can_offload
    shape = ContextShape(
        context_length=_context_length(settings.context_length, model.facts.trained_context_length),
        slots=settings.slots,
        batch_tokens=settings.batch_tokens,
        micro_batch_tokens=settings.micro_batch_tokens or settings.batch_tokens,
        threads=settings.threads,
        flash_attention=settings.flash_attention or ("auto" if on_gpu else "disabled"),
        kv_cache_type=settings.kv_cache_type,
    )
    cache_bytes = shape.cache_bytes(model)
    # Of a GPU's memory llama.cpp itself says what is missing.
    if on_gpu:
        context = Context(model, shape)
    else:
        weights = memory.mapped_bytes(settings.model_path.suffix)
        cells = f"{shape.slots} slots of {shape.context_length} tokens"
        needs = Needs(cells, weights, cache_bytes, settings.prompt_cache_bytes)
        context = fitting(needs, lambda: Context(model, shape))
    pace = Pace(settings.step_seconds)
    generator = Generator(
        context,
        model.vocabulary,
        shape,
        cache_bytes,
        emit,
        pace,
        share_prefixes=settings.share_prefixes,
        prompts=PromptCache(settings.prompt_cache_bytes),
    )
    return generator, Loaded(model.facts, model.vocabulary, shape.context_length)


def _embedding(settings: Settings, model: Model, emit: Emit) -> tuple[Work, Loaded]:
    if why_not := model.why_not_embedding():
        raise UnservableError(
            ExitCode.BAD_MODEL,
            f"{settings.model_path} ({model.facts.description}) gives no vectors: {why_not}. Take another model.",
        )
    context_length = _context_length(settings.context_length, model.facts.trained_context_length)
    batch_tokens = max(context_length, settings.batch_tokens)

    def make() -> Embedder:
        return Embedder(model, batch_tokens=batch_tokens, threads=settings.threads, pooling=settings.pooling)

    on_gpu = settings.gpu_layers != 0 and model.can_offload
    # It keeps no cache: a text is read at once.
    needs = Needs(f"texts of {batch_tokens} tokens", memory.mapped_bytes(settings.model_path.suffix), cache=0)
    embedder = make() if on_gpu else fitting(needs, make)
    loaded = Loaded(
        model.facts,
        model.vocabulary,
        context_length,
        mode="embed",
        embedding_width=embedder.width,
        ranks=embedder.ranks,
    )
    return Embedding(embedder, emit, batch_tokens), loaded


def _context_length(wanted: int | None, trained: int) -> int:
    if wanted is None:
        return min(DEFAULT_CONTEXT_LENGTH, trained)
    if wanted > trained:
        raise UnservableError(
            ExitCode.BAD_CONFIGURATION,
            f"a context of {wanted} tokens is more than the {trained} this model was trained with. "
            "Set a smaller context length, or take another model.",
        )
    return wanted

"""Continuous batching: in each step every running text gets its next token, and prompts move on.

Greedy choices of all rows are one call of numpy; every other choice is one row's sampler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .generation import Ended, Ending, Event, Generation, ScoreWork, Started, TokenMade, Work
from .holding import Holder
from .llama import Context, ContextShape, DecodeAbortedError, DecodeError, Vocabulary
from .log import logger
from .plan import BatchPlan, Pace, plan
from .prompt_cache import Kept, PromptCache
from .sampling import ConstraintError, Logits, Sampler, logprobs
from .scoring import Scoring
from .slots import LEAST_SHARED_TOKENS, Place, Slot, Slots, Tokens
from .text import StopMatcher

COPY_BYTES_PER_SECOND = 4e9
"""Of memory, seen on small machines: only to weigh a copy against evaluating again."""

Emit = Callable[[Generation, Event], None]


@dataclass(slots=True)
class Counters:
    """Read from any thread, each number for itself."""

    steps: int = 0
    step_seconds: float = 0.0
    evaluated_prompt_tokens: int = 0
    reused_prompt_tokens: int = 0
    generated_tokens: int = 0
    cache_tokens: int = 0


@dataclass(slots=True)
class Generator:
    """The slots of a generating model. Owned by the engine's thread."""

    context: Context
    vocabulary: Vocabulary
    shape: ContextShape
    cache_bytes: int
    emit: Emit
    pace: Pace
    # Whether a prompt may take over what another request, perhaps another caller's, has evaluated.
    share_prefixes: bool = True
    prompts: PromptCache = field(default_factory=lambda: PromptCache(0))
    counters: Counters = field(default_factory=Counters)
    slots: Slots[Holder] = field(init=False)
    # In the order of admission.
    _busy: dict[int, Slot[Holder]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slots = Slots.make(self.shape.slots, self.shape.context_length)

    # ---- requests

    @property
    def busy(self) -> bool:
        return bool(self._busy)

    @property
    def has_room(self) -> bool:
        return len(self._busy) < len(self.slots.all)

    @property
    def can_trim(self) -> bool:
        return self.context.can_trim

    @property
    def generations(self) -> list[Generation]:
        return list(dict.fromkeys(slot.holder.generation for slot in self._busy.values() if slot.holder is not None))

    def admit(self, generation: Generation) -> None:
        """Gives it a slot; there must be room."""
        work = generation.work
        if not isinstance(work, Work | ScoreWork):
            raise TypeError(f"this model generates, it does not {work}")
        prompt = np.asarray(work.prompt, np.int32)
        if self.share_prefixes and self.can_trim:
            place = self.slots.place(prompt, worth_a_copy_tokens=self._worth_a_copy_tokens())
        else:
            place = Place(self.slots.free[0], self.slots.free[0], 0)
        slot = place.slot
        if not place.goes_on:
            self.vacate(slot, place.source)
        if not self._restored(place, prompt):
            self._take_over(place)
        slot.put(prompt[slot.evaluated :], slot.evaluated)
        slot.awaits = place.awaits
        if isinstance(work, ScoreWork):
            self.occupy(slot, Scoring(generation, work, self))
        else:
            enders = self.vocabulary.enders if work.grammar is not None else ()
            sampler = Sampler(work.sampling, work.prompt, work.grammar, enders)
            self.occupy(slot, Running(generation, work, sampler, StopMatcher(work.stop), self))
        self.emit(generation, Started())

    def drop(self, generation: Generation) -> None:
        """Frees what it holds."""
        for slot in [slot for slot in self._busy.values() if slot.holder and slot.holder.generation is generation]:
            self.release(slot)

    def end(self, generation: Generation, ending: Ending, stop: str | None = None) -> None:
        self.emit(generation, Ended(ending, stop))
        self.drop(generation)

    # ---- slots

    def occupy(self, slot: Slot[Holder], holder: Holder) -> None:
        slot.holder = holder
        self._busy[slot.index] = slot

    def release(self, slot: Slot[Holder]) -> None:
        del self._busy[slot.index]
        self.slots.release(slot)
        if not self.can_trim:
            self.trim(slot, 0)

    def trim(self, slot: Slot[Holder], length: int) -> None:
        self.context.trim(slot.index, length)
        slot.known = slot.evaluated = length

    def copy(self, source: Slot[Holder], target: Slot[Holder], length: int) -> None:
        self._keep(target)
        self.context.copy(source.index, target.index, length)
        target.tokens[:length] = source.tokens[:length]
        target.known = target.evaluated = length

    def vacate(self, slot: Slot[Holder], source: Slot[Holder]) -> None:
        """A free one, before something comes into it from the source: what it remembers goes on in another."""
        if not (self.share_prefixes and self.can_trim):
            return
        heir = self.slots.heir(slot, source, worth_a_copy_tokens=self._worth_a_copy_tokens())
        if heir is not None:
            self.copy(slot, heir, slot.evaluated)
            heir.used_at = slot.used_at

    def _take_over(self, place: Place[Holder]) -> None:
        slot, reused = place.slot, place.reused
        if reused and place.source is not slot:
            self.copy(place.source, slot, reused)
        else:
            if slot.evaluated > reused:
                self._keep(slot)
            self.trim(slot, reused)
        self.counters.reused_prompt_tokens += reused

    def _keep(self, slot: Slot[Holder], sparing: Kept | None = None) -> None:
        """What the slot has evaluated is about to go."""
        if self.prompts.limit_bytes and slot.evaluated and self.can_trim:
            tokens, size_bytes = slot.tokens[: slot.evaluated], self.context.state_bytes(slot.index)
            self.prompts.keep(tokens, size_bytes, lambda: self.context.state(slot.index), sparing=sparing)

    def _restored(self, place: Place[Holder], prompt: Tokens) -> bool:
        """Whether the slot got more of the prompt from what was kept than it would have got from another slot."""
        if not self.prompts.limit_bytes or place.awaits is not None or not self.can_trim:
            return False
        kept, length = self.prompts.longest(prompt[:-1])
        if kept is None or length - place.reused < LEAST_SHARED_TOKENS:
            return False
        slot = place.slot
        self._keep(slot, sparing=kept)
        self.prompts.use(kept)
        if not self.context.restore(slot.index, kept.state):
            self.trim(slot, 0)
            return False
        slot.put(kept.tokens, 0)
        self.trim(slot, length)
        self.counters.reused_prompt_tokens += length
        return True

    def _settle_waits(self) -> None:
        """Those whose awaited beginning is there, or will never be, go on."""
        for slot in self._busy.values():
            awaited = slot.awaits
            if awaited is None or awaited.still_coming:
                continue
            slot.awaits = None
            known = slot.tokens[: slot.known].copy()
            place = self.slots.place_again(slot, awaited.source)
            self._take_over(place)
            slot.put(known[slot.evaluated :], slot.evaluated)

    def _worth_a_copy_tokens(self) -> int:
        if self.pace.prompt_token_seconds == 0:
            return 0
        copy_seconds = self.cache_bytes / len(self.slots.all) / COPY_BYTES_PER_SECOND
        return int(copy_seconds / self.pace.prompt_token_seconds)

    # ---- the step

    def step(self) -> None:
        """Evaluates one batch and hands out what it gives. Raises DecodeAbortedError, with all as it was."""
        self._settle_waits()
        batch = self._plan()
        started = time.perf_counter()
        try:
            rows = self.context.decode(batch, {slot.index: slot.tokens for slot in self._busy.values()})
        except DecodeAbortedError:
            raise
        except DecodeError as failure:
            logger().error("decode failed", words=str(failure), slots=[chunk.slot for chunk in batch.chunks])
            self._lose([self.slots.all[chunk.slot] for chunk in batch.chunks])
            return
        seconds = time.perf_counter() - started
        self.pace.observe(batch, seconds)
        self._count(batch, seconds)
        self._hand_out(batch, rows)

    def _plan(self) -> BatchPlan:
        pending = [slot for slot in self._busy.values() if slot.awaits is None and slot.pending]
        streaming = any(isinstance(slot.holder, Running) and slot.holder.made for slot in self._busy.values())
        most = self.shape.batch_tokens
        return plan(pending, most, self.pace.prompt_tokens(streaming=streaming, at_most=most))

    def lose(self) -> None:
        """After a step that was aborted: nobody knows what is in the cache."""
        self._lose(self.slots.all)

    def _lose(self, slots: Sequence[Slot[Holder]]) -> None:
        for slot in slots:
            if slot.holder is not None:
                self.end(slot.holder.generation, Ending.DECODE_FAILED)
            self.trim(slot, 0)

    def _hand_out(self, batch: BatchPlan, rows: Logits) -> None:
        most_likely: list[int] = rows.argmax(axis=1).tolist() if len(rows) else []
        slots = [self._busy[chunk.slot] for chunk in batch.chunks]
        for slot, chunk in zip(slots, batch.chunks, strict=True):
            slot.evaluated = chunk.stop
        at = 0
        for slot, chunk in zip(slots, batch.chunks, strict=True):
            end = at + chunk.outputs
            if chunk.outputs and slot.holder is not None:
                slot.holder.take(slot, rows[at:end], most_likely[at:end])
            at = end

    def _count(self, batch: BatchPlan, seconds: float) -> None:
        counters = self.counters
        counters.steps += 1
        counters.step_seconds += seconds
        counters.evaluated_prompt_tokens += batch.prompt_token_count
        counters.cache_tokens = sum(slot.evaluated for slot in self.slots.all)


@dataclass(slots=True, eq=False)
class Running:
    """A text that is being generated."""

    generation: Generation
    work: Work
    sampler: Sampler
    stops: StopMatcher
    owner: Generator
    made: int = 0

    def take(self, slot: Slot[Holder], rows: Logits, most_likely: list[int]) -> None:
        owner, work, logits = self.owner, self.work, rows[-1]
        try:
            token = self.sampler.choose(logits, most_likely[-1])
        except ConstraintError as error:
            logger().error("a text cannot go on", words=str(error), made=self.made)
            owner.end(self.generation, Ending.DECODE_FAILED)
            return
        slot.append(token)
        self.made += 1
        owner.counters.generated_tokens += 1
        # An end-of-text token counts and has no text.
        ends = owner.vocabulary.ends_generation(token)
        text, stop = (b"", None) if ends else self.stops.feed(owner.vocabulary.piece(token))
        last = ends or stop is not None or self.made >= work.max_tokens
        if last and stop is None:
            text += self.stops.flush()
        known = None if work.logprobs is None else logprobs(logits, token, work.logprobs)
        owner.emit(self.generation, TokenMade(text, token, known))
        if last:
            owner.end(self.generation, Ending.LENGTH if not ends and stop is None else Ending.STOP, stop)

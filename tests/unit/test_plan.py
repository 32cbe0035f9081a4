"""Which tokens go into the next batch."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from modelbackend_server.plan import FIRST_CHUNK_TOKENS, LEAST_CHUNK_TOKENS, BatchPlan, Chunk, Pace, plan


@dataclass
class Pending:
    index: int
    evaluated: int
    known: int
    outputs: int = 1


def test_nothing_pending_plans_nothing() -> None:
    assert plan([], 512) == BatchPlan(())


def test_a_prompt_that_fits_is_evaluated_at_once_and_asked_what_comes_next() -> None:
    assert plan([Pending(0, 0, 100)], 512) == BatchPlan((Chunk(0, 0, 100, outputs=1),))


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_one_is_asked() -> None:
    assert plan([Pending(0, 0, 100)], 60) == BatchPlan((Chunk(0, 0, 60, outputs=0),))
    assert plan([Pending(0, 60, 100)], 60) == BatchPlan((Chunk(0, 60, 100, outputs=1),))


def test_a_generating_sequence_takes_its_step_before_anothers_prompt() -> None:
    assert plan([Pending(3, 0, 1000), Pending(1, 40, 41)], 512) == BatchPlan(
        (Chunk(1, 40, 41, outputs=1), Chunk(3, 0, 511, outputs=0))
    )


def test_prompts_are_evaluated_first_come_first_served() -> None:
    assert plan([Pending(2, 0, 300), Pending(0, 0, 300)], 512) == BatchPlan(
        (Chunk(0, 0, 212, outputs=0), Chunk(2, 0, 300, outputs=1))
    )


@st.composite
def pendings(draw: st.DrawFn) -> list[Pending]:
    slots = draw(st.lists(st.integers(0, 15), unique=True, min_size=1, max_size=16))
    made = []
    for slot in slots:
        evaluated = draw(st.integers(0, 1000))
        made.append(Pending(slot, evaluated, evaluated + draw(st.integers(1, 1000))))
    return made


@given(pendings(), st.integers(16, 2048))
def test_sequences_stand_by_slot_in_a_plan_so_that_llama_cpp_computes_neighbours_together(
    pending: list[Pending], budget: int
) -> None:
    slots = [chunk.slot for chunk in plan(pending, budget).chunks]
    assert slots == sorted(slots)


@given(pendings(), st.integers(16, 2048))
def test_a_plan_is_never_empty_never_too_long_and_skips_no_position(pending: list[Pending], budget: int) -> None:
    batch = plan(pending, budget)
    by_slot = {sequence.index: sequence for sequence in pending}
    assert 0 < batch.token_count <= budget
    assert len({chunk.slot for chunk in batch.chunks}) == len(batch.chunks)
    for chunk in batch.chunks:
        sequence = by_slot[chunk.slot]
        assert chunk.start == sequence.evaluated
        assert chunk.start < chunk.stop <= sequence.known
        assert chunk.outputs == (chunk.stop == sequence.known)


@given(pendings(), st.integers(16, 2048))
def test_every_generating_sequence_takes_part_in_every_plan(pending: list[Pending], budget: int) -> None:
    planned = {chunk.slot for chunk in plan(pending, budget).chunks}
    assert {sequence.index for sequence in pending if sequence.known - sequence.evaluated == 1} <= planned


@given(pendings(), st.integers(16, 512))
def test_every_prompt_is_through_after_a_bounded_number_of_plans(pending: list[Pending], budget: int) -> None:
    tokens = sum(sequence.known - sequence.evaluated for sequence in pending)
    left = {sequence.index: sequence for sequence in pending}
    for _ in range(tokens // budget + 1):
        for chunk in plan(list(left.values()), budget).chunks:
            left[chunk.slot] = Pending(chunk.slot, chunk.stop, left[chunk.slot].known)
        left = {slot: sequence for slot, sequence in left.items() if sequence.evaluated < sequence.known}
    assert left == {}


def test_only_the_last_tokens_of_a_scored_text_are_asked_also_when_it_is_cut() -> None:
    assert plan([Pending(0, 0, 10, outputs=4)], 512) == BatchPlan((Chunk(0, 0, 10, outputs=4),))
    assert plan([Pending(0, 0, 10, outputs=4)], 8) == BatchPlan((Chunk(0, 0, 8, outputs=2),))
    assert plan([Pending(0, 8, 10, outputs=4)], 8) == BatchPlan((Chunk(0, 8, 10, outputs=2),))


def test_prompts_may_be_given_less_room_than_the_batch_has() -> None:
    generating = [Pending(slot, 5, 6) for slot in range(20)]
    batch = plan([Pending(30, 0, 1000), *generating], 512, 16)
    assert batch.token_count == 20 + 16
    assert batch.prompt_token_count == 16
    assert batch.output_count == 20


def step(prompt_tokens: int, generating: int = 0) -> BatchPlan:
    chunks = [Chunk(slot, 7, 8, outputs=1) for slot in range(generating)]
    if prompt_tokens:
        chunks.append(Chunk(60, 0, prompt_tokens, outputs=0))
    return BatchPlan(tuple(chunks))


def test_a_chunk_takes_the_time_that_streams_can_wait() -> None:
    pace = Pace(target_step_seconds=0.2)
    assert pace.prompt_tokens(streaming=False, at_most=512) == 512
    assert pace.prompt_tokens(streaming=True, at_most=512) == FIRST_CHUNK_TOKENS
    for _ in range(30):
        pace.observe(step(0, generating=4), 0.04)
        pace.observe(step(100, generating=4), 0.04 + 0.1)
    # A token costs 1 ms, and the streams' own step 40 ms of the 200.
    assert pace.prompt_tokens(streaming=True, at_most=512) in range(155, 166)
    assert pace.prompt_tokens(streaming=True, at_most=100) == 100
    assert pace.prompt_tokens(streaming=False, at_most=512) == 512


def test_a_prompt_moves_on_however_slow_the_machine_is() -> None:
    pace = Pace(target_step_seconds=0.2)
    pace.observe(step(0, generating=4), 5.0)
    pace.observe(step(100, generating=4), 60.0)
    assert pace.prompt_tokens(streaming=True, at_most=512) == LEAST_CHUNK_TOKENS

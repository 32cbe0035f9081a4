"""The server's states: every event in every state."""

from __future__ import annotations

import pytest

from modelbackend_server.lifecycle import Lifecycle, State

LOADING, SERVING, DRAINING, STOPPED, FAILED = State

REACHED = {
    LOADING: Lifecycle(),
    SERVING: Lifecycle().loaded(),
    DRAINING: Lifecycle().loaded().drain(10),
    STOPPED: Lifecycle().loaded().drain(10).stopped(),
    FAILED: Lifecycle().failed("out of memory"),
}

EVENTS = {
    "loaded": lambda lifecycle: lifecycle.loaded(),
    "drain": lambda lifecycle: lifecycle.drain(20),
    "terminate": lambda lifecycle: lifecycle.terminate(20),
    "stopped": lambda lifecycle: lifecycle.stopped(),
    "failed": lambda lifecycle: lifecycle.failed("a bug"),
}

NEXT = {
    "loaded": {LOADING: SERVING, SERVING: SERVING, DRAINING: DRAINING, STOPPED: STOPPED, FAILED: FAILED},
    "drain": {LOADING: DRAINING, SERVING: DRAINING, DRAINING: DRAINING, STOPPED: STOPPED, FAILED: FAILED},
    "terminate": {LOADING: DRAINING, SERVING: DRAINING, DRAINING: DRAINING, STOPPED: STOPPED, FAILED: FAILED},
    "stopped": {LOADING: LOADING, SERVING: SERVING, DRAINING: STOPPED, STOPPED: STOPPED, FAILED: FAILED},
    "failed": {LOADING: FAILED, SERVING: FAILED, DRAINING: FAILED, STOPPED: STOPPED, FAILED: FAILED},
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", EVENTS)
def test_each_event_leads_where_the_diagram_says(event: str, state: State) -> None:
    assert REACHED[state].state is state
    assert EVENTS[event](REACHED[state]).state is NEXT[event][state]


def test_the_first_failure_is_the_one_that_is_told() -> None:
    assert REACHED[FAILED].failed("another").failure == "out of memory"


def test_a_later_drain_may_lengthen_or_shorten_the_time() -> None:
    draining = REACHED[DRAINING]
    assert draining.drain(30).drain_deadline == 30
    assert draining.drain(5).drain_deadline == 5


def test_a_second_signal_can_only_hurry() -> None:
    terminating = REACHED[SERVING].terminate(100)
    assert terminating.terminate(3).terminate_deadline == 3
    assert terminating.terminate(300).terminate_deadline == 100


def test_nothing_is_cut_before_a_signal() -> None:
    assert REACHED[DRAINING].cut_at is None
    assert not REACHED[DRAINING].terminating


@pytest.mark.parametrize(
    ("drain", "terminate", "cut"),
    [(None, 100, 100), (50, 100, 50), (100, 50, 50)],
    ids=["no drain", "the drain gave less", "the signal gives less"],
)
def test_after_a_signal_the_nearer_deadline_cuts(drain: float | None, terminate: float, cut: float) -> None:
    lifecycle = REACHED[SERVING] if drain is None else REACHED[SERVING].drain(drain)
    assert lifecycle.terminate(terminate).cut_at == cut
    assert lifecycle.terminate(terminate).terminating


def test_a_stopped_or_failed_server_takes_no_deadline_any_more() -> None:
    for state in (STOPPED, FAILED):
        assert REACHED[state].drain(99) == REACHED[state]
        assert REACHED[state].terminate(99) == REACHED[state]

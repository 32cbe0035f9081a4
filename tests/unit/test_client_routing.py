"""Where a client's call goes, and whether it is sent again; without a server."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from modelbackend_client import CallError
from modelbackend_client.directory import Fixed, directory_of
from modelbackend_client.kubernetes_directory import view_of
from modelbackend_client.routing import OWNER_WAIT_SECONDS, REROUTES_MAX, Attempts, Endpoint, View, Wait

A, B = Endpoint("a:1", "uid", "pod-a"), Endpoint("b:1", "uid", "pod-b")
BOTH = View((A, B))


def attempts(*, owner_wait_seconds: float = 30, timeout_seconds: float | None = None) -> Attempts:
    return Attempts.begin(0, owner_wait_seconds=owner_wait_seconds, timeout_seconds=timeout_seconds)


def error(reason: str, *, not_started: bool = True, retry_after_seconds: float | None = None) -> CallError:
    code = grpc.StatusCode.UNAVAILABLE
    return CallError(code, "words", reason=reason, not_started=not_started, retry_after_seconds=retry_after_seconds)


def test_a_refused_call_goes_to_an_instance_that_was_not_asked_yet() -> None:
    call = attempts()
    assert call.next(BOTH, 0) == A
    call.failed(A, error("DRAINING", retry_after_seconds=1), 0)
    assert call.next(BOTH, 0) == B
    call.failed(B, error("LOADING", retry_after_seconds=2), 0)
    # Both are left alone for as long as they have asked for.
    assert call.next(BOTH, 0.5) == Wait(0.5)
    assert call.next(BOTH, 1) == A


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (error("DECODE_FAILED", not_started=False), "the model may have worked on it"),
        (error("DRAINING", not_started=False), "it looks like a redirect, and promises nothing"),
        (error("", not_started=False), "the connection broke in mid-call"),
        (error("BAD_REQUEST"), "no other instance finds it better"),
        (error("DEADLINE_IN_QUEUE"), "there is no time left"),
        (error("MODEL_MISMATCH"), "the caller means another model"),
    ],
)
def test_an_error_ends_the_call_where_sending_it_again_is_unsafe_or_no_use(found: CallError, why: str) -> None:
    with pytest.raises(CallError) as raised:
        attempts().failed(A, found, 0)
    assert raised.value is found, why


def test_a_call_is_sent_again_at_most_four_times() -> None:
    call = attempts()
    for _ in range(REROUTES_MAX):
        call.failed(A, error("BACKEND_MISMATCH"), 0)
    with pytest.raises(CallError, match="BACKEND_MISMATCH"):
        call.failed(A, error("BACKEND_MISMATCH"), 0)


def test_a_call_to_an_address_is_sent_once() -> None:
    with pytest.raises(CallError, match="DRAINING"):
        attempts(owner_wait_seconds=0).failed(A, error("DRAINING"), 0)


def test_a_call_waits_for_an_instance_so_long_and_then_says_what_is_missing() -> None:
    call, nobody = attempts(), View(why_none="ModelBackend models/m has no ready instance (Loading)")
    assert isinstance(call.next(nobody, 0), Wait)
    assert call.next(View((B,)), 12) == B
    with pytest.raises(
        CallError, match=r"waited 30 s: ModelBackend models/m has no ready instance \(Loading\)"
    ) as late:
        call.next(nobody, 30)
    assert (late.value.reason, late.value.not_started) == ("NO_INSTANCE", True)


def test_after_the_wait_the_last_refusal_is_what_the_caller_gets() -> None:
    call = attempts()
    refusal = error("QUEUE_FULL", retry_after_seconds=60)
    call.failed(A, refusal, 0)
    with pytest.raises(CallError) as raised:
        call.next(View((A,)), 30)
    assert raised.value is refusal


def test_the_callers_deadline_ends_a_wait_and_is_handed_on() -> None:
    call = attempts(timeout_seconds=5)
    assert call.next(View(), 2) == Wait(3)
    assert call.seconds_left(2) == 3
    with pytest.raises(CallError) as late:
        call.next(View(), 5)
    assert (late.value.code, late.value.not_started) == (grpc.StatusCode.DEADLINE_EXCEEDED, True)


def test_an_address_is_told_from_the_name_of_a_backend() -> None:
    directory, wait_seconds = directory_of("node-1:30007", "uid-1")
    assert isinstance(directory, Fixed)
    assert (directory.view, wait_seconds) == (View((Endpoint("node-1:30007", "uid-1"),)), 0)
    for address in ("10.0.0.1:1", "[::1]:30007", "unix:///run/x.sock", "dns:///host:1"):
        assert isinstance(directory_of(address, None)[0], Fixed)
    assert OWNER_WAIT_SECONDS == 30


def backend(**status: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "uid-1"}, "status": status}


GRPC = {"ordinal": 0, "role": "Grpc", "podUID": "pod-a", "address": "a:1"}


@pytest.mark.parametrize(
    ("found", "endpoints", "words"),
    [
        (None, (), "there is no ModelBackend models/m"),
        ({"metadata": {"uid": "uid-1"}}, (), "has no ready instance"),
        (backend(endpoints=[GRPC, {**GRPC, "role": "Http"}]), (Endpoint("a:1", "uid-1", "pod-a"),), ""),
        (
            backend(conditions=[{"type": "Ready", "reason": "Loading", "message": "half of it"}]),
            (),
            "no ready instance (Loading: half of it)",
        ),
        ({"metadata": {"uid": "uid-2"}, "status": {"endpoints": [GRPC]}}, (), "has the uid uid-2, not uid-1"),
    ],
)
def test_a_status_says_where_a_backend_is_served_or_why_it_is_not(found: Any, endpoints: Any, words: str) -> None:
    view = view_of(found, "models/m", "uid-1")
    assert view.endpoints == endpoints
    assert words in view.why_none

"""The trace: one line a step, with everything needed to follow and to replay it, and no whole object."""

import json
import logging
from typing import Any

import pytest

from modelbackend_operator.abstract import abstract
from modelbackend_operator.actions import AcquireLease, CreateClaim, DeletePod, WriteStatus
from modelbackend_operator.log_format import configure_logging
from modelbackend_operator.model.lease import Holder
from modelbackend_operator.model.stop import StopReason
from modelbackend_operator.outcome import Applied, Denied
from modelbackend_operator.settings import LogFormat
from modelbackend_operator.trace import Trace, arguments_of, target_of
from tests.unit.builders import (
    BACKEND_UID,
    NOW,
    POD_UID,
    PORT,
    a_backend,
    a_draining_pod,
    a_rejected_pod,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    bound,
    later,
)


class Lines:
    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.written.append({"event": event, **fields})


def test_each_step_has_a_number_its_key_its_target_and_its_outcome() -> None:
    lines = Lines()
    trace, world = Trace(lines), a_world(a_backend())
    assert world.backend is not None
    trace.step(world, CreateClaim(world.backend, 0, 30007), Applied())
    trace.step(a_world(None), CreateClaim(world.backend, 0, 30008), Denied("quota"))
    first, second = lines.written
    assert (first["seq"], second["seq"]) == (1, 2)
    assert (first["key"], first["backend"], first["action"]) == (BACKEND_UID, "models/smollm2", "CreateClaim")
    assert (first["target"], first["arguments"]) == ("models/smollm2@1", {"ordinal": 0, "port": 30007, "role": "Grpc"})
    assert (second["backend"], second["outcome"], second["message"]) == (None, "Denied", "quota")


def test_arguments_are_told_and_objects_are_not() -> None:
    backend = a_backend()
    holder = Holder(BACKEND_UID, 0, "pod-uid", StopReason.DELETED)
    told = {"backend_uid": BACKEND_UID, "ordinal": 0, "pod_uid": "pod-uid", "purpose": "BackendDeleted"}
    assert arguments_of(AcquireLease(backend, holder)) == {"holder": told}
    assert arguments_of(WriteStatus(backend, {"conditions": []})) == {}
    assert target_of(WriteStatus(backend, {})) == "models/smollm2@1"


def test_a_chain_of_steps_ends_with_one_line_and_looks_without_steps_are_not_told() -> None:
    lines = Lines()
    trace, world = Trace(lines, now=lambda: NOW), a_world(a_backend())
    assert world.backend is not None
    trace.settled(world)
    trace.step(world, CreateClaim(world.backend, 0, 30007), Applied())
    trace.settled(world)
    trace.settled(world)
    assert [(line["event"], line["seq"]) for line in lines.written] == [("step", 1), ("settled", 2)]


def test_a_line_holds_what_was_seen_as_the_specification_names_it() -> None:
    lines, pod = Lines(), a_draining_pod()
    world = bound(pod)
    Trace(lines, now=lambda: later(3600)).step(world, DeletePod(pod, 15), Applied())
    (line,) = lines.written
    seen = line["seen"]
    (of_pod,), (of_claim,) = seen["pods"], seen["claims"]
    assert line["written"] == {"pod": POD_UID, "ordinal": 0}
    assert (seen["backend"]["life"], seen["backend"]["wanted"]) == ("live", [0])
    assert (of_pod["record"], of_pod["due"], of_pod["gated"], of_pod["word"]) == ("ours", True, False, "none")
    place = {"port": PORT, "role": "Grpc", "ordinal": 0}
    assert of_claim == place | {"phase": "Bound", "pod": POD_UID, "going": False}
    assert seen["vouched"] == []
    assert json.loads(json.dumps(seen)) == seen


WORDS = {
    "ended by the kubelet's word": (an_ended_pod(), "ended"),
    "refused before it ran": (a_rejected_pod(), "rejected"),
    "refused after it had run": (a_rejected_pod(withdrawn=True), "failed"),
    "failed by garbage collection": (a_terminating_pod(removed_by_pod_gc=True), "lost"),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_was_told_of_a_pods_end_is_one_word(case: str) -> None:
    pod, word = WORDS[case]
    assert [seen["word"] for seen in abstract(bound(pod), NOW)["pods"]] == [word]


def test_what_is_due_is_told_as_of_the_decision_also_when_the_write_takes_long() -> None:
    lines, pod = Lines(), a_draining_pod()
    Trace(lines, now=lambda: later(3600)).step(bound(pod), DeletePod(pod, 15), Applied(), later(0))
    assert [seen["due"] for seen in lines.written[0]["seen"]["pods"]] == [False]


def test_a_step_is_one_json_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging(LogFormat.JSON, "INFO")
        world = a_world(a_backend())
        assert world.backend is not None
        Trace().step(world, CreateClaim(world.backend, 0, 30007), Denied("no"))
        logging.getLogger("modelbackend_operator.queue").warning("said %s", "otherwise", extra={"key": BACKEND_UID})
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    step, words = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (step["event"], step["action"], step["outcome"], step["message"]) == ("step", "CreateClaim", "Denied", "no")
    assert (words["event"], words["key"], words["level"]) == ("said otherwise", BACKEND_UID, "warning")

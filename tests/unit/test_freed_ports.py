"""How long a port takes to be free again."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from modelbackend_operator.actions import BindClaim, CoolClaim, DeleteClaim, RemoveClaimFinalizer, ReserveClaim
from modelbackend_operator.freed_ports import REMEMBERED_MAX, Freed, FreedPorts
from modelbackend_operator.metrics import Metrics
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.model.ref import Ref
from modelbackend_operator.outcome import Applied, Conflict
from tests.unit.builders import (
    NOW,
    a_backend,
    a_claim,
    a_deleted_backend,
    a_gated_pod,
    a_stop,
    a_terminating_pod,
    a_world,
    an_ended_pod,
    later,
)

CLAIM = a_claim(ClaimPhase.BOUND, since=later(-3600))
COOL = CoolClaim(CLAIM, "ContainersTerminated")


@pytest.mark.parametrize(
    ("world", "asked_at"),
    [
        (a_world(a_backend(), pods=[an_ended_pod(stop=a_stop(since=later(-40)))]), later(-40)),
        (a_world(a_backend(), pods=[a_terminating_pod(stop=None, deleted_at=later(-30))]), later(-30)),
        (a_world(replace(a_deleted_backend(), deleting_since=later(-20))), later(-20)),
        (a_world(a_backend()), CLAIM.since),
        (a_world(None), CLAIM.since),
    ],
    ids=["its stop record", "deleted by others", "its backend deleted", "it vanished", "all are gone"],
)
def test_a_port_is_free_when_its_claim_goes_counted_from_the_wish_to_end_its_holder(
    world: Any, asked_at: datetime
) -> None:
    freed = FreedPorts()
    assert freed.step(world, COOL, NOW) is None
    assert freed.step(world, DeleteClaim(CLAIM), later(15)) is None
    seconds = (later(15) - asked_at).total_seconds()
    assert freed.step(world, RemoveClaimFinalizer(CLAIM), later(15)) == Freed("ContainersTerminated", seconds)
    assert freed.step(world, RemoveClaimFinalizer(CLAIM), later(15)) is None, "once"


@pytest.mark.parametrize("back", [ReserveClaim(CLAIM), BindClaim(CLAIM, a_gated_pod())], ids=["taken back", "bound"])
def test_a_port_that_its_own_instance_keeps_was_not_freed(back: Any) -> None:
    freed, world = FreedPorts(), a_world(a_backend())
    freed.step(world, COOL, NOW)
    freed.step(world, back, NOW)
    assert freed.step(world, RemoveClaimFinalizer(CLAIM), NOW) is None


def test_what_others_settle_is_forgotten_in_the_end() -> None:
    freed, world = FreedPorts(), a_world(a_backend())
    claims = [replace(CLAIM, ref=Ref("port", f"claim-{n}", "1")) for n in range(REMEMBERED_MAX + 1)]
    for claim in claims:
        freed.step(world, CoolClaim(claim, "Attested"), NOW)
    assert freed.step(world, RemoveClaimFinalizer(claims[0]), NOW) is None
    assert freed.step(world, RemoveClaimFinalizer(claims[1]), NOW) is not None


def test_the_series_is_told_by_evidence_and_only_for_writes_that_took_effect() -> None:
    metrics, world = Metrics(), a_world(a_backend())
    metrics.step(world, COOL, Applied())
    metrics.step(world, RemoveClaimFinalizer(CLAIM), Conflict())
    count = "modelbackend_operator_port_free_seconds_count"
    assert metrics.registry.get_sample_value(count, {"evidence": "ContainersTerminated"}) is None
    metrics.step(world, RemoveClaimFinalizer(CLAIM), Applied())
    assert metrics.registry.get_sample_value(count, {"evidence": "ContainersTerminated"}) == 1

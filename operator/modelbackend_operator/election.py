"""Which of several operator processes works: the one that holds the Lease `modelbackend-operator-leader`.

This saves work and noise. Correctness never depends on it: every write is conditional, whoever sends it.

Time is this process's monotonic clock only. A candidate takes a Lease over once its record has not changed for its
duration *as the candidate saw it*, so clocks may differ by any amount; the times written into it are for people. A
leader counts from before its last successful renewal was sent, and is none any more after the renew deadline, also
when it was stopped meanwhile and knows nothing of it. See https://kubernetes.io/docs/concepts/architecture/leases/.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from modelbackend_operator.kubernetes_api import Answer
from modelbackend_operator.timestamps import micro_time

LEASE_NAME = "modelbackend-operator-leader"
log = logging.getLogger(__name__)


class Leadership(Protocol):
    """Whether this process may write, now and from when until when."""

    @property
    def is_leader(self) -> bool: ...

    async def lead(self) -> None:
        """Until this process leads."""

    async def hold(self) -> None:
        """Until it does not any more."""

    async def release(self) -> None:
        """Let another one lead at once."""


class Alone:
    """Of an operator that runs once: there is nobody to agree with."""

    is_leader = True

    async def lead(self) -> None:
        return

    async def hold(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Timing:
    """A leader stops at the renew deadline; candidates wait for the longer lease duration. Seconds."""

    lease_seconds: int = 15
    renew_deadline_seconds: float = 10
    retry_seconds: float = 2

    @property
    def call_seconds(self) -> float:
        """For one call: a leader gets a second try before its deadline."""
        return (self.renew_deadline_seconds - self.retry_seconds) / 2


class Call(Protocol):
    async def __call__(self, verb: str, path: str, *, body: Mapping[str, Any] | None = None) -> Answer: ...


class Election:
    """`identity` is unique to this process; `call` is `KubernetesApi.call`."""

    def __init__(self, call: Call, namespace: str, identity: str, timing: Timing) -> None:
        self._call = call
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._identity = identity
        self._timing = timing
        self._leads_until = 0.0
        self._seen: tuple[Mapping[str, Any], float] = ({}, 0.0)  # the last record, and when it was first seen

    @property
    def is_leader(self) -> bool:
        return asyncio.get_running_loop().time() < self._leads_until

    async def lead(self) -> None:
        leads = await self._try()
        while not leads:
            await asyncio.sleep(self._timing.retry_seconds)
            leads = await self._try()
        log.info("this process leads: %s", self._identity)

    async def hold(self) -> None:
        while self.is_leader:
            await asyncio.sleep(min(self._timing.retry_seconds, self._remaining_seconds()))
            if self.is_leader:
                await self._try()
        log.error("this process does not lead any more: %s", self._identity)

    async def release(self) -> None:
        """A Lease without a holder is free at once. Where it cannot be written, it runs out."""
        if not self.is_leader:
            return
        self._leads_until = 0.0
        found = await self._bounded("GET", f"{self._leases}/{LEASE_NAME}")
        if found.ok and _spec(found).get("holderIdentity") == self._identity:
            spec = {**_spec(found), "holderIdentity": "", "leaseDurationSeconds": 1}
            await self._bounded("PUT", f"{self._leases}/{LEASE_NAME}", {**found.body, "spec": spec})

    # -- one attempt --------------------------------------------------------------------------------------------------

    async def _try(self) -> bool:
        """Take the Lease or renew it. False when it is another's, or when nothing is known."""
        sent_at = asyncio.get_running_loop().time()
        found = await self._bounded("GET", f"{self._leases}/{LEASE_NAME}")
        if found.denies_existence():
            written = await self._bounded("POST", self._leases, self._record({}))
        elif not found.ok:
            return self._unknown("read", found)
        elif not self._is_free(_spec(found)):
            self._leads_until = 0.0
            return False
        else:
            # Under the version that was read: of two candidates one is answered with 409.
            body = {**found.body, "spec": self._record(_spec(found))["spec"]}
            written = await self._bounded("PUT", f"{self._leases}/{LEASE_NAME}", body)
        if not written.ok:
            return self._unknown("written", written)
        self._leads_until = sent_at + self._timing.renew_deadline_seconds
        return True

    def _is_free(self, spec: Mapping[str, Any]) -> bool:
        """Ours, nobody's, or unchanged for as long as its holder had promised to renew it."""
        now = asyncio.get_running_loop().time()
        if spec != self._seen[0]:
            self._seen = (spec, now)
        if spec.get("holderIdentity") in (self._identity, "", None):
            return True
        return now - self._seen[1] > (spec.get("leaseDurationSeconds") or self._timing.lease_seconds)

    def _record(self, before: Mapping[str, Any]) -> dict[str, Any]:
        now, ours = micro_time(datetime.now(UTC)), before.get("holderIdentity") == self._identity
        transitions = before.get("leaseTransitions") or 0
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE_NAME},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._timing.lease_seconds,
                "acquireTime": before.get("acquireTime") if ours else now,
                "renewTime": now,
                "leaseTransitions": transitions if ours or not before else transitions + 1,
            },
        }

    async def _bounded(self, verb: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                return await self._call(verb, path, body=body)
        except TimeoutError:
            return Answer(0, {"message": f"no answer within {self._timing.call_seconds} s"})

    def _unknown(self, what: str, answer: Answer) -> bool:
        log.warning("Lease %s cannot be %s: %s", LEASE_NAME, what, answer.message)
        return False

    def _remaining_seconds(self) -> float:
        return max(0.0, self._leads_until - asyncio.get_running_loop().time())


def _spec(answer: Answer) -> Mapping[str, Any]:
    return answer.body.get("spec") or {}

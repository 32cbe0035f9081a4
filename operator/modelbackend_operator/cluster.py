"""The seam between the rules and a cluster: the controller sees only this protocol.

`kubernetes_cluster.py` implements it against a real API server; tests may implement it over a dictionary.
"""

from typing import Protocol

from modelbackend_operator.actions import Action
from modelbackend_operator.events import Event
from modelbackend_operator.model.observation import Observation
from modelbackend_operator.outcome import Outcome


class Cluster(Protocol):
    """One ModelBackend at a time, by its uid."""

    async def snapshot(self, backend_uid: str, *, live: bool = False) -> Observation:
        """All that is known of this backend: from the cache, or (live) read from the API server just now.

        Servers that `decide.servers_to_ask` returns are asked for their status. Raises `ClusterUnavailable` when a
        live read fails: no decision is made from half a look.
        """
        ...

    async def apply(self, action: Action) -> Outcome:
        """One write, under the uid and resourceVersion in the action. Never raises for an answer of the API."""
        ...

    async def post_event(self, event: Event) -> None:
        """Best effort: an Event that cannot be written is logged and dropped."""
        ...


class ClusterUnavailable(Exception):  # noqa: N818 - a state of the cluster, nobody's error
    """The API server could not be read; says what was asked and what came back."""

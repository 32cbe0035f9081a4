"""The event pump: every change of a kind we read goes into the cache, and the keys it concerns into the queue.

The only importer of kopf, and of kopf only the low-level event handlers: those write nothing to any object, so no
annotation, finalizer or stored progress of a framework stands between an object and what the operator decides.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import kopf

from modelbackend_operator.api import GROUP
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.kubernetes_api import Credentials
from modelbackend_operator.settings import Settings

Hear = Callable[[Kind, Raw, bool], None]
"""Kind, object, and whether it was deleted."""

SERVER_SIDE_WATCH_SECONDS = 300
CONNECT_SECONDS = 10
SILENT_WATCH_SECONDS = 70
"""Longer than the API server's bookmarks are apart: a watch that is silent for so long is dead, and begins anew."""
RECONNECT_SECONDS = (1, 2, 3) + (5,) * 120
"""Between attempts to watch again: short, so that an API server that is back is heard soon, and for ten minutes."""
PAGE_SIZE = 500
UNUSED_FINALIZER = f"{GROUP}/event-pump"


async def watch(
    hear: Hear,
    credentials: Callable[[], Awaitable[Credentials]],
    settings: Settings,
    kinds: Collection[Kind],
    stop: asyncio.Event,
) -> None:
    """Until `stop` is set. Returns early, or raises, when a watch breaks for good: that of a removed kind does.

    Leaves tasks of kopf's behind on the event loop, for its owner to end. It sets signal handlers where it may.
    """
    # Not kopf.operator(): that ends after its tasks have, and one of them that misses its cancellation, because it was
    # just suppressing that of a task of its own, is waited for without end: nobody would learn that a watch has broken.
    # Without an identity kopf asks the password database for the user's name: a container's numeric user has none.
    tasks = await kopf.spawn_tasks(
        registry=_registry(hear, credentials, kinds),
        settings=_kopf_settings(settings),
        clusterwide=not settings.namespaces,
        namespaces=sorted(settings.namespaces),
        standalone=True,
        identity="modelbackend-operator",  # type: ignore[arg-type] # a NewType that kopf does not export
        stop_flag=stop,
    )
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()


def _registry(
    hear: Hear, credentials: Callable[[], Awaitable[Credentials]], kinds: Collection[Kind]
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return _connection(await credentials())

    kopf.on.login(id="login", registry=registry)(login)
    for kind in kinds:
        kopf.on.event(*_resource(kind), id=kind.plural, registry=registry)(_handler(kind, hear))
    return registry


def _handler(kind: Kind, hear: Hear) -> Callable[..., Awaitable[None]]:
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        hear(kind, event["object"], event["type"] == "DELETED")

    return on_event


def _resource(kind: Kind) -> tuple[str, str, str]:
    """Group (empty for the core), version, plural."""
    group, _, version = kind.api.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
    return group, version, kind.plural


def _connection(credentials: Credentials) -> kopf.ConnectionInfo:
    scheme, _, token = (credentials.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_path,
        insecure=not credentials.verify_tls,
        certificate_path=credentials.certificate_path,
        private_key_path=credentials.private_key_path,
        scheme=scheme or None,
        token=token or None,
    )


def _kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    kopf_settings = kopf.OperatorSettings()
    kopf_settings.process.ultimate_exiting_timeout = None  # it would kill the process, not only its own thread
    kopf_settings.posting.enabled = False
    kopf_settings.peering.standalone = True
    kopf_settings.scanning.disabled = True
    kopf_settings.networking.request_timeout = settings.request_timeout_seconds
    kopf_settings.networking.connect_timeout = CONNECT_SECONDS
    kopf_settings.networking.error_backoffs = RECONNECT_SECONDS
    kopf_settings.watching.server_timeout = SERVER_SIDE_WATCH_SECONDS
    kopf_settings.watching.connect_timeout = CONNECT_SECONDS
    kopf_settings.watching.inactivity_timeout = SILENT_WATCH_SECONDS
    kopf_settings.watching.chunk_size = PAGE_SIZE
    for kind in Kind:
        if kind.selector:
            kopf_settings.watching.label_selectors[_resource(kind)] = kind.selector
    # kopf takes its own finalizer off every object that has no handler of kopf's to wait for: that must be a name which
    # nobody else uses, neither we nor another kopf operator (the default). The storages are not used by event handlers.
    kopf_settings.persistence.finalizer = UNUSED_FINALIZER
    kopf_settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    kopf_settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, v1=False)
    return kopf_settings

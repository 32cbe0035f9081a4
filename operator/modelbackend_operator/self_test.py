"""What `helm test` asks: may this account read what it must, are both kinds served, and is the operator ready?"""

import asyncio

import aiohttp

from modelbackend_operator.cluster import ClusterUnavailable
from modelbackend_operator.kinds import Kind
from modelbackend_operator.kubernetes_api import KubernetesApi
from modelbackend_operator.settings import Settings

ANSWER_SECONDS = 5
PAUSE_SECONDS = 1
ATTEMPTS = 20
"""Just after an upgrade a Service may lead to nobody for a moment."""


async def complaints(api: KubernetesApi, settings: Settings, operator_url: str) -> list[str]:
    """In sentences; none when all is well."""
    found = []
    for kind in Kind:
        for namespace in settings.namespaces_of(kind):
            try:
                await api.list(kind, namespace)
            except ClusterUnavailable as error:
                found.append(str(error))
    for _ in range(ATTEMPTS):
        unready = await _not_ready(f"{operator_url}/readyz")
        if not unready:
            return found
        await asyncio.sleep(PAUSE_SECONDS)
    return found + unready


async def _not_ready(url: str) -> list[str]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return [] if answer.status == 200 else [f"{url} says: {await answer.text()}"]
    except (aiohttp.ClientError, TimeoutError) as error:
        return [f"{url} does not answer: {error!r}"]

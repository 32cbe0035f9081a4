"""To the API server as kubectl would: by --kubeconfig, $KUBECONFIG or ~/.kube/config, and --context.

The plugin's only importer of `kubernetes`; the calls themselves are the operator's `KubernetesApi`.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import yaml
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from kubectl_mb.troubles import Exit, Trouble
from modelbackend_operator.kubernetes_api import KubernetesApi

TIMEOUT_SECONDS = 15
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Target:
    """What the user named; None: as kubectl is configured."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    def kubectl_flags(self) -> list[str]:
        """The same, for the kubectl that a command hands over to."""
        named = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        return [f"{flag}={value}" for flag, value in named.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Session:
    api: KubernetesApi
    namespace: str


@contextlib.asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Session]:
    configuration = kubernetes_client.Configuration()
    try:
        await kubernetes_config.load_kube_config(
            config_file=target.kubeconfig, context=target.context, client_configuration=configuration
        )
        namespace = target.namespace or _namespace_of_context(target)
    except (kubernetes_config.ConfigException, OSError, yaml.YAMLError) as error:
        hint = "name a file with --kubeconfig or KUBECONFIG, and one of its contexts with --context"
        raise Trouble(Exit.UNAVAILABLE, f"no way to a cluster: {error}; {hint}") from error
    client = kubernetes_client.ApiClient(configuration)
    client.user_agent = "kubectl-mb"
    api = KubernetesApi(client, timeout_seconds=TIMEOUT_SECONDS)
    async with contextlib.aclosing(api):
        yield Session(api, namespace)


def _namespace_of_context(target: Target) -> str:
    contexts, active = kubernetes_config.list_kube_config_contexts(config_file=target.kubeconfig)
    named = next((entry for entry in contexts if entry["name"] == target.context), active)
    return str(named["context"].get("namespace") or DEFAULT_NAMESPACE)

"""Names of ModelBackends, commands and flags, for shells that ask.

kubectl asks `kubectl_complete-mb` (since kubectl 1.26), which answers as cobra does: one
candidate a line, then `:` and a directive. bash and zsh may also ask `kubectl-mb` itself, by click's own script.
"""

import asyncio

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from kubectl_mb.connecting import Session, Target, connected
from kubectl_mb.look import objects
from modelbackend_operator.kinds import Kind, Raw

VARIABLE = "_KUBECTL_MB_COMPLETE"
NO_FILES = ":4"
"""cobra's ShellCompDirectiveNoFileComp."""


def complete_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Of the namespace that the line names so far. A cluster that does not answer has no candidates."""
    flags = context.params
    target = Target(flags.get("kubeconfig"), flags.get("context_name"), flags.get("namespace"))

    async def names(target: Target) -> list[str]:
        async with connected(target) as session:
            return [raw["metadata"]["name"] for raw in await _backends(session)]

    try:
        found = asyncio.run(names(target))
    except click.ClickException:
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


async def _backends(session: Session) -> tuple[Raw, ...]:
    return await objects(session, Kind.BACKEND, session.namespace)


def script(command: click.Command, shell: str) -> str:
    found = get_completion_class(shell)
    assert found is not None
    return found(command, {}, "kubectl-mb", VARIABLE).source()


def candidates(command: click.Command, words: list[str]) -> list[str]:
    """For the words after `kubectl mb`, the last of which is incomplete."""
    *args, incomplete = words or [""]
    items = ShellComplete(command, {}, "kubectl-mb", VARIABLE).get_completions(args, incomplete)
    return [f"{item.value}\t{item.help}" if item.help else item.value for item in items]

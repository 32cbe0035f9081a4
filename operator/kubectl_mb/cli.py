"""The command `kubectl mb`: its group, its end, and what its commands share. The commands are in `commands/`."""

import asyncio
import functools
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import click

from kubectl_mb.completion import complete_names
from kubectl_mb.connecting import Session, Target, connected
from kubectl_mb.look import OPERATOR_NAMESPACE, sight_of
from kubectl_mb.sight import Sight
from kubectl_mb.tables import Output
from kubectl_mb.troubles import Exit, Trouble

T = TypeVar("T")
Command = Callable[..., Any]

ANSWER_SECONDS = 15.0


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 done; 1 refused, or not confirmed; 2 wrong usage; 66 no such object; 69 no answer; "
    "75 changed at the same moment; 77 not allowed; 124 the operator did not answer in time; 130 interrupted.",
)
@click.pass_context
def cli(context: click.Context) -> None:
    """ModelBackends from a terminal: what they wait for, and the orders that end it.

    \b
    kubectl mb list -A
    kubectl mb why smollm2 -n models
    kubectl mb watch smollm2 -n models
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


def main() -> NoReturn:
    try:
        cli.main(prog_name="kubectl mb", standalone_mode=False)
        sys.exit(Exit.DONE)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(Exit.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


# -- what many commands share ------


def on_a_cluster(command: Command) -> Command:
    """With kubectl's own three flags, handed over as one `Target`."""

    @click.option("-n", "--namespace", help="As for kubectl; by default that of the context.")
    @click.option("--context", "context_name", help="A context of the kubeconfig.")
    @click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default KUBECONFIG, or ~/.kube/config.")
    @functools.wraps(command)
    def with_target(*, namespace: str | None, context_name: str | None, kubeconfig: str | None, **flags: Any) -> Any:
        return command(target=Target(kubeconfig, context_name, namespace), **flags)

    return with_target


def backend_name(command: Command) -> Command:
    return click.argument("name", shell_complete=complete_names)(command)


def output(*choices: Output) -> Callable[[Command], Command]:
    values = [str(choice) for choice in choices]
    return click.option("-o", "--output", "form", type=click.Choice(values), default=values[0], show_default=True)


def instance_options(command: Command) -> Command:
    command = click.option("--instance", type=click.IntRange(min=0), help="By its ordinal.")(command)
    return click.option("--pod", help="By its pod's uid.")(command)


def confirmed(question: str, *, yes: bool) -> None:
    """Raises Trouble where the answer is no."""
    if not yes and not click.confirm(question):
        raise Trouble(Exit.NO, "not confirmed; nothing was done")


confirmation = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
wait_option = click.option(
    "--timeout",
    "wait_seconds",
    type=float,
    default=ANSWER_SECONDS,
    show_default=True,
    help="Seconds to wait for the operator's answer; exit code 124 after them.",
)
operator_namespace = click.option(
    "--operator-namespace", default=OPERATOR_NAMESPACE, show_default=True, help="Where the operator's Leases are."
)


def with_session(target: Target, work: Callable[[Session], Awaitable[T]]) -> T:
    async def run() -> T:
        async with connected(target) as session:
            return await work(session)

    return asyncio.run(run())


def utc_now() -> datetime:
    return datetime.now(UTC)


def see(target: Target, name: str, operators: str) -> Sight:
    """Raises Trouble where there is neither such a backend nor anything left of one."""
    sight = with_session(target, lambda session: sight_of(session, name, operator_namespace=operators))
    if sight.backend is None and not sight.claims and not sight.pods:
        raise Trouble(
            Exit.NOT_FOUND,
            f"there is no ModelBackend {name} in namespace {sight.namespace}, and no port is kept for one; "
            f"kubectl mb list -n {sight.namespace} shows those there are",
        )
    return sight


def kubectl_program() -> str:
    found = shutil.which("kubectl")
    if found is None:
        raise Trouble(Exit.UNAVAILABLE, "there is no kubectl on the PATH, and this command hands over to it")
    return found

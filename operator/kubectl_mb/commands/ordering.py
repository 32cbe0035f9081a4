"""Commands that order: drain, resume, force, extend, attest, release-finalizers."""

from collections.abc import Sequence
from datetime import timedelta

import click

from kubectl_mb import orders, releasing
from kubectl_mb.cli import (
    backend_name,
    cli,
    confirmation,
    confirmed,
    instance_options,
    on_a_cluster,
    see,
    wait_option,
    with_session,
)
from kubectl_mb.clock import span
from kubectl_mb.connecting import Target
from kubectl_mb.look import OPERATOR_NAMESPACE, backend_named
from kubectl_mb.sight import status_of
from kubectl_mb.troubles import Exit, Trouble
from modelbackend_operator.model.backend import OrderKind


@cli.command()
@backend_name
@click.option("--instance", type=click.IntRange(min=0), help="Only this one; it is replaced when it has ended.")
@on_a_cluster
def drain(target: Target, name: str, instance: int | None) -> None:
    """Stop all instances and keep the object (spec.suspend), or end one instance, which is then replaced.

    Running requests finish first, for at most shutdown.drainSeconds.

    \b
    kubectl mb drain smollm2 -n models
    kubectl mb drain smollm2 -n models --instance 1
    """
    if instance is not None:
        choice = orders.Choice(instance)
        pod = with_session(target, lambda session: orders.end_instance(session, name, choice))
        click.echo(
            f"instance {instance} of {name} drains and ends (pod {pod}); another one follows. kubectl mb watch {name}"
        )
        return
    changed = with_session(target, lambda session: orders.suspend(session, name, suspended=True))
    state = "drains: all its instances end" if changed else "was suspended already"
    click.echo(
        f"{name} {state}, and the object stays. kubectl mb watch {name}; kubectl mb resume {name} starts it again"
    )


@cli.command()
@backend_name
@on_a_cluster
def resume(target: Target, name: str) -> None:
    """Start a drained backend again (spec.suspend: false).

    \b
    kubectl mb resume smollm2 -n models
    """
    changed = with_session(target, lambda session: orders.suspend(session, name, suspended=False))
    click.echo(f"{name} {'starts again' if changed else 'was not suspended'}. kubectl mb watch {name}")


@cli.command()
@backend_name
@click.option("--reason", required=True, help="Is kept in the stop record and in Events.")
@instance_options
@click.option("--all", "every", is_flag=True, help="All instances of this moment.")
@wait_option
@confirmation
@on_a_cluster
def force(
    target: Target,
    name: str,
    reason: str,
    instance: int | None,
    pod: str | None,
    every: bool,
    wait_seconds: float,
    yes: bool,
) -> None:
    """End an instance now, whatever runs in it: its requests are cut, and counted.

    Without --instance, --pod or --all: the one that is being stopped, or the only one.

    \b
    kubectl mb force smollm2 -n models --reason "stuck in a batch job"
    """
    choice = orders.Choice(instance, pod, every)
    backend = with_session(target, lambda session: backend_named(session, name))
    told = [entry.in_flight for entry in status_of(backend).instances if entry.in_flight is not None]
    running = str(sum(told)) if told else "an unknown number of"
    confirmed(f"This cuts what runs in {name} ({running} requests). Go on?", yes=yes)
    entry = with_session(
        target,
        lambda session: orders.order(session, name, OrderKind.FORCE, choice, reason, wait_seconds=wait_seconds),
    )
    click.echo(f"accepted for {_pods(entry.pods)}: it is ended now. kubectl mb watch {name}")


@cli.command()
@backend_name
@click.argument("seconds", type=int)
@instance_options
@wait_option
@on_a_cluster
def extend(target: Target, name: str, seconds: int, instance: int | None, pod: str | None, wait_seconds: float) -> None:
    """Let an instance drain for SECONDS longer than shutdown.drainSeconds, counted from the beginning of its stop.

    \b
    kubectl mb extend smollm2 600 -n models
    """
    choice, words = orders.Choice(instance, pod), orders.extension(seconds)
    entry = with_session(
        target, lambda session: orders.order(session, name, OrderKind.EXTEND, choice, words, wait_seconds=wait_seconds)
    )
    click.echo(f"accepted for {_pods(entry.pods)}: {span(timedelta(seconds=seconds))} more. kubectl mb watch {name}")


def _pods(uids: Sequence[str]) -> str:
    return "no pod, because there is none" if not uids else f"pod{'s' if len(uids) > 1 else ''} {', '.join(uids)}"


@cli.command()
@click.argument("where", metavar="PORT|NAME")
@click.option(
    "--pod", required=True, help="The uid of the pod that you know has ended; kubectl mb ports -o wide shows it."
)
@click.option("--reason", required=True, help="How you know. It is kept in the claim's history.")
@wait_option
@confirmation
@on_a_cluster
def attest(target: Target, where: str, pod: str, reason: str, wait_seconds: float, yes: bool) -> None:
    """Give your word that no process of a pod runs any more, so that its port may be used again.

    With the NAME of a ModelBackend for one that claims no port (exposure ClusterIP).

    \b
    kubectl mb attest 30007 --pod 6f1c... --reason "the machine is unplugged"
    """
    question = (
        f"If a process of pod {pod} still runs, two servers may answer on one port. Do you know that it has ended?"
    )
    confirmed(question, yes=yes)
    click.echo(
        with_session(target, lambda session: orders.attest(session, where, pod, reason, wait_seconds=wait_seconds))
    )


@cli.command("release-finalizers")
@backend_name
@click.option("--reason", required=True, help="Is kept in an Event on each object.")
@click.option("--pods", is_flag=True, help="Also its pods' finalizers.")
@click.option("--ports", is_flag=True, help="Also its port claims, which are then deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for the name.")
@on_a_cluster
def release_finalizers(target: Target, name: str, reason: str, pods: bool, ports: bool, yes: bool) -> None:
    """Let a deleted backend go without proof. For when no operator is left that could prove anything.

    An operator that runs does this by itself, with proof; kubectl mb why says what it waits for. Says first what is
    given up, asks for the name, and leaves an Event on each object.

    \b
    kubectl mb release-finalizers smollm2 -n models --reason "the cluster is being torn down"
    """
    sight = see(target, name, OPERATOR_NAMESPACE)
    found = releasing.losses(sight, pods=pods, ports=ports)
    for loss in found:
        click.echo(f"{loss.title}: {loss.gives_up}")
    if not yes and click.prompt(f"Type {name} to give this up", default="", show_default=False) != name:
        raise Trouble(Exit.NO, "another name; nothing was let go")
    for line in with_session(target, lambda session: releasing.release(session, sight, found, reason)):
        click.echo(line)

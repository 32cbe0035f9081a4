"""Commands that look: list, why, ports, watch, timeline."""

import asyncio
import sys
import time

import click

from kubectl_mb import drawing, listing, watching
from kubectl_mb.causes import causes_of
from kubectl_mb.cli import backend_name, cli, on_a_cluster, operator_namespace, output, see, utc_now, with_session
from kubectl_mb.clock import clock_time
from kubectl_mb.connecting import Session, Target
from kubectl_mb.look import EVERY_NAMESPACE, backend_named, objects, one
from kubectl_mb.tables import Output, listed, rendered, table
from kubectl_mb.timeline import timeline_of
from kubectl_mb.troubles import Exit, Trouble
from kubectl_mb.why import as_json, words
from modelbackend_operator.kinds import Kind, Raw
from modelbackend_operator.model.claim import ClaimPhase
from modelbackend_operator.reading import mapping

WATCH_SECONDS = 1.0


@cli.command("list")
@click.option("-A", "--all-namespaces", is_flag=True)
@output(Output.TABLE, Output.WIDE, Output.JSON, Output.YAML)
@on_a_cluster
def list_backends(target: Target, all_namespaces: bool, form: str) -> None:
    """The ModelBackends, and whether they serve.

    \b
    kubectl mb list -n models
    kubectl mb list -A -o wide
    """

    async def read(session: Session) -> tuple[str, tuple[Raw, ...]]:
        namespace = EVERY_NAMESPACE if all_namespaces else session.namespace
        return namespace, await objects(session, Kind.BACKEND, namespace)

    namespace, found = with_session(target, read)
    if Output(form).for_machines:
        click.echo(rendered(listed(found), Output(form)))
        return
    if not found:
        click.echo(f"no ModelBackend{f' in namespace {namespace}' if namespace else ''}", err=True)
        return
    names = listing.BACKENDS_WIDE if form == Output.WIDE else listing.BACKENDS
    rows = [listing.backend_row(backend, utc_now()) for backend in found]
    click.echo(table(*listing.columns(names, rows, without=() if all_namespaces else ("namespace",))))


@cli.command()
@backend_name
@output(Output.TABLE, Output.JSON, Output.YAML)
@operator_namespace
@on_a_cluster
def why(target: Target, name: str, form: str, operator_namespace: str) -> None:
    """What a backend waits for, since when, who holds it, and what would release it.

    Also for one that is gone, while a port is kept for it. Reads pods, Events, nodes, port claims and the model's
    Lease where you may; without, it says what it could not see.

    \b
    kubectl mb why smollm2 -n models
    """
    sight = see(target, name, operator_namespace)
    causes = causes_of(sight)
    if Output(form).for_machines:
        click.echo(rendered(as_json(causes), Output(form)))
    else:
        click.echo(words(sight, causes, utc_now()))


@cli.command()
@click.option("--withheld", is_flag=True, help="Only those that wait for proof.")
@output(Output.TABLE, Output.WIDE, Output.JSON, Output.YAML)
@on_a_cluster
def ports(target: Target, withheld: bool, form: str) -> None:
    """The ledger of ports: who holds which, for how long, and what proved the end of the last holder.

    \b
    kubectl mb ports
    kubectl mb ports --withheld -o wide
    """
    claims = with_session(target, lambda session: objects(session, Kind.CLAIM, EVERY_NAMESPACE))
    chosen = [
        claim for claim in claims if not withheld or mapping(claim.get("status")).get("phase") == ClaimPhase.WITHHELD
    ]
    chosen.sort(key=lambda claim: claim["spec"]["port"])
    if Output(form).for_machines:
        click.echo(rendered(listed(chosen), Output(form)))
    elif not chosen:
        click.echo(f"no port is {'withheld' if withheld else 'claimed'}", err=True)
    else:
        names = listing.PORTS_WIDE if form == Output.WIDE else listing.PORTS
        click.echo(table(*listing.columns(names, [listing.port_row(claim, utc_now()) for claim in chosen])))


@cli.command()
@backend_name
@click.option("--timeout", "timeout_seconds", type=float, help="Seconds after which to give up, with exit code 124.")
@on_a_cluster
def watch(target: Target, name: str, timeout_seconds: float | None) -> None:
    """A drain as it goes on: stage, requests in flight, deadline. Ends when nothing starts or ends any more.

    \b
    kubectl mb watch smollm2 -n models
    """
    with_session(target, lambda session: _follow(session, name, timeout_seconds))


async def _follow(session: Session, name: str, timeout_seconds: float | None) -> None:
    started, before = time.monotonic(), tuple[watching.Seen, ...]()
    backend: Raw | None = await backend_named(session, name)
    uid, live = mapping(backend)["metadata"]["uid"], sys.stdout.isatty()
    while backend is not None and backend["metadata"]["uid"] == uid:
        now_seen, now = watching.seen(backend), utc_now()
        clear = "\r\x1b[K" if live else ""
        for entry in watching.changes(before, now_seen):
            click.echo(f"{clear}{clock_time(now, now)}  {entry.line(now)}")
        before, last = now_seen, backend
        if watching.is_settled(backend):
            click.echo(f"{clear}nothing of {name} starts or ends. {watching.ending_words(backend)}".rstrip())
            return
        if live:
            click.echo(clear + "; ".join(entry.line(now) for entry in now_seen)[:110], nl=False)
        if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
            raise Trouble(Exit.TOO_LATE, f"{name} was not done within {timeout_seconds:g} s; kubectl mb why {name}")
        await asyncio.sleep(WATCH_SECONDS)
        backend = await one(session, Kind.BACKEND, session.namespace, name)
    click.echo(f"{name} is gone. {watching.ending_words(last)}".rstrip())


@cli.command()
@backend_name
@click.option("-o", "--output", "form", type=click.Choice(["txt", "svg", "html"]), default="txt", show_default=True)
@operator_namespace
@on_a_cluster
def timeline(target: Target, name: str, form: str, operator_namespace: str) -> None:
    """A picture of its life, from Events, pods, claims and the Lease, as far as they are still kept.

    \b
    kubectl mb timeline smollm2 -n models
    kubectl mb timeline smollm2 -n models -o svg > smollm2.svg
    """
    life = timeline_of(see(target, name, operator_namespace), utc_now())
    click.echo({"txt": drawing.as_text, "svg": drawing.as_svg, "html": drawing.as_html}[form](life))

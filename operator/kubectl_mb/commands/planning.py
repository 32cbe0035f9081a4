"""The command that looks ahead: plan."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import yaml

from kubectl_mb.cli import cli, kubectl_program, on_a_cluster, output, with_session
from kubectl_mb.connecting import Target
from kubectl_mb.look import sight_of
from kubectl_mb.planning import Plan, plan_of
from kubectl_mb.tables import Output, rendered
from kubectl_mb.troubles import Exit, Trouble
from modelbackend_operator.api import MODELBACKEND_KIND


@cli.command()
@click.option("-f", "--filename", required=True, help="A manifest; - reads standard input.")
@click.option("--exit-code", "tells", is_flag=True, help="Exit with 1 where an instance would be stopped.")
@output(Output.TABLE, Output.JSON, Output.YAML)
@on_a_cluster
def plan(target: Target, filename: str, tells: bool, form: str) -> None:
    """What `kubectl apply -f` would do to running instances, and why. Changes nothing.

    The API server applies it on trial (a server-side dry run, by kubectl), so what it would refuse is refused here;
    then the operator's own rule says which instances stay.

    \b
    kubectl mb plan -f backend.yaml
    helm template release chart | kubectl mb plan -f - --exit-code
    """
    text = sys.stdin.read() if filename == "-" else _read_file(filename)
    plans = [_plan(target, manifest) for manifest in _manifests(text, filename)]
    if not plans:
        raise Trouble(Exit.NOT_FOUND, f"{filename} has no ModelBackend in it")
    if Output(form).for_machines:
        click.echo(rendered([plan_json(one_plan) for one_plan in plans], Output(form)))
    else:
        click.echo("\n\n".join(plan_words(one_plan) for one_plan in plans))
    if tells and any(one_plan.interrupts for one_plan in plans):
        raise click.exceptions.Exit(Exit.NO)


def _read_file(filename: str) -> str:
    try:
        return Path(filename).read_text()
    except OSError as error:
        raise Trouble(Exit.NOT_FOUND, f"cannot read {filename}: {error.strerror}") from error


def _manifests(text: str, filename: str) -> list[dict[str, Any]]:
    try:
        found = [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
    except yaml.YAMLError as error:
        raise Trouble(Exit.NO, f"{filename} is no YAML: {error}") from error
    inner = [item for document in found for item in (document.get("items") or [document])]
    return [item for item in inner if isinstance(item, dict) and item.get("kind") == MODELBACKEND_KIND]


def _plan(target: Target, manifest: dict[str, Any]) -> Plan:
    flags = [f"--namespace={target.namespace}"] if target.namespace else []
    done = subprocess.run(
        [kubectl_program(), "apply", "--dry-run=server", "-o", "json", "-f", "-", *target.kubectl_flags(), *flags],
        input=json.dumps(manifest),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Trouble(Exit.NO, f"kubectl apply would fail: {done.stderr.strip()}")
    planned = json.loads(done.stdout)
    metadata = planned["metadata"]
    within = Target(target.kubeconfig, target.context, metadata["namespace"])
    return plan_of(with_session(within, lambda session: sight_of(session, metadata["name"])), planned)


def plan_words(found: Plan) -> str:
    lines = [click.style(found.title, bold=True)]
    for change in found.changes:
        effect = "  (restarts)" if change.restarts else ""
        lines.append(f"  {change.path}: {_value(change.before)} -> {_value(change.after)}{effect}")
    refused = click.style("refused", fg="red")
    lines += [f"  {refused}: {sentence} Nothing would be started or stopped." for sentence in found.refused]
    for step in found.steps:
        colour = {"stays": "green", "starts": "green", "restarts": "yellow", "ends": "yellow"}[step.what]
        lines.append(f"  instance {step.instance} {click.style(step.what, fg=colour)}: {step.how}")
    if not found.changes and not found.refused and not found.interrupts:
        lines.insert(1, "  no change of the spec")
    return "\n".join(lines)


def _value(value: Any) -> str:
    return "absent" if value is None else json.dumps(value)


def plan_json(found: Plan) -> dict[str, Any]:
    return {
        "backend": found.title,
        "changes": [
            {"path": c.path, "before": c.before, "after": c.after, "restarts": c.restarts} for c in found.changes
        ],
        "instances": [{"instance": s.instance, "what": s.what, "how": s.how} for s in found.steps],
        "refused": list(found.refused),
    }

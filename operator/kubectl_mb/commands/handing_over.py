"""Commands that hand over: logs, chat, completion."""

import subprocess
from typing import Any

import click

from kubectl_mb.chat import Talk
from kubectl_mb.chat import chat as converse
from kubectl_mb.cli import backend_name, cli, kubectl_program, on_a_cluster, with_session
from kubectl_mb.completion import script
from kubectl_mb.connecting import Session, Target
from kubectl_mb.look import backend_named
from kubectl_mb.sight import status_of
from kubectl_mb.troubles import Exit, Trouble


@cli.command()
@backend_name
@click.option("--instance", type=click.IntRange(min=0), help="By default the first that has a pod.")
@click.option("-c", "--container", help="fetch-model: the model's download. By default the server.")
@click.option("-f", "--follow", is_flag=True)
@click.option("--previous", is_flag=True, help="Of the container's last run.")
@click.option("--tail", type=int)
@on_a_cluster
def logs(
    target: Target,
    name: str,
    instance: int | None,
    container: str | None,
    follow: bool,
    previous: bool,
    tail: int | None,
) -> None:
    """The log of an instance's server, by kubectl logs.

    \b
    kubectl mb logs smollm2 -n models -f
    """

    async def pod_of(session: Session) -> tuple[str, str]:
        backend = await backend_named(session, name)
        known = (entry for entry in status_of(backend).instances if instance in (None, entry.ordinal))
        pod = next((entry.pod for entry in known if entry.pod is not None), None)
        if pod is None:
            raise Trouble(Exit.NOT_FOUND, f"{name} has no such pod now; kubectl mb why {name} says what it waits for")
        return session.namespace, pod.name

    namespace, pod = with_session(target, pod_of)
    flags = [f"--namespace={namespace}", *target.kubectl_flags()]
    flags += [f"--container={container}"] if container is not None else []
    flags += ["--follow"] if follow else []
    flags += ["--previous"] if previous else []
    flags += [f"--tail={tail}"] if tail is not None else []
    done = subprocess.run([kubectl_program(), "logs", pod, *flags], check=False)
    raise click.exceptions.Exit(done.returncode)


@cli.command()
@backend_name
@click.option("--prompt", help="One question; without, lines are read until the end of the input.")
@click.option("--system", "system_prompt", help="What the model is told first.")
@click.option("--max-tokens", type=click.IntRange(min=1))
@click.option("--temperature", type=click.FloatRange(min=0), help="0 always gives the same answer.")
@click.option("--forward", is_flag=True, help="Through the API server, also where the address can be reached.")
@click.option("--token-file", type=click.File(), help="The bearer token, where serving.auth asks for one.")
@on_a_cluster
def chat(
    target: Target,
    name: str,
    prompt: str | None,
    system_prompt: str | None,
    max_tokens: int | None,
    temperature: float | None,
    forward: bool,
    token_file: Any,
) -> None:
    """Talk to a backend; text comes as it is made. By its address, or a port-forward where that cannot be reached.

    \b
    kubectl mb chat smollm2 -n models
    kubectl mb chat smollm2 -n models --prompt "The capital of France is"
    """
    token = token_file.read().strip() if token_file is not None else None
    converse(target, name, Talk(prompt, system_prompt, max_tokens, temperature), forward=forward, token=token)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh"]))
def completion(shell: str) -> None:
    """The completion script of kubectl-mb for a shell; kubectl itself (1.26 and later) needs none.

    \b
    source <(kubectl mb completion bash)
    """
    click.echo(script(cli, shell))

"""`kubectl-mb` (also `python -m kubectl_mb`), and `kubectl_complete-mb`, which kubectl asks for completions."""

import sys

import click

from kubectl_mb import commands
from kubectl_mb.cli import cli, main
from kubectl_mb.completion import NO_FILES, candidates

__all__ = ["commands", "complete", "main"]


def complete() -> None:
    click.echo("\n".join([*candidates(cli, sys.argv[1:]), NO_FILES]))


if __name__ == "__main__":
    main()

"""The test cluster's command line; see README.md beside this file.

python3 -m e2e.cluster up|down|status|env|load ARCHIVE|node ACT NODE|binaries|preflight
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from e2e.cluster import lifecycle, nodes
from e2e.cluster.binaries import build_all
from e2e.cluster.preflight import preflight
from images.steps import StepError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.cluster", description="A real cluster for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="mb", help="the cluster's name (default: mb)")
    up = commands.add_parser("up", parents=[named], help="make it, or leave it if it is there")
    up.add_argument("--nodes", type=int, default=2, help="how many workers (default: 2)")
    commands.add_parser("down", parents=[named], help="remove it and all that it left on this host")
    commands.add_parser("status", parents=[named], help="what runs of it")
    commands.add_parser("env", parents=[named], help="shell lines that set KUBECONFIG and PATH")
    load = commands.add_parser("load", parents=[named], help="put an image archive on its workers")
    load.add_argument("archive", type=Path, help="a tar of `docker save` or of an OCI layout")
    node = commands.add_parser("node", help="make a node fail, or end its failure")
    node.add_argument("act", choices=nodes.ACTS)
    node.add_argument("node")
    commands.add_parser("binaries", help="build Kubernetes' programs from source, and print their folders")
    commands.add_parser("preflight", help="what this host lacks; installs Debian packages when root")
    try:
        _run(parser.parse_args())
    except StepError as failure:
        sys.exit(f"\n{failure}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; `python3 -m e2e.cluster down` removes what there is")


def _run(arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "up":
            lifecycle.up(arguments.name, arguments.nodes)
        case "down":
            lifecycle.down(arguments.name)
        case "status":
            lifecycle.status(arguments.name)
        case "env":
            print(lifecycle.environment(arguments.name))
        case "load":
            lifecycle.load_archive(arguments.name, arguments.archive)
        case "node":
            nodes.act(arguments.act, arguments.node)
        case "binaries":
            print(*build_all().folders, sep="\n")
        case "preflight":
            preflight()


if __name__ == "__main__":
    main()

"""Build the container images, or remove them."""

from __future__ import annotations

import argparse
import sys

from images.build import build, clean
from images.steps import StepError


def main() -> None:
    """Run one command; results go to stdout, progress to stderr, a failure is one message and exit code 1."""
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "build":
                archives = build(arguments.base_image)
                print(f"operator {archives.operator}\nserver {archives.server}")
            case "clean":
                clean()
    except StepError as failure:
        sys.exit(str(failure))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build_command = commands.add_parser("build", help="build both images as archives; prints their paths")
    build_command.add_argument(
        "--base-image", metavar="REFERENCE", help="build on this image, not on a base from packages"
    )
    commands.add_parser("clean", help="remove the images and archives; wheels and base stay")
    return parser


if __name__ == "__main__":
    main()

"""`python3 -m images`: the container images, and the two large files that they and the tests need."""

from __future__ import annotations

import argparse
import sys

from images.build import build, clean
from images.model import model_file
from images.steps import StepError
from images.wheel import portable_wheel


def main() -> None:
    """Run one command; results go to stdout, progress to stderr, a failure is one message and exit code 1."""
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "build":
                archives = build(arguments.base_image)
                print(f"operator {archives.operator}\nserver {archives.server}")
            case "wheel":
                print(portable_wheel(arguments.cmake_args))
            case "model":
                print(model_file())
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
    wheel_command = commands.add_parser("wheel", help="build the portable llama-cpp-python wheel; prints its path")
    wheel_command.add_argument(
        "--cmake-args", default="", metavar="ARGS", help='more flags for llama.cpp, such as "-DGGML_CUDA=ON"'
    )
    commands.add_parser("model", help="fetch the small demo model; prints its path")
    commands.add_parser("clean", help="remove the images and archives; wheels and base stay")
    return parser


if __name__ == "__main__":
    main()

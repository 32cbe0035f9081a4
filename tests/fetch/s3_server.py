"""A real S3 server on the loopback address: moto's, in an environment of its own that is made once and kept.

Apart from the tests' environment, because its packages pin older ones of ours.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from images.cache import cache_root, digest_of, publish
from images.registry import pip

HERE = Path(__file__).parent
REQUIREMENTS = HERE.parents[1] / "requirements" / "s3-server.txt"
BUCKET = "models.eu"


@dataclass(frozen=True, slots=True)
class S3Server:
    url: str
    access_key_id: str
    secret_access_key: str


def packages() -> Path:
    """A folder for PYTHONPATH. Raises StepError where it cannot be fetched."""
    target = cache_root() / "s3-server" / digest_of(REQUIREMENTS, sys.version)
    if not target.exists():
        with publish(target) as draft:
            locked = ("--require-hashes", "--requirement", REQUIREMENTS, "--target", draft)
            pip("the S3 server of the tests", "install", "--no-deps", *locked, log_name="s3-server")
    return target


@contextlib.contextmanager
def s3_server(objects: Mapping[str, bytes]) -> Iterator[S3Server]:
    """With these objects in its one bucket."""
    command: list[str | Path] = [sys.executable, HERE / "s3_server_main.py", *objects]
    environ = {"PYTHONPATH": str(packages()), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for content in objects.values():
            process.stdin.write(f"{len(content)}\n".encode() + content)
        process.stdin.flush()
        yield S3Server(**json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.terminate()
        process.wait()

"""The docker command, against one engine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from images.steps import StepError

REMOVE_SECONDS = 120.0
KIND_LABEL = "io.x-k8s.kind.cluster"


@dataclass(frozen=True)
class Docker:
    """An engine's address; None is whatever engine the user's own settings name."""

    host: str | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment in which docker and kind speak to this engine."""
        return {**os.environ, **({"DOCKER_HOST": self.host} if self.host else {})}

    def output(self, *arguments: str | Path, timeout_seconds: float = 120.0) -> str:
        """What the command prints; StepError with its own words when it fails."""
        command = ["docker", *map(str, arguments)]
        try:
            done = subprocess.run(
                command, env=self.env, capture_output=True, text=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise StepError(f"{' '.join(command)}: no answer in {timeout_seconds:.0f} s") from None
        if done.returncode != 0:
            raise StepError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def succeeds(self, *arguments: str | Path, timeout_seconds: float = 30.0) -> bool:
        """Whether the command ends well in time (its words do not matter)."""
        try:
            self.output(*arguments, timeout_seconds=timeout_seconds)
        except (StepError, FileNotFoundError):
            return False
        return True

    def remove_containers(self, names: Sequence[str]) -> None:
        """Remove containers with their anonymous volumes, also those whose removal a killed client had begun."""
        if not names:
            return
        deadline = time.monotonic() + REMOVE_SECONDS
        while not self.succeeds("rm", "--force", "--volumes", *names, timeout_seconds=REMOVE_SECONDS):
            present = self.output("ps", "--all", "--no-trunc", "--format={{.ID}} {{.Names}}").split()
            names = [name for name in names if any(name in (one, one[:12]) for one in present)]
            if not names:
                return
            if time.monotonic() > deadline:
                raise StepError(f"containers that cannot be removed: {', '.join(names)}")
            time.sleep(0.5)

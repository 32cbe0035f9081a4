"""LangChain's and LlamaIndex's OpenAI classes against a server. Not part of `make test`: their installation is large.

    python3 -m tests.frameworks        (make frameworks)

Makes a virtual environment of theirs in the cache, starts two servers on loopback, and runs use.py in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.server.harness import LOOPBACK
from tests.server.process import FREE_PORTS, started
from tests.server.tiny_gguf import TOOLS_TEMPLATE, write_embedding_gguf, write_tiny_gguf

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"


def environment() -> Path:
    """Its Python, with the frameworks; made once."""
    cache = Path(os.environ.get("MODELBACKEND_CACHE", Path.home() / ".cache" / "modelbackend-operator"))
    folder = cache / f"frameworks-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], check=True)
        (folder / "whole").touch()
    return python


async def main() -> int:
    python = environment()
    with tempfile.TemporaryDirectory() as made:
        generates, embeds = Path(made) / "tiny.gguf", Path(made) / "embedding.gguf"
        write_tiny_gguf(generates, chat_template=TOOLS_TEMPLATE)
        write_embedding_gguf(embeds)
        async with (
            started(f"--model={generates}", *FREE_PORTS) as one,
            started(f"--model={embeds}", "--mode=embed", "--slots=1", *FREE_PORTS) as two,
        ):
            urls = [f"http://{LOOPBACK}:{(await server.log('listening'))['http']}/v1" for server in (one, two)]
            for server in (one, two):
                await server.log("lifecycle", state="serving")
            ended = await asyncio.to_thread(lambda: subprocess.run([python, HERE / "use.py", *urls], check=False))
    return ended.returncode


sys.exit(asyncio.run(main()))

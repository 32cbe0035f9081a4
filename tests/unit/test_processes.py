"""What e2e takes for a running server."""

import subprocess
import sys
from pathlib import Path

from e2e.processes import running

FORKS = """
import os, sys
child = os.fork()
print("there", flush=True)
sys.stdin.read()
if child:
    os.waitpid(child, 0)
"""


def test_a_child_that_has_not_begun_its_own_program_is_no_second_server(tmp_path: Path) -> None:
    server = tmp_path / "a-server"
    server.write_text(FORKS)
    command = [sys.executable, str(server)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env={"MODELBACKEND_POD_UID": "p"}) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"there\n", b"there\n"]
        (found,) = running(server.name)
        assert (found.pid, found.pod_uid, found.backend_uid) == (process.pid, "p", "")
        assert found.started > 0
    assert running(server.name) == frozenset()

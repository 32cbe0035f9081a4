"""That the tests of a server's promises can fail: each does where that promise is broken on purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.server.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def test_each_promise_that_is_broken_on_purpose_is_missed_by_a_test(tmp_path: Path) -> None:
    # In a process of its own: what is broken there is broken for nobody else.
    results = tmp_path / "results"
    command = [sys.executable, "-m", "tests.server.mutants", str(results)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'backend_image'}:{ROOT}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [each["promise"] for each in found if not each["killed"]] == []
    assert [each["promise"] for each in found] == [mutant.promise for mutant in MUTANTS]

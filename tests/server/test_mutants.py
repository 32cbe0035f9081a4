"""That the tests of a server's promises can fail: each does where that promise is broken on purpose."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.server.mutants import MUTANTS


def test_each_promise_that_is_broken_on_purpose_is_missed_by_a_test() -> None:
    # In a process of its own: what is broken there is broken for nobody else.
    command = [sys.executable, "-m", "tests.server.mutants"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    # An engine that is left behind may still write to its log.
    found = [line for line in lines if "promise" in line]
    assert [each["promise"] for each in found if not each["killed"]] == []
    assert [each["promise"] for each in found] == [mutant.promise for mutant in MUTANTS]

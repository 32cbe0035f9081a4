"""The status page of an operator that runs."""

import re
import urllib.request
from pathlib import Path

import pytest

from tests.apiserver.harness import ApiServer, await_condition
from tests.apiserver.test_process import (
    PATIENCE_SECONDS,
    account,
    claims_of,
    is_let_through,
    make_backend,
    operator,
)

__all__ = ["account"]

pytestmark = pytest.mark.apiserver


def test_an_operator_that_is_told_to_shows_what_it_knows_and_others_have_no_page(
    api_server: ApiServer, account: Path, namespace: str, tmp_path: Path
) -> None:
    with operator(account, tmp_path / "log", status_page_port="0") as running:
        make_backend(api_server, namespace)
        await_condition("the gate to open", lambda: is_let_through(api_server, namespace), PATIENCE_SECONDS)
        (claim,) = claims_of(api_server, namespace)
        found = re.search(r"the status page is on 127\.0\.0\.1:(\d+)", running.log.read_text())
        assert found is not None

        def page() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/", timeout=5) as answer:
                return str(answer.read().decode())

        row = f"<td>{claim['spec']['port']}</td>"
        await_condition("the claim to be on the page", lambda: row in page(), PATIENCE_SECONDS)
        assert f"{namespace}/smollm2" in page()
        assert running.http("/")[0] == 404
    with operator(account, tmp_path / "without") as running:
        assert "the status page is on" not in running.log.read_text()

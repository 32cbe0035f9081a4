"""The operator's settings, as an administrator writes them."""

import pytest
from pydantic import ValidationError

from modelbackend_operator.model.backend import Exposure
from modelbackend_operator.settings import ControlPath, Settings

INTERVALS = [
    name.upper()
    for name in Settings.model_fields
    if name.endswith("_seconds") and name != "reuse_delay_seconds"  # a delay of none is no busy loop
]


def test_the_defaults_are_those_of_the_documentation() -> None:
    settings = Settings()
    assert settings.namespace == "modelbackend-system"
    assert settings.pools(Exposure.NODE_PORT) == ((30000, 30085),)
    assert settings.pools(Exposure.HOST_PORT) == ((20000, 24999),)
    assert (settings.reuse_delay_seconds, settings.resync_seconds) == (15, 300)
    assert settings.control_path is None


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBACKEND_OPERATOR_NODE_PORTS", "31000-31010")
    monkeypatch.setenv("MODELBACKEND_OPERATOR_CONTROL_PATH", "PortForward")
    monkeypatch.setenv("MODELBACKEND_OPERATOR_REUSE_DELAY_SECONDS", "0")
    settings = Settings()
    assert settings.pools(Exposure.NODE_PORT) == ((31000, 31010),)
    assert settings.control_path is ControlPath.PORT_FORWARD
    assert settings.reuse_delay_seconds == 0


def test_a_pool_may_be_of_several_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELBACKEND_OPERATOR_HOST_PORTS", "20000-20009, 21000-21000")
    assert Settings().pools(Exposure.HOST_PORT) == ((20000, 20009), (21000, 21000))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NODE_PORTS", "30000", "write it as FIRST-LAST, for example 30000-30085"),
        ("NODE_PORTS", "30000-x", "write it as FIRST-LAST"),
        ("HOST_PORTS", "24999-20000", "host_ports 24999-20000 is empty; the first port comes first"),
        ("HOST_PORTS", "0-80", "greater than or equal to 1"),
        ("WORKERS", "0", "greater than or equal to 1"),
        *((interval, "0", "greater than") for interval in INTERVALS),
        ("CONTROL_PATH", "Tunnel", "PodAddress"),
        ("LEADER_RENEW_DEADLINE_SECONDS", "15", "< leader_lease_seconds must hold"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_to_write(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"MODELBACKEND_OPERATOR_{name}", value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert words in str(refused.value)

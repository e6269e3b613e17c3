"""Options win over the environment, the environment over tocsin.toml, and no setting is misread in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import tocsin

from tocsin.deploy.configuration import CONFIG_VARIABLE, chosen_file, read_configuration
from tocsin.deploy.dispatch import inherited_environment
from tocsin.schema.errors import SettingsError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_any_setting_the_defaults_hold() -> None:
    assert read_configuration().store == "sqlite:///tocsin.db"
    assert read_configuration(store=None).sink == "stdout:"


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tocsin.toml").write_text('store = "sqlite:///file.db"\nsink = "jsonl:///file"\n')
    assert read_configuration().store == "sqlite:///file.db"

    monkeypatch.setenv("TOCSIN_STORE", "sqlite:///environment.db")
    assert read_configuration().store == "sqlite:///environment.db"
    assert read_configuration().sink == "jsonl:///file"

    assert read_configuration(store="sqlite:///option.db").store == "sqlite:///option.db"


def test_tables_of_the_file_and_the_environment_join_key_by_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tocsin.toml").write_text("[timing]\nlease_ttl_ms = 9000\nheartbeat_ms = 900\n")
    monkeypatch.setenv("TOCSIN_TIMING__LEASE_TTL_MS", "8000")

    timing = read_configuration().protocol_timing()

    assert (timing.lease_ttl_ms, timing.heartbeat_ms) == (8_000, 900)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('stoer = "x"', "there is no setting 'stoer'"),
        ("timeout_ms = 0", "timeout_ms is 0"),
        ("[timing]\nlease = 1", "there is no setting timing.lease"),
        ('[timing]\nlease_ttl_ms = "soon"', "timing.lease_ttl_ms is 'soon'"),
        ("[timing]\nlease_ttl_ms = 1", "lease_ttl_ms must exceed three heartbeat_ms"),
        ("[publisher]\nlinger_ms = -1", "linger_ms"),
        ("store = ", "is not TOML"),
    ],
)
def test_a_setting_that_is_unknown_or_wrong_is_refused(folder: Path, text: str, told: str) -> None:
    (folder / "tocsin.toml").write_text(text)

    with pytest.raises(SettingsError, match=told):
        read_everything()


def read_everything() -> None:
    configuration = read_configuration()
    configuration.publisher_settings()
    configuration.protocol_timing()


def test_a_wrong_setting_of_the_file_is_told_as_a_refusal(folder: Path) -> None:
    (folder / "tocsin.toml").write_text('stoer = "x"')

    answer = tocsin("status")

    assert answer.code == 1
    assert answer.err == "✗ there is no setting 'stoer'; correct its name in tocsin.toml\n"


def test_a_named_file_is_read_and_has_to_exist(folder: Path) -> None:
    (folder / "other.toml").write_text('store = "nowhere:"')

    assert "'nowhere:' is not a store" in tocsin("--config", "other.toml", "status").err
    missing = tocsin("--config", "none.toml", "status")
    assert missing.code == 1
    assert "none.toml does not exist" in missing.err


def test_every_process_of_a_command_reads_the_file_that_config_named() -> None:
    token = chosen_file.set(Path("other.toml"))
    try:
        assert inherited_environment()[CONFIG_VARIABLE] == "other.toml"
    finally:
        chosen_file.reset(token)
    assert CONFIG_VARIABLE not in inherited_environment()


def test_credentials_in_the_environment_are_no_unknown_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("TOCSIN_CASSANDRA_USERNAME", "somebody")

    assert "secret" not in repr(read_configuration())

"""A URL names a store or is refused; credentials in it are refused without being shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.schema.cassandra_access import Access, Consistency, read_access
from tocsin.schema.errors import SettingsError, StoreUnavailable
from tocsin.schema.levels import Levels
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.timing import Timing


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tocsin.db",
        "sqlite:",
        "sqlite://tocsin.db",
        "sqlite:///",
        "sqlite:///folder/",
        "sqlite:///a.db?mode=ro",
        "postgres://host/db",
        "cassandra://",
        "cassandra://host",
        "cassandra://host/",
        "cassandra:///keyspace",
        "cassandra://host,/keyspace",
        "cassandra://host:0/keyspace",
        "cassandra://host:70000/keyspace",
        "cassandra://host:port/keyspace",
        "cassandra://host/Upper",
        "cassandra://host/two words",
        "cassandra://host/keyspace/more",
        'cassandra://host/a"; DROP KEYSPACE b; --',
        f"cassandra://host/{'k' * 49}",
    ],
)
def test_a_malformed_url_is_refused_with_the_form_expected(url: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        open_store(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError, match="TOCSIN_CASSANDRA_PASSWORD") as refused:
        open_store("cassandra://admin:secret@host/keyspace")
    assert "secret" not in str(refused.value)


def test_a_cassandra_url_names_hosts_ports_and_a_keyspace() -> None:
    access = read_access("cassandra://one:9043,two,[::1],[::2]:99/keyspace", {})
    assert access.hosts == (("one", 9043), ("two", 9042), ("::1", 9042), ("::2", 99))
    assert access.keyspace == "keyspace"
    assert access.consistency is Consistency.CLUSTER


def test_the_environment_gives_credentials_and_consistency_and_the_repr_hides_them() -> None:
    environment = {
        "TOCSIN_CASSANDRA_USERNAME": "admin",
        "TOCSIN_CASSANDRA_PASSWORD": "secret",
        "TOCSIN_CASSANDRA_CONSISTENCY": "local",
        "TOCSIN_CASSANDRA_DATACENTER": "dc1",
    }
    access = read_access("cassandra://host/keyspace", environment)
    assert (access.username, access.password, access.datacenter) == ("admin", "secret", "dc1")
    assert access.consistency is Consistency.LOCAL
    assert "secret" not in repr(access)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"USERNAME": "a"}, "PASSWORD"),
        ({"PASSWORD": "a"}, "USERNAME"),
        ({"CERT_FILE": "a", "CA_FILE": "b"}, "KEY_FILE"),
        ({"CERT_FILE": "a", "KEY_FILE": "b"}, "CA_FILE"),
        ({"CONSISTENCY": "local"}, "DATACENTER"),
        ({"CONSISTENCY": "one"}, "cluster or local"),
    ],
)
def test_half_a_setting_is_refused_with_the_other_half(settings: dict[str, str], missing: str) -> None:
    with pytest.raises(SettingsError, match=missing):
        read_access("cassandra://host/k", {f"TOCSIN_CASSANDRA_{name}": value for name, value in settings.items()})


def test_the_password_may_be_mounted_as_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    environment = {"TOCSIN_CASSANDRA_USERNAME": "admin", "TOCSIN_CASSANDRA_PASSWORD_FILE": str(secret)}
    assert read_access("cassandra://host/keyspace", environment).password == "from a file"
    secret.write_bytes(b"\xff\xfe")
    for named in (str(secret), str(tmp_path / "none")):
        with pytest.raises(SettingsError, match="correct TOCSIN_CASSANDRA_PASSWORD_FILE"):
            read_access("cassandra://host/keyspace", environment | {"TOCSIN_CASSANDRA_PASSWORD_FILE": named})


def test_tls_files_that_cannot_be_used_are_refused() -> None:
    access = Access(url="cassandra://h/k", hosts=(("h", 9042),), keyspace="k", ca_file="/nowhere/ca.pem")
    with pytest.raises(SettingsError, match="TLS files"):
        access.tls()
    assert Access(url="cassandra://h/k", hosts=(("h", 9042),), keyspace="k").tls() is None


@pytest.mark.parametrize("url", ["sqlite:///a.db", "cassandra://host/k"])
def test_the_default_settings_of_each_store_fit_together(url: str) -> None:
    settings = default_settings(url, 1)
    assert settings.genesis == 1
    Levels(Timing(), settings.shard_ranges, settings.layouts)


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "cassandra://host/k"])
async def test_a_store_that_was_never_opened_says_so(url: str) -> None:
    store = open_store(url)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.read_frontier(0)
    await store.close()

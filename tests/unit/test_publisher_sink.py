"""Sink URLs, publisher settings and Kafka security: refused at the edge, by a sentence that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tocsin.dispatcher import publisher_confluent, publisher_kafka_python
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import PublisherSettings
from tocsin.dispatcher.publisher_kafka import KafkaPublisher
from tocsin.dispatcher.publisher_lines import JsonLinesPublisher, StdoutPublisher
from tocsin.dispatcher.sink import KAFKA_CLIENTS, kafka_servers, open_publisher
from tocsin.schema.errors import SettingsError

SASL = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "tocsin", "password": "open sesame"}


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("stdout:", StdoutPublisher),
        ("jsonl:///var/out.jsonl", JsonLinesPublisher),
        ("kafka://broker:9092,broker2", KafkaPublisher),
    ],
)
def test_the_url_chooses_the_publisher(url: str, kind: type) -> None:
    assert isinstance(open_publisher(url), kind)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "tea",
        "kafka://",
        "kafka:///topic",
        "kafka://broker/topic",
        "kafka://broker:port",
        "kafka://a,,b",
        "kafka://[::1",
        "kafka://broker?acks=1",
        "jsonl:",
        "jsonl://relative",
        "jsonl:///",
        "stdout://terminal",
        "http://broker:9092",
    ],
)
def test_what_is_not_the_url_of_a_sink_is_refused_with_what_is_expected(url: str) -> None:
    with pytest.raises(SettingsError, match="expected kafka://host:9092"):
        open_publisher(url)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError, match="TOCSIN_KAFKA_PASSWORD") as refused:
        open_publisher("kafka://user:sesame@broker:9092")
    assert "sesame" not in str(refused.value)


def test_an_unknown_kafka_client_is_refused() -> None:
    with pytest.raises(SettingsError, match="confluent-kafka, kafka-python"):
        open_publisher("kafka://broker", kafka_client="aiokafka")


@pytest.mark.parametrize("kafka_client", KAFKA_CLIENTS)
def test_a_missing_client_library_is_named_with_its_remedy(kafka_client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "publisher_confluent" if kafka_client == "confluent-kafka" else "publisher_kafka_python"
    monkeypatch.setitem(__import__("sys").modules, f"tocsin.dispatcher.{module}", None)
    monkeypatch.delattr(f"tocsin.dispatcher.{module}")
    with pytest.raises(SettingsError, match=r"pip install 'tocsin\[dispatcher\]'"):
        open_publisher("kafka://broker", kafka_client=kafka_client)


def test_servers_get_the_usual_port() -> None:
    assert kafka_servers("a,b:9093,[::1]") == "a:9092,b:9093,[::1]:9092"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"unacked_count_max": 0}, "unacked_count_max"),
        ({"compression": "brotli"}, "choose one of none, gzip"),
        ({"delivery_timeout_ms": 1_000}, "one whole attempt has to fit"),
        ({"linger_ms": -1}, "linger_ms"),
        ({"unacked_bytes_max": 1_500_000}, "at least twice record_bytes_max"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        PublisherSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"protocol": "TLS"}, "choose one of PLAINTEXT"),
        ({**SASL, "mechanism": "GSSAPI"}, "choose one of PLAIN"),
        ({**SASL, "password": None}, "needs a username and a password"),
        ({**SASL, "protocol": "SSL"}, "uses no username"),
        ({"ca_file": "ca.pem"}, "uses no certificates"),
        ({"protocol": "SSL", "cert_file": "cert.pem"}, "belong together"),
    ],
)
def test_security_that_would_not_protect_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        KafkaSecurity(**settings)


def test_security_is_read_from_the_environment() -> None:
    environment = {f"TOCSIN_KAFKA_{name.upper()}": value for name, value in SASL.items()} | {"TOCSIN_KAFKA_CA_FILE": ""}
    assert KafkaSecurity.from_environment(environment) == KafkaSecurity(**SASL)
    assert KafkaSecurity.from_environment({}) == KafkaSecurity()


def test_the_password_may_be_mounted_as_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    environment = {f"TOCSIN_KAFKA_{name.upper()}": value for name, value in SASL.items() if name != "password"}
    environment["TOCSIN_KAFKA_PASSWORD_FILE"] = str(secret)
    assert KafkaSecurity.from_environment(environment).password == "from a file"
    with pytest.raises(SettingsError, match="TOCSIN_KAFKA_PASSWORD_FILE"):
        KafkaSecurity.from_environment(environment | {"TOCSIN_KAFKA_PASSWORD_FILE": str(tmp_path / "none")})


def test_the_password_is_shown_neither_by_the_record_nor_by_a_client_that_logs_its_settings() -> None:
    security = KafkaSecurity(**SASL)
    confluent = publisher_confluent.configuration("a:1", PublisherSettings(), security)
    kafka_python = publisher_kafka_python.configuration("a:1", PublisherSettings(), security)
    assert confluent["sasl.password"] == kafka_python["sasl_plain_password"] == SASL["password"]
    assert SASL["password"] not in f"{security} {security!r} {confluent} {kafka_python}"


def test_both_clients_are_given_the_same_security() -> None:
    security = KafkaSecurity(**SASL, ca_file="ca.pem", cert_file="cert.pem", key_file="key.pem")
    confluent = publisher_confluent.configuration("a:1", PublisherSettings(), security)
    kafka_python = publisher_kafka_python.configuration("a:1", PublisherSettings(), security)
    pairs = {
        "security.protocol": "security_protocol",
        "sasl.mechanism": "sasl_mechanism",
        "sasl.username": "sasl_plain_username",
        "sasl.password": "sasl_plain_password",
        "ssl.ca.location": "ssl_cafile",
        "ssl.certificate.location": "ssl_certfile",
        "ssl.key.location": "ssl_keyfile",
    }
    assert {name: confluent[name] for name in pairs} == {name: kafka_python[other] for name, other in pairs.items()}
    assert None not in confluent.values()

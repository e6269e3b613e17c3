"""From the URL of a sink to its publisher: kafka://host:9092,host2:9092, stdout:, jsonl:///path."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import Publisher, PublisherSettings
from tocsin.dispatcher.publisher_kafka import KafkaClient, KafkaPublisher
from tocsin.dispatcher.publisher_lines import JsonLinesPublisher, StdoutPublisher
from tocsin.schema.clock import Clock, SystemClock
from tocsin.schema.errors import SettingsError

#: The Kafka clients to choose from; the first is the default.
KAFKA_CLIENTS = ("confluent-kafka", "kafka-python")
KAFKA_PORT = 9092

_EXPECTED = "expected kafka://host:9092,host2:9092, stdout: or jsonl:///path/to/file"


def open_publisher(
    url: str,
    *,
    settings: PublisherSettings | None = None,
    security: KafkaSecurity | None = None,
    kafka_client: str = KAFKA_CLIENTS[0],
    clock: Clock | None = None,
) -> Publisher:
    """The publisher of a sink; call its `start` before anything else.

    Raises:
        SettingsError: the URL is none of a sink, it holds credentials, or the chosen client is unknown or missing.
    """
    parts = _split(url)
    clock = clock or SystemClock()
    if parts.scheme == "stdout" and not parts.netloc and not parts.path:
        return StdoutPublisher(clock)
    if parts.scheme == "jsonl" and not parts.netloc and len(parts.path) > 1:
        return JsonLinesPublisher(Path(unquote(parts.path)), clock)
    if parts.scheme == "kafka" and parts.netloc and parts.path in {"", "/"}:
        settings = settings or PublisherSettings()
        servers = kafka_servers(parts.netloc)
        client = _kafka_client(kafka_client, servers, settings, security or KafkaSecurity())
        return KafkaPublisher(client, settings)
    raise SettingsError(f"{url!r} is not the URL of a sink; {_EXPECTED}.")


def kafka_servers(hosts: str) -> str:
    """Bootstrap servers with their ports: `a,b:9093` gives `a:9092,b:9093`. Raises SettingsError."""
    servers = []
    for host in hosts.split(","):
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname, parts.port
        except ValueError as error:
            raise SettingsError(f"{host!r} is not a host and port; {_EXPECTED}.") from error
        if not name or parts.netloc != host:
            raise SettingsError(f"{host!r} is not a host and port; {_EXPECTED}.")
        servers.append(f"[{name}]:{port or KAFKA_PORT}" if ":" in name else f"{name}:{port or KAFKA_PORT}")
    return ",".join(servers)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SettingsError(f"{url!r} is not the URL of a sink; {_EXPECTED}.") from error
    if "@" in parts.netloc:
        # The URL is not shown: it holds a password.
        raise SettingsError("the sink's URL holds credentials; set TOCSIN_KAFKA_USERNAME and TOCSIN_KAFKA_PASSWORD.")
    if parts.query or parts.fragment:
        raise SettingsError(f"{url!r} has a query or fragment, which no sink uses; {_EXPECTED}.")
    return parts


def _kafka_client(name: str, servers: str, settings: PublisherSettings, security: KafkaSecurity) -> KafkaClient:
    """Each client is imported only where it is chosen: the other need not be installed."""
    if name not in KAFKA_CLIENTS:
        raise SettingsError(f"the Kafka client {name!r} is unknown; choose one of {', '.join(KAFKA_CLIENTS)}.")
    try:
        if name == "kafka-python":
            from tocsin.dispatcher import publisher_kafka_python

            return publisher_kafka_python.client(servers, settings, security)
        from tocsin.dispatcher import publisher_confluent

        return publisher_confluent.client(servers, settings, security)
    except ImportError as error:
        raise SettingsError(f"{name} is not installed; run: pip install 'tocsin[dispatcher]'.") from error

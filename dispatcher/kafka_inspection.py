"""What a Kafka cluster says about the topics we publish to: what `tocsin doctor` compares with what is assumed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher import PublisherSettings
from tocsin.schema.errors import SettingsError, StoreUnavailable

#: How long the brokers may take to answer one question.
ANSWER_SECONDS = 10.0

#: Properties of a producer that an admin client does not have.
_OF_PRODUCERS = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "request.timeout.ms",
        "topic.metadata.propagation.max.ms",
    }
)
#: What librdkafka reports where a broker does not want us, and which settings it lies at.
_REFUSALS = {
    "_AUTHENTICATION": "TOCSIN_KAFKA_USERNAME and TOCSIN_KAFKA_PASSWORD",
    "_SSL": "TOCSIN_KAFKA_PROTOCOL and TOCSIN_KAFKA_CA_FILE",
}


class TopicFacts(NamedTuple):
    """A topic as the brokers have it; no partitions: it does not exist."""

    name: str
    partition_count: int = 0
    replica_count: int = 0
    insync_min: int = 0
    #: How long a record stays; -1: for ever.
    retention_ms: int = 0
    record_bytes_max: int = 0


class KafkaFacts(NamedTuple):
    """A cluster, and the topics that were asked for, by name."""

    broker_count: int
    topics: tuple[TopicFacts, ...]


def inspect_topics(
    servers: str, names: Iterable[str], *, settings: PublisherSettings, security: KafkaSecurity
) -> KafkaFacts:
    """Ask the brokers; blocks.

    Raises:
        StoreUnavailable: no broker answers.
        SettingsError: one does, and refuses us.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package lists no names
        AdminClient,
        ConfigResource,
        ResourceType,
    )

    from tocsin.dispatcher.publisher_confluent import configuration

    heard: dict[str, str] = {}
    properties = configuration(servers, settings, security) | {
        "error_cb": lambda error: heard.setdefault(error.name(), error.str()),
        "logger": logging.getLogger("tocsin.librdkafka"),
    }
    admin = AdminClient({name: value for name, value in properties.items() if name not in _OF_PRODUCERS})
    try:
        found = admin.list_topics(timeout=ANSWER_SECONDS)
        there = {name: found.topics[name] for name in sorted(set(names)) if name in found.topics}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in there]
        asked = admin.describe_configs(resources, request_timeout=ANSWER_SECONDS) if resources else {}
        options = {resource.name: answer.result() for resource, answer in asked.items()}
    except KafkaException as error:
        admin.poll(0)
        if refusals := _REFUSALS.keys() & heard.keys():
            refused = min(refusals)
            raise SettingsError(f"{servers} refuses us ({heard[refused]}); correct {_REFUSALS[refused]}.") from error
        raise StoreUnavailable(f"no Kafka broker answers at {servers}: {error.args[0].str()}.") from error
    missing = tuple(TopicFacts(name) for name in sorted(set(names)) if name not in there)
    present = tuple(_facts(name, topic, options[name]) for name, topic in there.items())
    return KafkaFacts(len(found.brokers), present + missing)


def _facts(name: str, topic: Any, options: Any) -> TopicFacts:
    return TopicFacts(
        name,
        partition_count=len(topic.partitions),
        replica_count=min((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        insync_min=int(options["min.insync.replicas"].value),
        retention_ms=int(options["retention.ms"].value),
        record_bytes_max=int(options["max.message.bytes"].value),
    )

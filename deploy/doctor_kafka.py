"""What doctor asks of Kafka: an acknowledged record survives a broker, and consumers have time to read it."""

from __future__ import annotations

from collections.abc import Iterator

from tocsin.deploy.findings import Finding, counted, span_text
from tocsin.dispatcher.kafka_inspection import KafkaFacts, TopicFacts
from tocsin.schema.instants import DAY_MS

#: A record must outlive the loss of one broker.
INSYNC_MIN = 2
#: A consumer that stands still over a night must find what came.
RETENTION_MS_MIN = DAY_MS
#: For ever, as Kafka writes it.
_FOR_EVER = -1


def check_kafka(facts: KafkaFacts, record_bytes: int) -> Iterator[Finding]:
    """Each topic that schedules name.

    Args:
        facts: what the brokers say.
        record_bytes: the largest record we send.
    """
    for topic in facts.topics:
        if not topic.partition_count:
            yield Finding(
                f"topic {topic.name}",
                "does not exist",
                "exists",
                well=False,
                why="after a minute its occurrences are dead letters",
                fix="create the topic, then: tocsin dead-letters replay --reason unknown_topic",
            )
            continue
        yield from _topic(topic, facts.broker_count, record_bytes)


def _topic(topic: TopicFacts, broker_count: int, record_bytes: int) -> Iterator[Finding]:
    yield Finding(
        f"topic {topic.name}: replicas",
        f"{counted(topic.replica_count, 'replica')}, min.insync.replicas {topic.insync_min}",
        f"min.insync.replicas {INSYNC_MIN} or more, and more replicas than that",
        INSYNC_MIN <= topic.insync_min < topic.replica_count,
        "an acknowledged record must survive the loss of a broker, and the topic must take records without it",
        f"kafka-configs --alter --entity-type topics --entity-name {topic.name} --add-config min.insync.replicas=2",
    )
    yield Finding(
        f"topic {topic.name}: partitions",
        str(topic.partition_count),
        f"{broker_count} or more, one for each broker",
        topic.partition_count >= broker_count,
        "a herd is carried by the brokers that lead a partition; the others stand by",
        f"kafka-topics --alter --topic {topic.name} --partitions {broker_count}",
    )
    for_ever = topic.retention_ms == _FOR_EVER
    yield Finding(
        f"topic {topic.name}: retention",
        "for ever" if for_ever else span_text(topic.retention_ms),
        f"{span_text(RETENTION_MS_MIN)} or more",
        for_ever or topic.retention_ms >= RETENTION_MS_MIN,
        "what a consumer has not read by then is gone, and Tocsin does not send it again",
        f"kafka-configs --alter --entity-type topics --entity-name {topic.name} --add-config retention.ms=86400000",
    )
    yield Finding(
        f"topic {topic.name}: largest record",
        f"{topic.record_bytes_max:,} bytes",
        f"{record_bytes:,} or more",
        topic.record_bytes_max >= record_bytes,
        "a larger one is a dead letter",
        f"raise max.message.bytes of {topic.name}, or lower publisher.record_bytes_max",
    )

"""Topics on the broker of a local stack, so that the first occurrence finds its topic there.

The broker makes none by itself: on a real cluster a topic that nobody created is a mistake to be seen, and so it is
here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.deploy.stack_errors import StackRefused
from tocsin.dispatcher.kafka_security import KafkaSecurity

PARTITION_COUNT = 8
CREATE_SECONDS = 30


def make_topics(bootstrap: str, names: Sequence[str], security: KafkaSecurity) -> None:
    """Make those of the topics that do not exist yet, with `PARTITION_COUNT` partitions each.

    Raises:
        StackRefused: the broker refuses a topic; the others may have been made.
    """
    if not names:
        return
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from tocsin.dispatcher.publisher_confluent import security_properties

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security_properties(security)})
    made = admin.create_topics([NewTopic(name, PARTITION_COUNT, 1) for name in names], operation_timeout=CREATE_SECONDS)
    for name, creation in made.items():
        try:
            creation.result()
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise StackRefused(f"topic {name}: {refused.args[0].str()}") from refused

"""Records to Kafka through confluent-kafka (librdkafka): the default, for it carries a herd.

What a record costs here is one `produce`, one delivery report, and nothing else of ours: no future, no task, no lock.
Reports are fetched on the event loop itself, by a timer that runs quickly while records are under way. A thread that
polls was measured beside it: it carries as much and answers a lone record half a millisecond sooner, but it has to hand
every answer over to the loop, and loop and thread then take the interpreter's lock from each other.

Refused together: where a topic allows smaller records than we do, the broker refuses a whole request for the sake of
one record in it, and librdkafka gives every record of the request that answer. An innocent record must not become a
dead letter, so all of them are produced again by a second producer whose requests hold one record each; its answers
are the records' own.

A producer that hit a fatal error (a sequence of the idempotent protocol is lost beyond repair) refuses all further
work. It is retired, a new one takes its place, and what was under way is BROKER_AWAY: not known, published again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.publisher_kafka import FRAMING_BYTES, LookUpFailed, TopicView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Message

    from tocsin.dispatcher.kafka_security import KafkaSecurity
    from tocsin.dispatcher.publisher import PublisherSettings
    from tocsin.dispatcher.publisher_kafka import Parcel

    #: (index in the parcel, error, message); the message is none of our business.
    Reporter = Callable[[int, KafkaError | None, Message], None]

#: How often reports are fetched while records are under way; half of it is what a lone record's lateness gains.
POLL_BUSY_S = 0.001
#: How often librdkafka is served otherwise: its own log lines and errors wait for it.
POLL_IDLE_S = 0.1
#: Distance between two log lines of the same error; a broker that is away causes several a second.
ERROR_LOGGED_S = 60
#: syslog's number, librdkafka's unit.
LOG_CRITICAL = 2
#: How often close asks for the reports of what it gave up; they are made within one of librdkafka's rounds.
CLOSING_POLLS = 1_000

#: By the name of librdkafka's error; a leading underscore marks its own, the rest are the broker's.
_OUTCOMES = {
    "MSG_SIZE_TOO_LARGE": Outcome.TOO_LARGE,
    "RECORD_LIST_TOO_LARGE": Outcome.TOO_LARGE,
    "TOPIC_AUTHORIZATION_FAILED": Outcome.NOT_AUTHORISED,
    "UNKNOWN_TOPIC_OR_PART": Outcome.UNKNOWN_TOPIC,
    "_UNKNOWN_TOPIC": Outcome.UNKNOWN_TOPIC,
    "TOPIC_EXCEPTION": Outcome.INVALID,
    "INVALID_RECORD": Outcome.INVALID,
    "POLICY_VIOLATION": Outcome.INVALID,
    "_INVALID_ARG": Outcome.INVALID,
} | dict.fromkeys(
    # Credentials and rights on the cluster concern every record alike: no reason to bury any of them.
    {
        "_MSG_TIMED_OUT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_SSL",
        "_AUTHENTICATION",
        "_PURGE_QUEUE",
        "_PURGE_INFLIGHT",
        "_QUEUE_FULL",
        "_FATAL",
        "_STATE",
        "_DESTROY",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "BROKER_NOT_AVAILABLE",
        "SASL_AUTHENTICATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
    },
    Outcome.BROKER_AWAY,
)
#: Answers that a broker gives to a whole request for the sake of one record in it.
_REFUSED_TOGETHER = {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "_INVALID_DIFFERENT_RECORD"}

_log = structlog.get_logger(__name__)
_librdkafka_log = logging.getLogger("tocsin.librdkafka")


def client(servers: str, settings: PublisherSettings, security: KafkaSecurity) -> ConfluentClient:
    """The client of a cluster."""
    properties = configuration(servers, settings, security)
    return ConfluentClient(properties, metadata_timeout_ms=settings.metadata_timeout_ms)


def configuration(servers: str, settings: PublisherSettings, security: KafkaSecurity) -> dict[str, Any]:
    """The librdkafka properties of a producer."""
    properties: dict[str, Any] = {
        "bootstrap.servers": servers,
        "client.id": "tocsin",
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": settings.delivery_timeout_ms,
        "request.timeout.ms": settings.request_timeout_ms,
        "linger.ms": settings.linger_ms,
        "compression.type": settings.compression,
        "message.max.bytes": settings.record_bytes_max + FRAMING_BYTES,
        "batch.size": settings.record_bytes_max,
        # The bound is ours, so that waiting is fair between topics; librdkafka's only has to lie above it.
        "queue.buffering.max.messages": 2 * settings.unacked_count_max,
        "queue.buffering.max.kbytes": 2 * settings.unacked_bytes_max // 1024 + 1024,
        # We look a topic up before we produce to it: one that is unknown afterwards was deleted.
        "topic.metadata.propagation.max.ms": 5_000,
        # What else it has to say it says to `error_cb` as well.
        "log_level": LOG_CRITICAL,
    }
    return properties | security_properties(security)


def security_properties(security: KafkaSecurity) -> dict[str, Any]:
    """How librdkafka reaches a secured cluster, producer or consumer."""
    optional = {
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca_file,
        "ssl.certificate.location": security.cert_file,
        "ssl.key.location": security.key_file,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    return {"security.protocol": security.protocol} | given


class ConfluentClient:
    """librdkafka's producer, served on the event loop."""

    def __init__(self, properties: dict[str, Any], *, metadata_timeout_ms: int) -> None:
        self._properties = properties | {"error_cb": self._failed}
        self._metadata_timeout_s = metadata_timeout_ms / 1000
        self._loop: asyncio.AbstractEventLoop
        self._producer: Producer
        #: Sends requests of one record each; made when it is first needed.
        self._lone_producer: Producer | None = None
        #: Replaced ones that still owe reports.
        self._retired: list[Producer] = []
        self._closing: set[asyncio.Task[bool]] = set()
        self._fatal = False
        self._logged_at: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False

    def start(self) -> None:
        """Make the producer; librdkafka connects by itself, now or later."""
        self._loop = asyncio.get_running_loop()
        self._producer = self._new_producer()
        self._serve()

    def look_up(self, topic: str) -> TopicView:
        """Ask the cluster, in a calling thread that may block. Raises LookUpFailed."""
        try:
            described = self._producer.list_topics(topic, self._metadata_timeout_s).topics[topic]
        except KafkaException as failure:
            raise LookUpFailed(outcome_of(failure.args[0])) from failure
        if described.error is not None:
            raise LookUpFailed(outcome_of(described.error))
        leaderless_count = sum(partition.leader < 0 for partition in described.partitions.values())
        if leaderless_count == len(described.partitions):
            raise LookUpFailed(Outcome.TOPIC_FAILING)
        return TopicView(len(described.partitions), leaderless_count)

    def hand_over(self, parcel: Parcel) -> None:
        """Take all records in order, never block; the parcel is answered on the loop."""
        self._produce(self._producer, parcel, self._reporter(parcel), range(len(parcel.records)))
        if not self._busy:
            self._serve()

    async def close(self) -> None:
        """Give up what is still under way and free every resource."""
        if self._timer is not None:
            self._timer.cancel()
        for producer in self._producers():
            producer.purge(blocking=False)
        for _ in range(CLOSING_POLLS):
            # All reports on the loop, before closing: closing polls too, in its own thread.
            if not any(producer.poll(0) or len(producer) for producer in self._producers()):
                break
            await asyncio.sleep(POLL_BUSY_S)
        await asyncio.gather(*(asyncio.to_thread(producer.close) for producer in self._producers()), *self._closing)

    def _produce(self, producer: Producer, parcel: Parcel, report: Reporter, indices: Iterable[int]) -> None:
        produce: Callable[..., None] = producer.produce
        topic, records, partition_count = parcel.topic, parcel.records, parcel.partition_count
        for index in indices:
            record = records[index]
            try:
                produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition(partition_count),
                    partial(report, index),
                    headers=record.headers,
                )
            except KafkaException as failure:
                parcel.answer(index, self._outcome(failure.args[0]))
            except BufferError:
                parcel.answer(index, Outcome.BROKER_AWAY)
            except (TypeError, ValueError):
                parcel.answer(index, Outcome.INVALID)

    def _reporter(self, parcel: Parcel) -> Reporter:
        answered = parcel.answered

        def report(index: int, error: KafkaError | None, _message: Message) -> None:
            if error is None:
                answered()
            elif error.name() in _REFUSED_TOGETHER:
                self._produce(self._lone(), parcel, report_alone, (index,))
            else:
                parcel.answer(index, self._outcome(error))

        def report_alone(index: int, error: KafkaError | None, _message: Message) -> None:
            parcel.answer(index, Outcome.ACKED if error is None else self._outcome(error))

        return report

    def _outcome(self, error: KafkaError) -> Outcome:
        self._fatal |= error.fatal() or error.name() == "_FATAL"
        return outcome_of(error)

    def _serve(self) -> None:
        """Fetch what happened, and come back: soon while anything is under way."""
        if self._timer is not None:
            self._timer.cancel()
        under_way = 0
        for producer in self._producers():
            producer.poll(0)
            under_way += len(producer)
        if self._fatal:
            self._replace_producer()
        if self._retired:
            self._close_retired()
        self._busy = under_way > 0
        delay_s = POLL_BUSY_S if self._busy else POLL_IDLE_S
        self._timer = self._loop.call_later(delay_s, self._serve)

    def _close_retired(self) -> None:
        """Close those that owe nothing any more; librdkafka joins its threads then, which may take a while."""
        answered = [producer for producer in self._retired if not len(producer)]
        self._retired = [producer for producer in self._retired if len(producer)]
        for producer in answered:
            closing = asyncio.create_task(asyncio.to_thread(producer.close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _producers(self) -> list[Producer]:
        lone = [] if self._lone_producer is None else [self._lone_producer]
        return [self._producer, *lone, *self._retired]

    def _lone(self) -> Producer:
        if self._lone_producer is None:
            self._lone_producer = self._new_producer({"batch.num.messages": 1})
        return self._lone_producer

    def _replace_producer(self) -> None:
        _log.error(
            "The producer is beyond repair and is replaced; records under way are published again.",
            action="producer_replaced",
        )
        self._fatal = False
        for producer in self._producers():
            producer.purge(blocking=False)
        self._retired = self._producers()
        self._producer = self._new_producer()
        self._lone_producer = None

    def _new_producer(self, differing: dict[str, Any] | None = None) -> Producer:
        return Producer(self._properties | (differing or {}), logger=_librdkafka_log)

    def _failed(self, error: KafkaError) -> None:
        self._fatal |= error.fatal() or error.name() == "_FATAL"
        now = self._loop.time()  # closing reports errors in its own thread
        if now - self._logged_at.get(error.name(), float("-inf")) >= ERROR_LOGGED_S:
            self._logged_at[error.name()] = now
            _log.warning("The Kafka client reports: %s", error.str(), action="kafka_error", error=error.name())


def outcome_of(error: KafkaError) -> Outcome:
    """What an error of librdkafka or of a broker means for a record; one that is new to us parks its topic."""
    return _OUTCOMES.get(error.name(), Outcome.TOPIC_FAILING)

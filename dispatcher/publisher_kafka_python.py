"""Records to Kafka through kafka-python: the same behaviour where no binary wheel can go, at about a tenth of the rate.

`send` computes for tens of microseconds and may block while the producer has no metadata, so one thread of ours calls
it, parcel by parcel: that keeps the order. Look-ups have made the producer learn the topic before, so blocking is the
exception (the topic was deleted a moment ago); then the rest of that parcel is answered at once instead of blocking
once per record. The producer has no bound of its own on memory; the publisher's room is the bound.

Refused together: after any answer that will not change by itself, the idempotent producer (as of 3.0.12) is beyond
repair and fails all it holds, records of other topics too, with the answer meant for one. So such an answer is not
taken as a record's own. The producer is replaced, and each record that got the answer is sent again by a second, not
idempotent producer whose requests hold one record each; what that one answers is the record's own.

Stuck: once a record in flight has timed out, the idempotent producer (as of 3.0.12) waits for ever to close the gap
that this leaves in its sequence, and so does whatever is behind it. So with the first timeout the producer is
abandoned: all it has not answered is BROKER_AWAY, which says what is known of it, and a fresh producer, with a sequence
of its own, sends what comes next. The abandoned one is closed in a thread of its own, and whatever it still says is not
heard. What it sent may arrive after all; that is a repeat, and never overtakes the first.

Answers arrive on the producer's I/O thread. They are put in a queue and the loop is woken once for all that are there.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from kafka import KafkaAdminClient, KafkaProducer
from kafka import errors as kafka_errors

from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.publisher_kafka import FRAMING_BYTES, LookUpFailed, TopicView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tocsin.dispatcher.kafka_security import KafkaSecurity
    from tocsin.dispatcher.publisher import PublisherSettings
    from tocsin.dispatcher.publisher_kafka import Parcel

#: `send` and the producer's own look-up of a topic block no longer than this.
BLOCKED_MS_MAX = 1_000
#: What kafka-python gathers per partition before it must send; its default of 16 KiB halves the rate.
BATCH_BYTES = 128 * 1024

#: Distance between two log lines of the same error.
ERROR_LOGGED_S = 10.0
#: How long closing waits for a producer that was abandoned.
CLOSING_SECONDS = 5.0

_OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (
    (kafka_errors.MessageSizeTooLargeError, Outcome.TOO_LARGE),
    (kafka_errors.RecordListTooLargeError, Outcome.TOO_LARGE),
    (kafka_errors.TopicAuthorizationFailedError, Outcome.NOT_AUTHORISED),
    (kafka_errors.UnknownTopicOrPartitionError, Outcome.UNKNOWN_TOPIC),
    (kafka_errors.InvalidTopicError, Outcome.INVALID),
    (kafka_errors.InvalidRecordError, Outcome.INVALID),
    (kafka_errors.PolicyViolationError, Outcome.INVALID),
    # Credentials and rights on the cluster concern every record alike: no reason to bury any of them.
    (kafka_errors.SaslAuthenticationFailedError, Outcome.BROKER_AWAY),
    (kafka_errors.ClusterAuthorizationFailedError, Outcome.BROKER_AWAY),
    (kafka_errors.BrokerNotAvailableError, Outcome.BROKER_AWAY),
    (kafka_errors.NetworkExceptionError, Outcome.BROKER_AWAY),
    (kafka_errors.RequestTimedOutError, Outcome.BROKER_AWAY),
    (kafka_errors.NotEnoughReplicasError, Outcome.TOPIC_FAILING),
    (kafka_errors.NotEnoughReplicasAfterAppendError, Outcome.TOPIC_FAILING),
    (kafka_errors.LeaderNotAvailableError, Outcome.TOPIC_FAILING),
    (kafka_errors.NotLeaderForPartitionError, Outcome.TOPIC_FAILING),
    # Whatever else a broker answered concerns the topic; what our own side says concerns the connection.
    (kafka_errors.BrokerResponseError, Outcome.TOPIC_FAILING),
    (kafka_errors.KafkaError, Outcome.BROKER_AWAY),
    (TypeError, Outcome.INVALID),
    (AssertionError, Outcome.INVALID),
    # The partition is not, or no longer, in the producer's metadata.
    (ValueError, Outcome.TOPIC_FAILING),
)
_log = structlog.get_logger(__name__)
_kafka_log = logging.getLogger("kafka")


def client(servers: str, settings: PublisherSettings, security: KafkaSecurity) -> KafkaPythonClient:
    """The client of a cluster."""
    return KafkaPythonClient(
        producer_configuration(servers, settings, security), configuration(servers, settings, security)
    )


def configuration(servers: str, settings: PublisherSettings, security: KafkaSecurity) -> dict[str, Any]:
    """What producer and look-ups have in common."""
    return {
        "bootstrap_servers": servers.split(","),
        "client_id": "tocsin",
        "bootstrap_timeout_ms": settings.metadata_timeout_ms,
        "request_timeout_ms": settings.request_timeout_ms,
        "reconnect_backoff_max_ms": BLOCKED_MS_MAX,
    } | security_arguments(security)


def security_arguments(security: KafkaSecurity) -> dict[str, Any]:
    """How kafka-python reaches a secured cluster, producer or not."""
    return {
        "security_protocol": security.protocol,
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
        "ssl_cafile": security.ca_file,
        "ssl_certfile": security.cert_file,
        "ssl_keyfile": security.key_file,
    }


def producer_configuration(servers: str, settings: PublisherSettings, security: KafkaSecurity) -> dict[str, Any]:
    """The arguments of KafkaProducer."""
    return configuration(servers, settings, security) | {
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": settings.delivery_timeout_ms,
        "linger_ms": settings.linger_ms,
        "compression_type": None if settings.compression == "none" else settings.compression,
        "max_request_size": settings.record_bytes_max + FRAMING_BYTES,
        "batch_size": BATCH_BYTES,
        "max_block_ms": BLOCKED_MS_MAX,
        "metrics_enabled": False,
    }


class Reports(logging.Handler):
    """Says what kafka-python reports as an error, of each kind one now and then: it may be several a second.

    What it logs below INFO, whoever asked for that, holds requests whole: payloads, and with PLAIN the password.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._said_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless one of its kind was said a moment ago."""
        if record.created - self._said_at.get(record.msg, float("-inf")) >= ERROR_LOGGED_S:
            self._said_at[record.msg] = record.created
            _log.warning(f"The Kafka client reports: {record.getMessage()}", action="kafka_error", error=record.name)

    def begin(self) -> None:
        """Hear kafka-python from now on."""
        _kafka_log.addHandler(self)
        _kafka_log.setLevel(logging.INFO)

    def end(self) -> None:
        """Hear it no more."""
        _kafka_log.removeHandler(self)


class Sending:
    """A producer, and the records that it has not answered."""

    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer
        self._unanswered: set[tuple[Parcel, int]] = set()

    def send(self, parcel: Parcel, index: int, failed: Callable[[Exception], None], acked: Callable[[], None]) -> None:
        """Hand a record over; one of the two is called with its answer, on a thread of the producer's."""
        record = parcel.records[index]
        key = (parcel, index)
        self._unanswered.add(key)
        try:
            future = self.producer.send(
                parcel.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=record.partition(parcel.partition_count),
            )
        except BaseException:
            self._settles(key)
            raise
        future.add_callback(self._acked, key, acked)
        future.add_errback(self._failed, key, failed)

    def abandon(self) -> Iterator[tuple[Parcel, int]]:
        """The records without an answer; one that comes after all is not heard."""
        while self._unanswered:
            try:
                yield self._unanswered.pop()
            except KeyError:  # the last one was answered this very moment
                return

    def _acked(self, key: tuple[Parcel, int], tell: Callable[[], None], _metadata: object) -> None:
        if self._settles(key):
            tell()

    def _failed(self, key: tuple[Parcel, int], tell: Callable[[Exception], None], failure: Exception) -> None:
        if self._settles(key):
            tell(failure)

    def _settles(self, key: tuple[Parcel, int]) -> bool:
        """Whether this is the record's only answer: exactly one caller gets to remove it."""
        try:
            self._unanswered.remove(key)
        except KeyError:
            return False
        return True


class KafkaPythonClient:
    """kafka-python's producer, called from a thread of its own."""

    def __init__(self, producer_arguments: dict[str, Any], admin_arguments: dict[str, Any]) -> None:
        self._producer_arguments = producer_arguments
        self._admin_arguments = admin_arguments
        self._sending: Sending | None = None
        #: Sends requests of one record each; made when it is first needed.
        self._lone: Sending | None = None
        self._closing: list[threading.Thread] = []
        self._reports = Reports()
        self._admin: KafkaAdminClient | None = None
        #: All of them block until a broker answers, so whoever needs one first makes it, in a thread.
        self._making = threading.Lock()
        self._broken = False
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="tocsin-send")
        self._loop: asyncio.AbstractEventLoop
        self._answers: deque[tuple[Parcel, int, Outcome]] = deque()
        self._woken = False

    def start(self) -> None:
        """Make ready, without waiting for a broker."""
        self._loop = asyncio.get_running_loop()
        self._reports.begin()

    def look_up(self, topic: str) -> TopicView:
        """Ask the cluster, in a calling thread that may block. Raises LookUpFailed."""
        try:
            described = self._open_admin().describe_topics([topic])[0]
            error_type = kafka_errors.for_code(described["error_code"])
            if error_type is not kafka_errors.NoError:
                raise error_type(topic)
            partitions = described["partitions"]
            leaderless_count = sum(partition["leader_id"] < 0 for partition in partitions)
            if leaderless_count == len(partitions):
                raise LookUpFailed(Outcome.TOPIC_FAILING)
            self._open_producer().producer.partitions_for(topic)
        except kafka_errors.KafkaError as failure:
            raise LookUpFailed(outcome_of(failure)) from failure
        return TopicView(len(partitions), leaderless_count)

    def hand_over(self, parcel: Parcel) -> None:
        """Take all records in order, never block; the parcel is answered on the loop."""
        self._sender.submit(self._send_all, parcel)

    async def close(self) -> None:
        """Give up what is still under way and free every resource."""
        self._sender.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._close_clients)
        self._reports.end()
        self._take_answers()

    def _send_all(self, parcel: Parcel) -> None:
        for index in range(len(parcel.records)):
            try:
                sending = self._open_producer()
            except kafka_errors.KafkaError as failure:
                # Whoever tried again for each record would hold up everybody.
                self._answer_from(index, parcel, outcome_of(failure))
                return
            failed = partial(self._failed, sending, parcel, index)
            try:
                sending.send(parcel, index, failed, partial(self._answer, parcel, index, Outcome.ACKED))
            except kafka_errors.KafkaTimeoutError:
                self._answer_from(index, parcel, Outcome.TOPIC_FAILING)
                return
            except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as failure:
                self._answer(parcel, index, outcome_of(failure))

    def _answer_from(self, first: int, parcel: Parcel, outcome: Outcome) -> None:
        for index in range(first, len(parcel.records)):
            self._answer(parcel, index, outcome)

    def _send_alone(self, parcel: Parcel, index: int) -> None:
        acked = partial(self._answer, parcel, index, Outcome.ACKED)
        try:
            self._open_lone_producer().send(parcel, index, partial(self._failed_alone, parcel, index), acked)
        except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as failure:
            self._answer(parcel, index, outcome_of(failure))

    def _failed(self, sending: Sending, parcel: Parcel, index: int, failure: Exception) -> None:
        if isinstance(failure, kafka_errors.KafkaTimeoutError):
            self._answer(parcel, index, Outcome.BROKER_AWAY)
            self._submit(self._abandon, sending)
        elif isinstance(failure, kafka_errors.RetriableError):
            self._answer(parcel, index, outcome_of(failure))
        else:
            self._broken |= sending is self._sending
            if not self._submit(self._send_alone, parcel, index):
                self._answer(parcel, index, Outcome.BROKER_AWAY)

    def _failed_alone(self, parcel: Parcel, index: int, failure: Exception) -> None:
        self._answer(parcel, index, outcome_of(failure))

    def _submit(self, work: Callable[..., None], *arguments: Any) -> bool:
        """Whether the sending thread will do it; it does nothing any more once it is closing."""
        try:
            self._sender.submit(work, *arguments)
        except RuntimeError:
            return False
        return True

    def _abandon(self, sending: Sending) -> None:
        with self._making:
            if sending is not self._sending:
                return
            self._sending, self._broken = None, False
        _log.warning(
            "A record was not acknowledged in time; the producer is replaced, what it held is published again.",
            action="producer_replaced",
        )
        for parcel, index in sending.abandon():
            self._answer(parcel, index, Outcome.BROKER_AWAY)
        closing = threading.Thread(target=force_close, args=(sending.producer,), name="tocsin-abandon", daemon=True)
        self._closing.append(closing)
        closing.start()

    def _answer(self, parcel: Parcel, index: int, outcome: Outcome) -> None:
        self._answers.append((parcel, index, outcome))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._take_answers)

    def _take_answers(self) -> None:
        # Lowered before the queue is emptied: an answer that comes in meanwhile wakes the loop again.
        self._woken = False
        while self._answers:
            parcel, index, outcome = self._answers.popleft()
            parcel.answer(index, outcome)

    def _open_producer(self) -> Sending:
        if self._sending is not None and not self._broken:
            return self._sending
        with self._making:
            if self._broken and self._sending is not None:
                _log.warning(
                    "A record was refused and took the producer with it; the producer is replaced.",
                    action="producer_replaced",
                )
                force_close(self._sending.producer)
                self._sending, self._broken = None, False
            if self._sending is None:
                self._sending = Sending(KafkaProducer(**self._producer_arguments))
            return self._sending

    def _open_lone_producer(self) -> Sending:
        with self._making:
            if self._lone is None:
                alone = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "batch_size": 0}
                self._lone = Sending(KafkaProducer(**self._producer_arguments | alone))
            return self._lone

    def _open_admin(self) -> KafkaAdminClient:
        with self._making:
            if self._admin is None:
                self._admin = KafkaAdminClient(**self._admin_arguments)
            return self._admin

    def _close_clients(self) -> None:
        with self._making:
            for sending in (self._sending, self._lone):
                if sending is not None:
                    force_close(sending.producer)
            for closing in self._closing:
                closing.join(CLOSING_SECONDS)
            if self._admin is not None:
                self._admin.close()


def force_close(producer: KafkaProducer) -> None:
    """Close at once; what is under way fails. `close` alone first flushes, and gives up closing where that is slow."""
    producer._sender.force_close()  # noqa: SLF001 - there is no public way, see above
    producer._sender.join()  # noqa: SLF001
    producer.close(timeout=0)


def outcome_of(failure: Exception) -> Outcome:
    """What an error of kafka-python or of a broker means for a record; one that is new to us parks its topic."""
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(failure, kind)), Outcome.TOPIC_FAILING)

"""Records to Kafka through kafka-python: the same behaviour where no binary wheel can go, at about a tenth of the rate.

`send` computes for tens of microseconds and may block while the producer has no metadata, so one thread of ours calls
it, parcel by parcel: that keeps the order. Look-ups have made the producer learn the topic before, so blocking is the
exception (the topic was deleted a moment ago); then the rest of that parcel is answered at once instead of blocking
once per record. The producer has no bound of its own on memory; the publisher's room is the bound.

Refused together: after any answer that will not change by itself, the idempotent producer (as of 3.0.12) is beyond
repair and fails all it holds, records of other topics too, with the answer meant for one. So such an answer is not
taken as a record's own. The producer is replaced, and each record that got the answer is sent again by a second, not
idempotent producer whose requests hold one record each; what that one answers is the record's own.

Answers arrive on the producer's I/O thread. They are put in a queue and the loop is woken once for all that are there.
"""

from __future__ import annotations

import asyncio
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
    from collections.abc import Callable

    from tocsin.dispatcher.kafka_security import KafkaSecurity
    from tocsin.dispatcher.publisher import PublisherSettings
    from tocsin.dispatcher.publisher_kafka import Parcel

#: `send` and the producer's own look-up of a topic block no longer than this.
BLOCKED_MS_MAX = 1_000
#: What kafka-python gathers per partition before it must send; its default of 16 KiB halves the rate.
BATCH_BYTES = 128 * 1024

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


class KafkaPythonClient:
    """kafka-python's producer, called from a thread of its own."""

    def __init__(self, producer_arguments: dict[str, Any], admin_arguments: dict[str, Any]) -> None:
        self._producer_arguments = producer_arguments
        self._admin_arguments = admin_arguments
        self._producer: KafkaProducer | None = None
        #: Sends requests of one record each; made when it is first needed.
        self._lone_producer: KafkaProducer | None = None
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
            self._open_producer().partitions_for(topic)
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
        self._take_answers()

    def _send_all(self, parcel: Parcel) -> None:
        for index in range(len(parcel.records)):
            try:
                producer = self._open_producer()
                self._send(producer, parcel, index, partial(self._failed, producer, parcel, index))
            except kafka_errors.KafkaTimeoutError:
                for unsent in range(index, len(parcel.records)):
                    self._answer(parcel, unsent, Outcome.TOPIC_FAILING)
                return
            except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as failure:
                self._answer(parcel, index, outcome_of(failure))

    def _send_alone(self, parcel: Parcel, index: int) -> None:
        try:
            self._send(self._open_lone_producer(), parcel, index, partial(self._failed_alone, parcel, index))
        except (kafka_errors.KafkaError, ValueError, TypeError, AssertionError) as failure:
            self._answer(parcel, index, outcome_of(failure))

    def _send(self, producer: KafkaProducer, parcel: Parcel, index: int, failed: Callable[[Exception], None]) -> None:
        record = parcel.records[index]
        future = producer.send(
            parcel.topic,
            record.value,
            record.key,
            headers=record.headers,
            partition=record.partition(parcel.partition_count),
        )
        future.add_callback(partial(self._acked, parcel, index))
        future.add_errback(failed)

    def _acked(self, parcel: Parcel, index: int, _metadata: object) -> None:
        self._answer(parcel, index, Outcome.ACKED)

    def _failed(self, producer: KafkaProducer, parcel: Parcel, index: int, failure: Exception) -> None:
        if isinstance(failure, kafka_errors.RetriableError):
            self._answer(parcel, index, outcome_of(failure))
            return
        self._broken |= producer is self._producer
        try:
            self._sender.submit(self._send_alone, parcel, index)
        except RuntimeError:  # closing
            self._answer(parcel, index, Outcome.BROKER_AWAY)

    def _failed_alone(self, parcel: Parcel, index: int, failure: Exception) -> None:
        self._answer(parcel, index, outcome_of(failure))

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

    def _open_producer(self) -> KafkaProducer:
        if self._producer is not None and not self._broken:
            return self._producer
        with self._making:
            if self._broken and self._producer is not None:
                _log.warning(
                    "A record was refused and took the producer with it; the producer is replaced.",
                    action="producer_replaced",
                )
                force_close(self._producer)
                self._producer, self._broken = None, False
            if self._producer is None:
                self._producer = KafkaProducer(**self._producer_arguments)
            return self._producer

    def _open_lone_producer(self) -> KafkaProducer:
        with self._making:
            if self._lone_producer is None:
                alone = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1, "batch_size": 0}
                self._lone_producer = KafkaProducer(**self._producer_arguments | alone)
            return self._lone_producer

    def _open_admin(self) -> KafkaAdminClient:
        with self._making:
            if self._admin is None:
                self._admin = KafkaAdminClient(**self._admin_arguments)
            return self._admin

    def _close_clients(self) -> None:
        with self._making:
            for producer in (self._producer, self._lone_producer):
                if producer is not None:
                    force_close(producer)
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

"""TLS and passwords on both sides: what is right gets in, what is wrong is told in one line, no secret is logged."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from acceptance.processes import Running
from command_line import start_tocsin
from confluent_kafka import Consumer, TopicPartition

from tocsin.deploy.stack import LocalStack
from tocsin.deploy.stack_errors import ServiceFailed, StackRefused, StackUnavailable
from tocsin.deploy.stack_topics import make_topics
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher_confluent import security_properties

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

PATIENCE_SECONDS = 90
#: Makes a Python process log at DEBUG, whatever the library.
VERBOSE = Path(__file__).parents[1] / "acceptance" / "verbose"
#: Stands in every payload here.
MARKER = "payload-that-nobody-may-log"


class Told(NamedTuple):
    code: int
    out: str
    err: str


class Secured:
    """A stack that wants TLS and a password, and commands towards it."""

    def __init__(self, stack: LocalStack, folder: Path) -> None:
        self.stack = stack
        self.store = stack.store_url("secured")
        self._folder = folder

    def start(self, *words: str, **changed: str) -> subprocess.Popen[str]:
        """A command, with the stack's variables and some of them changed."""
        return start_tocsin(*words, folder=self._folder, environment={**self.stack.environment, **changed})

    def run(self, *words: str, **changed: str) -> Told:
        """A command that ends by itself."""
        command = self.start(*words, **changed)
        out, err = command.communicate(timeout=PATIENCE_SECONDS)
        return Told(command.returncode, out, err)

    @property
    def secrets(self) -> set[str]:
        """What no output may hold."""
        return {self.stack.environment[name] for name in ("TOCSIN_CASSANDRA_PASSWORD", "TOCSIN_KAFKA_PASSWORD")}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One node and one broker."""
    folder = tmp_path_factory.mktemp("secured")
    stack = LocalStack(folder / "stack", short_lived=True)
    try:
        stack.start(secure=True)
    except ServiceFailed:
        raise
    except StackUnavailable as lacking:
        if "CI" in os.environ:
            raise
        pytest.skip(str(lacking))
    made = Secured(stack, folder)
    assert made.run("init", made.store, "--replication", "1").code == 0
    yield made
    stack.stop()


@pytest.fixture
def topic(secured: Secured) -> str:
    name = f"secured-{secrets.token_hex(4)}"
    make_topics(secured.stack.kafka_bootstrap, [name], KafkaSecurity.from_environment(secured.stack.environment))
    return name


@pytest.fixture(scope="module")
def foreign_ca(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate that signed nothing here."""
    folder = tmp_path_factory.mktemp("foreign")
    names = ("-subj", "/CN=somebody else", "-keyout", "key.pem", "-out", "ca.pem", "-days", "2")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(["openssl", "req", "-x509", *curve, *names], cwd=folder, check=True, capture_output=True)
    return str(folder / "ca.pem")


@pytest.mark.parametrize(("client", "mechanism"), [("confluent-kafka", "SCRAM-SHA-512"), ("kafka-python", "PLAIN")])
def test_a_schedule_becomes_a_record_and_neither_password_nor_payload_is_logged(
    secured: Secured, topic: str, client: str, mechanism: str
) -> None:
    access = {"TOCSIN_KAFKA_MECHANISM": mechanism, "TOCSIN_KAFKA_CLIENT": client, "PYTHONPATH": str(VERBOSE)}
    words = ("--store", secured.store, "--sink", secured.stack.sink_url, "--metrics", "off", "--log", "json")
    process = secured.start("dispatch", *words, "--supervisor", str(os.getpid()), **access)
    # Its output is read as it comes: at debug level it would fill a pipe.
    dispatcher = Running("dispatcher", process)
    try:
        created = secured.run(
            "create",
            f"tea-{topic}",
            "--at",
            "+1s",
            "--topic",
            topic,
            "--payload",
            MARKER,
            TOCSIN_STORE=secured.store,
            PYTHONPATH=str(VERBOSE),
        )
        value = first_value(secured, topic)
    finally:
        dispatcher.send(signal.SIGTERM)
        code = dispatcher.ended()

    assert created.code == 0, created.err
    assert value == MARKER.encode()
    assert code == 0
    assert "DEBUG:" in dispatcher.text, "nothing was logged at debug level: this test would prove nothing"
    told = created.err + dispatcher.text
    assert [line[:200] for line in told.splitlines() if MARKER in line] == []
    assert [line[:200] for line in told.splitlines() if any(secret in line for secret in secured.secrets)] == []


@pytest.mark.parametrize("command", [("status",), ("dispatch", "--metrics", "off")])
@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_store_that_refuses_us_is_told_in_one_line(
    secured: Secured, foreign_ca: str, command: tuple[str, ...], wrong: str
) -> None:
    changed = {
        "password": {"TOCSIN_CASSANDRA_PASSWORD": "not-the-password"},
        "authority": {"TOCSIN_CASSANDRA_CA_FILE": foreign_ca},
    }[wrong]
    told = secured.run(*command, "--store", secured.store, **changed)

    assert told.code == 1
    assert told.err.startswith("✗ ")
    assert told.err.count("\n") == 1, told.err
    assert {"password": "TOCSIN_CASSANDRA_PASSWORD", "authority": "TOCSIN_CASSANDRA_CA_FILE"}[wrong] in told.err
    assert "Traceback" not in told.err
    assert "not-the-password" not in told.err


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_doctor_tells_in_one_line_that_kafka_refuses_us(secured: Secured, foreign_ca: str, wrong: str) -> None:
    changed = {
        "password": {"TOCSIN_KAFKA_PASSWORD": "not-the-password"},
        "authority": {"TOCSIN_KAFKA_CA_FILE": foreign_ca},
    }[wrong]
    told = secured.run("doctor", "--store", secured.store, "--sink", secured.stack.sink_url, **changed)

    assert told.code == 1
    assert told.err.startswith("✗ ")
    assert told.err.count("\n") == 1, told.err
    assert {"password": "TOCSIN_KAFKA_PASSWORD", "authority": "TOCSIN_KAFKA_CA_FILE"}[wrong] in told.err
    assert "not-the-password" not in told.err


def test_a_dispatcher_that_kafka_refuses_says_so_and_waits(secured: Secured, topic: str) -> None:
    words = ("--store", secured.store, "--sink", secured.stack.sink_url, "--metrics", "off", "--log", "json")
    changed = {"TOCSIN_KAFKA_PASSWORD": "not-the-password"}
    process = secured.start("dispatch", *words, "--supervisor", str(os.getpid()), **changed)
    dispatcher = Running("dispatcher", process)
    try:
        created = secured.run("create", f"r-{topic}", "--at", "+1s", "--topic", topic, TOCSIN_STORE=secured.store)
        assert created.code == 0, created.err
        dispatcher.until_action("kafka_error")
    finally:
        dispatcher.send(signal.SIGTERM)
        code = dispatcher.ended()
    assert code == 0
    assert "uthentication" in next(each["event"] for each in dispatcher.said if each["action"] == "kafka_error")
    assert "Traceback" not in dispatcher.text
    assert "not-the-password" not in dispatcher.text


def test_secrets_are_for_their_user_alone_and_go_with_the_stack(secured: Secured, tmp_path: Path) -> None:
    folder = secured.stack.directory / "security"
    assert folder.stat().st_mode & 0o077 == 0
    assert secured.stack.directory.stat().st_mode & 0o077 == 0
    with pytest.raises(StackRefused, match="1 secure node"):
        LocalStack(secured.stack.directory).start()


def first_value(secured: Secured, topic: str) -> bytes:
    """The first record, by a consumer that knows nothing of Tocsin."""
    security = KafkaSecurity.from_environment(secured.stack.environment)
    consumer = Consumer({
        "bootstrap.servers": secured.stack.kafka_bootstrap, "group.id": "secured", **security_properties(security)
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(8)])
        (message,) = consumer.consume(1, PATIENCE_SECONDS)
        return message.value()
    finally:
        consumer.close()

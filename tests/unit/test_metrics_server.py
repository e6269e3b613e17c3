"""/metrics, /healthz and /readyz answer over HTTP, from a thread that waits for nobody."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tocsin.deploy.metrics_server import MetricsServer, next_address, split_address
from tocsin.dispatcher.measured import CallMetrics
from tocsin.dispatcher.metrics import Metrics
from tocsin.schema.errors import SettingsError


class Process:
    """What the probes look at."""

    def __init__(self) -> None:
        self.turns = True
        self.store_answers = True
        self.metrics = Metrics()
        self.calls = CallMetrics()
        self.server = MetricsServer(
            "127.0.0.1:0",
            self.metrics,
            self.calls,
            healthy=lambda: self.turns,
            ready=lambda: self.turns and self.store_answers,
        )

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.server.address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.server.close()


def test_metrics_of_dispatching_of_calls_and_of_the_process_are_one_page(process: Process) -> None:
    process.metrics.skipped("expired", 3)
    process.calls.answered("write_pack", 4)
    code, page = process.ask("/metrics")
    assert code == 200
    assert 'tocsin_skipped_total{reason="expired"} 3.0' in page
    assert 'tocsin_store_seconds_count{operation="write_pack"} 1.0' in page
    assert "process_resident_memory_bytes" in page


@pytest.mark.parametrize(
    ("turns", "store_answers", "healthy", "ready"),
    [(True, True, 200, 200), (True, False, 200, 503), (False, True, 503, 503)],
)
def test_probes_tell_a_process_that_hangs_from_one_whose_store_is_away(
    process: Process, turns: bool, store_answers: bool, healthy: int, ready: int
) -> None:
    process.turns, process.store_answers = turns, store_answers
    assert (process.ask("/healthz")[0], process.ask("/readyz")[0]) == (healthy, ready)


def test_what_is_not_there_is_not_found(process: Process) -> None:
    assert process.ask("/")[0] == 404


def test_a_port_that_is_taken_is_a_sentence(process: Process) -> None:
    with pytest.raises(SettingsError, match="give another --metrics, or off"):
        MetricsServer(process.server.address, Metrics(), healthy=lambda: True, ready=lambda: True)


@pytest.mark.parametrize("address", ["9464", "host:", "host:x", "host:70000", ":9464"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="is not an address"):
        split_address(address)


def test_processes_of_one_command_take_ports_that_follow_each_other() -> None:
    assert [next_address("127.0.0.1:9464", number) for number in range(2)] == ["127.0.0.1:9464", "127.0.0.1:9465"]
    assert next_address("127.0.0.1:0", 3) == "127.0.0.1:0"
    assert next_address("off", 3) == "off"

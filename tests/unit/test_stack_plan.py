"""Where a stack listens, and how that is written down."""

from __future__ import annotations

import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tocsin.deploy import stack_ports
from tocsin.deploy.stack_config import initial_token, write_config
from tocsin.deploy.stack_errors import DirectoryInUse, PortTaken, StackUnavailable
from tocsin.deploy.stack_plan import PLAN_FILE, StackPlan, make_plan, read_plan


def plan_with(**changes: Any) -> StackPlan:
    asked: dict[str, Any] = {"stack_id": "00ff", "engine": "java", "nodes": 3, "short_lived": True}
    return make_plan(**{**asked, "cassandra_port": None, "kafka_port": None, **changes})


def test_all_nodes_share_their_ports_on_addresses_of_their_own() -> None:
    plan = plan_with()

    assert plan.cassandra_addresses == ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    assert len({plan.cassandra_port, plan.storage_port, plan.kafka_port, plan.controller_port}) == 4


def test_the_urls_name_every_node_and_the_broker() -> None:
    plan = plan_with(cassandra_port=21_042, kafka_port=21_092)

    assert plan.store_url("bells") == "cassandra://127.0.0.1:21042,127.0.0.2:21042,127.0.0.3:21042/bells"
    assert plan.sink_url == "kafka://127.0.0.1:21092"


def test_a_port_taken_on_any_address_of_the_nodes_is_refused() -> None:
    with socket.create_server(("127.0.0.3", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"port {port} for Cassandra is already in use on 127\.0\.0\.3"):
            plan_with(cassandra_port=port)


def test_one_port_asked_for_twice_is_refused() -> None:
    with pytest.raises(PortTaken, match="Kafka"):
        plan_with(cassandra_port=21_042, kafka_port=21_042)


def test_a_chosen_port_is_never_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_ports, "is_free", lambda *_: True)
    assert plan_with(kafka_port=9042, short_lived=False).cassandra_port != 9042


def test_a_taken_usual_port_gives_way_to_a_free_one_below_the_outgoing_range() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        chosen = stack_ports.choose_free(["127.0.0.1"], prefer=taken)

    assert stack_ports.LOWEST_PORT <= chosen < stack_ports.HIGHEST_PORT


def test_a_missing_loopback_address_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_all_but_the_first(probe: socket.socket, address: tuple[str, int]) -> None:
        if address[0] != "127.0.0.1":
            raise OSError(49, "Can't assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse_all_but_the_first)

    assert stack_ports.loopback_addresses(1) == ("127.0.0.1",)
    with pytest.raises(StackUnavailable, match=r"127\.0\.0\.2 is missing.*--nodes 1"):
        stack_ports.loopback_addresses(3)


def test_a_written_plan_reads_back_the_same(tmp_path: Path) -> None:
    plan = plan_with()
    plan.write(tmp_path)

    assert read_plan(tmp_path) == plan


def test_where_no_plan_is_there_is_no_stack(tmp_path: Path) -> None:
    assert read_plan(tmp_path) is None
    assert read_plan(tmp_path / "missing") is None


def test_a_plan_that_cannot_be_read_is_refused_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / PLAN_FILE).write_text('{"engine": "steam"}')

    with pytest.raises(DirectoryInUse, match="cannot be read"):
        read_plan(tmp_path)


def test_tokens_share_the_ring_evenly() -> None:
    tokens = [initial_token(node, 3) for node in range(3)]

    assert tokens[0] == -(2**63)
    assert {later - earlier for earlier, later in pairwise(tokens)} == {2**64 // 3}


def test_a_configuration_with_a_word_left_unfilled_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write_config(tmp_path / "kraft.properties", directory=tmp_path)

    assert not (tmp_path / "kraft.properties").exists()

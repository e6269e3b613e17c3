"""Every runbook followed on three Cassandra nodes and a Kafka broker, word by word."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import tocsin
from runbook_commands import RUNBOOKS, follow

from tocsin.deploy.stack import LocalStack

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]


@pytest.fixture(scope="module")
def store(cassandra_stack: LocalStack) -> Iterator[str]:
    """A store with one schedule, for all of them."""
    url = cassandra_stack.store_url(f"runbooks_{secrets.token_hex(3)}")
    assert tocsin("init", url, "--shard-ranges", "4", "--sub-partitions", "16").code == 0
    assert tocsin("create", "tea", "--every", "1h", "--topic", "mail", "--store", url).code == 0
    return url


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda path: path.stem)
def test_every_runbook_can_be_followed(
    runbook: Path, store: str, cassandra_stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOCSIN_STORE", store)
    monkeypatch.setenv("TOCSIN_SINK", cassandra_stack.sink_url)
    (tmp_path / "schedules.toml").write_text('[[schedule]]\nid = "declared"\nevery = "1h"\ntopic = "mail"\n')
    again = cassandra_stack.store_url(f"again_{secrets.token_hex(3)}")
    soon = (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()
    for typed, answer in follow(runbook, folder=tmp_path, again=again, since=soon):
        # Nobody dispatches, and the broker is one: doctor says so.
        assert answer.code == (1 if typed[0] == "doctor" else 0), (typed, answer)

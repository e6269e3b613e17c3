"""Fresh ids are of one size and never the same, across draws and across a fork."""

from __future__ import annotations

import os

import pytest

from tocsin.schema.fresh_ids import DRAW, ID_BYTES, FreshIds


def test_ids_differ_across_draws() -> None:
    new_id = FreshIds()
    ids = [new_id() for _ in range(3 * DRAW)]
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {ID_BYTES}


def test_a_forked_process_draws_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    new_id = FreshIds()
    new_id()
    drawn = new_id._drawn
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert new_id() not in drawn

"""Parity with Kafka's Java producer, on known answers and against an independent implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from tocsin.dispatcher.partitioning import murmur2, partition_hash
from tocsin.dispatcher.publisher import Record

# Signed answers of Utils.murmur2, from the unit tests of Kafka's Java clients (UtilsTest.testMurmur2).
JAVA_ANSWERS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA_ANSWERS.items())
def test_murmur2_gives_the_answers_of_kafkas_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_murmur2_agrees_with_an_independent_implementation(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(min_value=1, max_value=10_000))
def test_a_record_goes_to_the_positive_hash_modulo_the_partition_count(key: bytes, count: int) -> None:
    expected = (murmur2(key) & 0x7FFFFFFF) % count
    assert Record("topic", b"", b"", [], key).partition(count) == expected
    assert Record("topic", b"", b"", [], key, partition_hash(key)).partition(count) == expected

"""To which partition a record goes: murmur2 of its partition key, as Kafka's own Java producer computes it.

We compute it, not the client: librdkafka hashes with CRC32 unless told otherwise, and any client would hash the record
key, which differs from run to run of a schedule. Consumers that join our topics with topics written by Java find equal
partition keys in equal partitions, whichever client is configured here.

Source: Utils.murmur2 and Utils.toPositive of Kafka's Java clients; the seed and constants are theirs.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF
#: A signed 32-bit integer's value bits: Java masks the sign away instead of taking the absolute value.
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit murmur2 of `data`."""
    length = len(data)
    tail = length & 3
    hashed = _SEED ^ length
    for word in _words(length >> 2).unpack_from(data):
        mixed = word * _MULTIPLIER & _WORD
        hashed = (hashed * _MULTIPLIER ^ (mixed ^ mixed >> 24) * _MULTIPLIER) & _WORD
    if tail:
        hashed = (hashed ^ int.from_bytes(data[length - tail :], "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    return hashed ^ hashed >> 15


@lru_cache(maxsize=1024)
def _words(count: int) -> Struct:
    return Struct(f"<{count}I")


def partition_hash(partition_key: bytes) -> int:
    """What is taken modulo the partition count; computed once per record, while there is time."""
    return murmur2(partition_key) & _POSITIVE

"""An occurrence as a Kafka record: CloudEvents 1.0, Kafka protocol binding, binary content mode.

The value is the payload, untouched; every attribute is a header `ce_<name>` holding UTF-8 text, and the payload's media
type is the header `content-type` (binding, sections 3.2.1 to 3.2.3). Attributes:

    specversion 1.0    id: the occurrence key    source: this installation    type: tocsin.occurrence
    time: due          and the extensions scheduleid, scheduledfor, version, kind, missed, tenant, definition

The record key is the occurrence key, so that a consumer dedupes on it alone; the partition follows the partition key,
by default the schedule id, so that the occurrences of one schedule keep their order. Instants are RFC 3339, UTC, with
milliseconds. The user's own headers follow last. This runs once per occurrence: what does not differ between the
occurrences of one schedule is built once and shared.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tocsin.dispatcher.partitioning import partition_hash
from tocsin.dispatcher.publisher import Record, size_of
from tocsin.schema.entries import Kind, format_instant

if TYPE_CHECKING:
    from tocsin.schema.entries import Entry
    from tocsin.schema.schedules import Spec

#: The CloudEvents type of every occurrence.
EVENT_TYPE = "tocsin.occurrence"
#: The CloudEvents source where no other is configured; with the id it identifies an event worldwide.
EVENT_SOURCE = "/tocsin"
_NONE_MISSED = ("ce_missed", b"0")


def record_of(entry: Entry, spec: Spec, *, missed: int = 0, source: str = EVENT_SOURCE) -> Record:
    """The record of one occurrence.

    `missed` says how many occurrences before it were left out by the catch-up policy. Entry and spec are those of one
    schedule version; the payload is the entry's.
    """
    key = entry.key.encode()
    schedule_id = entry.schedule_id.encode()
    partition_key = schedule_id if spec.partition_key is None else spec.partition_key.encode()
    headers = [
        ("ce_id", key),
        ("ce_scheduleid", schedule_id),
        ("ce_version", b"%d" % entry.version),
        _instant_header("ce_time", entry.due),
        _instant_header("ce_scheduledfor", entry.scheduled_for),
        ("ce_missed", b"%d" % missed) if missed else _NONE_MISSED,
        *_shared_headers(source, entry.kind, (spec.tenant, spec.definition, spec.content_type), spec.headers),
    ]
    hashed = partition_hash(partition_key)
    return Record(spec.topic, key, entry.payload, headers, partition_key, hashed, size_of(key, entry.payload, headers))


@lru_cache(maxsize=8192)
def _instant_header(name: str, instant: int) -> tuple[str, bytes]:
    """A herd shares its instants, and so these headers."""
    return name, format_instant(instant).encode()


@lru_cache(maxsize=4096)
def _shared_headers(
    source: str,
    kind: int,
    described: tuple[str, str | None, str | None],
    headers: tuple[tuple[str, str], ...],
) -> tuple[tuple[str, bytes], ...]:
    tenant, definition, content_type = described
    shared = [
        ("ce_specversion", "1.0"),
        ("ce_source", source),
        ("ce_type", EVENT_TYPE),
        ("ce_kind", Kind(kind).name.lower()),
        ("ce_tenant", tenant),
    ]
    if definition is not None:
        shared.append(("ce_definition", definition))
    if content_type is not None:
        shared.append(("content-type", content_type))
    return tuple((name, value.encode()) for name, value in (*shared, *headers))

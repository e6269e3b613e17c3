"""An outbox: an order and the schedule of its follow-up, in one PostgreSQL transaction, so that both are or neither is.

The transaction writes the command into a table. A relay sends what it finds there to Kafka, in order, and deletes it
once Kafka has it; should it die in between, it sends some twice. `tocsin ingest` does each command once all the same,
for it knows them by source and id.

    your transaction ──► outbox ──relay──► Kafka ──tocsin ingest──► schedule ──tocsin dispatch──► your consumer
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from typing import Any

import psycopg
from confluent_kafka import Producer

TABLES = """
    CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, customer text NOT NULL);
    CREATE TABLE IF NOT EXISTS outbox (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, schedule_id text NOT NULL, command jsonb NOT NULL
    );
"""
BATCH = 500

Connection = psycopg.Connection[Any]


def place_order(database: Connection, order_id: str, customer: str, follow_up_at: datetime) -> None:
    """Place an order, and ask the customer how it was at that instant."""
    with database.transaction():
        database.execute("INSERT INTO orders VALUES (%s, %s)", (order_id, customer))
        follow_up = {"at": follow_up_at.isoformat(), "topic": "follow-ups", "payload": customer}
        write_command(database, "create", f"follow-up-{order_id}", follow_up)


def cancel_order(database: Connection, order_id: str) -> None:
    """Cancel an order, and its follow-up with it."""
    with database.transaction():
        database.execute("DELETE FROM orders WHERE id = %s", (order_id,))
        write_command(database, "cancel", f"follow-up-{order_id}", {})


def write_command(database: Connection, action: str, schedule_id: str, data: dict[str, str]) -> None:
    """Leave a command in the outbox; it counts when the transaction does."""
    attributes = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": "/orders", "subject": schedule_id}
    command = json.dumps(attributes | {"type": f"tocsin.schedule.{action}", "data": data})
    database.execute("INSERT INTO outbox (schedule_id, command) VALUES (%s, %s)", (schedule_id, command))


def relay(database: Connection, kafka: Producer, topic: str) -> int:
    """Send what lies in the outbox, oldest first; returns how many commands that was. One relay at a time."""
    with database.transaction():
        database.execute("SELECT pg_advisory_xact_lock(hashtext('outbox'))")
        rows = database.execute("SELECT * FROM outbox ORDER BY position LIMIT %s", (BATCH,)).fetchall()
        for _, schedule_id, command in rows:
            kafka.produce(topic, json.dumps(command), schedule_id)
        if kafka.flush(30):
            message = "Kafka does not answer; what it has not got stays in the outbox"
            raise TimeoutError(message)
        database.execute("DELETE FROM outbox WHERE position = ANY(%s)", ([position for position, *_ in rows],))
    return len(rows)

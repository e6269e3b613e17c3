"""What each command's help ends with. A test reads every example through the command line's own parser."""

from __future__ import annotations

from typing import Final

#: By command; `tocsin` is the help without a command.
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "tocsin": (
        "tocsin demo",
        "tocsin dev",
        "tocsin create tea --every 5s --topic tea --payload hot",
    ),
    "demo": ("tocsin demo", "tocsin demo --seconds 30"),
    "dev": ("tocsin dev", "tocsin dev --store sqlite:///try.db"),
    "up": (
        "tocsin up",
        "tocsin up --nodes 3 --topic kitchen --topic mail",
        "tocsin up --cassandra-port 19042 --kafka-port 19092",
        "tocsin up --secure",
    ),
    "down": ("tocsin down",),
    "init": (
        "tocsin init sqlite:///tocsin.db",
        "tocsin init cassandra://c1,c2,c3/tocsin --replication 3",
    ),
    "next": (
        'tocsin next "30 2 * * *" --tz America/New_York --count 4',
        'tocsin next --monthly "-1 09:00" --tz Europe/London -o json',
    ),
    "create": (
        "tocsin create tea --every 5s --topic tea --payload hot",
        "tocsin create r42 --at 2036-12-24T18:00+01:00 --topic mail --payload @m.json",
        "tocsin create soon --at +10m --topic mail --header kind=reminder",
        'tocsin create brief --cron "0 9 * * 1-5" --tz Europe/London --topic mail',
    ),
    "create-many": ("tocsin create-many -f reminders.jsonl", "tocsin create-many -f - -o json"),
    "apply": (
        "tocsin apply -f schedules.toml --owner billing --dry-run",
        "tocsin apply -f schedules.toml --owner billing --prune",
    ),
    "import-crontab": (
        "tocsin import-crontab my.crontab --topic cron --dry-run",
        "tocsin import-crontab /etc/crontab --system --topic cron --tz Europe/London",
    ),
    "list": (
        "tocsin list --tag owner:billing",
        "tocsin list --failing",
        "tocsin list --state paused --topic mail -o json",
    ),
    "occurrences": ("tocsin occurrences brief", "tocsin occurrences brief --since -2d --until +1d -o json"),
    "upcoming": ("tocsin upcoming brief", "tocsin upcoming brief --count 3 -o json"),
    "update": (
        "tocsin update tea --every 10s",
        'tocsin update brief --cron "0 8 * * 1-5" --tz Europe/London --unset until',
        "tocsin update tea --payload @m.json --expected-version 1796032800000123",
    ),
    "calendar": (
        "tocsin calendar set holidays 2026-12-25 2026-12-26 2027-01-01",
        "tocsin calendar set weekends -f weekends.txt",
        "tocsin calendar show holidays",
    ),
    "get": ("tocsin get tea", "tocsin get tea -o json"),
    "pause": ("tocsin pause tea", 'tocsin pause tea --note "kettle broken"'),
    "resume": ("tocsin resume tea", "tocsin resume tea --from 2026-11-30T10:00Z"),
    "cancel": ("tocsin cancel tea", "tocsin cancel tea -o json"),
    "dispatch": (
        "tocsin dispatch --sink stdout:",
        "tocsin dispatch --sink kafka://k1:9092,k2:9092 --processes 2",
        "tocsin dispatch --metrics 127.0.0.1:9464 --log json",
    ),
    "ingest": (
        "tocsin ingest --source kafka://k1:9092",
        "tocsin ingest --topic billing.schedules --group billing",
        "tocsin ingest --schema",
    ),
    "status": ("tocsin status", "tocsin status --store cassandra://c1,c2/tocsin -o json"),
    "doctor": (
        "tocsin doctor",
        "tocsin doctor --sink kafka://k1:9092 --topic mail -o json",
    ),
    "bench": (
        "tocsin bench herd",
        "tocsin bench dispatch --count 1000000 -o json",
        "tocsin bench scale --count 100000",
        "tocsin bench create --count 20000",
    ),
    "loadtest": (
        "tocsin loadtest run --embedded --profile steady --minutes 1",
        "tocsin loadtest run --kill-dispatcher-at 3 --slo-peak-p99 2s",
        "tocsin loadtest run --profile reference --scale 0.001",
        "tocsin loadtest verify --topic mail --slo-p99 2s",
        "tocsin loadtest plan --schedules 1000000000 --per-day 150000000",
    ),
    "send": (
        "tocsin send --at +10m --topic mail --payload @m.json",
        "tocsin send --at 2036-12-24T18:00+01:00 --topic mail --id order-42",
    ),
    "recall": ("tocsin recall order-42@2036-12-24T17:00:00.000Z",),
    "trigger": ("tocsin trigger tea", "tocsin trigger tea --request ticket-7"),
    "backfill": (
        "tocsin backfill tea --from 2026-11-29T00:00Z --to +0s --dry-run",
        "tocsin backfill tea --from 2026-11-29T00:00Z --to +0s",
    ),
    "dead-letters": (
        "tocsin dead-letters list",
        "tocsin dead-letters list --reason too_large -o json",
        "tocsin dead-letters replay --reason unknown_topic",
    ),
    "bucket": ("tocsin bucket show +5m", "tocsin bucket show 2026-12-01T10:00Z -o json"),
    "backup": ("tocsin backup tuesday.jsonl.gz",),
    "restore": (
        "tocsin restore tuesday.jsonl.gz --store cassandra://c1,c2,c3/again",
        "tocsin restore tuesday.jsonl.gz --since 2026-12-01T09:59Z",
    ),
    "layout": ("tocsin layout show", "tocsin layout set --sub-partitions 512 --from +2h"),
    "audit": (
        "tocsin audit",
        "tocsin audit --rate 500 -o json",
        "tocsin audit --zone Africa/Casablanca",
        "tocsin audit --owed",
    ),
}

"""The bugs that the simulation must find. Each breaks one rule of the protocol in the shipped text.

Two rules are not here. That demoted entries are verified: while whoever repeats history names its source, and no client
writes past its deadline, no seed and no argument of ours found a run in which the mark alone saves something. It stays
for what a longer stall than those may do. And that the target of a re-arm is computed before the lease is looked at:
what follows an occurrence on time is a pure function of the two, so the order changes nothing that anyone could see.
"""

from __future__ import annotations

from simulation.mutation import Edit, Mutant

INSERT = "tocsin.producer.insert"
CHANGE = "tocsin.producer.change"
CLOCK = "tocsin.schema.clock"
LEVELS = "tocsin.schema.levels"
OWNER = "tocsin.dispatcher.owner"
READING = "tocsin.dispatcher.reading"
FLEET = "tocsin.dispatcher.fleet"
DISPATCH = "tocsin.dispatcher.dispatch"
CATCH_UP = "tocsin.dispatcher.catch_up"
LAYOUTS = "tocsin.dispatcher.layouts"
SET_LAYOUT = "tocsin.producer.layouts"
AUDITS = "tocsin.dispatcher.audits"
AUDIT = "tocsin.producer.audit"
WAITING = "tocsin.dispatcher.waiting"
VERIFICATION = "tocsin.dispatcher.verification"
STORE = "simulation.cluster"
REPLICA = "simulation.replica"


def _mutant(name: str, module: str, old: str, new: str, *jobs: int | tuple[str, int]) -> Mutant:
    return Mutant(name, (Edit(module, old, new),), jobs)


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "the frontier is not looked at after a write",
        INSERT,
        "if frontier.sealed(level) < self._levels.end(level, position):",
        "if frontier:",
        ("timers_at_the_seal", 0),
    ),
    _mutant(
        "a bucket sealed just to its end counts as open",
        INSERT,
        "if frontier.sealed(level) < self._levels.end(level, position):",
        "if frontier.sealed(level) <= self._levels.end(level, position):",
        ("timers_at_the_seal", 0),
    ),
    _mutant(
        "the start of a minute is sealed, not its end",
        OWNER,
        'await self._seal("sealed_minute", seal)',
        'await self._seal("sealed_minute", seal - width)',
        ("timers_at_the_seal", 0),
    ),
    _mutant(
        "dispatched before near is sealed and read",
        OWNER,
        "self.waiting.take_due(min(self._near_read, self._now()))",
        "self.waiting.take_due(self._now())",
    ),
    _mutant(
        "dispatched by what is sealed, not by the store's clock",
        OWNER,
        "self.waiting.take_due(min(self._near_read, self._now()))",
        "self.waiting.take_due(self._near_read)",
    ),
    _mutant(
        "a new owner does not load the change markers of before",
        OWNER,
        "markers_read_to = max(oldest_marker, self._services.genesis - self._timing.marker_slack_ms)",
        "markers_read_to = read_to",
        ("changed_and_left_alone", 0),
    ),
    _mutant(
        "no write ahead",
        CHANGE,
        "            (place,) = await self._inserter.insert([Placement(entry.marked())], deadline=deadline)\n",
        "            pass\n",
        17,
    ),
    _mutant(
        "marked entries count unasked",
        WAITING,
        "if not entry.verify or not entry.has_schedule:",
        "if True:",
    ),
    _mutant(
        "committed passes an occurrence before its re-arm is acknowledged",
        DISPATCH,
        "        places = await self._services.inserter.insert([placement for _, placement in rearms])\n",
        "        for flight, _ in rearms:\n            self._waiting.drop(flight.item)\n"
        "        places = await self._services.inserter.insert([placement for _, placement in rearms])\n",
        3,
    ),
    Mutant(
        "a new owner trusts what the old one announced",
        (
            Edit(
                OWNER,
                "        registers = {register: value}\n",
                "        registers = {register: value}\n"
                "        if value <= getattr(self._announced, register):\n            return\n",
            ),
            Edit(
                OWNER,
                "        self.committed = frontier.committed\n",
                "        self.committed = frontier.committed\n        self._announced = frontier\n",
            ),
        ),
        (("sealer_dies", 1), ("sealer_dies", 3), ("sealer_dies", 4)),
    ),
    _mutant(
        "a level is read although its seal was not acknowledged",
        OWNER,
        "        await self._write(registers)\n        self.committed = max",
        "        try:\n            await self._services.store.write_frontier(self.shard_range, registers)\n"
        "        except Exception:\n            pass\n        self.committed = max",
        ("seal_is_not_heard", 0),
    ),
    _mutant("one replica's answer is enough", STORE, "if len(answers) == MAJORITY", "if len(answers) == 1"),
    _mutant(
        "sealed keeps the last write, not the highest",
        REPLICA,
        "kept[name] = max(value, kept.get(name, value))",
        "kept[name] = value",
        ("split_while_busy", 0),
    ),
    _mutant(
        "a write that timed out counts as written",
        INSERT,
        "        await self._persistence.until_answered(partial(self._store.write_pack, bucket, row), deadline)\n",
        "        try:\n            await self._store.write_pack(bucket, row)\n"
        "        except Exception:\n            pass\n",
    ),
    _mutant(
        "change markers are forgotten too early",
        CHANGE,
        "        until = second + spec.jitter_ms + self._timing.marker_slack_ms\n",
        "        until = start\n",
    ),
    _mutant(
        "a change keeps no account of the versions it replaced",
        CHANGE,
        "            replaced=replaced,\n",
        "            replaced=replaced and ((-1, replaced[0][1]),),\n",
    ),
    _mutant(
        "an entry whose commit is under way is dropped",
        VERIFICATION,
        "    if row is None or row.version < entry.version:\n        return Verdict(Answer.UNDECIDED)\n",
        "    if row is None or row.version < entry.version:\n        return Verdict(Answer.DROPPED)\n",
        11,
    ),
    _mutant(
        "history is repeated where somebody else has done it",
        INSERT,
        "if source is not None and committed >= source:",
        "if source is not None and committed >= source and cascade:",
        ("owner_stops_in_its_rearm", 0),
    ),
    _mutant(
        "a schedule goes on while its change is being verified",
        WAITING,
        "                self._unanswered[marker.schedule_id] += 1\n",
        "",
        ("held_at_takeover", 0),
    ),
    _mutant(
        "trust that lapsed comes back",
        OWNER,
        "self._lapsed = self._lapsed or now >= self.until",
        "self._lapsed = now >= self.until",
        3,
    ),
    _mutant(
        "an owner reads a bucket's first page only",
        READING,
        "            yield [(row.position, await self._decode(bucket, row)) for row in page]\n",
        "            yield [(row.position, await self._decode(bucket, row)) for row in page]\n            return\n",
    ),
    _mutant(
        "only the newest layout of a minute is read",
        LEVELS,
        "return tuple(dict.fromkeys(layout.sub_partitions for layout in self.layouts))",
        "return (self.layouts[-1].sub_partitions,)",
    ),
    _mutant(
        "the fastest coordinator's clock is believed",
        CLOCK,
        "    return min(reading for reading in readings",
        "    return max(reading for reading in readings",
    ),
    _mutant(
        "a day counts as cascaded before it is",
        OWNER,
        '            await self._seal("sealed_far", seal)\n',
        '            await self._seal("sealed_far", seal)\n            await self._write({"committed_far": seal})\n',
        ("cascader_dies", 0),
    ),
    _mutant(
        "an outage longer than rows live is taken for any other",
        AUDITS,
        "self.owes = self.owes or self._now() - max(committed, self._armed_at) > self._timing.owed_ms",
        "self.owes = False",
        ("away_longer_than_rows_live", 0),
    ),
    _mutant(
        "committed moves on before what it passes is armed anew",
        OWNER,
        " or self._audit.owes:",
        ":",
        ("away_longer_than_rows_live", 0),
    ),
    _mutant(
        "what is owed after an outage is armed from now on",
        AUDIT,
        "owed_from = held + 1 - self._levels.timing.misfire_grace_ms",
        "owed_from = self._store_clock.now_ms()",
        ("away_longer_than_rows_live", 0),
    ),
    _mutant(
        "what lies beyond its due is not owed",
        AUDIT,
        "owed_from = held + 1 - self._levels.timing.misfire_grace_ms",
        "owed_from = held + 1",
        ("away_longer_than_rows_live", 3),
    ),
    _mutant(
        "a recall lies behind the timer it takes back",
        INSERT,
        "position = self._levels.bucket(level, position, entry.schedule_id).start",
        "position = min(entry.due + self._timing.minute_ms // 4, self._levels.end(level, position) - 1)",
        ("recalled_in_a_large_minute", 0),
    ),
    _mutant(
        "an epoch that only a minority has is forgotten where it does not show",
        FLEET,
        "if lease.epoch > newest.epoch:",
        "if lease.epoch != newest.epoch:",
        ("lease_of_a_minority", 0),
    ),
    _mutant(
        "what went out before an outage stands for what was missed in it",
        DISPATCH,
        "counted=flight.publish",
        "counted=True",
        ("stops_once_it_has_published", 1),
    ),
    _mutant(
        "what is late and not missed stands for those that were",
        CATCH_UP,
        "stands = counted and horizon.now - spec.due_of(schedule_id, scheduled_for) > horizon.grace_ms",
        "stands = counted",
        ("stops_for_about_the_grace", 0),
    ),
    _mutant(
        "a minute is read without a look at the layouts",
        OWNER,
        "            await self._services.layouts.until_known(seal)\n",
        "",
        ("split_while_busy", 0),
    ),
    _mutant(
        "layouts are looked at once",
        LAYOUTS,
        "began + self._levels.timing.layout_notice_ms",
        "began + 9 * self._levels.timing.layout_notice_ms",
        ("split_while_busy", 0),
    ),
    _mutant(
        "a layout may hold soon",
        SET_LAYOUT,
        "soonest = now + 2 * timing.layout_notice_ms",
        "soonest = now",
        ("split_while_busy", 0),
    ),
    _mutant(
        "a re-arm does not tell that the occurrence before was missed",
        DISPATCH,
        "skipped=flight.passed_over,",
        'skipped="",',
    ),
    _mutant(
        "a run is said to have begun before what was missed in it",
        DISPATCH,
        '                if flight.passed_over != "missed":\n',
        "                if flight:\n",
    ),
    _mutant(
        "a batch counts as acknowledged, whatever the broker says",
        DISPATCH,
        "all_acked = outcomes.count(Outcome.ACKED) == len(batch)",
        "all_acked = True",
    ),
    _mutant(
        "a chain that meets itself goes on twice",
        DISPATCH,
        "        if found is not None and found is not item:\n"
        "            self._finish(item)\n            return False\n",
        "",
    ),
)

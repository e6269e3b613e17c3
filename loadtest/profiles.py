"""What a load test schedules, and what must come of it: the dues are laid down here, and the rules made to fit them.

A profile knows every due before anything is created, computed by plain arithmetic and not by the recurrences that are
under test. So a system that stalls is measured as late, never as idle: nothing waits for it.

    steady       each schedule every ten seconds, spread evenly
    hourly-peak  each schedule once an "hour" of `hour_ms`: a part of them at its first instant, the rest spread evenly.
                 With peak k the first minute (a sixtieth of the hour) holds k times the mean minute: k/60 of them all
    timers       timers sent open-loop shortly before their due, nine of ten recalled half-way
    midnight     daily schedules of many zones; half fall due at one instant, each by the clock of its own zone
    reference    200 million schedules, 30 million occurrences a day: 350 a second, and 7,000 a second in one minute;
                 the rest is armed for other days and only there
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

from tocsin.producer.definition import NewSchedule
from tocsin.producer.timers import NewTimer
from tocsin.schema.entries import occurrence_key
from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.recurrence import AnyRecurrence, Daily, Every
from tocsin.schema.zones import local_time, zone_names

PAYLOAD: Final = b"x" * 200
STEADY_PERIOD_MS: Final = 10 * SECOND_MS
#: Schedules or timers of a profile at scale 1.
STEADY_COUNT, HOURLY_COUNT, MIDNIGHT_COUNT, TIMERS_PER_SECOND = 2_000, 10_000, 5_000, 200
#: The reference size.
REFERENCE_COUNT, REFERENCE_RATE, REFERENCE_PEAK_RATE = 200_000_000, 350, 7_000
#: A timer is due so long after it is sent, the shortest and the longest.
TIMER_AHEAD_MS: Final = (20 * SECOND_MS, 60 * SECOND_MS)
#: Of so many timers one is kept, the others are recalled.
TIMERS_KEPT_ONE_OF: Final = 10
ZONES_MAX: Final = 40


class Profile(enum.StrEnum):
    """What is scheduled; see the module's text."""

    STEADY = "steady"
    HOURLY_PEAK = "hourly-peak"
    TIMERS = "timers"
    MIDNIGHT = "midnight"
    REFERENCE = "reference"


class Planned(NamedTuple):
    """One schedule, and the nominal times it must be dispatched at; ms UTC."""

    schedule: NewSchedule
    dues: tuple[int, ...]

    def expected(self) -> Iterator[tuple[str, int]]:
        """Occurrence keys and their dues."""
        for due in self.dues:
            yield occurrence_key(str(self.schedule.schedule_id), due), due


class PlannedTimer(NamedTuple):
    """One timer: when it is sent, and when it is taken back; ms UTC, None: never."""

    timer: NewTimer
    due: int
    sent_at: int
    recalled_at: int | None


@dataclass(frozen=True, kw_only=True)
class Load:
    """A profile at one size, in one window of time.

    Raises:
        SettingsError: the sizes do not fit each other.
    """

    profile: Profile
    run_id: str
    topic: str
    #: Dues lie in [start, end); full minutes, ms UTC.
    start_ms: int
    end_ms: int
    scale: float = 1.0
    #: How long an "hour" is.
    hour_ms: int = MINUTE_MS
    #: How many times the mean minute the first minute of an hour holds.
    peak: int = 20
    #: Over which time from the start of an hour its peak is spread; 0: one instant.
    peak_width_ms: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.peak <= 60:
            raise SettingsError(
                f"a peak of {self.peak} is out of range: an hour's first minute holds 1 to 60 times the mean"
            )
        if self.scale <= 0:
            raise SettingsError(f"a scale of {self.scale} is no size; choose one above 0")
        if self.hour_ms < 10 * SECOND_MS or self.hour_ms % SECOND_MS:
            raise SettingsError("an hour must be whole seconds, ten or more")
        if not 0 <= self.peak_width_ms < self.hour_ms:
            raise SettingsError("a peak must be narrower than its hour")
        shortest_ms = self.hour_ms if self.profile is Profile.HOURLY_PEAK else MINUTE_MS
        if self.profile is Profile.TIMERS:
            shortest_ms = 2 * MINUTE_MS
        if self.end_ms - self.start_ms < shortest_ms:
            raise SettingsError(f"this profile needs {shortest_ms / 1000:g} s at least; give more --minutes")

    @property
    def peaks(self) -> tuple[int, ...]:
        """The instants at which peaks begin, ms UTC."""
        if self.profile is Profile.HOURLY_PEAK:
            return tuple(range(self.start_ms, self.end_ms, self.hour_ms))
        if self.profile in {Profile.MIDNIGHT, Profile.REFERENCE}:
            return (self._middle,)
        return ()

    @property
    def peak_ms(self) -> int:
        """For how long after its beginning a due belongs to a peak."""
        if self.profile is Profile.REFERENCE:
            return MINUTE_MS
        return self.peak_width_ms + 1 if self.profile is Profile.HOURLY_PEAK else 1

    @property
    def schedule_count(self) -> int:
        """How many schedules there are to create."""
        at_scale_one = {
            Profile.STEADY: STEADY_COUNT,
            Profile.HOURLY_PEAK: HOURLY_COUNT,
            Profile.MIDNIGHT: MIDNIGHT_COUNT,
            Profile.REFERENCE: REFERENCE_COUNT,
        }
        return self.count_of(at_scale_one[self.profile]) if self.profile in at_scale_one else 0

    def schedules(self) -> Iterator[Planned]:
        """Every schedule, in an order that creates no herd of its own."""
        yield from _MAKERS[self.profile](self)

    def timers(self) -> Iterator[PlannedTimer]:
        """Every timer, in order of sending."""
        if self.profile is Profile.TIMERS:
            yield from _timers(self)

    @property
    def _middle(self) -> int:
        """The full minute in the middle of the window."""
        return (self.start_ms + self.end_ms) // 2 // MINUTE_MS * MINUTE_MS

    def planned(self, number: int, rule: AnyRecurrence, dues: tuple[int, ...]) -> Planned:
        """A schedule of this run that ends with the window."""
        schedule = NewSchedule(
            schedule_id=f"{self.run_id}-{number:07}",
            recurrence=rule,
            topic=self.topic,
            payload=PAYLOAD,
            start=to_datetime(dues[0] if dues else self.end_ms),
            until=to_datetime(self.end_ms - 1) if dues else None,
            tags={f"loadtest:{self.run_id}"},
        )
        return Planned(schedule, dues)

    def periodic(self, number: int, phase_ms: int, period_ms: int) -> Planned:
        """A schedule that is due each period, first `phase_ms` after the window's start."""
        first = self.start_ms + phase_ms
        dues = tuple(range(first, self.end_ms, period_ms))
        return self.planned(number, Every(timedelta(milliseconds=period_ms), anchor=to_datetime(first)), dues)

    def count_of(self, at_scale_one: float) -> int:
        """So many at this scale, one at least."""
        return max(1, round(at_scale_one * self.scale))


def _steady(load: Load) -> Iterator[Planned]:
    count = load.count_of(STEADY_COUNT)
    for number in range(count):
        yield load.periodic(number, number * STEADY_PERIOD_MS // count, STEADY_PERIOD_MS)


def _hourly_peak(load: Load) -> Iterator[Planned]:
    count = load.count_of(HOURLY_COUNT)
    peak_count = round(count * load.peak / 60)
    for number in range(count):
        if number < peak_count:
            phase_ms = number * load.peak_width_ms // peak_count
        else:
            others = count - peak_count
            room_ms = load.hour_ms - load.peak_width_ms - SECOND_MS
            phase_ms = load.peak_width_ms + SECOND_MS + (number - peak_count) * room_ms // others
        yield load.periodic(number, phase_ms, load.hour_ms)


def _midnight(load: Load) -> Iterator[Planned]:
    count = load.count_of(MIDNIGHT_COUNT)
    names = sorted(name for name in zone_names() if "/" in name and not name.startswith("Etc"))
    zones = names[:: max(1, len(names) // ZONES_MAX)]
    width_seconds = (load.end_ms - load.start_ms) // SECOND_MS
    (midnight,) = load.peaks
    for number in range(count):
        due = midnight if number % 2 else load.start_ms + number * width_seconds // count * SECOND_MS
        zone = zones[number % len(zones)]
        yield load.planned(number, Daily(local_time(zone, due).time(), tz=zone), (due,))


def _reference(load: Load) -> Iterator[Planned]:
    (peak,) = load.peaks
    dues = list(_evenly(load.start_ms, peak, load.count_of(REFERENCE_RATE * (peak - load.start_ms) / 1000)))
    dues += _evenly(peak, peak + MINUTE_MS, load.count_of(REFERENCE_PEAK_RATE * 60))
    after = load.end_ms - peak - MINUTE_MS
    if after > 0:
        dues += _evenly(peak + MINUTE_MS, load.end_ms, load.count_of(REFERENCE_RATE * after / 1000))
    day = timedelta(days=1)
    for number, due in enumerate(dues):
        yield load.planned(number, Every(day, anchor=to_datetime(due)), (due,))
    others = load.count_of(REFERENCE_COUNT) - len(dues)
    for number in range(others):
        armed = load.end_ms + HOUR_MS + number * 30 * DAY_MS // others
        yield load.planned(len(dues) + number, Every(30 * day, anchor=to_datetime(armed)), ())


def _evenly(start_ms: int, end_ms: int, count: int) -> Iterator[int]:
    return (start_ms + number * (end_ms - start_ms) // count for number in range(count))


def _timers(load: Load) -> Iterator[PlannedTimer]:
    shortest, longest = TIMER_AHEAD_MS
    seconds = (load.end_ms - load.start_ms - longest) / 1000
    count = load.count_of(TIMERS_PER_SECOND * max(1.0, seconds))
    for number, sent_at in enumerate(_evenly(load.start_ms, load.end_ms - longest, count)):
        ahead_ms = shortest + number * 7_919 % (longest - shortest)
        due = sent_at + ahead_ms
        timer = NewTimer(timer_id=f"{load.run_id}-{number:07}", topic=load.topic, at=to_datetime(due), payload=PAYLOAD)
        is_kept = number % TIMERS_KEPT_ONE_OF == 0
        yield PlannedTimer(timer, due, sent_at, None if is_kept else sent_at + ahead_ms // 2)


def _no_schedules(load: Load) -> Iterator[Planned]:  # noqa: ARG001 — timers have none
    return iter(())


_MAKERS: Final[dict[Profile, Callable[[Load], Iterator[Planned]]]] = {
    Profile.STEADY: _steady,
    Profile.HOURLY_PEAK: _hourly_peak,
    Profile.TIMERS: _no_schedules,
    Profile.MIDNIGHT: _midnight,
    Profile.REFERENCE: _reference,
}

"""A reminder service with FastAPI: people say when and what, and may think better of it.

The application only creates and cancels; `tocsin dispatch` sends, in a process of its own. Repeating a request is safe,
since the client of the service chooses the id: a PUT whose answer was lost is simply sent again.

Run it: tocsin init && uvicorn examples.reminders_api:app   (and in another window: tocsin dispatch --sink stdout:)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import AwareDatetime, BaseModel

from tocsin import AsyncScheduler, InvalidSchedule, Once, OutcomeUnknown, ScheduleExists, ScheduleNotFound, State

STORE = "sqlite:///tocsin.db"


class Reminder(BaseModel):
    at: AwareDatetime
    text: str


class Answer(BaseModel):
    reminder_id: str
    due: datetime | None
    state: State


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncScheduler(STORE) as app.state.scheduler:
        yield


def scheduler_of(request: Request) -> AsyncScheduler:
    scheduler: AsyncScheduler = request.app.state.scheduler
    return scheduler


app = FastAPI(title="Reminders", lifespan=lifespan)
UsesScheduler = Annotated[AsyncScheduler, Depends(scheduler_of)]


@app.put("/reminders/{reminder_id}")
async def remind(reminder_id: str, reminder: Reminder, scheduler: UsesScheduler) -> Answer:
    """Send a reminder at its time."""
    try:
        made = await scheduler.create(
            reminder_id, Once(reminder.at), topic="reminders", payload=reminder.text.encode(), content_type="text/plain"
        )
    except InvalidSchedule as refused:
        raise HTTPException(422, str(refused)) from refused
    except ScheduleExists as taken:
        raise HTTPException(409, str(taken)) from taken
    except OutcomeUnknown as unknown:
        raise HTTPException(503, "send the same request again", {"Retry-After": "1"}) from unknown
    return Answer(reminder_id=reminder_id, due=made.next_at, state=made.state)


@app.delete("/reminders/{reminder_id}")
async def forget(reminder_id: str, scheduler: UsesScheduler) -> dict[str, str]:
    """Take a reminder back; the answer says whether it can still arrive."""
    try:
        change = await scheduler.cancel(reminder_id)
    except ScheduleNotFound as missing:
        raise HTTPException(404, str(missing)) from missing
    return {"outcome": change.outcome.value}

"""Jobs and device leases in the database: rows in, frozen Job records out. State changes are compare-and-set."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields

from backend.domain.job import Job, JobState, TerminationReason
from backend.errors import Conflict, InvalidInput, NotFound
from backend.store.database import Database

_COLUMNS = tuple(column.name for column in fields(Job))
_LISTS = ("devices", "tags")
SORTS = {
    "created": "created_at",
    "name": "name collate nocase",
    "loss": "case when typeof(loss) = 'text' then 9e999 else loss end",
    "duration": "ended_at - started_at",
    "started": "started_at",
    "ended": "ended_at",
    "state": "state",
}
"""Ways to sort a list of jobs, and their SQL. A diverged loss ("nan") counts as the highest."""
_NEVER_MISSING = ("created", "name", "state")

Cell = str | int | float | None
Value = Cell | JobState | TerminationReason | Sequence[str]


class JobTable:
    """The only code that reads or writes the `jobs` and `leases` tables."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def insert(self, job: Job) -> Job:
        """Store a new job at the end of the queue; returns it with its position."""
        with self.database.transaction() as connection:
            last = connection.execute("select max(position) from jobs").fetchone()[0]
            position = (last or 0.0) + 1.0
            cells = {name: _to_cell(getattr(job, name)) for name in _COLUMNS} | {"position": position}
            marks = ", ".join(f":{name}" for name in _COLUMNS)
            connection.execute(f"insert into jobs ({', '.join(_COLUMNS)}) values ({marks})", cells)
        return self.get(job.id)

    def get(self, job_id: str) -> Job:
        """Raises NotFound."""
        row = self.database.connection().execute("select * from jobs where id = ?", (job_id,)).fetchone()
        if row is None:
            raise NotFound(f"No job has the id {job_id!r}.")
        return _to_job(row)

    def find(
        self,
        query: str = "",
        states: Collection[JobState] = (),
        limit: int = 50,
        offset: int = 0,
        sort: str = "created",
        descending: bool = True,
        tags: Collection[str] = (),
    ) -> tuple[int, list[Job]]:
        """One page with the total: `query` is looked for in id, name, model, data set, tags and notes.

        `sort` is a word of SORTS; jobs without a value come last in either direction. Only jobs that carry all of `tags`.
        """
        where, values = ["1"], list[Cell]()
        if states:
            where.append(f"state in ({', '.join('?' * len(states))})")
            values += [state.value for state in states]
        for word in query.split():
            where.append(
                "(id || ' ' || name || ' ' || model || ' ' || dataset || ' ' || tags || ' ' || notes) like ? escape '\\'"
            )
            values.append("%" + word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%")
        for tag in tags:
            # The text tells quickly what cannot match; a tag with quotes in it needs the second look.
            where.append("instr(tags, ?) and exists (select 1 from json_each(tags) where value = ?)")
            values += [json.dumps(tag), tag]
        condition, connection = " and ".join(where), self.database.connection()
        total = int(connection.execute(f"select count(*) from jobs where {condition}", values).fetchone()[0])
        # Sorted as narrow rows; only those of the page are read whole.
        found = connection.execute(
            f"select rowid from jobs where {condition} order by {_order(sort, descending)} limit ? offset ?",
            [*values, limit, offset],
        )
        return total, self._at([int(row[0]) for row in found])

    def _at(self, places: Sequence[int]) -> list[Job]:
        """Jobs by rowid, in that order; one that was deleted meanwhile is left out."""
        marks = ", ".join("?" * len(places))
        rows = self.database.connection().execute(
            f"select rowid as place, * from jobs where rowid in ({marks})", list(places)
        )
        jobs = {int(row["place"]): _to_job(row) for row in rows}
        return [jobs[place] for place in places if place in jobs]

    def in_states(self, *states: JobState) -> list[Job]:
        """Jobs in queue order: higher priority first, then position."""
        marks = ", ".join("?" * len(states))
        rows = self.database.connection().execute(
            f"select * from jobs where state in ({marks}) order by priority desc, position",
            [state.value for state in states],
        )
        return [_to_job(row) for row in rows]

    def tags(self) -> dict[str, int]:
        """Every tag in use and how many jobs carry it, the most used first."""
        rows = self.database.connection().execute(
            "select value, count(*) from jobs, json_each(jobs.tags) group by value order by count(*) desc, value"
        )
        return {str(row[0]): int(row[1]) for row in rows}

    def counts(self) -> dict[JobState, int]:
        rows = self.database.connection().execute("select state, count(*) from jobs group by state")
        return {JobState(row[0]): int(row[1]) for row in rows}

    def update(self, job_id: str, **changes: Value) -> Job:
        """Change fields that are not the state. Raises NotFound."""
        with self.database.transaction() as connection:
            _set(connection, job_id, changes)
        return self.get(job_id)

    def transition(self, job_id: str, expected: Iterable[JobState], to: JobState, **changes: Value) -> Job:
        """Go to state `to` if the job is in one of `expected`, all in one transaction; final states give leases back.

        Raises Conflict when it is in another state (somebody was faster) and NotFound.
        """
        with self.database.transaction() as connection:
            row = connection.execute("select state from jobs where id = ?", (job_id,)).fetchone()
            if row is None:
                raise NotFound(f"No job has the id {job_id!r}.")
            if JobState(row["state"]) not in tuple(expected):
                raise Conflict(f"The job is {row['state']}: it cannot become {to.value}.")
            _set(connection, job_id, {**changes, "state": to})
            if to.is_final:
                connection.execute("delete from leases where job_id = ?", (job_id,))
        return self.get(job_id)

    def lease(self, job_id: str, devices: Sequence[str]) -> Job:
        """QUEUED to STARTING with all `devices` leased, or nothing at all. Raises Conflict naming a device in use."""
        with self.database.transaction() as connection:
            row = connection.execute("select state from jobs where id = ?", (job_id,)).fetchone()
            if row is None:
                raise NotFound(f"No job has the id {job_id!r}.")
            if row["state"] != JobState.QUEUED.value:
                raise Conflict(f"The job is {row['state']}: it cannot be started.")
            for device in devices:
                holder = connection.execute("select job_id from leases where device = ?", (device,)).fetchone()
                if holder:
                    raise Conflict(f"{device} is in use by job {holder[0]}.")
                connection.execute("insert into leases (device, job_id) values (?, ?)", (device, job_id))
            _set(connection, job_id, {"state": JobState.STARTING, "devices": tuple(devices)})
        return self.get(job_id)

    def leases(self) -> dict[str, str]:
        """Device to the job that holds it."""
        rows = self.database.connection().execute("select device, job_id from leases")
        return {row["device"]: row["job_id"] for row in rows}

    def move(self, job_id: str, before: str | None) -> Job:
        """Put a queued job before another queued one (None: to the end). Raises Conflict when either is not queued."""
        with self.database.transaction() as connection:
            rows = connection.execute(
                "select id, position from jobs where state = ? order by position", (JobState.QUEUED.value,)
            ).fetchall()
            order = [row["id"] for row in rows]
            for needed in filter(None, (job_id, before)):
                if needed not in order:
                    raise Conflict(f"Job {needed} is not waiting in the queue.")
            if before != job_id:
                order.remove(job_id)
                order.insert(order.index(before) if before else len(order), job_id)
            for name, position in zip(order, sorted(row["position"] for row in rows), strict=True):
                connection.execute("update jobs set position = ? where id = ?", (position, name))
        return self.get(job_id)

    def delete(self, job_id: str) -> None:
        """Forget a finished job. Raises Conflict while a process of it may exist."""
        job = self.get(job_id)
        if not job.state.is_final:
            raise Conflict(f"The job is {job.state.value}: stop or cancel it before deleting it.")
        with self.database.transaction() as connection:
            connection.execute("delete from jobs where id = ?", (job_id,))


def _set(connection: sqlite3.Connection, job_id: str, changes: Mapping[str, Value]) -> None:
    unknown = set(changes) - set(_COLUMNS)
    if unknown:
        raise KeyError(f"no such job fields: {sorted(unknown)}")
    cells = {name: _to_cell(value) for name, value in changes.items()}
    assignments = ", ".join(f"{name} = :{name}" for name in cells)
    done = connection.execute(f"update jobs set {assignments} where id = :_id", {**cells, "_id": job_id})
    if done.rowcount == 0:
        raise NotFound(f"No job has the id {job_id!r}.")


def _order(sort: str, descending: bool) -> str:
    if sort not in SORTS:
        raise InvalidInput("sort", found=repr(sort), expected=", ".join(SORTS))
    direction = "desc" if descending else "asc"
    missing_last = "" if sort in _NEVER_MISSING else f"({SORTS[sort]}) is null, "  # without it an index is of use
    return f"{missing_last}{SORTS[sort]} {direction}, id {direction}"


def _to_cell(value: Value) -> Cell:
    if isinstance(value, (JobState, TerminationReason)):
        return value.value
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # SQLite stores NaN as null: a diverged loss would be a missing one
    if value is None or isinstance(value, (str, int, float)):
        return value
    return json.dumps(list(value))


def _to_job(row: sqlite3.Row) -> Job:
    values = {name: row[name] for name in _COLUMNS}
    for name in _LISTS:
        values[name] = tuple(json.loads(values[name]))
    values["state"] = JobState(values["state"])
    values["loss"] = None if values["loss"] is None else float(values["loss"])
    values["reason"] = TerminationReason(values["reason"]) if values["reason"] else None
    return Job(**values)

"""The SQLite file: one connection per thread, write-ahead log, every transaction on disk before it returns."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.errors import StoreFault

SCHEMA_VERSION = 1

_SCHEMA = """
create table if not exists jobs (
    id text primary key,
    name text not null,
    state text not null,
    reason text,
    message text not null,
    exit_code integer,
    signal integer,
    priority integer not null,
    position real not null,
    processes integer not null,
    devices text not null,
    stage text not null,
    finetuning_type text not null,
    model text not null,
    dataset text not null,
    parent text not null,
    tags text not null,
    notes text not null,
    created_at real not null,
    started_at real,
    ended_at real,
    step integer,
    max_steps integer,
    loss real,
    phase text not null
);
create index if not exists jobs_by_state on jobs (state, priority desc, position);
create index if not exists jobs_by_creation on jobs (created_at desc);
create table if not exists leases (device text primary key, job_id text not null);
"""


class Database:
    """Opens connections on demand; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self.transaction() as connection:
                version = int(connection.execute("pragma user_version").fetchone()[0])
                if version > SCHEMA_VERSION:
                    raise StoreFault(
                        f"{path} was written by a newer Tunedeck (schema {version}, this one knows {SCHEMA_VERSION})."
                    )
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {SCHEMA_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StoreFault(f"Cannot open the database {path}: {error}.") from error

    def connection(self) -> sqlite3.Connection:
        """This thread's connection (autocommit; use `transaction` to write)."""
        existing: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if existing is not None:
            return existing
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.row_factory = sqlite3.Row
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        self._local.connection = connection
        return connection

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing. BEGIN IMMEDIATE: two writers wait for each other instead of failing half-way."""
        connection = self.connection()
        try:
            connection.execute("begin immediate")
        except sqlite3.Error as error:
            raise StoreFault(f"Cannot write to {self.path}: {error}.") from error
        try:
            yield connection
            connection.execute("commit")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise StoreFault(f"Cannot write to {self.path}: {error}.") from error
        except BaseException:
            self._roll_back(connection)
            raise

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("rollback")

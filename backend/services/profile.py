"""Answers of the ranks to a profile request in, one account of where their steps' time went out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from backend.errors import NotFound
from backend.planning.speed_running import StepParts
from backend.store.files import read_json
from backend.store.paths import JobPaths

LATE_SHARE = 0.1
"""Below this share of a step a difference between ranks is the ordinary scatter of a few steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel or operator of the window; seconds over all its calls."""

    name: str
    category: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProfile:
    """Steps `first` to `last` of one rank. Categories may overlap in time, so that their shares can add up to more than 1.

    `idle_share`: no kernel ran at all (waiting for Python, data or launches). `error`: the tracer failed, nothing else is known.
    """

    rank: int
    at: float
    error: str = ""
    first: int | None = None
    last: int | None = None
    device: str = ""
    window_seconds: float | None = None
    data_share: float | None = None
    idle_share: float | None = None
    communication_share: float | None = None
    communication_exposed_share: float | None = None
    shares: Mapping[str, float] | None = None
    seconds: Mapping[str, float] | None = None
    table_seconds: Mapping[str, float] | None = None
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRank:
    """A rank that the others wait for: share of a step (0..1) that they spend in communication beyond what it does."""

    rank: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProfile:
    """The newest answers, by rank; `asked_at` while a request waits for its answer (Unix seconds); ranks that the run has."""

    asked_at: float | None
    ranks: tuple[RankProfile, ...]
    run_ranks: int
    late: LateRank | None

    def answers(self, asked_at: float) -> bool:
        """Every rank has answered a request of that time."""
        return sum(rank.at >= asked_at for rank in self.ranks) >= self.run_ranks


def load_profile(paths: JobPaths) -> StepProfile:
    """What is on disk now; a file that is not a whole answer is left out."""
    waiting = read_json(paths.profile_request)
    asked = waiting.get("at") if isinstance(waiting, dict) else None
    found = [read_json(path) for path in paths.profile.glob("rank-*.json")]
    ranks = [_rank(record) for record in found if isinstance(record, dict) and isinstance(record.get("rank"), int)]
    ranks.sort(key=lambda profile: profile.rank)
    return StepProfile(
        asked_at=float(asked) if isinstance(asked, int | float) else None,
        ranks=tuple(ranks),
        run_ranks=len(list(paths.recorder.glob("rank-*.jsonl"))),
        late=find_late_rank(ranks),
    )


def find_late_rank(ranks: Sequence[RankProfile]) -> LateRank | None:
    """The last to arrive at a collective finds all others there and hardly waits itself; they wait inside it.

    Only ranks that traced the same steps are compared, and only on accelerators: there a collective's kernel runs while it
    waits, on a CPU nothing is traced meanwhile. None: nobody is waited for longer than LATE_SHARE of a step.
    """
    shares = {one.rank: one.communication_share for one in ranks if one.communication_share is not None}
    if (
        len(shares) < 2
        or {one.device for one in ranks} != {"accelerator"}
        or len({(one.first, one.last) for one in ranks}) != 1
    ):
        return None
    late = min(shares, key=lambda rank: shares[rank] or 0.0)
    others = median(share or 0.0 for rank, share in shares.items() if rank != late)
    waited = others - (shares[late] or 0.0)
    return LateRank(rank=late, share=waited) if waited > LATE_SHARE else None


def measure_parts(profile: StepProfile) -> StepParts | None:
    """What advice may build on: ranks on accelerators that traced the same, newest steps; None without one."""
    known = [rank for rank in profile.ranks if rank.window_seconds and rank.device == "accelerator"]
    newest = max(known, key=lambda rank: rank.at, default=None)
    if newest is None:
        return None
    ranks = [rank for rank in known if (rank.first, rank.last) == (newest.first, newest.last)]
    exposed = [rank.communication_exposed_share for rank in ranks if rank.communication_exposed_share is not None]
    return StepParts(
        first=newest.first,
        last=newest.last,
        # The rank that waits for nobody tells what communication itself costs.
        communication=min(exposed) if len(ranks) > 1 and exposed else None,
        idle=_mean([rank.idle_share for rank in ranks]),
        copies=_mean([(rank.shares or {}).get("copies", 0.0) for rank in ranks]),
        attention=_mean([(rank.shares or {}).get("attention", 0.0) for rank in ranks]),
        optimizer=_mean([(rank.shares or {}).get("optimizer", 0.0) for rank in ranks]),
        late_rank=profile.late.rank if profile.late else None,
        late_share=profile.late.share if profile.late else None,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def read_table(paths: JobPaths, rank: int) -> str:
    """torch's own table of one rank. Raises NotFound."""
    try:
        return (paths.profile / f"rank-{rank}.txt").read_text("utf-8")
    except OSError as error:
        raise NotFound(f"Rank {rank} of this run was not profiled.") from error


def _rank(record: Mapping[str, object]) -> RankProfile:
    rank, at = _number(record.get("rank")) or 0, _number(record.get("at")) or 0.0
    if record.get("error"):
        return RankProfile(rank=int(rank), at=at, error=str(record["error"]))
    window = _number(record.get("window_seconds")) or None
    seconds = _numbers(record.get("categories"))

    def share(key: str) -> float | None:
        value = _number(record.get(key))
        return None if value is None or window is None else value / window

    busy = share("busy_seconds")
    first, last = _number(record.get("from")), _number(record.get("to"))
    return RankProfile(
        rank=int(rank),
        at=at,
        first=None if first is None else int(first),
        last=None if last is None else int(last),
        device=str(record.get("device") or ""),
        window_seconds=window,
        data_share=share("data_seconds"),
        idle_share=None if busy is None else max(0.0, 1.0 - busy),
        communication_share=share("communication_seconds"),
        communication_exposed_share=share("communication_exposed_seconds"),
        shares=None if window is None else {name: value / window for name, value in seconds.items()},
        seconds=seconds,
        table_seconds=_numbers(record.get("table")),
        kernels=_kernels(record.get("kernels")),
    )


def _kernels(found: object) -> tuple[Kernel, ...]:
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return tuple(
        Kernel(
            name=str(row.get("name")),
            category=str(row.get("category")),
            calls=int(_number(row.get("calls")) or 0),
            seconds=_number(row.get("seconds")) or 0.0,
        )
        for row in rows
    )


def _numbers(found: object) -> dict[str, float]:
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): value for name, given in pairs if (value := _number(given)) is not None}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

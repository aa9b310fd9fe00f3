"""backend/parsing/causes.py into docs/diagnosis.md. A test keeps the two equal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from backend.parsing.causes import CAUSES, FINDINGS, Cause  # noqa: E402

INTRO = """# Diagnosis

What Tunedeck says about a job's end and about its numbers. Made by `scripts/diagnosis_docs.py` from `backend/parsing/causes.py`;
the patterns stand in `backend/parsing/signatures.py`. Chinese texts: `ui/text/diagnosis_zh.py`.

How one cause is chosen among all that a console shows: what the kernel, the scheduler or the driver says about the job wins
over the program's own error, that over what other ranks only report (time-outs), and that over a process that is simply gone.
The earliest wins among equals. What follows a stop from outside is a consequence. An error before the step went on did not end
the job. The first failing rank is the launcher's, else the rank of the first error of its own; ranks that only report a
time-out are never the guilty ones.
"""


def table(codes: Mapping[str, Cause]) -> str:
    """One row a code."""
    rows = [f"| `{code}` | {cause.title} | {cause.remedy} |" for code, cause in codes.items()]
    return "\n".join(["| code | what it means | what to do |", "|---|---|---|", *rows])


def main() -> None:
    """Write the page."""
    text = f"{INTRO}\n## Causes\n\n{table(CAUSES)}\n\n## Further findings\n\n{table(FINDINGS)}\n"
    (ROOT / "docs" / "diagnosis.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

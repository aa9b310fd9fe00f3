"""Our profiler window on this machine's accelerator, its sums beside torch's own table: `profile_evidence.json` in OUT_FOLDER.

python scripts/gpu_evidence_profile.py OUT_FOLDER
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.inside.profiler import ProfileWindow


def main(out: Path) -> None:
    """Train a few layers for a few steps inside a window and compare. Raises AssertionError when the two differ by 2 %."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
    batch = torch.randn(8, 512, 1024, device=device, dtype=torch.bfloat16)
    folder = Path(tempfile.mkdtemp())
    window = ProfileWindow(folder / "profile", 0)
    for step in range(1, 12):
        model(batch).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 5:
            window.open()
        elif window.is_open:
            window.step(step, 0.0)
    facts = json.loads((folder / "profile" / "rank-0.json").read_text())
    (out / "profile_evidence.json").write_text(json.dumps(facts, indent=1))
    for category, seconds in facts["categories"].items():
        print(
            f"{category:14s} ours {1e3 * seconds:8.3f} ms   torch's table {1e3 * facts['table'].get(category, 0):8.3f} ms"
        )
    print(f"window {1e3 * facts['window_seconds']:.2f} ms, busy {1e3 * facts['busy_seconds']:.2f} ms")
    ours, table = sum(facts["categories"].values()), sum(facts["table"].values())
    assert abs(ours - table) <= 0.02 * table, (ours, table)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

#!/usr/bin/env bash
# Memory plan and predicted gains against measurements on one GPU of an offline host. About 9 minutes, most of it training.
#   OUT=folder WHEELS=folder scripts/gpu_evidence_memory.sh      (see docs/evidence/README.md for the wheels)
# Leaves memory.json and memory.md in OUT. A model made by an earlier call on the same machine is used again.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/scripts/gpu_evidence_setup.sh"
python3 "$here/scripts/gpu_evidence.py" prepare "$WORK" 2>&1 | grep -v -i warn
timeout 560 python3 "$here/scripts/gpu_evidence.py" memory "$WORK" "$LOCAL" --limit "${LIMIT:-440}" 2>&1 | grep -v -i warn
for log in "$LOCAL"/jobs-memory/*/console.log; do tail -c 20000 "$log" > "$OUT/memory-console.log"; done
cp "$LOCAL"/memory.json "$LOCAL"/memory.md "$OUT"/

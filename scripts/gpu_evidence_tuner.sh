#!/usr/bin/env bash
# Tuner from LLaMA-Factory's defaults against a reduced exhaustive table, in one run on one GPU of an offline host.
#   OUT=folder WHEELS=folder scripts/gpu_evidence_tuner.sh       (see docs/evidence/README.md for the wheels)
# Leaves tuner.json in OUT. Under 10 minutes: best right after gpu_evidence_memory.sh, whose model it uses again.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/scripts/gpu_evidence_setup.sh"
python3 "$here/scripts/gpu_evidence.py" prepare "$WORK" 2>&1 | grep -v -i warn
timeout 570 python3 "$here/scripts/gpu_evidence.py" tuner "$WORK" "$LOCAL" --limit "${LIMIT:-480}" --budget "${BUDGET:-240}" 2>&1 | grep -v -i warn
for log in "$LOCAL"/jobs-tuner/*/console.log; do tail -c 20000 "$log"; done > "$OUT/tuner-console.log"
cp "$LOCAL"/tuner.json "$OUT"/

#!/usr/bin/env bash
# The product itself on one GPU of an offline host, by its command line, worker and supervisor: tune an 8B LoRA from the trainer's
# defaults, run the result with a profile, a QLoRA run, the host check, a report. What came out is in OUT.
#   OUT=folder WHEELS=folder [LIMIT=560] scripts/gpu_walk.sh      (wheels: docs/evidence/README.md; and typer, psutil, google-re2)
# TINY=1 is a toy model for a CPU, without QLoRA; without WHEELS the python3 at hand has everything.
set -uo pipefail
: "${OUT:?folder for the results}"
began=$(date +%s)
cd "$(dirname "$0")/.." || exit 1
site=${SITE:-/tmp/tunedeck-site} work=${WORK:-/tmp/tunedeck-evidence} limit=${LIMIT:-560}
mkdir -p "$OUT" "$work"
left() { local rest=$((limit - $(date +%s) + began)); echo $((rest > 1 ? rest : 1)); }
said() { echo "[$(($(date +%s) - began))s] $*" | tee -a "$OUT/walk.log"; }
if [ -n "${WHEELS:-}" ] && [ ! -d "$site/ruamel" ]; then
  mount -t tmpfs -o size=44G tmpfs "$work" 2>/dev/null && said "weights in memory"
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$WHEELS"/*.whl || exit 1
fi
export PYTHONPATH=$site DISABLE_VERSION_CHECK=1 HF_HUB_OFFLINE=1 WANDB_DISABLED=true TOKENIZERS_PARALLELISM=false
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export TUNEDECK_DATA=$work/deck TUNEDECK_TRAINING_PYTHON=${TRAINING_PYTHON:-$(command -v python3)} TUNEDECK_ROOTS=/tmp
dashboard=${DASHBOARD_PYTHON:-python3}
python3 scripts/gpu_evidence.py prepare "$work" ${TINY:+--tiny} 2>&1 | tail -2 | tee -a "$OUT/walk.log"
job() { python3 -c 'import json, sys; print(json.load(sys.stdin)["job"]["id"])'; }
deck() { timeout -k 5 "$(left)" "$dashboard" app.py "$@"; }
python3 - "$work" >"$work/defaults.yaml" <<'PYTHON' || exit 1
import sys
from pathlib import Path
sys.path.insert(0, "scripts")
from gpu_evidence import base_spec, dump_spec
print(dump_spec(base_spec(Path(sys.argv[1]))))
PYTHON
said "tune"
deck tune "$work/defaults.yaml" --budget "${BUDGET:-6}" --out "$OUT/best.yaml" --json >"$OUT/tune.json" 2> >(tee -a "$OUT/walk.log" >&2)
said "tune ended with $?; run the best"
id=$(deck submit "$OUT/best.yaml" --set max_steps="${STEPS:-60}" --set logging_steps=5 --json | job)
begun() { local shown; shown=$(deck show "$id"); [[ ${shown%%$'\n'*} =~ training|succeeded|failed|lost|cancelled ]]; }
while [ "$(left)" -gt 60 ] && ! begun; do sleep 2; done
deck profile "$id" --timeout 60 2>&1 | tee -a "$OUT/walk.log"
deck wait "$id" --quiet; said "best run ended with $?"
if [ -z "${TINY:-}" ] && [ "$(left)" -gt 90 ]; then
  four=$(deck submit "$OUT/best.yaml" --set max_steps=12 --set quantization_bit=4 --set logging_steps=2 --json | job)
  deck wait "$four" --quiet; said "QLoRA run ended with $?"
fi
deck bench --json >"$OUT/bench.json"; said "host check ended with $?"
deck gpus | tee -a "$OUT/walk.log"
deck report "$id" ${four:+"$four"} -o "$OUT/report.html"
for each in "$id" ${four:-}; do
  deck show "$each" --json >"$OUT/show-$each.json"
  deck logs "$each" -n 60 >"$OUT/console-$each.log"
done
deck worker --stop
said "done"

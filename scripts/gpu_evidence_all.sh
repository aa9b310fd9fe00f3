#!/usr/bin/env bash
# Memory plan, predicted gains and tuner against measurements on one GPU of an offline host, in one call of LIMIT seconds.
#   OUT=folder WHEELS=folder [LIMIT=560] [BUDGET=240] scripts/gpu_evidence_all.sh     (wheels: docs/evidence/README.md)
# LIMIT counts from the first line on, environment and model included. OUT has evidence.json and evidence.md after each trial,
# run.log and consoles.log. The same command on the same machine goes on where the last one ended.
# TINY=1 is a toy model for a CPU; without WHEELS the python3 at hand has everything.
set -uo pipefail
export EVIDENCE_T0
EVIDENCE_T0=$(date +%s)
: "${OUT:?folder for the results}"
here=$(cd "$(dirname "$0")/.." && pwd)
site=${SITE:-/tmp/tunedeck-site} work=${WORK:-/tmp/tunedeck-evidence} limit=${LIMIT:-560}
mkdir -p "$OUT" "$work"
left() { local rest=$((limit - $(date +%s) + EVIDENCE_T0)); echo $((rest > 1 ? rest : 1)); }
said() { echo "[$(($(date +%s) - EVIDENCE_T0))s] $*" | tee -a "$OUT/run.log"; }
# 16 GB of weights are written and read faster in memory than on a disk nobody knows; a host that refuses keeps its disk.
if [ -z "${TINY:-}" ] && [ ! -e "$work/done" ] && ! mountpoint -q "$work"; then
  mount -t tmpfs -o size=44G tmpfs "$work" 2>/dev/null && said "weights in memory" || said "weights on disk: $(df -h "$work" | tail -1)"
fi
if [ -n "${WHEELS:-}" ] && [ ! -d "$site/ruamel" ]; then
  timeout "$(left)" python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" \
    "$WHEELS"/*.whl || { said "the wheels were not installed"; exit 1; }
  said "environment ready"
fi
export PYTHONPATH=$site PYTHONUNBUFFERED=1 DISABLE_VERSION_CHECK=1 HF_HUB_OFFLINE=1 WANDB_DISABLED=true TOKENIZERS_PARALLELISM=false
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 PYTHONWARNINGS=ignore
timeout -k 5 "$(left)" python3 "$here/scripts/gpu_evidence.py" prepare "$work" ${TINY:+--tiny} 2>&1 | tee -a "$OUT/run.log"
[ -e "$work/done" ] || { said "no model: see above"; exit 1; }
timeout -k 5 "$(($(left) + 12))" python3 "$here/scripts/gpu_evidence.py" all "$work" "$OUT" \
  --limit "$limit" --budget "${BUDGET:-240}" 2>&1 | tee -a "$OUT/run.log"
code=${PIPESTATUS[0]}
said "ended with $code"
exit "$code"

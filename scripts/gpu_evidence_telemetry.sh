#!/usr/bin/env bash
# On a host with an NVIDIA GPU: our readings beside nvidia-smi's of the same second, idle and under load, as JSON in $OUT.
#   OUT=/tmp/out PYTHON=python3.12 WHEELS=folder TORCH_PYTHON=python-with-torch scripts/gpu_evidence_telemetry.sh
# WHEELS: wheels of nvidia-ml-py and psutil (and numpy, orjson: without them the sampler's part is left out) for that Python,
# unpacked without pip or network. Without WHEELS they are installed with pip.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=${OUT:-/tmp/gpu-evidence}
packages=$(mktemp -d)
mkdir -p "$out"
if [ -n "${WHEELS:-}" ]; then
  for wheel in "$WHEELS"/*.whl; do "$python" -m zipfile -e "$wheel" "$packages"; done
else
  "$python" -m pip install -q --target "$packages" nvidia-ml-py psutil numpy orjson
fi
PYTHONPATH="$packages" exec "$python" scripts/gpu_evidence_telemetry.py "$out"

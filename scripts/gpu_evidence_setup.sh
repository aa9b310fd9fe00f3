# Sourced by the gpu_evidence scripts: packages from local wheels, quiet and offline libraries, a fresh folder for this run.
: "${OUT:?folder for the results}" "${WHEELS:?folder with the wheels}"
site=${SITE:-/tmp/tunedeck-site} WORK=${WORK:-/tmp/tunedeck-evidence} LOCAL=$(mktemp -d)
if [ ! -d "$site/ruamel" ]; then
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" "$WHEELS"/*.whl || exit 1
fi
export PYTHONPATH=$site PYTHONUNBUFFERED=1 DISABLE_VERSION_CHECK=1 HF_HUB_OFFLINE=1 WANDB_DISABLED=true TOKENIZERS_PARALLELISM=false
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 PYTHONWARNINGS=ignore

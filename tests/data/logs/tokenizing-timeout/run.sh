export NCCL_TIMEOUT=7200
torchrun --nproc_per_node=8 src/train.py run.yaml

#!/bin/bash
export HSA_OVERRIDE_GFX_VERSION=9.4.2
export PYTORCH_ROCM_ARCH="gfx942"
export MASTER_PORT=29500
rccl-env --auto
torchrun --nproc_per_node=8 src/train.py \
    --config_file train.yaml

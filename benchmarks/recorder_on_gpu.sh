#!/usr/bin/env bash
# The recorder on a GPU host: description, ZeRO-3 with a save and a stop request, and its cost on a 1.1 B Llama.
#   OUT=FOLDER benchmarks/recorder_on_gpu.sh     on the GPU host; .wheels/ holds what its Python lacks
set -u; cd "$(dirname "$0")/.."; mkdir -p "$OUT"
T0=$(date +%s); say() { echo "== $(( $(date +%s) - T0 )) s: $*"; }
python3 -m pip install -q --no-index --no-deps --target /tmp/site .wheels/*.whl 2>&1 | tail -1
export PYTHONPATH=/tmp/site DISABLE_VERSION_CHECK=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1 OPTIM_TORCH=0
say installed
timeout 100 python3 backend/inside/describe.py >$OUT/describe.txt 2>$OUT/describe.err; say "describe rc $?"; grep TUNEDECK $OUT/describe.txt | cut -c1-400
python3 -c "
import json;l=[x for x in open('$OUT/describe.txt') if x.startswith('TUNEDECK')][0];d=json.loads(l.split(' ',1)[1])
print({k:d.get(k) for k in ('accelerator','built_for','runtime','devices','bf16','errors','seconds','broken')})"
timeout 100 python3 scripts/make_demo.py /tmp/demo 2>&1 | tail -1; say demo
mkdir -p /tmp/a/control && python3 - <<'P'
import json
base=dict(model_name_or_path='/tmp/demo/model',stage='sft',do_train=True,finetuning_type='lora',lora_target='all',dataset='demo',dataset_dir='/tmp/demo/data',template='chatml',cutoff_len=256,per_device_train_batch_size=2,gradient_accumulation_steps=2,learning_rate=1e-3,logging_steps=50,save_strategy='no',disable_shuffling=True,report_to='none',bf16=True)
zero={"train_batch_size":"auto","train_micro_batch_size_per_gpu":"auto","gradient_accumulation_steps":"auto","gradient_clipping":"auto","zero_allow_untested_optimizer":True,"bf16":{"enabled":"auto"},"zero_optimization":{"stage":3}}
json.dump(base|dict(output_dir='/tmp/a/output',max_steps=2000,deepspeed=zero),open('/tmp/a/train.yaml','w'))
rows=json.load(open('/tmp/demo/data/demo.json'))*120
import os; os.makedirs('/tmp/big',exist_ok=True); json.dump(rows,open('/tmp/big/big.json','w')); json.dump({"big":{"file_name":"big.json"}},open('/tmp/big/dataset_info.json','w'))
json.dump(base|dict(model_name_or_path='/tmp/m1b',dataset='big',dataset_dir='/tmp/big',output_dir='/tmp/b/output',overwrite_output_dir=True,packing=True,cutoff_len=2048,per_device_train_batch_size=8,gradient_accumulation_steps=2,max_steps=120,num_train_epochs=100,logging_steps=10,flash_attn='sdpa',disable_gradient_checkpointing=True,disable_shuffling=False),open('/tmp/lora_1b_ddp.yaml','w'))
import torch
from transformers import LlamaConfig, LlamaForCausalLM, AutoTokenizer
torch.set_default_dtype(torch.bfloat16)
with torch.device('cuda'): m=LlamaForCausalLM(LlamaConfig(vocab_size=1024,hidden_size=2048,intermediate_size=5632,num_hidden_layers=22,num_attention_heads=32,num_key_value_heads=4,max_position_embeddings=4096))
m.save_pretrained('/tmp/m1b'); AutoTokenizer.from_pretrained('/tmp/demo/model').save_pretrained('/tmp/m1b')
P
say models
( TUNEDECK_JOB_DIR=/tmp/a timeout 200 python3 -m torch.distributed.run --nproc_per_node $(nvidia-smi -L | wc -l) --master_port 29611 backend/inside/train.py /tmp/a/train.yaml >/tmp/a/console.log 2>&1; echo "zero3 rc $?" ) &
w() { for i in $(seq 900); do grep -q "\"s\":$1," /tmp/a/recorder/rank-0.jsonl 2>/dev/null && return; sleep .1; done; }
w 20; echo '{"at":1}' >/tmp/a/control/t; mv /tmp/a/control/t /tmp/a/control/save.json; w 60; echo '{"at":1,"mode":"save"}' >/tmp/a/control/t; mv /tmp/a/control/t /tmp/a/control/stop.json; wait
say zero3; tail -2 /tmp/a/console.log | cut -c1-200; cp /tmp/a/recorder/rank-0.jsonl $OUT/zero3-rank-0.jsonl; cp /tmp/a/recorder/rank-1.jsonl 2>/dev/null $OUT/zero3-rank-1.jsonl; cp /tmp/a/console.log $OUT/zero3.log; grep -h request /tmp/a/recorder/*
mkdir -p /tmp/b; timeout 250 python3 benchmarks/recorder_cost.py --python $(which python3) --processes 1 --train /tmp/lora_1b_ddp.yaml --keep $OUT/cost.md 2>&1 | tail -12; say bench
nvidia-smi --query-gpu=memory.used --format=csv

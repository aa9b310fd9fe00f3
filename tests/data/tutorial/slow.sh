llamafactory-cli train \
    --model_name_or_path acme/Harbour-8B-Instruct \
    --stage sft --do_train --finetuning_type lora \
    --dataset desk_qa --template llama3 --output_dir out \
    --learning_rate 5e-5 --bf16 True --fp16 False \
    --flash_attn Fa

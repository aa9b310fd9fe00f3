"""问题代码到中文的原因与处理办法；`{field}`、`{found}`、`{expected}` 及各代码自己的参数会被填入。英文在 Problem 自身。"""

# ruff: noqa: E501
from __future__ import annotations

TEXT: dict[str, tuple[str, str]] = {
    # 参数
    "unknown_key": ("训练器不认识 `{field}`，会因此拒绝整个文件。", "删除 `{field}`。"),
    "misspelt_key": (
        "训练器不认识 `{field}`，会因此拒绝整个文件；最接近的名字是 `{expected}`。",
        "改为 `{expected}`。",
    ),
    "renamed_key": ("`{field}` 是旧名字，当前版本叫 `{expected}`。", "改为 `{expected}`。"),
    "removable_key": ("`{field}` 已从训练器中移除，只要还在文件里就会被拒绝。", "删除 `{field}`。"),
    "replaced_key": (
        "`{field}` 已从训练器中移除，只要还在文件里就会被拒绝。",
        "删除 `{field}`；现在的写法是 {expected}。",
    ),
    "compute_type": ("`compute_type` 是 LLaMA Board 的控件，训练器不认识它，会拒绝整个文件。", "改写为 {expected}。"),
    "interface_key": (
        "`{field}` 是 LLaMA Board 的控件，不是训练器的参数。",
        "删除它；导入 LLaMA Board 文件时会自动转换。",
    ),
    "other_backend_key": (
        "`{field}` 属于 Megatron 后端（{expected}），普通训练器会因此拒绝文件。",
        "删除它，或使用 Megatron 后端运行。",
    ),
    "fork_key": ("`{field}` 是为某个分支或别的程序写的，本训练器会因此拒绝文件。", "删除它，或使用原本的程序。"),
    "config_flag": (
        "`--{field}` 属于别的启动器；训练器把 YAML 当作第一个普通参数，否则只会报缺少模型。",
        "写成 {expected}。",
    ),
    "obsolete_flag": ("`--{field}` 已不存在，训练器会在此停下。", "改用 --{expected}。"),
    "obsolete_flag_gone": ("`--{field}` 已不存在，训练器会在此停下。", "删除它。"),
    "duplicate_key": ("`{field}` 出现了不止一次，训练器的 YAML 读取器会拒绝文件。", "只保留其中一行。"),
    "missing_key": ("缺少必需的 `{field}`。", "补上 `{field}`。"),
    "reward_model_missing": (
        "PPO 用奖励模型给回答打分，但没有给出奖励模型。",
        "把 `reward_model` 设为奖励模型训练的输出目录。",
    ),
    "nothing_to_do": ("训练、评估、预测都没有打开：训练器会加载全部内容然后结束。", "设置 do_train: true。"),
    "bad_choice": ("`{found}` 不是 `{field}` 可用的值。", "可用的值：{expected}。"),
    "boolean_instead_of_word": (
        "YAML 会把不带引号的 {found} 读成真或假，于是 `{field}` 得到布尔值而不是单词。",
        '加上引号：{field}: "no"（或其他可用值：{expected}）。',
    ),
    "wrong_type": (
        "`{field}` 得到 `{found}`；读取 YAML 时不检查类型，因此会很晚才失败，或产生别的效果。",
        "请写这种类型的值：{expected}。",
    ),
    "flag_without_value": ("`--{field}` 后面没有值，命令行解析器会在此停下。", "给它一个值：{expected}。"),
    "number_without_dot": (
        "训练器把 {found} 读成数字，但别的 YAML 读取器会当成文本。",
        "写成 {expected}，到处都可靠。",
    ),
    "attention_value": (
        "读取文件时会接受 `flash_attn: {found}`，等全部数据分词之后才被拒绝。",
        "可用的值：{expected}。",
    ),
    "attention_fa3": (
        "LLaMA-Factory 0.9.5 的解析器接受 `fa3`，加载模型时才抛出 NotImplementedError。",
        "可用的值：{expected}。",
    ),
    "ppo_trl_version": (
        "LLaMA-Factory 0.9.5 的 PPO 需要 trl 0.8.6 至 0.9.6，而其他阶段需要 0.18 以上；当前训练环境中的 trl 更新。",
        "改用 dpo 或 kto，或指定另一个装有 trl 0.9.6 的训练环境。",
    ),
    "attention_broken": (
        "transformers 5.6.0 无法运行 FlashAttention-2：第一次前向计算就会报 AttributeError。",
        "改用 flash_attn: sdpa，或换一个 transformers 版本。",
    ),
    "attention_package_missing": (
        "训练环境里没有 flash-attn：训练器会给出警告并改用 SDPA。",
        "设为 flash_attn: sdpa，或为此 GPU 安装 flash-attn。",
    ),
    "template_unknown": (
        "没有名为 `{found}` 的模板；训练器要到加载分词器之后才会发现。",
        "使用 {expected}，或去掉 `template` 以采用模型自带的模板。",
    ),
    "template_of_another_model": (
        "训练器为此模型使用的模板是 `{expected}`；换用其他模板，模型会看到不熟悉的对话格式。",
        "除非有意为之，请使用 {expected}。",
    ),
    # 组合
    "pixels_order": ("允许的最大图像比最小图像还小。", "应满足 {expected}。"),
    "val_size_without_dataset": (
        "`val_size` 要从 `dataset` 中划出一部分，但没有给出数据集。",
        "补上 `dataset`，或删除 val_size。",
    ),
    "val_size_with_eval_dataset": ("划分验证集与单独的验证数据集不能同时使用。", "二者保留其一：{expected}。"),
    "interleave_with_concat": ("概率只用于交错混合，而现在的方式是拼接。", "设置 {expected}。"),
    "interleave_length": ("概率的个数与数据集的个数不同。", "为每个数据集各给一个数。"),
    "streaming_val_fraction": ("流式数据没有已知长度，无法按比例划分。", "把 val_size 写成行数。"),
    "streaming_max_samples": ("流式读取时不能使用 `max_samples`。", "删除 max_samples，用 max_steps 限制长度。"),
    "streaming_without_max_steps": ("流式数据没有已知长度，训练器无法计算轮数。", "设置 max_steps。"),
    "mask_history_with_prompt": ("训练提示部分与屏蔽历史互相矛盾。", "二者保留其一：{expected}。"),
    "aux_quantization_bits": ("这里只能是 4 位或 8 位。", "使用 {expected}。"),
    "ppo_reward_type": ("LoRA 奖励模型要求用 LoRA 训练。", "把 reward_model_type 设为 {expected}。"),
    "label_smoothing_not_sigmoid": ("标签平滑只适用于 sigmoid 损失。", "删除它，或设置 {expected}。"),
    "llama_pro_with_full": ("LLaMA Pro 训练新增的层，全参数训练没有新增层。", "finetuning_type 应为 {expected}。"),
    "lora_with_memory_optimizer": (
        "GaLore、APOLLO、BAdam 替换的是全参数训练的优化器，LoRA 不能使用。",
        "finetuning_type 应为 {expected}。",
    ),
    "several_memory_optimizers": ("GaLore、APOLLO、BAdam 只能选一个。", "保留其一：{expected}。"),
    "pissa_stage": ("PiSSA 会改动基座权重，而此阶段需要它作为参考。", "删除 pissa_init。"),
    "lora_only_option": ("`{field}` 只用于 LoRA，否则训练器会拒绝。", "删除 `{field}`，或设置 {expected}。"),
    "steps_not_whole": ("大于 1 时 `{field}` 表示步数，必须是整数。", "写整数，或小于 1 的比例。"),
    "best_model_strategy": ("只有在评估的那一步保存过，才能在结束时加载最优模型。", "应满足 {expected}。"),
    "two_precisions": ("fp16 与 bf16 不能同时使用。", "保留 {expected}。"),
    "scheduler_needs_eval": ("这个学习率调度依据验证损失，但没有评估。", "设置 {expected}，或换一种调度。"),
    "prefetch_without_workers": ("预取需要数据加载进程。", "设置 {expected}，或删除 `{field}`。"),
    "bf16_without_gpu": (
        "本机没有 GPU：训练器只有在设置 `use_cpu` 时才接受 bf16，而它不能与 DeepSpeed 同用。",
        "使用 DeepSpeed 时请用 fp32（bf16: false）；不用 DeepSpeed 时请设置 use_cpu: true。",
    ),
    "cpu_with_deepspeed": ("DeepSpeed 与 `use_cpu` 同用时无法启动。", "二者保留其一：{expected}。"),
    "sft_only_option": ("`{field}` 只用于 sft 阶段。", "删除 `{field}`。"),
    "predict_without_generate": ("只有生成回答时才会写出预测。", "设置 {expected}。"),
    "best_model_stage": ("rm 与 ppo 阶段不能在结束时加载最优模型。", "删除 load_best_model_at_end。"),
    "ppo_without_train": ("PPO 不能做评估。", "设置 {expected}，或在 sft 阶段评估。"),
    "ppo_option": ("PPO 不接受 `{field}`。", "删除 `{field}`。"),
    "ppo_reporter": ("PPO 只能上报到 {expected}。", "可用的值：{expected}。"),
    "eval_without_data": ("打开了评估，却没有可评估的数据。", "设置 {expected}。"),
    "predict_with_zero3": ("ZeRO-3 下不能生成回答。", "使用 {expected}。"),
    "predict_with_accuracy": ("准确率与生成回答不能同时计算。", "二者保留其一：{expected}。"),
    "quantization_device_map": ("训练时量化权重不能使用设备映射。", "删除它。"),
    "pissa_with_zero3": ("ZeRO-3 下无法初始化 PiSSA。", "使用 {expected}。"),
    "pure_bf16_with_zero3": ("pure_bf16 与 ZeRO-3 不兼容。", "使用 {expected}。"),
    "layerwise_distributed": ("逐层方式只能在单卡上使用。", "删除 `{field}`。"),
    "badam_ratio_distributed": ("按比例的 BAdam 只能在单卡上使用。", "配合 ZeRO-3 设置 badam_mode: layer。"),
    "badam_needs_zero3": ("多卡时逐层 BAdam 需要 ZeRO-3。", "使用 {expected}。"),
    "deepspeed_with_galore": ("GaLore 与 APOLLO 不兼容 DeepSpeed。", "删除 deepspeed。"),
    "fp8_with_quantization": ("fp8 训练与量化权重不能同时使用。", "二者保留其一：{expected}。"),
    "infer_backend_in_training": ("vLLM 与 SGLang 只用于对话和 API。", "删除 infer_backend。"),
    "unsloth_with_zero3": ("Unsloth 与 ZeRO-3 不兼容。", "二者保留其一：{expected}。"),
    "kt_with_zero3": ("KTransformers 与 ZeRO-3 不兼容。", "二者保留其一：{expected}。"),
    "adapter_needs_lora": ("只有 LoRA 能在已有适配器上继续训练。", "设置 {expected}，或去掉适配器。"),
    "quantization_needs_lora": (
        "量化权重不能直接训练，只能训练其上的 LoRA 或 OFT 适配器。",
        "设置 {expected}，或删除 quantization_bit。",
    ),
    "quantized_option": ("`{field}` 不能用于量化权重。", "删除 `{field}`。"),
    "quantized_several_adapters": ("量化模型只接受一个适配器。", "先合并适配器。"),
    "prompt_with_strict_eos": ("此模板不能训练提示部分，训练器要到加载分词器之后才会说。", "删除 train_on_prompt。"),
    "quantization_bits": ("此量化方法没有 {found} 位。", "使用 {expected}。"),
    "quantization_method_inert": (
        "`{found}` 写在这里不起作用：这类量化模型由其自身的 config.json 识别。",
        "删除它，或使用 {expected}。",
    ),
    "quantized_with_zero3": (
        "ZeRO-3 或 FSDP 不能切分量化权重，训练器会在加载模型时停下。",
        "使用 {expected}，或使用未量化的模型。",
    ),
    "qlora_with_zero3": (
        "ZeRO-3 下只有 bitsandbytes 4 位能通过，且需要 0.43 以上版本。",
        "QLoRA 建议使用 {expected}。",
    ),
    "dora_on_quantized": ("DoRA 不能用于 GPTQ 或 AWQ 权重。", "删除 use_dora。"),
    "several_adapters_zero3": ("ZeRO-3 不能加载多个适配器。", "先合并它们。"),
    "oft_with_unsloth": ("Unsloth 不支持 OFT。", "删除 use_unsloth，或设置 {expected}。"),
    "layerwise_accumulation": ("逐层优化器立即更新，不能累积梯度。", "设为 1。"),
    "galore_optimizer": (
        "GaLore 与 APOLLO 只支持少数优化器，transformers 5 的默认值不在其中。",
        "设置 optim: {expected}。",
    ),
    "galore_optimizer_default": (
        "transformers 5 的默认优化器不被 GaLore 与 APOLLO 支持。",
        "稳妥起见设置 optim: {expected}。",
    ),
    "neat_packing_batch": (
        "FlashAttention-2 配合 neat packing 每步只处理一条打包序列。",
        "设置 per_device_train_batch_size: 1 并使用梯度累积。",
    ),
    "neat_packing_template": ("此类模型不能使用 neat packing。", "删除 neat_packing。"),
    "reporter_unknown": ("训练器没有这个上报工具，加载模型之后才会说。", "可用的值：{expected}。"),
    "neat_packing_without_kernel": (
        "没有 FlashAttention-2 时打包序列需要完整掩码，其内存随 cutoff_len 的平方增长。",
        "使用 {expected}，或普通 packing。",
    ),
    "resize_without_target": ("新增词元的嵌入不会被训练。", "加上 {expected}。"),
    "no_mixed_precision": ("没有 bf16 或 fp16 时全部以 fp32 运行：更慢，内存加倍。", "设置 {expected}。"),
    "cache_flag_without_effect": (
        "已有的 tokenized_path 会原样使用，overwrite_cache 不会更新它。",
        "数据变化后请使用新的 tokenized_path。",
    ),
    # 软件包与硬件
    "package_missing": (
        "`{field}` 需要软件包 {package}，训练环境中没有。",
        "在训练环境中安装 {package}，或修改 `{field}`。",
    ),
    "needs_package": ("`{field}` 需要软件包 {package}。", "请确认训练环境中已安装 {package}。"),
    "bitsandbytes_on_rocm": (
        "`{field}` 需要带有当前 ROCm 库的 bitsandbytes，旧的安装包没有。",
        "安装 {expected}，运行前先试导入。",
    ),
    "hardware_dependent": ("`{field}` 只能在部分 GPU 上使用：{expected}。", "运行前请确认 GPU 型号。"),
    "tf32_on_rocm": ("transformers 在 ROCm 上拒绝 tf32：它要求 Ampere GPU。", "删除 tf32。"),
    # 数值
    "out_of_range": ("`{field}` 为 {found}，应为 {expected}。", "请写 {expected} 的值。"),
    "learning_rate_high": (
        "对 {method} {stage} 来说 {found} 远高于常用学习率，损失很可能发散。",
        "从 {expected} 或更低开始。",
    ),
    "epochs_too_many": ("训练 {found} 轮之后数据会被背下来。", "使用 {expected} 轮，并观察验证损失。"),
    "warmup_longer_than_run": ("本次训练约 {steps} 步，学习率永远达不到设定值。", "warmup_steps 应为 {expected}。"),
    "batch_larger_than_data": ("一步要用 {found} 行，而数据只有 {rows} 行。", "减小批大小或累积步数。"),
    "checkpoints_exceed_disk": (
        "本次训练的检查点需要 {found}，磁盘可用空间为 {expected}。",
        "设置 save_total_limit，或降低保存频率。",
    ),
    "ddp_timeout_short": (
        "rank 0 分词时其他进程在等待，{found} 秒后就会放弃。",
        "把 ddp_timeout 设为 {expected} 或更大。",
    ),
    "prefer_bf16": (
        "fp16 容易溢出而 bf16 不会；Instinct 以及 Ampere 之后的 NVIDIA GPU 都支持 bf16。",
        "设置 {expected}。",
    ),
    "lora_alpha_below_rank": ("lora_alpha 小于秩时更新会被缩小。", "通常取秩的一到两倍。"),
    "option_without_effect": ("在 {expected} 下，{found} 不起作用。", "删除它们。"),
    "file_is_placeholder": ("`{found}` 看起来是没有填写的占位名称。", "换成自己的名称。"),
    # 文件种类
    "not_valid_yaml": ("这不是 YAML：{found}。", "请修正这一行。"),
    "not_valid_json": ("这不是 JSON：{found}。", "请修正此处。"),
    "ui_state_file": (
        "这是 LLaMA Board 保存的界面状态，不是训练配置，训练器会拒绝它。",
        "请导入：各值会转换成训练器的参数名。",
    ),
    "v1_config": (
        "此配置采用 LLaMA-Factory 的 v1 结构（USE_V1=1），键名不同。",
        "以 USE_V1=1 运行，或改写成经典键名。",
    ),
    "foreign_config": ("这是别的程序的配置（{found}）。", "使用原本的程序，或从预设开始。"),
    "placeholder": ("还有 {found} 处需要填写：{expected}。", "替换占位符（envsubst）后再导入。"),
    # 路径
    "secret_argument": (
        "`{field}` 是机密；训练器可以从环境变量 {expected} 取得同样的值。",
        "无需处理：Tunedeck 会把它作为 {expected} 保存在只有您能读取的文件中，不会写入任务的任何文件。",
    ),
    "secret_arguments_differ": (
        "`{field}` 与 `{other}` 的值不同，而两者都会成为环境变量 {expected}。",
        "请只保留其中一个。",
    ),
    "secret_without_variable": (
        "`{field}` 是机密，而训练器只能从配置文件读取它，能看到该任务的人都能读到。",
        "删除 `{field}`，改在训练主机上用该服务自己的程序登录。",
    ),
    "needs_torchrun": (
        "带有 deepspeed 的配置即使单卡也必须通过 torchrun 启动。",
        "Tunedeck 会自动处理；在别处请设置 {expected}。",
    ),
    "deepspeed_config_missing": (
        "`{found}` 不存在；transformers 却会报 JSON 损坏和字节错误。",
        "修正路径，或在表单中选择 ZeRO 阶段。",
    ),
    "deepspeed_path_relative": ("`{found}` 会从训练器启动的目录查找。", "使用绝对路径，或在表单中选择 ZeRO 阶段。"),
    "model_path_missing": ("目录 `{found}` 不存在。", "修正路径。"),
    "path_missing": ("`{found}` 不存在。", "修正路径。"),
    "dataset_undefined": ("`{found}` 不是登记表 dataset_info.json 中的名字。", "使用 {expected}，或先登记该文件。"),
    # DeepSpeed
    "deepspeed_unknown_key": ("DeepSpeed 拒绝键 `{key}`，但要等数据和模型加载之后。", "删除它。"),
    "deepspeed_misspelt_key": (
        "DeepSpeed 拒绝键 `{key}`，但要等数据和模型加载之后；最接近的名字是 `{expected}`。",
        "改为 `{expected}`，或删除它。",
    ),
    "zero_partition_grads": (
        "DeepSpeed 没有 `{key}`，怎么拼写都没有：ZeRO-3 总会切分梯度。加载模型之后才会被拒绝。",
        "删除它。",
    ),
    "deepspeed_key_ignored": ("DeepSpeed 会悄悄忽略未知的顶层键 `{field}`。", "删除它。"),
    "deepspeed_key_ignored_near": (
        "DeepSpeed 会悄悄忽略未知的顶层键 `{field}`；最接近的名字是 `{expected}`。",
        "改为 `{expected}`，或删除它。",
    ),
    "deepspeed_key_misplaced": ("`{field}` 写在了顶层，DeepSpeed 会忽略它。", "移到 {expected}。"),
    "removed_block": ("DeepSpeed {since} 已移除 `{block}`，只要还在文件里就会被拒绝。", "删除 `{block}`。"),
    "feature_not_used": ("`{field}` 需要 {expected}，transformers 训练器不会用到它。", "删除它。"),
    "optimizer_not_supported": ("DeepSpeed 已没有优化器 {found}。", "可用的值：{expected}。"),
    "fixed_batch_value": ("`{field}` 固定为 {found}：无论几张卡，它都必须等于训练器算出的值。", '写成 "auto"。'),
    "deepspeed_batch_missing": (
        "DeepSpeed 配置没有给出批大小：数据和模型加载之后 DeepSpeed 才会停下。",
        '加上 train_micro_batch_size_per_gpu: "{expected}"。',
    ),
    "zero_section_missing": (
        "accelerate 拒绝没有 zero_optimization 的 DeepSpeed 配置。",
        "加上 zero_optimization: {expected}。",
    ),
    "deepspeed_batch_mismatch": (
        "DeepSpeed 文件与训练器的批大小不一致：{found} 与 {expected}。",
        'DeepSpeed 文件中写 "auto"。',
    ),
    "deepspeed_value_mismatch": (
        "DeepSpeed 文件为 {found}，训练器为 {expected}，transformers 会拒绝启动。",
        'DeepSpeed 文件中写 "auto"。',
    ),
    "nvme_path_missing": ("卸载到 NVMe 需要目录。", "补上 nvme_path。"),
    "offload_param_needs_zero3": ("只有 ZeRO-3 能卸载参数。", "删除 offload_param，或使用 {expected}。"),
    "offload_without_zero": ("没有 ZeRO 就没有可卸载的内容。", "使用 {expected}。"),
    "offload_with_free_memory": (
        "每张卡约需 {needed} GiB，而可用 {available} GiB：卸载到 CPU 只会变慢。",
        "去掉卸载；ZeRO-2 或不用 ZeRO 即可。",
    ),
    "zero3_gather_off": (
        "ZeRO-3 不聚合权重时不会写出 model.safetensors，只有 DeepSpeed 分片。",
        "设置 stage3_gather_16bit_weights_on_model_save: {expected}。",
    ),
    "file_name_misleads": ("文件名为 `{expected}`，内容却是 {found}。", "改文件名，或修正内容。"),
    # 环境变量
    "gfx_override_set": (
        "HSA_OVERRIDE_GFX_VERSION 会强制所有 GPU 使用同一指令集；Instinct 不需要它，设置后可能崩溃。",
        "不要设置。",
    ),
    "build_variable_at_run": ("`{field}` 只在编译扩展时有用，运行时无效。", "从运行脚本中去掉。"),
    "speed_env": ("`{field}={found}` 是调试开关，会降低速度。", "排查结束后去掉。"),
    "visibility_empty": (
        "`{field}` 为空时 HIP 视为未设置，而 torch 看不到任何 GPU。",
        "写明设备，或用 -1 表示不用 GPU。",
    ),
    "visibility_conflict": ("ROCR 先隐藏并重新编号，因此 {found} 指向不存在的设备。", "只设置 HIP_VISIBLE_DEVICES。"),
    "visibility_several": ("有多个变量选择设备，效果会叠加：{found}。", "只设置 {expected}。"),
    "extra_args_allowed": ("设置 ALLOW_EXTRA_ARGS 后，拼错的键会被悄悄忽略。", "不要设置。"),
    "nvidia_only_variable": ("`{field}` 只对 NVIDIA GPU 有意义。", "删除它。"),
    # 启动
    "continuation_broken": ("反斜杠后有空格，命令在此结束，后面的行会被当作单独的命令。", "删除反斜杠后的空格。"),
    "unknown_tool": (
        "没有工具 `{found}`；shell 只会提示一句然后继续。",
        "去掉它；RCCL 由 NCCL_ 变量设置，例如 {expected}。",
    ),
    "time_limit_short": ("无论在做什么，作业都会在 {seconds} 秒后结束。", "申请数小时，或更频繁地保存。"),
    "port_reused": ("端口 {found} 分给了两个服务，第二个无法打开。", "各用各的端口。"),
    "port_busy": ("本机端口 {found} 已被占用。", "换一个端口。"),
    "several_launches": ("脚本启动了 {found} 次训练，采用最后一次。", "其余的请分别导入。"),
    "obsolete_script": ("`{found}` 在 LLaMA-Factory 中已不存在。", "使用 {expected}。"),
    "obsolete_launcher": ("torch.distributed.launch 已被取代。", "使用 {expected}。"),
    "eval_removed": ("`llamafactory-cli eval` 总会抛出 NotImplementedError。", "使用 {expected}。"),
    "json_config": ("JSON 配置从来不能用：训练器读取时会失败。", "另存为 YAML。"),
    "flags_after_yaml": ("跟在 YAML 之后的标志是未知键：{found}。", "覆盖值请写成 {expected}。"),
    "world_size_ambiguous": ("对 torch 来说 WORLD_SIZE 是进程总数，这里却当作节点数。", "使用表示节点数的变量。"),
    "nproc_exceeds_visible": (
        "启动 {processes} 个进程，但只有 {visible} 个可见设备：后面的进程会报 `invalid device ordinal`。",
        "启动 {visible} 个进程，或让更多设备可见。",
    ),
    "tasks_times_torchrun": (
        "srun 在每个节点上会执行此行 {tasks} 次，每次又启动全部进程：多个作业会写同一个输出。",
        "每个节点一个任务：--ntasks-per-node=1。",
    ),
    # 数据文件与登记表
    "role_tag_mismatch": (
        "数据中的角色（{found}）与登记表所写的（{expected}）不符：第 {rows} 行会被丢弃。",
        "修正 dataset_info.json 中的标签，或数据中的角色。",
    ),
    "turns_out_of_order": ("第 {rows} 行中用户与助手没有交替，训练器会丢弃。", "以用户开头并交替：{expected}。"),
    "turn_count": ("第 {rows} 行多了或少了一轮，训练器会丢弃。", "每行的轮数应为{expected}（even 偶数，odd 奇数）。"),
    "all_samples_dropped": ("训练器会丢弃所有行：«Cannot find valid samples»。", "修正数据或登记条目。"),
    "trailing_comma": ("右括号前的逗号不符合 JSON，许多读取器会拒绝该文件。", "删除这些逗号。"),
    "comma_between_lines": (
        "行尾有逗号，因此不是 JSON Lines，外面也没有数组括号。",
        "删除逗号，或用 [ ] 括起全部内容。",
    ),
    "concatenated_objects": (
        "JSON 对象直接相连，没有分隔；只有小文件能加载，预览会失败。",
        "每行一个对象，文件名用 .jsonl。",
    ),
    "several_arrays": ("文件中有多个相连的 JSON 数组，加载器会拒绝。", "合并成一个数组，或每行一个对象。"),
    "json_lines_in_json_file": (
        "文件内容是 JSON Lines，却命名为 .json；加载器可以读取，别的工具未必。",
        "改名为 .jsonl。",
    ),
    "comment_lines": ("第 {rows} 行是注释，不是 JSON；加载器只会说第 0 行有无效值。", "删除这些行。"),
    "utf8_bom": ("数据前有字节顺序标记，JSON 读取器会拒绝或读错第一行。", "另存为不带标记的 UTF-8。"),
    "not_utf8": ("文件不是 UTF-8（{found}）。", "另存为 UTF-8。"),
    "no_rows": ("文件中没有数据行。", "请选择别的文件。"),
    "row_not_an_object": ("第 {rows} 行不是 JSON 对象。", "每行都写成 {expected}。"),
    "wrapped_rows": ("数据行包在 `{field}` 里面；加载器在最外层查找，只会得到一行且缺少所需的列。", "只保存列表本身。"),
    "mixed_types": (
        "`{field}` 中有不同类型的值（{found}），异常行：{rows}；加载器会报 Arrow 错误。",
        "全部改为 {expected}。",
    ),
    "extra_column": ("`{field}` 出现在 {count} 行中，不会被使用。", "无需处理。"),
    "duplicate_rows": ("第 {rows} 行与前面重复。", "删除重复行。"),
    "near_duplicates": ("几乎所有回答说的都是同一件事；只有身份数据才正常。", "与其他数据混合，并减少轮数。"),
    "placeholder_text": ("第 {rows} 行含有占位符：{found}。", "训练前换成真实名称。"),
    "long_sequences": (
        "第 {rows} 行很长（{found}），超过 cutoff_len 的部分会被悄悄截断。",
        "拆分，或提高 cutoff_len。",
    ),
    "blank_input": ("第 {rows} 行的 `input` 只有空格，会给提示多加一个空行。", "改为空字符串。"),
    "empty_instruction": ("第 {rows} 行没有提示。", "删除或补全。"),
    "empty_output": ("第 {rows} 行没有回答。", "删除或补全。"),
    "unregistered_format": (
        "这种格式（{found}）的数据需要在 dataset_info.json 中登记，否则会按 alpaca 读取而失败。",
        "按给出的条目登记。",
    ),
    "columns_unknown": ("这些列不符合任何已知格式：{found}。", "登记文件时把它们映射到 prompt 与 response。"),
    "column_missing": (
        "登记表写的列在数据中不存在：{found}。",
        "修正 dataset_info.json 的 `columns`；文件中有：{expected}。",
    ),
    "formatting_missing": (
        "数据是多轮对话，但登记条目没有 formatting，会按 alpaca 读取而失败。",
        "加上 formatting: sharegpt 及给出的列。",
    ),
    "formatting_unknown": ("没有名为 `{found}` 的 formatting。", "使用 {expected}。"),
    "openai_formatting": (
        '`formatting: openai` 会给每条系统提示加上 "detailed thinking off"。',
        "改用 {expected}，并写明 role 与 content 标签。",
    ),
    "answer_not_an_object": ("第 {rows} 行的回答是文本；多轮数据需要一个轮次对象。", "写成 {expected}。"),
    "nested_answer": ("第 {rows} 行的回答比训练器读取的多嵌套了一层。", "写成 {expected}。"),
    "answers_equal": ("第 {rows} 行的优选与劣选回答相同，学不到任何东西。", "删除这些行。"),
    "label_not_boolean": ("标签必须是 true 或 false；第 {rows} 行是别的值（{found}）。", "写 {expected}，不加引号。"),
    "one_label_only": ("所有行的标签都是 {found}，KTO 需要两种。", "加入另一种标签的行。"),
    "image_count_mismatch": (
        "第 {rows} 行的 {field} 数量与文本中 {found} 标记的数量不同，训练器会在此停下。",
        "写成 {expected}。",
    ),
    "ranking_flag_missing": (
        "`{field}` 是偏好对比数据，但登记表没有 ranking: true；dpo 与 rm 会拒绝它。",
        "加上 {expected}。",
    ),
    "empty_mapping": ("`{field}` 把 {found} 映射到了空名称。", "删除空的键。"),
    "entry_key_ignored": ("训练器会忽略 `{field}` 中的 {found}。", "已知的键：{expected}。"),
    "entry_without_source": ("条目 `{field}` 没有指明文件或仓库。", "加上 {expected}。"),
    "script_dataset": ("datasets 4 不再支持加载脚本（{found}）。", "使用 {expected}。"),
    "file_missing": ("条目 `{field}` 的文件 `{found}` 在此处不存在。", "修正路径，或删除该条目。"),
    # 训练器自己的检查
    "trainer_refuses": ("训练器自己的检查（{stage}）拒绝：{message}", "修正信息中提到的参数。"),
    "trainer_warns": ("训练器自己的检查（{stage}）提示：{message}", "如果是有意的，无需处理。"),
    "dry_run_unavailable": ("无法询问训练器：{found}。", "其余检查仍然有效；请在设置中查看训练环境。"),
    "hub_not_cached": (
        "本机缓存中没有该模型，而检查不会下载任何内容：因此没有查看模型。",
        "无需处理；任务启动时会下载。",
    ),
    "dataset_wrong_stage": (
        "数据集与训练阶段不符：偏好对比数据只用于 rm 和 dpo，而它们也只接受这种数据。",
        "换数据集或阶段，或在 dataset_info.json 中设置 ranking。",
    ),
    "not_a_registry": (
        "这个 dataset_info.json 是 datasets 库保存数据时写的，不是登记表。",
        "用 {expected} 加载那个目录，并另写登记表。",
    ),
}


def problem_text(code: str, field: str, found: str, expected: str, params: dict[str, str]) -> tuple[str, str] | None:
    """一个问题的中文原因与处理办法；没有译文的代码返回 None（页面则显示英文）。"""
    texts = TEXT.get(code)
    if texts is None:
        return None
    words = {**params, "field": field, "found": found, "expected": expected}
    try:
        return texts[0].format_map(words), texts[1].format_map(words)
    except (KeyError, ValueError, IndexError):
        return None

"""提速建议的代码到中文的原因、做法与影响；英文在 backend/planning/advice_texts.py。"""

# ruff: noqa: E501
from __future__ import annotations

TEXT: dict[str, tuple[str, str]] = {
    "packing_saves_padding": (
        "计算的词元中有 {padding} 是填充，而且每个微批只有 {micro} 条短样本，GPU 大部分时间在等核函数启动。",
        "把样本打包成每块 {block} 个词元，每步 {micro_after} x {accumulation_after} 块。",
    ),
    "micro_batch_small": (
        "每个微批只有 {micro} 条样本，GPU 在等核函数启动：一步 {step_seconds} 秒中占 {launch_seconds} 秒。",
        "改为每批 {micro_after} 条、累积 {accumulation_after} 次；有效批大小不变。",
    ),
    "liger_saves_traffic": (
        "归一化、激活函数和损失要反复读写中间副本，损失更是以 fp32 多次遍历整个词表。",
        "设置 enable_liger_kernel: true（融合核函数，需要 liger-kernel 包）。",
    ),
    "attention_slow": ("`{attention}` 注意力会为每一层写出完整的得分矩阵。", "设置 flash_attn: {attention_after}。"),
    "checkpointing_unneeded": (
        "梯度检查点为了省显存把每层前向计算两遍，而不用它显存也够。",
        "设置 disable_gradient_checkpointing: true。",
    ),
    "zero3_unneeded": (
        "模型本来放得下，ZeRO-3 却在每次前向和反向中逐模块收集各层权重：一步 {step_seconds} 秒中占 {zero_seconds} 秒。",
        "不用 ZeRO（需要分摊优化器时用 ZeRO-2）。",
    ),
    "zero_unneeded": (
        "ZeRO-{stage} 用 Python 逐个处理梯度，分摊的状态在这里却很小：一步 {step_seconds} 秒中占 {zero_seconds} 秒。",
        "不用 ZeRO：模型、梯度和优化器在每块 GPU 上都放得下。",
    ),
    "offload_unneeded": (
        "卸载使权重或优化器状态每步都要经过主机链路（{step_seconds} 秒中占 {link_seconds} 秒），而 GPU 显存还有富余。",
        "关闭卸载，同时不用 ZeRO-3。",
    ),
    "half_precision_off": ("fp32 训练只用到矩阵单元的一小部分，显存却要两倍。", "设置 bf16: true。"),
    "quantization_unneeded": (
        "{found} 位权重每次相乘都要重新展开，而半精度模型放得下（至多 {expected}）。",
        "删除 quantization_bit。",
    ),
    "host_activations_unneeded": ("激活值往返主机内存，而 GPU 放得下。", "删除 use_unsloth_gc。"),
    "neat_packing_mask": (
        "没有 FlashAttention-2 时，neat_packing 会在数据加载时生成 cutoff_len x cutoff_len 的掩码（每个微批 {found} MiB），并改用较慢的核函数。",
        "使用 flash_attn: fa2 且每批 1 块，或用不带 neat_packing 的 packing。",
    ),
    "optimizer_not_fused": ("`adamw_torch` 用许多小核函数更新参数。", "设置 optim: adamw_torch_fused。"),
    "preprocessing_single": (
        "只有一个进程在为 {rows} 条样本分词，GPU 在等待。",
        "设置 preprocessing_num_workers: {expected}，并用 tokenized_path 保留结果。",
    ),
    "rows_truncated": (
        "{found} 的样本比 cutoff_len {cutoff} 长：末尾会被截断，打包时整条被丢弃。",
        "如果末尾重要，请增大 cutoff_len。",
    ),
    "saves_too_often": ("大约 {found} 的时间用于写检查点。", "设置 save_steps: {expected}，或 save_only_model: true。"),
    "find_unused_parameters": (
        "DDP 每步都遍历整个计算图寻找未使用的参数，而这里没有。",
        "设置 ddp_find_unused_parameters: false。",
    ),
    "data_wait": ("{found} 的步时间在等下一批数据。", "设置 dataloader_num_workers: {expected}。"),
    "rank_slow": (
        "第 {rank} 号进程比其他进程慢 {found}，所有进程都在等它。",
        "检查那块 GPU 的频率、温度、功率上限和其他进程。",
    ),
    "power_capped": (
        "{device} 已达到 {found} W 的功率上限。",
        "其默认上限为 {expected} W：可申请提高，或接受较低的频率。",
    ),
    "thermal_throttling": ("{device} 有 {found} 的时间因温度被降速。", "检查散热和同机的其他任务。"),
    "gpu_idle": (
        "GPU 只有 {found} 的时间在忙：Python 来不及启动核函数，或在等数据和通信。",
        "更大的微批、打包、更少的适配器能让每次启动做更多的事。",
    ),
    "memory_left": (
        "实测峰值为 {capacity} 中的 {found}，{left} 从未用到。",
        "微批 {expected} 应当放得下；增大微批并按同样倍数减小累积次数。",
    ),
    "saves_measured": (
        "到目前为止写检查点占了 {found} 的时间（每次 {seconds} 秒）。",
        "减少保存，或在不需要续训时用 save_only_model: true。",
    ),
    "evaluation_measured": ("到目前为止评估占了 {found} 的时间。", "减少评估次数或评估样本。"),
    "slower_than_before": ("每步比运行初期慢了 {found}。", "比较频率、温度、其他进程和样本长度。"),
    "rank_late": (
        "在被剖析的第 {steps} 步中，其他进程有 {found} 的时间在等第 {rank} 号进程，而它不等任何人。",
        "检查那块 GPU 的频率、温度、功率上限、其他进程，以及它分到的样本长度。",
    ),
    "communication_zero": (
        "在被剖析的第 {steps} 步中，{found} 的时间只有通信在进行。ZeRO-{stage} 每个微批都要发送梯度（阶段 3 还要两次收集权重）。",
        "改用 {expected}：按显存规划放得下，只需发送 {kept} 的字节。",
    ),
    "communication_batch": (
        "在被剖析的第 {steps} 步中，{found} 的时间只有通信在进行，而 ZeRO-{stage} 每个微批都要通信。",
        "每个微批 {expected} 条、累积 {accumulation} 次：有效批大小不变，只需发送 {kept} 的字节，按显存规划放得下。",
    ),
    "communication_high": (
        "在被剖析的第 {steps} 步中，{found} 的时间只有通信在进行，而放得下的更轻的设置也省不了多少。",
        "在 GPU 页面运行检查：它会说明链路是否达到平常的带宽，以及哪组环境变量更快。增加累积（有效批更大）可以减少通信次数。",
    ),
    "numa_balancing_on": (
        "自动 NUMA 平衡已开启；RCCL 会对此告警，页面迁移时核函数可能停顿。",
        "以 root 执行：sysctl kernel.numa_balancing=0。",
    ),
    "environment_preset": (
        "在 {found} 上，AMD 的指南为训练设置这些变量：{expected}。",
        "加到 tunedeck.env 下（每个都可单独去掉）。",
    ),
}

EFFECTS: dict[str, str] = {
    "effective_batch": "有效批大小改变",
    "row_order": "样本顺序改变",
    "loss": "损失的含义改变",
    "rows_dropped": "会丢弃样本",
    "rounding": "仅末位舍入不同",
    "precision": "数值精度改变",
}

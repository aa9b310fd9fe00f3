"""启动前对本机检查所得问题的代码，到中文的原因与处理办法；其余代码见 problems_zh.py。英文在 Problem 自身。"""

from __future__ import annotations

TEXT: dict[str, tuple[str, str]] = {
    "environment_unusable": (
        "任务由这个解释器启动，但它不能用于训练。",
        "运行 scripts/setup --training，或在设置中选用另一个解释器。",
    ),
    "model_name_missing": ("没有模型，LLaMA-Factory 会立即结束。", "请填写模型。"),
    "dataset_registry_missing": (
        "数据集在 dataset_info.json 中登记；相对路径会在任务自己的目录里查找。",
        "请填写含 dataset_info.json 的目录的绝对路径。",
    ),
    "output_not_empty": (
        "LLaMA-Factory 会悄悄地从其中的检查点继续，或拒绝启动。",
        "删去 output_dir（任务有自己的目录），换一个新目录，或使用“恢复”。",
    ),
    "output_not_writable": ("检查点和日志都写在那里。", "换一个目录，或改正其权限或挂载选项。"),
    "disk_full": ("写不下检查点的任务等于白跑。", "清理磁盘，或选用另一块磁盘上的目录。"),
    "checkpoint_not_found": ("没有可以恢复的内容。", "请在任务页面上选择检查点。"),
    "bad_value": ("torchrun 在该端口上监听。", "删除该变量，系统会自行选用空闲端口。"),
    "port_in_use": ("有别的程序占用该端口，可能是另一个训练任务。", "删除该变量，系统会自行选用空闲端口。"),
    "gpu_unknown": ("任务会一直等待。", "请选择本机的卡，或留空。"),
}

"""Code of a host check, gap or hindrance in, the Chinese (and for gaps also the English) words out."""

from __future__ import annotations

from typing import NamedTuple


class CheckText(NamedTuple):
    """What of a check is the same on every host; `found` is made of values and stays as it is."""

    title: str
    expected: str
    advice: str


CHECKS_ZH: dict[str, CheckText] = {
    "gpu_source": CheckText(
        "GPU 遥测",
        "能读取全部显卡的数据源",
        "依次尝试：辅助进程中的 amdsmi、amd-smi 命令、sysfs。没有 GPU 时在 CPU 上训练；有 GPU 时请加载驱动，或把设备交给容器。",
    ),
    "gpu_access": CheckText(
        "GPU 设备权限",
        "可读写 /dev/kfd 与 /dev/dri/renderD*",
        "执行 sudo usermod -aG render,video $USER 后重新登录；容器请用 --group-add 传入数字组号。",
    ),
    "gpu_errors": CheckText(
        "显卡健康状况",
        "没有不可纠正的显存错误，所有链路正常",
        "查看内核日志，停用该卡并通知管理员；被搁置的显卡可在 GPU 页面解除。",
    ),
    "rocm": CheckText(
        "ROCm 与驱动",
        "用户态版本不低于驱动",
        "用户态过旧时，功耗、频率和利用率都读成 N/A。PyTorch 的安装包自带 ROCm 库。",
    ),
    "numa_balancing": CheckText(
        "自动 NUMA 均衡",
        "0",
        "执行 sudo sysctl kernel.numa_balancing=0：页面迁移会让集合通信变慢且不均匀。",
    ),
    "iommu": CheckText(
        "IOMMU 直通模式",
        "iommu=pt",
        "在内核启动参数中加入 iommu=pt：否则 GPU 之间的点对点拷贝可能挂起或极慢。",
    ),
    "shm": CheckText(
        "共享内存",
        "8 GiB 或更多",
        "容器请用 --shm-size 16G 或 --ipc=host。同一节点的数据加载和集合通信都在这里交换数据。",
    ),
    "memlock": CheckText(
        "锁定内存",
        "不限",
        "ulimit -l unlimited（容器：--ulimit memlock=-1），否则固定内存会以 HSA_STATUS_ERROR_... 失败。",
    ),
    "open_files": CheckText("打开文件数", "8192 或更多", "ulimit -n 65536：数据加载进程多时会报 Too many open files。"),
    "disk": CheckText(
        "磁盘空间", "50 GiB 或更多", "含优化器状态的完整检查点每个参数占 12 到 16 字节；请设置 save_total_limit。"
    ),
    "variables": CheckText(
        "面板的环境变量",
        "没有 GFX 覆盖，最多一个可见性变量",
        "启动面板时不要设置它们；每个任务由我们设置唯一的可见性变量。",
    ),
    "training_environment": CheckText(
        "训练环境",
        "装有 torch 和 llamafactory 的解释器",
        "运行 scripts/setup，或用 TUNEDECK_TRAINING_PYTHON 指定解释器。",
    ),
    "torch_build": CheckText(
        "PyTorch 构建",
        "与本机加速器一致、包含其目标架构的构建",
        "安装对应加速器的安装包，或使用 rocm/pytorch 镜像：缺少目标架构会报 invalid device function。",
    ),
    "rccl": CheckText(
        "RCCL / NCCL",
        "只有 torch 自带的一个库",
        "不要让第二个库出现在 LD_LIBRARY_PATH 中：同一任务里有两个会挂起。NCCL_DEBUG=INFO 会说明用了哪个。",
    ),
    "amdsmi_package": CheckText(
        "训练环境中的 amdsmi 包",
        "没有 amdsmi 包，或有 ROCm 的 libamd_smi.so",
        "pip uninstall amdsmi：ROCm 版 PyTorch 会导入它，然后报 KeyError: 'libamd_smi.so'。",
    ),
    "part_bitsandbytes": CheckText("bitsandbytes", "可用，或不需要", "QLoRA 和 8 位优化器需要它。"),
    "part_flash_attn": CheckText("flash-attn", "可用，或不需要", "flash_attn: fa2 需要它；sdpa 是稳妥的默认值。"),
    "part_deepspeed": CheckText("deepspeed", "可用，或不需要", "ZeRO 需要它；它的 CPU 优化器在首次使用时编译。"),
    "part_compiler": CheckText("编译器", "可用，或不需要", "编译 DeepSpeed 的算子需要 g++ 和 ninja。"),
    "part_liger_kernel": CheckText("liger-kernel", "可用，或不需要", "融合算子，enable_liger_kernel。"),
}
"""All disks share the code `disk`."""

GAPS_EN: dict[str, str] = {
    "gpu_lost": "The card no longer answers.",
    "driver_newer": "The amdgpu driver is newer than amd-smi.",
    "not_on_part": "This card has no such sensor.",
    "partition": "Sensors belong to the card, not to a partition.",
    "second_die": "Reported by the first die of the package.",
    "source_silent": "The telemetry source does not tell.",
    "no_permission": "Needs the render group.",
    "not_reported": "Not reported.",
}
GAPS_ZH: dict[str, str] = {
    "gpu_lost": "显卡已无响应。",
    "driver_newer": "amdgpu 驱动比 amd-smi 新。",
    "not_on_part": "该型号没有此传感器。",
    "partition": "传感器属于整卡，不属于分区。",
    "second_die": "由同一封装的第一个芯片报告。",
    "source_silent": "当前数据源不提供。",
    "no_permission": "需要 render 组权限。",
    "not_reported": "未报告。",
}
HINDRANCES_ZH: dict[str, str] = {
    "leased": "被其他任务占用",
    "set_aside": "因新的不可纠正错误而搁置",
    "lost": "显卡无响应",
    "not_accessible": "没有访问权限",
    "foreign_process": "有其他进程在使用",
    "busy": "正忙",
    "unknown": "原因未知",
}


def check_text_zh(code: str) -> CheckText | None:
    """None for a code without a Chinese text."""
    return CHECKS_ZH.get("disk" if code.startswith("disk_") else code)

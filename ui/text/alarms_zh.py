"""What proves an alarm, in Chinese; English and the meaning of the names: backend/parsing/alarms.py."""

from __future__ import annotations

from collections.abc import Mapping

PROOFS_ZH: Mapping[str, str] = {
    "accuracy_coarse": "{name} 只按 1/{parts} 的步长变化。",
    "data_starved": "最近 {steps} 步中，{waiting_share} 的时间在等数据。",
    "eval_loss_rising": "评估损失从 {low}（第 {low_step} 步）升到 {last}（第 {last_step} 步）。",
    "grad_norm_elevated": "梯度范数为 {recent}。",
    "grad_norm_high": "梯度范数为 {recent}，最高曾达 {top}。",
    "grad_norm_nan": "{rows} 行记录中有 {bad} 行的梯度范数不是数。",
    "grad_norm_nan_sporadic": "{rows} 行记录中有 {bad} 行的梯度范数不是数。",
    "initial_loss_high": "首个损失为 {value}；完全靠猜的模型约为 12。",
    "learning_rate_high": "学习率达到 {value}。",
    "loss_diverging": "损失从 {low} 升到 {last}。",
    "loss_flat": "最近 {rows} 行的损失都是 {value}。",
    "loss_not_finite": "{rows} 行记录中有 {bad} 行的损失不是数。",
    "loss_scale_at_floor": "DeepSpeed 在跳步：损失缩放已到最小值 {scale}。",
    "loss_scale_collapse": "DeepSpeed 已放弃：“Current loss scale already at minimum”。",
    "loss_spike": "损失从 {usual} 跳到 {value}。",
    "loss_zero": "最近 {rows} 行的损失恰好为 0。",
    "overfit_risk": "训练损失为 {train}，评估损失为 {evaluation}。",
    "remaining_time_unreliable": "{file} 称还剩 {said_seconds}；按实测步速还需 {measured_seconds}。",
    "slow_drift": "原来每步 {early_seconds}，现在每步 {late_seconds}。",
    "stalled": "已有 {silent_seconds} 没有新的一步；平时每步 {usual_seconds}。",
    "stalled.first": "训练开始 {silent_seconds} 后仍没有第一步。",
    "straggler": "进程 {rank} 每步等数据 {wait_seconds}，其他进程 {others_seconds}（最近 {steps} 步中的 {late_share}）。",
    "straggler.pace": "进程 {rank} 每步用时 {own_seconds}，其他进程 {others_seconds}（最近 {steps} 步中的 {late_share}）。",
    "two_writers": "{file} 中有两个训练的行交替出现：一个在第 {first} 步附近，另一个在第 {second} 步附近。",
    "two_writers.epoch": "{file} 中有两个训练的行交替出现：一个在第 {first} 轮附近，另一个在第 {second} 轮附近。",
}

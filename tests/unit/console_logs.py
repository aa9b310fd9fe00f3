"""Generated consoles with all that appears in real ones, in any order: for tests of readers that pass over what tells nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_WORDS = (
    "row", "data", "model", "reader", "cache", "was", "read", "holds", "nothing", "of", "interest", "数据", "已读取", "样本",
    "with", "some", "values", "kept",
)  # fmt: skip
_SUMMARY = (
    "***** train metrics *****\n  epoch                    =        3.0\n"
    "  train_loss               =     1.25\n  train_runtime = 0:01:10.5\n\n"
)
_ERRORS = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "63.98 GiB of which 1.50 GiB is free.",
    "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
    "ValueError: what nobody knows",
    "RuntimeError: Error(s) in loading state_dict for PeftModelForCausalLM: size mismatch for base_model.embed_tokens.weight",
    "[rank1]:[E1030 10:00:01 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",
)


class LogMaker:
    """Pieces of a console from a seed; steps go on."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._step = 0
        self._total = self._chance.choice((100, 1000, 123456))
        self._kinds: tuple[Callable[[], str], ...] = (
            self._bars, self._bars, self._bars, self._words, self._words, self._words, self._info, self._info,
            self._dict, self._engine, self._engine, self._ranks, self._table, self._traceback, self._wrapped, self._network,
            self._colour, self._odd, self._megatron,
        )  # fmt: skip

    def text(self, pieces: int) -> str:
        """A console of so many pieces."""
        return "".join(self._pieces(pieces))

    def _pieces(self, count: int) -> Iterator[str]:
        for _ in range(count):
            piece = self._chance.choice(self._kinds)()
            repeats = self._chance.choice((1, 1, 1, 2, 40))
            yield piece
            for _ in range(repeats - 1 if piece.endswith("\n") and len(piece) < 400 else 0):
                yield self._renumbered(piece)

    def _renumbered(self, text: str) -> str:
        return "".join(self._chance.choice("0123456789") if one in "123456789" else one for one in text)

    def _bar(self, done: int, total: int, name: str = "", tail: str = "") -> str:
        filled = "█" * (10 * done // total)
        percent = 100 * done // total
        elapsed, pace = f"{done // 60:02d}:{done % 60:02d}", f"1.{done % 90:02d}s/it"
        return f"{name}{percent:3d}%|{filled:<10}| {done}/{total} [{elapsed}<10:00,  {pace}{tail}]"

    def _bars(self) -> str:
        chance, drawn = self._chance, []
        name = chance.choice(
            ("", "", "", "", "Evaluating: ", "Running tokenizer on dataset (num_proc=4): ", "[rank2]: ", "Epoch 2: ")
        )
        tail = chance.choice(("", "", "", ", loss=0.5"))
        total = chance.choice((self._total, self._total, self._total, 40))
        for _ in range(chance.choice((1, 2, 3, 5, 30))):
            self._step = min(self._step + chance.choice((0, 0, 1)), self._total)
            if chance.random() < 0.03:
                name = chance.choice(("", "Epoch 3: "))
            drawn.append(
                "\r" + self._bar(min(self._step, total), total, name, tail) + " " * chance.choice((0, 0, 0, 3))
            )
            if chance.random() < 0.02:
                drawn.append(chance.choice(("A warning of somebody", "\r", "\x1b[A", "\n")))
        ending = chance.choice(
            (
                "\n",
                "\r\n",
                "\r",
                f"\r{' ' * 40}\r{self._row()}\n",
                f"\r{' ' * 40}\r{self._row()}\r\n",
                f"{self._row()}\n",
                "",
            )
        )
        return "".join(drawn) + ending

    def _row(self) -> str:
        chance = self._chance
        loss, rate = f"{2 * chance.random():.4f}", f"{chance.random() * 1e-5:.4e}"
        kind = chance.randrange(8)
        if kind == 0:
            return f"{{'loss': {loss}, 'grad_norm': nan, 'learning_rate': {rate}, 'epoch': {self._step / 50:.2f}}}"
        if kind == 1:
            return f"{{'loss': {loss}, 'learning_rate': {rate}, 'epoch': {self._step / 50:.2f}}}"
        if kind == 2:
            return f"{{'eval_loss': '{loss}', 'eval_runtime': '1.5', 'epoch': '{self._step / 50:.4f}'}}"
        if kind == 3:
            return f"{{'train_runtime': 12.5, 'train_loss': {loss}, 'epoch': 3.0}}"
        if kind == 4:
            return f"{{'loss': np.float64({loss}), 'step': {self._step}, 'epoch': 1.0}}"
        return f"{{'loss': '{loss}', 'grad_norm': '1.5', 'learning_rate': '{rate}', 'epoch': '{self._step / 50:.4f}'}}"

    def _dict(self) -> str:
        prefix = self._chance.choice(
            ("", "", "[rank0]: ", "node17: ", "0: ", "[INFO|2026-05-04 09:00:10] logging.py:157 >> ", "said ")
        )
        row = self._row()
        return f"{prefix}{row[: self._chance.choice((len(row), len(row), len(row), 50))]}\n"

    def _words(self) -> str:
        words = " ".join(self._chance.choices(_WORDS, k=self._chance.choice((3, 8, 14, 14, 14))))
        level = self._chance.choice(
            ("", "[WARNING|2026-05-04 09:00:10] converter.py:149 >> ", "05/04/2026 09:00:10 - INFO - data - ", "    ")
        )
        ending = self._chance.choice(("", "", " is ", " = 3", " loss 3", " checkpoint-20"))
        return f"{level}{words} {self._chance.randrange(10**6)}{ending}\n"

    def _info(self) -> str:
        return self._chance.choice(
            (
                f"[INFO|trainer.py:157] 2026-05-04 09:00:10 >> Saving model checkpoint to saves/x/checkpoint-{self._step}\n",
                "[INFO|modeling_utils.py:3732] 2026-05-04 09:00:10 >> loading weights file model.safetensors from cache\n",
                "[INFO|configuration_utils.py:1] 2026-05-04 >> the model is configured with a timeout\n",
                f"[INFO|trainer.py:2414] 2026-05-04 >>   Total optimization steps = {self._total}\n",
                "[INFO|trainer.py:4307] 2026-05-04 >> ***** Running Evaluation *****\n",
                "[2026-05-04 09:00:10,123] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711\n",
                "Continuing training from global step 40\n",
                "\n",
                "   \n",
                "12345\n",
            )
        )

    def _engine(self) -> str:
        self._step += self._chance.choice((0, 1, 10))
        head, step = "[2026-05-04 07:31:14,976] [INFO] ", self._step
        rate, skipped = self._chance.choice(("1.19e-05", "3.2e-06, 1e-06", "0.0")), self._chance.choice((0, 5))
        step_line = (
            f"{head}[logging.py:96:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[{rate}], mom=[(0.9, 0.95)]"
        )
        speed = f"RunningAvgSamplesPerSec={step % 97 + 0.5}, CurrSamplesPerSec=88.49, MemAllocated=2.71GB"
        memory = f"MaxMemAllocated={step % 13}.38GB"
        timer = f"{head}[timer.py:199:stop] epoch=0/micro_step={step * 4}/global_step={step}, {speed}, {memory}"
        overflow = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 512, reducing to 256"
        scale = f"{head}[loss_scaler.py:190:update_scale] {overflow}"
        pair = f"{step_line}\n{timer}\n"
        return self._chance.choice(
            (pair, pair, pair, f"{scale}\n", f"{step_line}{timer}\n", f"{timer[:80]}\n", f"[rank3]: {pair}")
        )

    def _ranks(self) -> str:
        prefix = self._chance.choice(
            ("[rank{}]: ", "[default{}]:", "[1,{}]<stdout>: ", "{}: ", "node{}: ", "(RayTrainWorker pid=4{}) ")
        )
        texts = (
            "read its part of the data",
            "| task | 1 | acc | 0.5 |",
            "#1 f from a.cpp:12",
            "NCCL INFO Using network IB",
            "waits for a peer",
        )
        return "".join(
            f"{prefix.format(rank)}{self._chance.choice(texts)}\n" for rank in range(self._chance.choice((2, 8)))
        )

    def _table(self) -> str:
        return _SUMMARY

    def _traceback(self) -> str:
        head = self._chance.choice(("", "[rank3]: "))
        lines = (
            "Traceback (most recent call last):",
            '  File "/srv/train.py", line 7, in main',
            "    run()",
            self._chance.choice(_ERRORS),
        )
        return "".join(f"{head}{line}\n" for line in lines[self._chance.choice((0, 0, 3)) :])

    def _wrapped(self) -> str:
        width = self._chance.choice((80, 97))
        text = self._chance.choice(
            (self._row(), f"[rank5]: {' '.join(self._chance.choices(_WORDS, k=30))} {self._chance.choice(_ERRORS)}")
        )
        return "".join(f"{text[at : at + width]}\n" for at in range(0, len(text), width))

    def _network(self) -> str:
        return self._chance.choice(
            (
                "node1:4711:4712 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n",
                "node1:4711:4712 [3] NCCL WARN Call to ibv_reg_mr failed\n",
                "RCCL version : 2.21.5-HEAD:d0fe30ae\n",
            )
        )

    def _colour(self) -> str:
        return self._chance.choice(
            (
                "\x1b[32mall is well\x1b[0m\n",
                f"\x1b[1m{self._row()}\x1b[0m\n",
                "\x1b[31mValueError: red\x1b[0m\n",
                "a\0b holds a hole\n",
            )
        )

    def _odd(self) -> str:
        return self._chance.choice(
            (
                "\r",
                "\r\r\n",
                "a line that\r is drawn over\n",
                "no end yet ",
                "x" * 9000 + "\n",
                "字" * 40 + "\n",
                "PyTorch RROR mismatch\n",
                "�\n",
            )
        )

    def _megatron(self) -> str:
        where = f" iteration {self._step:8d}/ {self._total:8d} "
        return f"{where}| elapsed time per iteration (ms): 1200.5 | lm loss: {self._chance.random():.6E} |\n"

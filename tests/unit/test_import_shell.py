"""Shell and Slurm scripts are read as the shell would run them, launch commands are taken apart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.planning.importing.command_line import Launch, parse_launch, typed_arguments
from backend.planning.importing.imported import trainer_launches
from backend.planning.importing.shell_script import parse_shell, split_command
from backend.planning.schema_builtin import BUILTIN_SCHEMA


def launch_of(text: str) -> Launch:
    found = trainer_launches(parse_shell(text))
    assert found, text
    return found[-1]


def test_variables_are_expanded_in_order_and_comments_do_not_count() -> None:
    script = parse_shell(
        "export LR=1e-4\n#export LR=9\nA=x_$LR\nLR=3e-5\ntorchrun t.py --lr $LR --name ${A}_end # note\n"
    )
    assert script.commands[0].words == ("torchrun", "t.py", "--lr", "3e-5", "--name", "x_1e-4_end")


def test_continuations_quotes_arrays_and_redirections() -> None:
    words = split_command(
        "ARGS=(--stage sft\n  --dataset 'a b')\nllamafactory-cli train \\\n \"${ARGS[@]}\" --x 1 > out.log 2>&1 &"
    )
    assert words == ("llamafactory-cli", "train", "--stage", "sft", "--dataset", "a b", "--x", "1")


def test_unquoted_variable_is_split_and_quoted_is_not() -> None:
    script = parse_shell('X="--a 1"\nrun $X\nrun "$X"\n')
    assert [command.words for command in script.commands] == [("run", "--a", "1"), ("run", "--a 1")]


def test_command_substitution_is_never_run_and_stays_a_name() -> None:
    script = parse_shell("PORT=$(python -c 'import x; (y)')\nrun --port=$PORT $((2 * 4)) $((2 * $N))\n")
    assert script.commands[0].words == ("run", "--port=$PORT", "8", "$((2 * $N))")


def test_heredoc_body_is_no_command() -> None:
    script = parse_shell("cat <<EOF > f\nllamafactory-cli train a.yaml\nEOF\ntorchrun t.py\n")
    assert [command.words[0] for command in script.commands] == ["cat", "torchrun"]


def test_sbatch_options_by_long_name() -> None:
    script = parse_shell("#!/bin/bash\n#SBATCH -N 2\n#SBATCH --time=1-00:00:00 # a day\n#SBATCH -J name\n")
    assert script.sbatch == {"nodes": "2", "time": "1-00:00:00", "job-name": "name"}


def test_blank_after_backslash_is_noticed() -> None:
    assert parse_shell("torchrun a.py \\ \n --x 1\n").broken_continuations == (1,)


def test_continuations_and_variables_of_windows_shells() -> None:
    launch = launch_of("set CUDA_VISIBLE_DEVICES=0\r\nllamafactory-cli train ^\r\n --stage sft ^\r\n --lora_rank 8\r\n")
    assert launch.arguments == {"stage": "sft", "lora_rank": "8"}
    assert launch_of("llamafactory-cli train `\n --stage sft\n").arguments == {"stage": "sft"}


def test_last_value_of_a_loop_is_taken() -> None:
    assert launch_of("for lr in 1e-4 2e-4; do\nllamafactory-cli train --learning_rate $lr\ndone\n").arguments == {
        "learning_rate": "2e-4"
    }


def test_launchers_and_their_options_are_told_from_the_trainers_arguments() -> None:
    launch = launch_of(
        "torchrun --nproc_per_node=4 --master-port 29501 src/train.py run.yaml learning_rate=2e-5 bf16=true"
    )
    assert (launch.launcher, launch.entry, launch.config) == ("torchrun", "src/train.py", "run.yaml")
    assert launch.options == {"nproc_per_node": "4", "master_port": "29501"}
    assert typed_arguments(launch, BUILTIN_SCHEMA) == {"learning_rate": 2e-5, "bf16": True}


def test_wrappers_are_taken_off() -> None:
    for text in (
        "CUDA_VISIBLE_DEVICES=1 nohup llamafactory-cli train a.yaml &",
        "srun -N 2 --ntasks-per-node=1 bash -c 'llamafactory-cli train a.yaml'",
        "docker run --rm -e A=1 image llamafactory-cli train a.yaml",
        "python -m torch.distributed.run --nproc_per_node 2 -m llamafactory.launcher a.yaml",
        "accelerate launch --config_file acc.yaml src/train.py a.yaml",
        "deepspeed --num_gpus 2 src/train.py a.yaml",
        "env X=1 python3.11 -u src/train.py a.yaml",
    ):
        assert launch_of(text).config == "a.yaml", text


def test_values_are_typed_as_argparse_types_them() -> None:
    launch = parse_launch(
        split_command("llamafactory-cli train --do_train --fp16 False --lora_rank 8 --learning_rate 2e-4 --dataset a,b")
    )
    assert launch is not None
    assert typed_arguments(launch, BUILTIN_SCHEMA) == {
        "do_train": True,
        "fp16": False,
        "lora_rank": 8,
        "learning_rate": 2e-4,
        "dataset": "a,b",
    }


def test_other_programs_are_not_taken_for_the_trainer() -> None:
    launch = parse_launch(split_command("python -m torch.distributed.launch --nproc_per_node=3 train.py -c run.json"))
    assert launch is not None and not launch.ours
    assert parse_launch(split_command("python -c 'print(1)'")) is None
    assert parse_launch(split_command("ls -l")) is None


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab$(){}[]\"'`\\ \n;&|<>#=-0\t*", max_size=60))
def test_any_text_is_read_without_a_traceback(text: str) -> None:
    for command in parse_shell(text).commands:
        parse_launch(command.words, command.inline)

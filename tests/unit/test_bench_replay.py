"""python -m bench.replay: its input, its output, and that it agrees with what was measured."""

from __future__ import annotations

import gzip
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fikitctl.demonstration.workloads import Operation, Workload

from bench import replay
from bench.made import made
from bench.replay_results import TOLERATED, cells, summary
from bench.replayed import Replayer, ReplayError, Rule, Setup, Varied, percentile, program, ratios
from bench.varied import answers, concurrent, services, varied

try:
    program()
except ReplayError:
    pytest.skip("the native replay is not installed", allow_module_level=True)


def replayed(
    capsys: pytest.CaptureFixture[str], *arguments: str, seconds: float = 0.4, warmup: float = 0.3
) -> dict[str, Any]:
    times = ("--seconds", str(seconds), "--warmup", str(warmup))
    assert replay.main([*arguments, *times, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.mark.parametrize("policy", ["fikit", "fifo", "streams", "strict", "exclusive"])
def test_every_policy_replays_and_says_the_same_again(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--hp", "bert_inf", "--lp", "bert_train", "--policy", policy)
    first = replayed(capsys, *arguments)
    assert first == replayed(capsys, *arguments)
    assert {
        "hp_p50_ratio",
        "hp_p99_ratio",
        "lp_ratio",
        "lp_of_bound",
        "fill_share",
        "decisions",
    } <= first.keys()
    assert 0.95 < first["hp_p50_ratio"] < 1.2
    assert 0.2 < first["lp_ratio"] < 1.05
    assert 0.1 < first["fill_share"] <= 1.0


def test_every_seed_has_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    seed = -pow(0x9E3779B97F4A7C15, -1, 2**64) % 2**64  # the generator's state would be 0, and stay so
    found = replayed(capsys, "--hp", "bert_inf", "--lp", "bert_train", "--seed", str(seed))
    assert 0.95 < found["hp_p50_ratio"] < 1.2


def test_prediction_fills_where_a_fixed_rule_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--hp", "resnet50_inf", "--lp", "resnet50_train")
    streams, fikit = (replayed(capsys, *pair, "--policy", policy) for policy in ("streams", "fikit"))
    assert streams["hp_p99_ratio"] > fikit["hp_p99_ratio"]
    assert fikit["decisions"]["whole"] > 1000
    assert fikit["prediction_hit_rate"] > 0.95


@pytest.mark.parametrize("every", ["0", "100"])
def test_waits_of_which_nothing_is_told_are_seen(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    pair = ("--hp", "resnet50_inf", "--lp", "gpt2_train")
    told = replayed(capsys, *pair, seconds=1.0, warmup=1.0)
    untold = replayed(capsys, *pair, "--told-every", every, seconds=1.0, warmup=1.0)
    assert untold["hp_p99_ratio"] < 1.05
    assert untold["lp_of_bound"] > 0.95 * told["lp_of_bound"]
    assert untold["delays"]["steps"] != told["delays"]["steps"]


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize("name", ["controlling", "polling", "decoding"])
def test_services_are_held_to_their_bound(name: str, polled: bool) -> None:
    # Bursts that are seen to be over at once, waits in a row, launches before anyone has seen the last end.
    high = next(each for each in services()[0] if each.name == name)
    low = next(each for each in services()[1] if each.name == "gpt2_train")
    setup = Setup(seconds=0.5, warmup=3.0, spared_us=2.4, polled=polled)
    result = Replayer([high, low]).compare([name], [low.name], setup)
    least = 10e-3 / high.iter_ms  # of each iteration, which the bound allows in any case
    assert result["hp_p50_ratio"] < 1.05 + (0.3 if name == "controlling" else 0)
    assert result["hp_p99_ratio"] < 1.05 + least


@pytest.mark.parametrize("polled", [False, True])
@pytest.mark.parametrize(("name", "least_share"), [("after 2 or 12 ms", 0.5), ("at random", 0)])
def test_silences_are_filled_as_far_as_they_last(name: str, least_share: float, polled: bool) -> None:
    # Nothing that is launched tells how long; and nobody is to be late because it was guessed.
    highs, lows = answers()
    high = next(each for each in highs if each.name == name)
    low = next(each for each in lows if each.name == "bert_train")
    result = Replayer([high, low]).compare([name], [low.name], Setup(seconds=3.0, warmup=2.0, polled=polled))
    assert result["hp_p99_ratio"] < 1.06
    assert result["lp_of_bound"] >= least_share


@pytest.mark.parametrize(
    ("name", "low_name", "least_share"),
    [
        ("resnet50_inf with inputs", "bert_train", 0),
        ("bert_inf with inputs", "gpt2_train", 0.8),
        ("two models at once", "resnet50_train", 0.6),
    ],
)
def test_streams_side_by_side_are_held_to_their_bound(name: str, low_name: str, least_share: float) -> None:
    # What a single chain would take is neither when they end nor what keeps the GPU busy.
    high = next(each for each in concurrent()[0] if each.name == name)
    low = next(each for each in concurrent()[1] if each.name == low_name)
    result = Replayer([high, low]).compare([name], [low_name], Setup(seconds=2.0))
    assert result["hp_p99_ratio"] < 1.05
    assert result["lp_of_bound"] >= least_share


def test_interference_that_was_seen_too_high_at_first_keeps_nobody_out() -> None:
    # With this seed; what outlasts a step and was measured beside none waited for seconds.
    high = next(each for each in concurrent()[0] if each.name == "bert_inf with inputs")
    low = next(each for each in concurrent()[1] if each.name == "gpt2_train")
    setup = Setup(seconds=3.0, seed=2)
    result = Replayer([high, low]).compare([high.name], [low.name], setup)
    assert result["hp_p99_ratio"] < 1.05
    assert result["lp_of_bound"] >= 0.8


def test_training_leaves_what_it_may_be_delayed_by(capsys: pytest.CaptureFixture[str]) -> None:
    # It never leaves the GPU: an error of each of its thousand launches would be one of its step.
    pair = ("--hp", "resnet50_train", "--lp", "llama1b_decode")
    result = replayed(capsys, *pair, seconds=3, warmup=3)
    assert result["hp_p99_ratio"] < 1.04
    assert result["lp_of_bound"] > 0.2


def test_several_on_each_side(capsys: pytest.CaptureFixture[str]) -> None:
    result = replayed(capsys, "--hp", "bert_inf,llama1b_decode", "--lp", "bert_train,gpt2_train,bert_train")
    assert result["hp"] == ["bert_inf", "llama1b_decode"]
    assert result["hp_p99_ratio"] < 1.1
    assert result["lp_of_bound"] > 0.6


def test_a_flood_does_not_keep_a_session_from_learning_what_has_completed() -> None:
    highs, lows = varied()
    high = next(each for each in highs if each.name == "bursts")
    low = next(each for each in lows if each.name == "tiny_low")
    setup = Setup(seconds=0.5, warmup=0.5)
    found = Replayer([high, low]).compare([high.name], [low.name], setup)
    assert found["hp_p99_ratio"] < 1.03


def test_figures_agree_with_those_measured() -> None:
    off = [cell for cell in cells() if cell.off > TOLERATED]
    assert off == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hp", "nobody", "--lp", "bert_train"], "no workload nobody"),
        (["--hp", "bert_inf"], "--hp and --lp"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--partitions", "32,96"], "the largest first"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--partitions", "132"], "1 to 131 SMs"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--confine", "32"], "policy fikit has a gate"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--policy", "fifo", "--partitions", "32"], "has no gate"),
        (["--hp", "bert_inf", "--lp", "bert_train", "--seconds", "0"], "--seconds"),
        *(
            (["--hp", "bert_inf", "--lp", "bert_train", option, value], f"{option} is from 0 to ")
            for option in ("--in-flight-us", "--long-block-us", "--delay-least-us", "--delay-share")
            for value in ("nan", "inf", "-1", "1e300")
        ),
        (["--hp", "bert_inf", "--lp", "bert_train", "--seconds", "1e-10"], "--seconds is from 1e-9"),
        (["--hp", "bert_inf", "--lp", ",".join(["bert_inf"] * 64)], "at most 64 workloads pass a gate"),
        (
            ["--hp", "bert_inf", "--lp", "bert_train", "--seed", str(2**64)],
            f"--seed is from 0 to {2**64 - 1}, not",
        ),
        (["--hp", "bert_inf", "--lp", "bert_train", "--told-every", "-1"], "--told-every is from 0 to "),
        (
            ["--hp", "bert_inf", "--lp", "bert_train", "--seconds", "0.001", "--warmup", "0"],
            "use more --seconds",
        ),
    ],
)
def test_bad_input_is_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(arguments) == 2
    assert complaint in capsys.readouterr().err


def test_a_trace_of_kernels_copies_and_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["kind", "name", "grid", "block", "shared_bytes", "regs", "stream", "launch_us", "start_us",
               "dur_us", "bytes", "occupancy_pct"]  # fmt: skip
    rows: list[list[Any]] = []
    for start in (0.0, 1000.0):
        rows.append(["gpu_memcpy", 1, None, None, None, None, 7, start, start + 5, 20.0, 1 << 20, None])
        rows += [
            ["kernel", 0, [64, 1, 1], [256, 1, 1], 0, 32, 7 + number % 2, None, start + 30 + 10 * number, 5.0,
             None, None]
            for number in range(20)
        ]  # fmt: skip
    workload = {
        "iter_ms_unprofiled": 0.9,
        "iters": 2,
        "names": ["k", "Memcpy HtoD"],
        "columns": columns,
        "ops": rows,
    }
    path = tmp_path / "traces.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"device": "x", "workloads": {"mine": workload}}).encode()))
    result = replayed(capsys, str(path), "--hp", "mine", "--lp", "mine,mine")
    assert result["hp_p99_ratio"] < 1.1
    assert result["lp_ratio"] > 0.3


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "traces.json.gz"
    path.write_bytes(b"not a trace")
    assert replay.main([str(path), "--hp", "a", "--lp", "b"]) == 2
    assert "is no trace file" in capsys.readouterr().err


def test_names_that_would_steer_a_terminal_are_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "traces.json"
    path.write_text(json.dumps({"workloads": {"a\x1b[31m\nb": {}}}))
    assert replay.main([str(path), "--list"]) == 0
    assert capsys.readouterr().out == "a\\x1b[31m\\nb\n"
    assert replay.main([str(path), "--hp", "a", "--lp", "b"]) == 2
    assert "there are a\\x1b[31m\\nb)\n" in capsys.readouterr().err


def test_a_name_that_has_commas_stands_in_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["--hp", 'bert_inf,"a, b"', "--lp", "bert_train"]) == 2
    assert "no workload a, b in" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        replay.main(["--hp", '"bert_inf', "--lp", "bert_train"])
    assert "argument --hp: unexpected end of data" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        replay.main(["--hp", "bert_inf", "--lp", "bert_train", "--partitions", "64,half"])
    assert "argument --partitions: 64,half is no list of numbers of SMs" in capsys.readouterr().err


def test_nothing_goes_on_when_it_is_killed() -> None:
    command = [sys.executable, "-m", "bench.replay", "--hp", "bert_inf", "--lp", "bert_train"]
    with subprocess.Popen([*command, "--seconds", "1000"], cwd=Path(replay.__file__).parents[1]) as killed:
        children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children")
        while not (found := children.read_text().split()):
            assert killed.poll() is None
        native = os.pidfd_open(int(found[0]))
        used = Path(f"/proc/{found[0]}/stat")  # a fifth of a second: it has read what it is to do
        while int(used.read_text().rpartition(")")[2].split()[11]) < os.sysconf("SC_CLK_TCK") / 5:
            assert killed.poll() is None
        killed.kill()
    with os.fdopen(native) as ended:
        assert select.select([ended], [], [], 10)[0]


def test_made_workloads_are_the_same_every_time() -> None:
    assert made() == made()


def test_a_fixed_rule_confines() -> None:
    high, low = made()
    replayer = Replayer([high[0], low[0]])
    names = ([high[0].name], [low[0].name])
    setups = [Setup(policy="streams", seconds=0.3, rule=Rule(confine=size)) for size in (0, 32)]
    free, confined = replayer.run([(*names, setup) for setup in setups])
    assert confined["low"][0]["work"] < 0.6 * free["low"][0]["work"]


def test_a_summary_has_the_worst_of_each() -> None:
    results = [
        {"policy": "fikit", "hp_p99_ratio": tail, "lp_of_bound": bound}
        for tail, bound in ((1.0, 0.9), (1.1, 1.0))
    ]
    assert summary(results)["fikit"] == {
        "hp_p99_mean": 1.05,
        "hp_p99_worst": 1.1,
        "lp_of_bound_mean": 0.95,
        "lp_of_bound_worst": 0.9,
    }


def kernel(name: str, blocks: int, dur_us: float, at_us: float = 0.0) -> Operation:
    """Each block takes a whole SM."""
    return Operation("kernel", name, 0, at_us, dur_us, (blocks, 1, 1), (1024, 1, 1), regs=64)


def compared(high: list[Operation], low: list[Operation], pause_us: float, **how: Any) -> dict[str, Any]:
    workloads = [Workload("high", 1.0, tuple(high), pause_us), Workload("low", 1.0, tuple(low), 0.0)]
    setup = Setup(seconds=1.0, warmup=0.2, **how)
    return Replayer(workloads).compare(["high"], ["low"], setup)


def test_a_recorded_kernel_interferes_with_none_whatever_its_name() -> None:
    found = [
        compared([kernel(name, 66, 100.0)], [kernel(name, 66, 90.0)], pause_us=50.0, policy="streams")
        for name in ("iterate", "any")
    ]
    assert found[0] == found[1]


CHAIN = [kernel(f"low{number}", 132, 100.0) for number in range(50)]
"""Kernels that fill the GPU, back to back."""


def test_two_that_never_meet() -> None:
    high = [kernel(f"high{number}", 1, 20.0, 50.0 * number) for number in range(10)]
    low = [kernel(f"low{number}", 1, 30.0) for number in range(10)]
    found = compared(high, low, pause_us=100.0, policy="streams")
    for figure in ("hp_p50_ratio", "hp_p99_ratio", "lp_ratio", "lp_of_bound"):
        assert found[figure] == pytest.approx(1.0, abs=0.005)
    # A kernel's block lasts 29 us and 0.486; from one kernel to the next are 0.72 us, from the last one to
    # the first of the next iteration 1.95 to be noticed and 1.5 to be submitted.
    lasts = 29 + 0.486
    assert found["fill_share"] == pytest.approx(10 * lasts / (10 * (lasts + 0.72) + 1.95 + 1.5), abs=0.01)
    assert found["decisions"]["confined"] == found["decisions"]["waited"] == 0


def test_a_high_kernel_takes_the_gpu_from_the_low_ones_when_the_one_at_hand_ends() -> None:
    found = compared([kernel("high", 132, 100.0)], CHAIN, pause_us=900.0, policy="streams")
    alone = 1.5 + 0.6 + 99.486 + 0.12 + 1.95
    assert 1.0 < found["hp_p50_ratio"] <= found["hp_p99_ratio"] < (alone + 100.2) / alone
    period = found["hp_p50_ratio"] * alone + 900
    assert found["lp_ratio"] == pytest.approx(1 - 99.486 / period, abs=0.01)
    assert found["lp_of_bound"] == pytest.approx(1.0, abs=0.005)
    assert found["fill_share"] > 0.98


@pytest.mark.parametrize("highs", [["row", "short"], ["short", "row"]])
def test_high_programs_take_turns_at_the_dispatch_thread(highs: list[str]) -> None:
    def launches(name: str, count: int, pause_us: float) -> Workload:
        return Workload(name, 0.1, (Operation("kernel", name, 0, 0.0, 1.5),) * count, pause_us)

    replayer = Replayer([launches("row", 200, 20.0), launches("short", 8, 300.0)])
    (found,) = replayer.run([(highs, ["short"], Setup(seconds=0.2, warmup=0.1))])
    lasts = {
        name: percentile(each["iterations_ns"], 0.5) for name, each in zip(highs, found["high"], strict=True)
    }
    assert lasts["short"] < 50e3  # it waited for all of the row, 0.5 ms, where that was named first
    assert lasts["row"] < 700e3


def test_two_chains_of_equal_kernels_take_turns() -> None:
    found = compared(CHAIN, CHAIN, pause_us=0.0, policy="fifo")
    assert found["hp_p50_ratio"] == pytest.approx(2.0, abs=0.01)
    assert found["lp_ratio"] == pytest.approx(0.5, abs=0.01)
    assert found["fill_share"] > 0.99


def test_exclusive_lets_nothing_run_beside_high_work() -> None:
    found = compared(CHAIN, CHAIN, pause_us=0.0, policy="exclusive")
    assert found["lp_ratio"] < 0.05
    assert found["hp_p99_ratio"] < 1.1
    decisions = found["decisions"]
    assert decisions["confined"] == 0
    assert 0 < decisions["whole"] <= decisions["waited"] + 1  # nearly each had to wait first


def test_a_grid_of_more_blocks_than_a_number_holds() -> None:
    endless = Operation("kernel", "endless", 0, 0.0, 100.0, (2**31 - 1, 65535, 65535), (256, 1, 1), regs=32)
    high = Workload("high", 1.0, (kernel("high", 132, 100.0),), 900.0)
    low = Workload("low", 1.0, (*CHAIN, endless), 0.0)
    setup = Setup(seconds=0.3, warmup=0.0)
    assert Replayer([high, low]).compare(["high"], ["low"], setup)["hp_p99_ratio"] < 1.1


def test_what_lasts_no_time_is_counted() -> None:
    high, low = [kernel("high", 132, 100.0)], [kernel("low", 132, 0.0)]
    found = compared(high, low, pause_us=900.0, policy="streams")
    assert found["lp_of_bound"] == pytest.approx(1.0, abs=0.005)
    assert found["lp_ratio"] > 0.8


def test_what_does_not_end_in_time_counts_in_part() -> None:
    """As many of them end alone as beside kernels that take the GPU for a tenth of the time."""
    high, low = [kernel("high", 132, 100.0)], [kernel("low", 132 * 31_000, 310_000.0)]
    found = compared(high, low, pause_us=900.0, policy="streams")
    assert found["lp_ratio"] == pytest.approx(0.9, abs=0.05)
    assert found["lp_of_bound"] == 1.0
    # Here one alone that began before the time is counted, and ends in it.
    found = compared(high, low, pause_us=900.0, policy="exclusive")
    assert 0.1 < found["lp_ratio"] < 0.2


def test_beside_what_never_leaves_the_gpu_nothing_is_all_there_is() -> None:
    # While one of the two is launched anew the blocks of the other have the GPU.
    busy = [Workload(name, 1.0, (kernel(name, 132 * 100, 1e5),), 0.0) for name in ("high", "higher")]
    endless = Workload("low", 1.0, (kernel("low", 132 * 100, 1e5),), 0.0)
    setup = Setup(seconds=1.0, warmup=0.2)
    found = Replayer([*busy, endless]).compare(["high", "higher"], ["low"], setup)
    assert found["lp_ratio"] == 0.0
    assert found["lp_of_bound"] == 1.0


def raw(iterations: list[int], works: list[float], idle: int = 100, filled: int = 0) -> dict[str, Any]:
    """What the native replay says."""
    low = [
        {"work": work, "whole": 10, "confined": 2, "waited": 3, "refused": {"level": 1, "bound": 2}}
        for work in works
    ]
    high = {
        "iterations_ns": iterations, "kinds": [0] * len(iterations),
        "steps": 9, "delays": 2, "delay_ns": 3000, "worst_delay_ns": 2000, "over_bound": 1,
        "predicted": 8, "met": 6,
    }  # fmt: skip
    return {"high": [high], "low": low, "idle_ns": idle, "filled_ns": filled}


def test_the_line_from_what_the_runs_say() -> None:
    found = ratios(
        raw([*range(100, 199), 400], [0.3, 0.1], idle=200, filled=150),
        raw([100] * 50 + [200] * 50, []),
        raw([], [0.25, 0.25]),
        raw([], [0.5, 0.0]),
    )
    assert found == {
        "hp_p50_ratio": 150 / 200,
        "hp_p99_ratio": 400 / 200,
        "lp_ratio": 0.4 / 0.5,
        "lp_of_bound": 0.4 / 0.5,
        "fill_share": 0.75,
        "decisions": {
            "whole": 20, "confined": 4, "waited": 6,
            "refused": {"level": 2, "bound": 4},
        },
        "delays": {"steps": 9, "count": 2, "sum_us": 3.0, "worst_us": 2.0, "over_bound": 1},
        "prediction_hit_rate": 0.75,
    }  # fmt: skip


@pytest.mark.parametrize(("iterations", "works"), [([], [1.0]), ([1], [0.0])])
def test_what_ended_nothing_is_told(iterations: list[int], works: list[float]) -> None:
    run = raw(iterations, works)
    with pytest.raises(ReplayError, match="use more --seconds"):
        ratios(run, run, run, run)


def test_the_same_workload_may_stand_on_both_sides_and_twice(capsys: pytest.CaptureFixture[str]) -> None:
    result = replayed(capsys, "--hp", "bert_inf,bert_inf", "--lp", "bert_inf,bert_inf,bert_train")
    assert result["hp"] == ["bert_inf", "bert_inf"]
    assert 0.2 < result["lp_ratio"] < 1.05


def test_whom_there_is_no_workload_of_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["--hp", "bert_inf", "--lp", "nobody"]) == 2
    assert "no workload nobody" in (said := capsys.readouterr().err)
    assert "there are resnet50_inf, bert_inf" in said


def test_a_program_whose_iterations_differ_is_compared_kind_by_kind() -> None:
    short, long = (
        Workload(
            "part",
            span / 1e3,
            tuple(Operation(kind="kernel", name="k", stream=0, at_us=at * 20.0, dur_us=10.0, grid=(64, 1, 1),
                            block=(128, 1, 1), shared_bytes=0, regs=32) for at in range(span // 20)),
            50.0,
        )
        for span in (200, 2000)
    )  # fmt: skip
    replayer = Replayer([Varied("both", (short, long, short)), long])
    (run,) = replayer.run([(["both"], [], Setup(policy="streams", seconds=0.1))])
    lengths: dict[int, list[float]] = {}
    for kind, length in zip(run["high"][0]["kinds"], run["high"][0]["iterations_ns"], strict=True):
        lengths.setdefault(kind, []).append(length)
    assert lengths.keys() == {0, 1, 2}
    assert max(lengths[0] + lengths[2]) < 300e3 < 1900e3 < min(lengths[1])
    result = replayer.compare(["both"], ["part"], Setup(seconds=0.4))
    assert 0.9 < result["hp_p99_ratio"] < 1.2


def test_what_does_not_repeat_is_delayed_by_no_more_than_what_does() -> None:
    high, low = varied()
    shapes = next(each for each in high if each.name == "new_shapes")
    result = Replayer([shapes, low[1]]).compare(["new_shapes"], [low[1].name], Setup(seconds=1.0))
    assert result["hp_p99_ratio"] < 1.05
    assert result["lp_of_bound"] > 0.8

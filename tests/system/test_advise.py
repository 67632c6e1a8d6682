# SPDX-License-Identifier: Apache-2.0
"""npumem advise on simulated servers: each setting where its evidence is, and not where it is set."""
from harness import check, equal
from test_owners import MIB, Run, near, scenario_text


def advice_of(run, tgid):
    return run.daemon.json("advise", "--pid", str(tgid))["advice"]


def of(advice, setting):
    return [a for a in advice if a["setting"] == setting]


HOLES = """
devices 1 32GiB
array w 40
rank 0 device=0 title=VLLM::Worker
  ENV
  repeat 40 as=i
    tensor w[$i] 300MiB
  end
  repeat 20 as=i
    del w[$i*2]
    tensor - 200MiB
  end
  checkpoint holes
end
"""


def test_slack(scratch):
    """Segments that a small block keeps: expandable segments would give back what is free in them."""
    run = Run(scratch, HOLES.replace("  ENV\n", ""))
    truth = run.reach("holes")
    advice = of(advice_of(run, truth["tgid"]), "PYTORCH_NPU_ALLOC_CONF")
    equal([(a["from"], a["to"], a["confidence"]) for a in advice], [(None, "expandable_segments:True", "high")], "advice")
    equal(advice[0]["saves_bytes"], 20 * (102 // 20 - 1) * 20 * MIB, "saves")  # of each hole, all granules but one


def test_slack_is_set(scratch):
    """The same with expandable segments on: not advised again."""
    run = Run(scratch, HOLES.replace("  ENV\n", "  env PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\n"))
    equal(of(advice_of(run, run.reach("holes")["tgid"]), "PYTORCH_NPU_ALLOC_CONF"), [], "advice on what is set")


def test_streams(scratch):
    """Report 17: what waits for another stream, with the bytes that wait; the program's own, without communicators."""
    run = Run(scratch, scenario_text("r17_stream_delayed"))
    rows = advice_of(run, run.reach("waiting")["tgid"])
    equal(of(rows, "MULTI_STREAM_MEMORY_REUSE"), [], "advice on collectives")
    advice = of(rows, "Tensor.record_stream()")
    equal([(a["where"], a["restart"]) for a in advice], [("program", True)], "advice")
    near(advice[0]["saves_bytes"], 30 * 40 * MIB, "saves")


def test_streams_of_collectives(scratch):
    """The same in a process that has a communicator: a variable; whose they are is not known, so no bytes."""
    run = Run(scratch, scenario_text("r17_stream_delayed").replace("  stream main", "  hccl a rank=0 ranks=1\n  stream main"))
    advice = of(advice_of(run, run.reach("waiting")["tgid"]), "MULTI_STREAM_MEMORY_REUSE")
    equal([(a["from"], a["to"], a["saves_bytes"], a["where"]) for a in advice], [(None, "2", None, "environment")], "advice")
    check("1.17 GiB were freed" in advice[0]["evidence"], advice[0]["evidence"])


COMMUNICATORS = """
devices 2 64GiB
rank 0..1 device=$rank title=VLLM::Worker_TP$rank
  tensor w 1GiB
  hccl a rank=$rank ranks=2 api=root
  hccl b rank=$rank ranks=2 api=root
  hccl c rank=$rank ranks=2 api=root
  hccl sized rank=$rank ranks=2 buffer=900MiB
  checkpoint up
end
"""


def test_communicators(scratch):
    """Only communicators of the default size count: a size of the program's own is not HCCL_BUFFSIZE's."""
    run = Run(scratch, COMMUNICATORS)
    for rank in range(2):
        advice = of(advice_of(run, run.reach("up", str(rank))["tgid"]), "HCCL_BUFFSIZE")
        equal([(a["from"], a["to"]) for a in advice], [(None, "100")], "advice")
        equal(advice[0]["saves_bytes"], 3 * 2 * 100 * MIB, "saves")
        check("3 communicators" in advice[0]["evidence"], advice[0]["evidence"])


def test_communicators_set(scratch):
    """With HCCL_BUFFSIZE at its least there is nothing to advise; at 400 half of it."""
    run = Run(scratch, COMMUNICATORS.replace("TP$rank\n", "TP$rank\n  env HCCL_BUFFSIZE=400\n"))
    advice = of(advice_of(run, run.reach("up")["tgid"]), "HCCL_BUFFSIZE")
    equal([(a["from"], a["to"]) for a in advice], [("400", "200")], "advice")


# As torch_npu makes them: what the variable says, or 200 MB, is written into each configuration; one name for all.
OF_TORCH = "devices 1 64GiB\nrank 0 device=0 title=TITLE\n" + "".join(
    f"  hccl c{i} rank=0 ranks=1 buffer=200MiB name=same\n" for i in range(4)) + "  checkpoint up\nend\n"


def test_communicators_of_torch(scratch):
    """They share an owner, and its bytes are counted once."""
    run = Run(scratch, OF_TORCH.replace("TITLE", "trainer"))
    advice = of(advice_of(run, run.reach("up")["tgid"]), "HCCL_BUFFSIZE")
    equal([(a["to"], a["saves_bytes"]) for a in advice], [("100", 4 * 2 * 100 * MIB)], "advice")
    check("4 communicators hold 1.57 GiB" in advice[0]["evidence"], advice[0]["evidence"])


def test_communicators_of_vllm(scratch):
    """vLLM writes 200 MB by itself: those do not follow the variable."""
    run = Run(scratch, OF_TORCH.replace("TITLE", "VLLM::Worker"))
    equal(of(advice_of(run, run.reach("up")["tgid"]), "HCCL_BUFFSIZE"), [], "advice")


RETRY = """
devices 1 60GiB
rank 0 device=0 title=VLLM::Worker
  tensor keep 4GiB
  tensor big 40GiB
  del big
  tensor x 50GiB
  checkpoint recovered
end
"""


def test_retries(scratch):
    """A request that failed first and emptied the cache: a threshold with a fraction."""
    run = Run(scratch, RETRY)
    tgid = run.reach("recovered")["tgid"]
    advice = of(advice_of(run, tgid), "set_per_process_memory_fraction")
    equal(len(advice), 1, f"advice ({advice_of(run, tgid)})")
    check("1 request failed first" in advice[0]["evidence"], advice[0]["evidence"])


def test_nothing_to_advise(scratch):
    """A server in order: no advice."""
    run = Run(scratch, "devices 1 32GiB\nrank 0 device=0 title=VLLM::Worker\n  tensor w 20GiB\n  checkpoint up\nend\n")
    equal(advice_of(run, run.reach("up")["tgid"]), [], "advice")

"""Traces beside HTA (pip install HolisticTraceAnalysis): what it says of the rank files of a real run, and what the files say when
one adds up their intervals.

HTA must take the files, find what launched each kernel and in which step (by correlation and ProfilerStep), and come to the same
time of computing and the same overlap of computing with communication; and its statistics of launches, copies' bandwidth, queues
and the critical path must find something. It rounds every interval inwards to whole microseconds,
so its computing is less than ours by up to 2 us for each kernel, which is what the bounds are; and it leaves the last step out.
Where HTA is not installed, a line says so. PyTorch is not needed.
"""
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
try:
    from hta.trace_analysis import TraceAnalysis
except ImportError:
    print("traces beside HTA: skipped, HTA is not installed (pip install HolisticTraceAnalysis)")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, os.environ.get("BUILD", "build"), "ddp_train")
DIGITS = os.path.join(ROOT, "data", "digits")
RANKS = 2


def record(folder, model):
    """A run whose collective operations have a thread of their own, so that there is something that overlaps."""
    command = [PROGRAM, "--spawn", str(RANKS), "--device-kind", "cpu", "--data", DIGITS, "--model", model, "--steps", "40",
               "--quiet", "--no-evaluate", "--bucket-cap-mb", "1", "--trace", folder]
    run = subprocess.run(command, env={**os.environ, "LS_CPU_STREAMS": "threads"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {run.returncode}\n{run.stderr.strip()}")


def kernels(path):
    """(name, begin, end) of what ran on streams in the steps that HTA counts: all but the last."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X" and "args" in event]
    on_streams = [event for event in events if "stream" in event["args"]]
    last = max(event["args"].get("step", -1) for event in events)
    return [(event["name"], event["ts"], event["ts"] + event["dur"]) for event in on_streams if event["args"].get("step", -1) < last]


def union(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def common(left, right):
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in left for b in right)


def check_launches(analysis, rank, path):
    """HTA's statistics of launches, copies, queues and the critical path: each must find what the file has."""
    with open(path, encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    copies = [event["args"]["memory bandwidth (GB/s)"] for event in events if "memory bandwidth (GB/s)" in event.get("args", {})]
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False)[rank]
    bandwidth = analysis.get_memory_bw_summary(ranks=[rank])
    queues = analysis.get_queue_length_summary(ranks=[rank])
    path_length, why = 0, ""
    try:
        graph, found = analysis.critical_path_analysis(rank=rank, annotation="ProfilerStep", instance_id=2)
        path_length = len(graph.critical_path_events_set) if found else 0
    except ValueError as error:  # HTA 0.5 with pandas 3
        why = f" (critical path not tried: {error})"
    fastest = float(bandwidth["memory_bw_gbps"]["max"].max())
    holds = len(launches) > 100 and (launches["launch_delay"] >= 0).all() and len(queues) >= 2 and (path_length > 0 or why) \
        and abs(fastest - max(copies)) <= 1e-3 * max(copies)
    print(f"           rank {rank}: {len(launches)} launches, delay {launches['launch_delay'].median():.0f} us (median); copies up to "
          f"{fastest:.1f} GB/s; {len(queues)} queues; {path_length} events on the critical path{why}  {'ok' if holds else 'APART'}")
    return not holds


def check(model):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        record(folder, model)
        files = {rank: os.path.join(folder, f"rank_{rank}.pt.trace.json") for rank in range(RANKS)}
        analysis = TraceAnalysis(trace_files=files, trace_dir=folder)
        breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
        overlaps = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
        for rank, path in files.items():
            ran = kernels(path)
            communicate = union((b, e) for name, b, e in ran if re.match("nccl.*Kernel", name))
            computing = [(b, e) for name, b, e in ran if not re.match("nccl.*Kernel|Memcpy", name)]
            compute = union(computing)
            shared = common(compute, communicate)
            hta_compute = float(breakdown.loc[rank, "compute_time(us)"])
            hta_overlap = float(overlaps.loc[rank, "comp_comm_overlap_pctg"])
            ours, overlap = length(compute), 100 * shared / length(communicate)
            slack = 200 * (len(computing) + len(communicate)) / length(communicate)
            holds = ours - 2 * len(computing) - 1 <= hta_compute <= ours + 1 and abs(hta_overlap - overlap) <= slack + 0.01
            failed += not holds
            failed += check_launches(analysis, rank, path)
            print(f"  {model:<8s} rank {rank}: computing {hta_compute / 1000:8.2f} ms by HTA, {ours / 1000:8.2f} ms by the file; "
                  f"overlap {hta_overlap:6.2f} % and {overlap:6.2f} %; idle {breakdown.loc[rank, 'idle_time_pctg']:5.1f} %  "
                  f"{'ok' if holds else 'APART'}")
    return failed


if __name__ == "__main__":
    print("traces beside HTA (measured on this machine, the recorded steps but the last)")
    wrong = sum(check(model) for model in ("convnet", "deep"))
    if wrong:
        sys.exit(f"{wrong} rank{'s' if wrong > 1 else ''} of which HTA says something else than the file")

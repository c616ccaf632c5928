"""Makes 1,000 recordings, as of a fleet of machines, and runs a script on all of them with each of several engines.

    python tests/fleet/simulate.py [--recordings N] [--folder DIR] [--processes N] [--engines NAME,...] [--kill]

Needs root, the package perf_prof, and for Dask the package distributed. There are 40 kinds of recordings: 8 selections
of events and 5 commands. Each recording takes a few hundredths of a second. The program fails if two engines return
different results. The engine `one` replays one recording after the other. The engine `threads` is the engine that
`--jobs` uses.

With --kill, each engine then runs once more, and the process that replays the largest recording is killed. The program
fails if the result differs from the result of the recordings that did not fail.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pickle
import signal
import sys
import tempfile
import time

import perf_prof as pp

EVENTS = [
    ["sched:sched_switch"],
    ["sched:sched_switch", "sched:sched_wakeup"],
    ["sched:sched_process_fork", "sched:sched_process_exec", "sched:sched_process_exit"],
    ["syscalls:sys_enter_*"],
    ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"],
    ["page-faults"],
    ["cpu-clock"],
    ["kmem:kmalloc", "kmem:kfree", "sched:sched_wakeup"],
]
COMMANDS = [
    ["true"],
    ["sleep", "0.01"],
    ["sh", "-c", "for i in 1 2 3; do ls / > /dev/null; done"],
    ["sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done"],
    ["sh", "-c", "cat /proc/self/maps | sort | uniq -c > /dev/null"],
]

SCRIPT = '''\
"""Counts the events of a fleet by name, and the time between two events of a task."""

import collections
import os
import signal
import perf_prof

counts = collections.Counter()
gaps = perf_prof.Log2Hist("usecs")
hosts = collections.Counter()
last = {}
victim, marker = os.environ.get("FLEET_VICTIM"), os.environ.get("FLEET_MARKER")

def __sample__(event):
    if victim and perf_prof.recording()["path"] == victim and counts.total() == 5:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    counts[event._event, event._comm] += 1
    now, before = event._time, last.get(event._tid)
    if before is not None and now > before:
        gaps.add((now - before) / 1000)
    last[event._tid] = now

def __partial__():
    hosts[perf_prof.recording()["kernel"]] += 1
    return counts, gaps, hosts

def __merge__(partials):
    for part, times, kernels in partials:
        counts.update(part)
        gaps.update(times)
        hosts.update(kernels)

def __exit__():
    for (name, comm), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:20]:
        print(f"{count:10} {name} {comm}")
    gaps.print()
    print(len(counts), counts.total(), perf_prof.stats()["delivered"], dict(hosts))
'''


class Weighing(concurrent.futures.Executor):
    """An executor that counts the bytes of the pickles that it sends to and receives from another executor."""

    def __init__(self, executor):
        self.executor = executor
        self.sent = self.received = 0

    def submit(self, function, part):
        self.sent += len(pickle.dumps((function, part)))
        future = self.executor.submit(function, part)
        future.add_done_callback(self._weigh)
        return future

    def _weigh(self, future):
        if not future.cancelled() and future.exception() is None:
            self.received += len(pickle.dumps(future.result()))


class Killing(Weighing):
    """An executor that kills the worker that gets the recording `victim` for the first time."""

    def __init__(self, executor, victim, marker):
        super().__init__(executor)
        self.kill = victim, marker

    def submit(self, function, part):
        return super().submit(KillOnce(function, *self.kill), part)


class KillOnce:
    """Calls `function`, but kills the process before the first call for the recording `victim`. The file `marker` says
    that this has happened."""

    def __init__(self, function, victim, marker):
        self.function, self.victim, self.marker = function, victim, marker

    def __call__(self, part):
        if part.recording == self.victim:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
        return self.function(part)


def record(folder, number):
    """Makes recording `number`. Returns its path."""
    kind = number % (len(EVENTS) * len(COMMANDS))
    events, command = EVENTS[kind % len(EVENTS)], COMMANDS[kind // len(EVENTS)]
    path = os.path.join(folder, f"host{number:04}.data")
    pp.record(*events, output=path, exec=command, **({"count": 1} if events == ["page-faults"] else {}))
    return path


@contextlib.contextmanager
def dask(processes):
    """Returns the executor of a Dask cluster on this machine."""
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=processes, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            yield client.get_executor()


ENGINES = {
    "one": lambda processes: concurrent.futures.ThreadPoolExecutor(1),
    "threads": concurrent.futures.ThreadPoolExecutor,
    "processes": concurrent.futures.ProcessPoolExecutor,
    "dask": dask,
}


def cpu():
    """Returns the CPU time of this process and of all child processes that ended, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(name, engine, processes, script, paths, weigh=Weighing):
    """Runs the script with an engine. Prints the time and the bytes of the pickles. Returns the result."""
    before = cpu()
    with engine(processes) as executor:
        weighing = weigh(executor)
        start = time.monotonic()
        result = pp.map_reduce(script, paths, executor=weighing)
        took = time.monotonic() - start
    moved = f"{weighing.sent / 1e6:8.2f} {weighing.received / 1e6:8.2f} MB"
    print(f"{name:16} {took:7.1f} s {cpu() - before:7.1f} s {moved} {len(result.failed):7}", flush=True)
    return result


def measure_killed(name, engine, processes, script, paths, folder):
    """Like measure(), but kills one process. Exits if the result is not that of the recordings that did not fail."""
    victim, marker = max(paths, key=os.path.getsize), os.path.join(folder, f"killed-{engine}")
    if engine in ("one", "threads"):
        # The workers of these engines are threads of this process, so this process must not be killed. Each thread
        # starts a process that replays the recording. The started process kills itself in the middle of the recording.
        os.environ.update(FLEET_VICTIM=victim, FLEET_MARKER=marker)
        weigh = Weighing
    else:
        def weigh(executor):
            return Killing(executor, victim, marker)
    result = measure(f"{name}, killed", ENGINES[engine], processes, script, paths, weigh)
    os.environ.pop("FLEET_VICTIM", None)
    if not os.path.exists(marker):
        sys.exit(f"{name}: no process was killed")
    failed = {of.path for of in result.failed}
    expected = pp.map_reduce(script, [path for path in paths if path not in failed])
    if result.stdout != expected.stdout or result.status != int(bool(failed)) or len(failed) != len(result.failed):
        sys.exit(f"{name}: the result is not that of the {len(paths) - len(failed)} recordings that did not fail")
    for of in result.failed[:2]:
        print(f"    {os.path.basename(of.path)}: {of.error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recordings", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--engines", default=",".join(ENGINES), help="some of " + ", ".join(ENGINES))
    parser.add_argument("--kill", action="store_true", help="kill a process of each engine")
    parser.add_argument("--folder", help="where the recordings are, or will be")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = options.folder or own
        os.makedirs(folder, exist_ok=True)
        start = time.monotonic()
        paths = [os.path.join(folder, f"host{number:04}.data") for number in range(options.recordings)]
        for number, path in enumerate(paths):
            if not os.path.exists(path):
                record(folder, number)
        size = sum(map(os.path.getsize, paths))
        print(f"{len(paths)} recordings of {size / 1e6:.0f} MB, made in {time.monotonic() - start:.0f} s")
        script = os.path.join(own, "fleet.py")
        with open(script, "w") as file:
            file.write(SCRIPT)
        print(f"{'engine':16} {'time':>9} {'CPU':>9} {'sent':>8} {'received':>11} {'failed':>7}")
        results = []
        for engine in options.engines.split(","):
            name = engine if engine == "one" else f"{engine} ({options.processes})"
            results.append(measure(name, ENGINES[engine], options.processes, script, paths))
            if options.kill:
                measure_killed(name, engine, options.processes, script, paths, own)
    if any((result.stdout, result.status, result.failed) != (results[0].stdout, 0, []) for result in results):
        sys.exit("the results differ, or a recording failed")
    print(results[0].stdout)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the spans of perf-prof's built-in sources with the spans of bpftrace programs, which trace the same work.

usage: python3 tests/bpftrace/compare.py [--program target/debug/perf-prof] [SOURCE...]

Needs root and bpftrace. Each row shows how many spans perf-prof and bpftrace saw, the medians of the durations in ns,
and the difference in percent. The durations of spans of a few microseconds (hrtimer) include the time that the tracers
need. On each CPU, a task of the lowest priority computes, so that no CPU idles: on some machines, perf gets no events
of an idle task. The status is 1 if a count differs.
"""

import argparse
import ctypes
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

COMM = "compared"
TIMES = 200
libc = ctypes.CDLL(None, use_errno=True)


def naps():
    for _ in range(TIMES):
        time.sleep(0.001)


def turns():
    """Sleeps, then computes, while another task computes all the time on the same CPU."""
    rival = os.fork()
    if rival == 0:
        named("rival")
        while True:
            pass
    try:
        for _ in range(TIMES):
            time.sleep(0.001)
            end = time.monotonic_ns() + 2_000_000
            while time.monotonic_ns() < end:
                pass
    finally:
        os.kill(rival, signal.SIGKILL)
        os.waitpid(rival, 0)


def children():
    for _ in range(TIMES // 4):
        child = os.fork()
        if child == 0:
            time.sleep(0.005)
            os._exit(0)
        os.waitpid(child, 0)


def calls():
    for _ in range(TIMES):
        libc.usleep(1000)


def signals():
    """Sends itself a signal that is blocked for 2 ms."""
    signal.signal(signal.SIGUSR1, lambda *_: None)
    for _ in range(TIMES):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.002)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])


def connections():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    for _ in range(TIMES // 4):
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        time.sleep(0.005)
        # The server closes first, so that the client's socket does not stay in TIME_WAIT.
        server.close()
        client.recv(1)
        client.close()


def messages():
    """Sends and receives messages of a System V queue: the kernel allocates a message when it is sent, and frees it
    when it is received."""
    queue = libc.msgget(0, 0o1600)
    text = ctypes.create_string_buffer(b"\1" + bytes(7) + b"x" * 3000, 3008)
    for _ in range(TIMES):
        libc.msgsnd(queue, text, 3000, 0)
        time.sleep(0.001)
        libc.msgrcv(queue, text, 3000, 0, 0)
    libc.msgctl(queue, 0, None)


def mappings():
    """Threads wait for the lock of the process's mappings (mmap_lock), while one of them fills pages."""
    libc.mmap.restype = ctypes.c_void_p
    size = 32 << 20

    def fill():
        for _ in range(TIMES // 10):
            # MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE: the kernel fills the pages during the call.
            at = libc.mmap(None, ctypes.c_size_t(size), 3, 0x8022, -1, 0)
            libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))

    threads = [threading.Thread(target=fill) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def writes():
    with tempfile.TemporaryDirectory(dir=".") as folder:
        to = f"of={folder}/data"
        subprocess.run(["dd", "if=/dev/zero", to, "bs=1M", f"count={TIMES}", "oflag=direct"], stderr=subprocess.DEVNULL)


def packets():
    """Sends packets to which many sockets apply a long filter. The filters run in the softirq, so that it takes a
    while."""
    # A /= 3 (BPF_ALU | BPF_DIV | BPF_K) 4,000 times, then return 0, which drops the packet (BPF_RET | BPF_K).
    steps = struct.pack("HBBI", 0x34, 0, 0, 3) * 4000 + struct.pack("HBBI", 0x06, 0, 0, 0)
    code = ctypes.create_string_buffer(steps)
    program = struct.pack("HL", len(steps) // 8, ctypes.addressof(code))
    watchers = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) for _ in range(8)]
    for watcher in watchers:
        watcher.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
        watcher.bind(("lo", 0x0800))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        for _ in range(TIMES):
            own.sendto(b"x", own.getsockname())
            own.recv(8)


def lines():
    """Writes lines to a terminal. A worker of the kernel passes the characters on."""
    terminal, program = os.openpty()
    os.set_blocking(terminal, False)
    for _ in range(TIMES):
        os.write(terminal, b"x" * 2048 + b"\n")
        os.read(program, 4096)
        time.sleep(0.001)
        try:
            while os.read(terminal, 65536):
                pass
        except BlockingIOError:
            pass


def libc_path():
    with open("/proc/self/maps") as maps:
        return next(path for path in (line.split()[-1] for line in maps) if "/libc.so" in path or "/libc-" in path)


# Keeps the durations in a map until the program ends. If the program printed a line for each span, bpftrace would wake
# up and run between the measured events.
TAKE = "@d[nsecs, cpu] = nsecs - @s[KEY]; delete(@s[KEY]);"


def pair(begin, end, key, end_key=None):
    """Returns a bpftrace program that measures spans from event `begin` to event `end` with the same key."""
    end_key = end_key or key
    return f"{begin} {{ @s[{key}] = nsecs; }}\n{end.replace('KEY', end_key)} {{ {TAKE.replace('KEY', end_key)} }}"


OFF = f"""
tracepoint:sched:sched_switch {{
    if (args->prev_comm == "{COMM}") {{ @s[args->prev_pid] = nsecs; }}
    if (@s[args->next_pid]) {{ @d[nsecs, cpu] = nsecs - @s[args->next_pid]; delete(@s[args->next_pid]); }}
}}"""
ON = f"""
tracepoint:sched:sched_switch {{
    if (@s[args->prev_pid]) {{ @d[nsecs, cpu] = nsecs - @s[args->prev_pid]; delete(@s[args->prev_pid]); }}
    if (args->next_comm == "{COMM}") {{ @s[args->next_pid] = nsecs; }}
}}"""
WAIT = f"""
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new /args->comm == "{COMM}"/ {{ @s[args->pid] = nsecs; }}
tracepoint:sched:sched_switch {{
    if (@s[args->next_pid]) {{ @d[nsecs, cpu] = nsecs - @s[args->next_pid]; delete(@s[args->next_pid]); }}
    if (args->prev_comm == "{COMM}" && args->prev_state == 0) {{ @s[args->prev_pid] = nsecs; }}
}}"""
TCP = f"""
tracepoint:sock:inet_sock_set_state /args->newstate == 2 && comm == "{COMM}"/ {{ @s[args->skaddr] = nsecs; }}
tracepoint:sock:inet_sock_set_state /args->newstate == 7 && @s[args->skaddr]/ {{ {TAKE.replace("KEY", "args->skaddr")} }}"""
BLOCK = """
tracepoint:block:block_io_start /comm == "dd"/ { @s[args->dev, args->sector] = nsecs; }
tracepoint:block:block_rq_complete /@s[args->dev, args->sector]/ {
    @d[nsecs, cpu] = nsecs - @s[args->dev, args->sector]; delete(@s[args->dev, args->sector]);
}"""
SLEEP = f"""
tracepoint:sched:sched_switch {{
    if (args->prev_comm == "{COMM}" && args->prev_state == 1) {{ @s[args->prev_pid] = nsecs; }}
    if (@s[args->next_pid]) {{ delete(@s[args->next_pid]); }}
}}
tracepoint:sched:sched_wakeup /@s[args->pid]/ {{ {TAKE.replace("KEY", "args->pid")} }}"""
TIMER = f"""
tracepoint:timer:hrtimer_start /comm == "{COMM}"/ {{ @o[args->hrtimer] = 1; }}
tracepoint:timer:hrtimer_expire_entry /@o[args->hrtimer] && args->function == kaddr("hrtimer_wakeup")/ {{
    @s[cpu, args->hrtimer] = nsecs; delete(@o[args->hrtimer]);
}}
tracepoint:timer:hrtimer_expire_exit /@s[cpu, args->hrtimer]/ {{ {TAKE.replace("KEY", "cpu, args->hrtimer")} }}"""
WORK = f"""
tracepoint:workqueue:workqueue_queue_work /comm == "{COMM}"/ {{ @o[args->work] = 1; }}
tracepoint:workqueue:workqueue_execute_start /@o[args->work] && args->function == kaddr("flush_to_ldisc")/ {{
    @s[tid, args->work] = nsecs; delete(@o[args->work]);
}}
tracepoint:workqueue:workqueue_execute_end /@s[tid, args->work]/ {{ {TAKE.replace("KEY", "tid, args->work")} }}"""
# For each source: the event for perf-prof, the bpftrace program, and the function that does the work.
SOURCES = {
    "syscall": (
        f"syscall/name=clock_nanosleep, comm={COMM}/",
        pair(
            f'tracepoint:raw_syscalls:sys_enter /args->id == 230 && comm == "{COMM}"/',
            "tracepoint:raw_syscalls:sys_exit /@s[KEY]/",
            "tid",
        ),
        naps,
    ),
    "offcpu": (f"offcpu/comm={COMM}/", OFF, naps),
    "oncpu": (f"oncpu/comm={COMM}/", ON, turns),
    "runqueue": (f"runqueue/comm={COMM}/", WAIT, turns),
    "process": (
        f"process/parent_comm={COMM}/",
        pair(
            f'tracepoint:sched:sched_process_fork /comm == "{COMM}"/',
            "tracepoint:sched:sched_process_exit /@s[KEY]/",
            "args->child_pid",
            "args->pid",
        ),
        children,
    ),
    "function": (
        f'function:usleep@"{libc_path()}"',
        pair(
            f'uprobe:{libc_path()}:usleep /comm == "{COMM}"/',
            f"uretprobe:{libc_path()}:usleep /@s[KEY]/",
            "tid",
        ),
        calls,
    ),
    "signal": (
        "signal/name=SIGUSR1/",
        pair(
            f'tracepoint:signal:signal_generate /args->sig == 10 && comm == "{COMM}"/',
            "tracepoint:signal:signal_deliver /args->sig == 10 && @s[KEY]/",
            "pid",
        ),
        signals,
    ),
    "tcp": (f"tcp/comm={COMM}, role=client/", TCP, connections),
    "alloc": (
        "alloc/requested=3048/",
        pair(
            f'tracepoint:kmem:kmalloc /args->bytes_req == 3048 && comm == "{COMM}"/',
            "tracepoint:kmem:kfree /@s[KEY]/",
            "args->ptr",
        ),
        messages,
    ),
    "lock": (
        "lock/kind=rwsem:W/",
        pair(
            f'tracepoint:lock:contention_begin /comm == "{COMM}" && args->flags == 4/',
            "tracepoint:lock:contention_end /@s[KEY]/",
            "tid, args->lock_addr",
        ),
        mappings,
    ),
    "block-io": ("block-io/comm=dd/", BLOCK, writes),
    "softirq": (
        "softirq/vec=3/",
        pair(
            f'tracepoint:irq:softirq_entry /args->vec == 3 && comm == "{COMM}"/',
            "tracepoint:irq:softirq_exit /args->vec == 3 && @s[KEY]/",
            "cpu",
        ),
        packets,
    ),
    "task-state": (f"task-state/comm={COMM}, state=sleeping/", SLEEP, naps),
    "hrtimer": ("hrtimer/waited > 0/function=hrtimer_wakeup/", TIMER, naps),
    "workqueue": ("workqueue/function=flush_to_ldisc/", WORK, lines),
}

SCRIPT = """
import sys
def __interval__(): print("ready", flush=True)
def __sample__(e):
    if e.comm in ("compared", "dd"): print("D", e.duration)
def __exit__():
    import perf_prof
    print("lost", perf_prof.stats()["lost"], flush=True)
"""


def named(name):
    libc.prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME


def work(name):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    named(COMM)
    SOURCES[name][2]()


def spinners():
    """Starts a task on each CPU that computes only when no other task runs there."""
    started = []
    for cpu in os.sched_getaffinity(0):
        child = os.fork()
        if child == 0:
            os.sched_setaffinity(0, {cpu})
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            while True:
                pass
        started.append(child)
    return started


def wait_for(stream, word):
    for line in stream:
        if word in line:
            return
    raise SystemExit(f"{word!r} was not printed")


def durations(text, form):
    return [int(duration) for duration in re.findall(form, text, re.MULTILINE)]


def compare(name, program):
    selector, bpf, _ = SOURCES[name]
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "spans.py")
        with open(script, "w") as file:
            file.write(SCRIPT)
        pipes = {"stdout": subprocess.PIPE, "text": True}
        ours = subprocess.Popen([program, "python", "-q", "-i", "100", "-m", "1024", "-e", selector, script], **pipes)
        wait_for(ours.stdout, "ready")
        bpf = 'BEGIN { printf("ready\\n"); }\n' + bpf + "\nEND { clear(@s); ORDERS}"
        bpf = bpf.replace("ORDERS", "clear(@o); " if "@o[" in bpf else "")
        environment = {**os.environ, "BPFTRACE_MAP_KEYS_MAX": "65536"}
        theirs = subprocess.Popen(["bpftrace", "-B", "line", "-e", bpf], env=environment, **pipes)
        wait_for(theirs.stdout, "ready")
        try:
            subprocess.run([sys.executable, __file__, "--work", name], check=True)
            time.sleep(0.5)
        finally:
            texts = []
            for tracer in (ours, theirs):
                tracer.send_signal(signal.SIGINT)
                texts.append(tracer.communicate()[0])
    lost = [line for line in texts[0].splitlines() if line.startswith("lost ") and line != "lost 0"]
    ours, theirs = durations(texts[0], r"^D (\d+)$"), durations(texts[1], r"^@d\[.*\]: (\d+)$")
    medians = [statistics.median(of) if of else 0 for of in (ours, theirs)]
    difference = f"{100 * abs(medians[0] - medians[1]) / medians[1]:.1f} %" if medians[1] else "-"
    print(f"{name:12} {len(ours):10} {len(theirs):10} {medians[0]:14.0f} {medians[1]:14.0f} {difference:>10}", *lost, flush=True)
    return len(ours) == len(theirs) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default="target/debug/perf-prof", help="the perf-prof that is compared")
    parser.add_argument("--work", choices=SOURCES, help="only do the work for a source")
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help=f"by default all: {', '.join(SOURCES)}")
    args = parser.parse_args()
    if args.work:
        return work(args.work)
    for name in args.sources:
        if name not in SOURCES:
            parser.error(f"no comparison for {name!r}; there are {', '.join(SOURCES)}")
    print(f"{'source':12} {'perf-prof':>10} {'bpftrace':>10} {'median ns':>14} {'median ns':>14} {'difference':>10}")
    if not shutil.which("bpftrace"):
        parser.error("bpftrace is not there: apt-get install bpftrace")
    busy = spinners()
    try:
        same = [compare(name, os.path.abspath(args.program)) for name in args.sources or SOURCES]
    finally:
        for spinner in busy:
            os.kill(spinner, signal.SIGKILL)
            os.waitpid(spinner, 0)
    return not all(same)


if __name__ == "__main__":
    sys.exit(main())

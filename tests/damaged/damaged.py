#!/usr/bin/env python3
"""Runs perf-prof on many damaged recordings and ELF files: no run may panic, hang or take much memory.

    python3 tests/damaged/damaged.py seeds FOLDER --program target/release/perf-prof
    python3 tests/damaged/damaged.py run FOLDER --program target/release/perf-prof --runs 100000

`seeds` makes small recordings of many kinds. The recorded programs contain DWARF, lack symbols, or have debug files.
You can copy more recordings into FOLDER/data. `run` damages a recording or an ELF file for each run of perf-prof. Input
number I depends only on --seed and I, so `run FOLDER --only I --keep DIR` makes the same input again. Needs root: each
worker has a mount namespace. In this namespace, the programs have the paths that the recordings name, and the lists of
kernel symbols and debug files are short, so that a run takes milliseconds.

A fault is a signal, a panic, more than 10 s of CPU time, more than 60 s of elapsed time (a busy machine makes runs
longer), or more than 1 GiB of memory. No run is shown with less memory than this Python program needs, because the
kernel counts this program's memory for each program that it starts.
"""
import argparse
import collections
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time

# The folder of the programs, which the recordings name.
PLACE = "/tmp/damage"
SOURCE = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
volatile unsigned long sink;
static inline __attribute__((always_inline)) void spin(int n) { for (int i = 0; i < n; i++) sink += i * i; }
__attribute__((noinline)) void leaf(int n) { spin(n); }
__attribute__((noinline)) int middle(int depth, int n) {
    if (depth == 0) { leaf(n); return 1; }
    int r = middle(depth - 1, n);
    sink += r;
    return r + 1;
}
int main(int argc, char **argv) {
    for (int i = 0; i < atoi(argv[1]); i++) {
        middle(i % 7, 200000);
        close(open("/dev/null", O_RDONLY));
        usleep(100);
    }
}
"""
HANDLER = """
def __sample__(event):
    event.print()
    event.to_dict()
    event._comm
"""
# Each input is given to one of these commands. An entry is: name, arguments before the input, arguments after the
# input, weight for a damaged recording, weight for a damaged ELF file. The commands that run Python take longer, so
# they have low weights.
COMMANDS = [
    ("evlist", ["evlist", "-v", "-i"], [], 32, 0),
    ("script", ["script", "-i"], [], 34, 50),
    ("report", ["report", "-i"], [], 29, 44),
    ("python", ["python", "--input"], ["HANDLER"], 4, 4),
    ("profile.py", ["python", "--input"], ["-q", "--order", "-e", "profile/-g/", "PROFILE"], 1, 2),
]
GIB = 1 << 30
BOUNDARY = [0, 1, 2, 3, 4, 7, 8, 0x10, 0x40, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF,
            0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1 << 32, 1 << 40, 1 << 47, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
            (1 << 64) - 8, (1 << 64) - 4096]


def make_seeds(folder, program):
    """Compiles programs, and records each of them in many ways."""
    data, elf = f"{folder}/data", f"{folder}/elf"
    for path in data, elf, PLACE:
        os.makedirs(path, exist_ok=True)
    with open(f"{folder}/prog.c", "w") as file:
        file.write(SOURCE)

    def run(*words, output=None, tries=1):
        """Runs a command, at most `tries` times: perf sometimes aborts when the machine is busy."""
        for _ in range(tries):
            with open(output or os.devnull, "wb") as out:
                done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, timeout=60)
            if done.returncode == 0:
                return
        sys.exit(f"{' '.join(words)}: {done.stderr.decode()[-200:]}")

    def build(name, *flags):
        run("cc", *flags, "-o", f"{elf}/{name}", f"{folder}/prog.c")

    build("dwarf", "-O1", "-g")
    build("gz", "-O1", "-g", "-gz=zlib", "-fomit-frame-pointer")
    build("stripped", "-O2", "-s")
    build("split", "-O1", "-g")
    run("objcopy", "--only-keep-debug", f"{elf}/split", f"{elf}/split.debug")
    run("objcopy", "--strip-debug", f"--add-gnu-debuglink={elf}/split.debug", f"{elf}/split")
    for name in os.listdir(elf):
        shutil.copy(f"{elf}/{name}", PLACE)
    clock = ["-e", "cpu-clock", "-F", "1000"]
    calls = ["-e", "raw_syscalls:sys_enter,sched:sched_switch"]
    kinds = {
        "plain": clock, "g": ["-g", *clock], "z": ["-z", "-g", *clock], "threads": ["--threads", "-g", *clock],
        "dwarf": ["--call-graph", "dwarf,1024", *clock], "calls": calls, "callsg": ["-g", *calls],
        "all": ["--switch-events", "--namespaces", "--all-cgroups", *clock],
    }
    perf = {"memory": ["-d", "-W", "--user-regs=ax,ip,sp", "--intr-regs=ax,ip", *clock],
            "group": ["-e", "{cpu-clock,page-faults}:S", "-F", "500"]}
    for recorder, kinds in (program, kinds), ("perf", kinds | perf):
        # Without -N, perf would copy the programs into its cache, and perf-prof would read these copies instead of the
        # damaged files.
        name, cache = ("perf", ["-N"]) if recorder == "perf" else ("own", [])
        for kind, words in kinds.items():
            for target in ("dwarf", "gz", "split", "stripped")[:4 if "g" in kind else 1]:
                output = f"{data}/{name}-{kind}-{target}"
                run(recorder, "record", *cache, *words, "-o", output, "--", f"{PLACE}/{target}", "10", tries=20)
        for kind in "g", "calls":
            run(recorder, "record", *cache, *kinds[kind], "-o", "-", "--", f"{PLACE}/split", "10",
                output=f"{data}/{name}-pipe-{kind}", tries=20)
    for kind, words in ("stat", []), ("stat-I", ["-I", "20"]):
        run("perf", "stat", "record", "-o", f"{data}/perf-{kind}", "-e", "task-clock,page-faults", *words,
            f"{PLACE}/dwarf", "20")
    for name in os.listdir(data):
        if name.endswith(".old"):  # perf renamed the file of an earlier try
            shutil.rmtree(f"{data}/{name}") if os.path.isdir(f"{data}/{name}") else os.unlink(f"{data}/{name}")


def regions(data):
    """Returns the regions that are worth damaging: (start, end, size of a word). Returns an empty list if `data` is
    neither an ELF file nor a recording."""
    found = [(0, min(len(data), 104), 8)]
    if data[:4] == b"\x7fELF" and len(data) > 64:
        phoff, shoff = struct.unpack_from("<QQ", data, 32)
        _, _, phentsize, phnum, shentsize, shnum, _ = struct.unpack_from("<IHHHHHH", data, 48)
        found += [(0, 64, 2), (phoff, phoff + phentsize * phnum, 8), (shoff, shoff + shentsize * shnum, 8),
                  (shoff, shoff + shentsize * shnum, 4)]
        for number in range(shnum):
            _, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", data, shoff + number * shentsize)
            # Sections with debug information, symbols, notes and unwind tables. The section with code is left out,
            # because perf-prof does not read it.
            if kind != 8 and size:
                found.append((offset, offset + size, 4 if number % 2 else 1))
    elif data[:8] == b"PERFILE2" and len(data) > 104:
        words = struct.unpack_from("<13Q", data, 8)
        start, size = words[4], words[5]
        end = start + size
        found += [(words[2], words[2] + words[3], 8)] * 2
        if end < len(data):
            features = bin(sum(word << 64 * place for place, word in enumerate(words[8:12]))).count("1")
            found += [(end, end + 16 * features, 8), (end + 16 * features, len(data), 4)] * 2
        found += records(data, start, end)
    elif data[:8] == b"PERFILE2":
        found += records(data, 16, len(data))
    return [(a, min(b, len(data)), w) for a, b, w in found if a < min(b, len(data)) - w]


def records(data, at, end):
    """Returns the regions of the records in a data section: the headers, and the first words of the contents."""
    starts = []
    while at + 8 <= min(end, len(data)) and len(starts) < 5000:
        size = struct.unpack_from("<H", data, at + 6)[0]
        if size < 8:
            break
        starts.append((at, at + size))
        at += size
    # At most 12 records, so that records are not damaged more often than all headers of the file together.
    few = random.Random(len(starts)).sample(starts, min(len(starts), 12))
    return [(a, a + 8, 2) for a, _ in few] + [(a + 8, min(b, a + 136), 8) for a, b in few if b > a + 16]


def damage(data, places, others, chance):
    """Returns a copy of `data` that is damaged in one to about eight ways."""
    data = bytearray(data)
    while True:
        start, end, word = chance.choice(places) if places and chance.random() < 0.8 else (0, len(data), 1)
        end = min(end, len(data))
        if end - start < 8:
            start, end = 0, len(data)
        if len(data) < 16:
            return bytes(data)
        at = start + chance.randrange(max(1, (end - start) // word)) * word
        match chance.choice(("bit", "byte", "word", "word", "add", "length", "cut", "remove", "repeat", "splice", "fill")):
            case "bit":
                at = min(at, len(data) - 1)
                data[at] ^= 1 << chance.randrange(8)
            case "byte":
                data[min(at, len(data) - 1)] = chance.randrange(256)
            case "word":
                width = chance.choice((word, word, 2, 4, 8))
                value = chance.choice(BOUNDARY) & ((1 << 8 * width) - 1)
                data[at:at + width] = value.to_bytes(width, "little")[:max(0, len(data) - at)]
            case "add":
                width = chance.choice((word, 4, 8))
                old = int.from_bytes(data[at:at + width], "little")
                new = (old + chance.choice((-8, -1, 1, 8, 4096, -4096))) & ((1 << 8 * width) - 1)
                data[at:at + width] = new.to_bytes(width, "little")[:max(0, len(data) - at)]
            case "length":
                # A number that is plausible as a size, offset or index in this file.
                width = chance.choice((2, 4, 8))
                value = chance.choice((len(data), len(data) - at, at, chance.randrange(len(data)))) & ((1 << 8 * width) - 1)
                data[at:at + width] = value.to_bytes(width, "little")[:max(0, len(data) - at)]
            case "cut":
                if chance.random() < 0.3:
                    del data[max(16, at):]
            case "remove":
                del data[at:at + chance.choice((1, 4, 8, 16, 64, 1000))]
            case "repeat":
                part = data[at:at + chance.choice((8, 40, 200, 3000))]
                data[at:at] = part * chance.choice((1, 1, 2, 20))
            case "splice":
                other = chance.choice(others)
                size = chance.choice((8, 64, 500, 5000))
                begin = chance.randrange(max(1, len(other) - size))
                data[at:at + chance.choice((0, size))] = other[begin:begin + size]
            case "fill":
                size = min(chance.choice((4, 8, 32, 256)), len(data) - at)
                data[at:at + size] = bytes([chance.choice((0, 0xFF, 0x80, 0x41))]) * size
        if chance.random() < 0.45:
            return bytes(data)


class Seeds:
    """The undamaged files, and the regions in them that are worth damaging."""

    def __init__(self, folder):
        self.recordings = {}  # name of recording to {file name: contents}; "" if it is a single file
        self.elf = {}
        for name in sorted(os.listdir(f"{folder}/data")):
            path = f"{folder}/data/{name}"
            files = {file: f"{path}/{file}" for file in sorted(os.listdir(path))} if os.path.isdir(path) else {"": path}
            self.recordings[name] = {file: read(path) for file, path in files.items()}
        for name in sorted(os.listdir(f"{folder}/elf")):
            self.elf[name] = read(f"{folder}/elf/{name}")
        self.names = list(self.recordings)
        self.all = [data for files in self.recordings.values() for data in files.values() if data]
        self.places = {}
        # For each ELF file: the recordings that name its program. perf-prof opens the damaged ELF file when it reads
        # one of them.
        self.users = {name: [recording for recording, files in self.recordings.items()
                             if any(f"{PLACE}/{name.removesuffix('.debug')}\0".encode() in data for data in files.values())]
                      for name in self.elf}

    def regions(self, key, data):
        if key not in self.places:
            self.places[key] = regions(data)
        return self.places[key]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def make(seeds, seed, number, place):
    """Makes input `number`. Returns the name of the command, its words, and what was damaged."""
    chance = random.Random(f"{seed}:{number}")
    input = f"{PLACE}/input"
    shutil.rmtree(input, ignore_errors=True)
    if os.path.lexists(input):
        os.unlink(input)
    kind = 4 if chance.random() < 0.3 else 3
    command = chance.choices(COMMANDS, weights=[command[kind] for command in COMMANDS])[0]
    elf = None
    if kind == 4:
        elf = chance.choice([name for name, users in seeds.users.items() if users])
        name = chance.choice(seeds.users[elf])
    else:
        name = chance.choice(seeds.names)
    files = dict(seeds.recordings[name])
    if elf is None or chance.random() < 0.1:
        file = chance.choice([file for file, data in files.items() if len(data) > 16])
        others = chance.sample(seeds.all, 3)
        files[file] = damage(files[file], seeds.regions((name, file), files[file]), others, chance)
    for file, data in files.items():
        if file:
            os.makedirs(input, exist_ok=True)
        with open(f"{input}/{file}" if file else input, "wb") as out:
            out.write(data)
    for other in place:  # restores the ELF files that the run before damaged
        with open(f"{PLACE}/{other}", "wb") as out:
            out.write(seeds.elf[other])
    place.clear()
    if elf:
        data = damage(seeds.elf[elf], seeds.regions(elf, seeds.elf[elf]), list(seeds.elf.values()), chance)
        with open(f"{PLACE}/{elf}", "wb") as out:
            out.write(data)
        place.add(elf)
    return command[0], [*command[1], input, *command[2]], f"{name} {elf or ''}".strip()


def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}{arguments}")


def own_namespace(folder):
    """Moves the worker into a mount namespace, with its own folder for the programs and short lists of symbols, so that
    a run takes milliseconds."""
    call("unshare", 0x20000)  # CLONE_NEWNS
    call("mount", None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
    os.makedirs(PLACE, exist_ok=True)
    call("mount", b"tmpfs", PLACE.encode(), b"tmpfs", 0, b"size=256m")
    few = f"{PLACE}/kallsyms"
    with open("/proc/kallsyms") as symbols, open(few, "w") as out:
        for number, line in enumerate(symbols):
            if number % 400 == 0 or line.split()[2] in ("_text", "_stext", "_etext"):
                out.write(line)
    call("mount", few.encode(), b"/proc/kallsyms", None, 0x1000, None)  # MS_BIND
    if os.path.isdir("/usr/lib/debug"):
        call("mount", b"tmpfs", b"/usr/lib/debug", b"tmpfs", 0, None)
    for name in os.listdir(f"{folder}/elf"):
        shutil.copy(f"{folder}/elf/{name}", PLACE)


def start(words, log):
    """Runs a command. Returns its status, seconds, seconds of CPU time, MiB of memory, and whether it was killed after
    60 s."""
    begin = time.monotonic()
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
               (os.POSIX_SPAWN_DUP2, log, 2)]
    ended = False
    child = os.posix_spawn(words[0], words, os.environ, file_actions=actions)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        _, status, usage = os.wait4(child, 0)
    except TimeoutError:
        ended = True
        os.kill(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    seconds = time.monotonic() - begin
    return status, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, ended


def overdue(*_):
    raise TimeoutError


def work(options, worker):
    """Runs the inputs of one worker. Writes a JSON line for each fault, and a last line with the sums."""
    signal.signal(signal.SIGALRM, overdue)  # raises, because Python repeats wait4() after a handler that returns
    # No run may use up the machine's memory. The commands inherit these limits.
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIB, 8 * GIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["PERF_BUILDID_DIR"] = f"{PLACE}/none"
    out = open(f"{options.folder}/result.{worker}", "a", buffering=1)
    own_namespace(options.folder)
    seeds = Seeds(options.folder)
    with open(f"{PLACE}/handler.py", "w") as file:
        file.write(options.handler)
    profile = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts/profile.py")
    shutil.copy(profile, f"{PLACE}/profile.py")
    words_for = {"HANDLER": f"{PLACE}/handler.py", "PROFILE": f"{PLACE}/profile.py"}
    log = os.open(f"{PLACE}/log", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    sums = collections.defaultdict(lambda: {"runs": 0, "failed": 0, "seconds": 0, "cpu": 0, "mib": 0})
    place = set()
    numbers = [options.only] if options.only is not None else range(options.first + worker, options.runs, options.workers)
    begin = time.monotonic()
    for count, number in enumerate(numbers):
        name, words, damaged = make(seeds, options.seed, number, place)
        words = [options.program, *(words_for.get(word, word) for word in words)]
        if options.only is not None:
            print(*words, f"({damaged})")
            if options.keep:
                keep = shutil.copytree if os.path.isdir(f"{PLACE}/input") else shutil.copy
                os.makedirs(options.keep, exist_ok=True)
                keep(f"{PLACE}/input", f"{options.keep}/input-{number}")
                for file in place:
                    shutil.copy(f"{PLACE}/{file}", f"{options.keep}/{file}-{number}")
        os.ftruncate(log, 0)
        os.lseek(log, 0, os.SEEK_SET)
        status, seconds, cpu, mib, ended = start(words, log)
        said = os.pread(log, 1 << 16, 0).decode(errors="replace")
        faults = []
        if os.WIFSIGNALED(status):
            faults.append(f"signal {os.WTERMSIG(status)}")
        if "panicked at" in said:
            faults.append("panic")
        if ended or cpu > 10:
            faults.append("hang")
        if mib > 1024:
            faults.append("memory")
        if faults:
            fault = {"number": number, "command": name, "faults": faults, "damaged": damaged, "seconds": round(seconds, 1),
                     "cpu": round(cpu, 1), "mib": round(mib), "said": said[-600:]}
            out.write(json.dumps(fault) + "\n")
        row = sums[name]
        row["runs"] += 1
        row["failed"] += status != 0
        row["seconds"] = max(row["seconds"], seconds)
        row["cpu"] = max(row["cpu"], cpu)
        row["mib"] = max(row["mib"], mib)
        if options.only is not None:
            print(said, status, f"{seconds:.1f} s, {cpu:.1f} s of CPU time, {mib:.0f} MiB")
        elif count % 1000 == 999:
            out.write(json.dumps({"sums": sums, "elapsed": round(time.monotonic() - begin)}) + "\n")
    out.write(json.dumps({"sums": sums, "elapsed": round(time.monotonic() - begin)}) + "\n")


def results(folder, workers):
    """Prints the sums of all workers, and each fault. Returns the number of faults."""
    total, faults = {}, []
    for worker in range(workers):
        last = {}
        with open(f"{folder}/result.{worker}") as file:
            for line in map(json.loads, file):
                if "sums" in line:
                    last = line["sums"]
                else:
                    faults.append(line)
        for name, row in last.items():
            sum = total.setdefault(name, dict.fromkeys(row, 0))
            for key, value in row.items():
                sum[key] = sum[key] + value if key in ("runs", "failed") else max(sum[key], value)
    for name, row in total.items():
        print(f"{name:<12}{row['runs']:>8} runs, {row['failed']:>7} with an error, at most {row['seconds']:.1f} s "
              f"({row['cpu']:.1f} s of CPU time) and {row['mib']:.0f} MiB")
    print(f"{sum_of(total)} runs, {len(faults)} faults")
    for fault in faults:
        print(fault)
    return len(faults)


def sum_of(total):
    return sum(row["runs"] for row in total.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("seeds", "run", "results"))
    parser.add_argument("folder")
    parser.add_argument("--program", default="target/release/perf-prof")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="make and run this input only, and show what the run says")
    parser.add_argument("--keep", help="with --only: copy the input to this folder")
    options = parser.parse_args()
    options.folder, options.program = os.path.abspath(options.folder), os.path.abspath(options.program)
    options.handler = HANDLER
    if options.what == "seeds":
        return make_seeds(options.folder, options.program)
    if options.what == "results":
        return int(results(options.folder, options.workers) > 0)
    if options.only is not None:
        options.workers = 1
    children = []
    for worker in range(options.workers):
        open(f"{options.folder}/result.{worker}", "w").close()
        child = os.fork()
        if child == 0:
            work(options, worker)
            return 0
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return int(results(options.folder, options.workers) > 0)


if __name__ == "__main__":
    sys.exit(main())

//! Synonyms: words that users type for things that have another name in perf-prof.

use super::words::stem;

/// Words that users type, each with the words or phrases that are searched in addition. Commas separate words. Names
/// that exist in perf-prof need no row.
const SYNONYMS: [(&str, &str); 83] = [
    ("percent, percentage, pct, proportion, ratio", "percentile, %, p99, pct, share of"),
    ("percentile, quantile, median, p50, p90, p95, p99, tail latency", "percentile, p99, p50, distribution"),
    ("bucket, bin", "Log2Hist, Hist, histogram, linear, distribution"),
    ("histogram, distribution", "hist, histogram, Log2Hist, distribution"),
    ("heatmap, heat map", "heatmap, heat map"),
    ("average, mean", "average, mean"),
    (
        "container, docker, podman, kubernetes, k8s, pod, lxc, systemd, slice",
        "--cgroups, cgroup, filelife, opensnoop, container, mnt_ns",
    ),
    ("namespace, mount namespace, mntns, bind mount", "mnt_ns, mount namespace, namespaces"),
    ("program, binary, executable, application, app, service, daemon", "program, --pids, --exec, uprobe, function"),
    (
        "overhead, own cpu, cost of tracing, used by perf-prof",
        "--usage-self, usage of perf-prof, in the kernel, what it costs",
    ),
    ("library, shared object, so", "library, uprobe, dso"),
    ("latency, delay, response time, round trip", "latency, runqlat, duration, min=TIME, histogram of times"),
    ("slow, hang, hung, stuck, stall, freeze, lag", "slow, slowcalls, hangs, stalls, offcpu, latency, min=TIME"),
    ("duration, elapsed, how long", "duration, how long, hist"),
    ("wait, sleep, block, idle, off cpu", "offcpu, wait, blocked, sleeping"),
    ("scheduler, run queue, runnable, starvation", "runqueue, runqlat, scheduler, waits for a CPU"),
    ("priority, nice", "prio, sched"),
    ("lock, mutex, futex, contention, deadlock", "lock, lockstat, futex"),
    ("memory, ram, rss, heap, malloc, leak, allocation", "memory, memleak, mallocleak, alloc, malloc, kmalloc"),
    ("oom, out of memory, memory limit", "killsnoop, memory limit, lack of memory, --buffer, --symbol-cache"),
    ("page fault, swap", "page-faults, faults, major faults"),
    ("disk, storage, block device, io, iops, ssd, nvme", "block-io, biosnoop, biolatency, disk"),
    (
        "queue depth, iodepth, inflight, in flight, outstanding, aqu-sz, avgqu-sz",
        "queue depth, requests at a time, block-io",
    ),
    ("sendfile, copy_file_range, splice, mmap write", "writes which files, block-io"),
    ("iotop, biotop, o_direct, direct io", "biosnoop, biolatency, block-io, writes which files"),
    ("who dirtied, dirty, dirtied, page cache, writeback", "dirties pages, writes which files, block-io"),
    ("cold read, cold cache", "major-faults, block-io, biosnoop"),
    ("file, open, path, file not found, no such file, enoent", "file, opensnoop, filelife, openat"),
    (
        "refused, connection refused, econnrefused, econnreset, connection reset, retransmit, rst, accept, tcp bytes, tcpconnect, \
         tcpaccept, tcpretrans, tcpstates, churn, connection churn, short connections",
        "tcplife, tcp, connection",
    ),
    (
        "close_wait, close wait, time_wait, fin_wait, half open, leak connections, leaked connections, connection leak",
        "tcplife, tcp, CLOSE_WAIT, states, connection",
    ),
    ("network, socket, connection, tcp, packet", "tcp, tcplife, connection"),
    ("syscall, system call, strace", "syscall, system call, slowcalls, syscalls.py, trace"),
    ("strace -r, relative timestamp", "--timestamps, delta, trace"),
    ("strace -z", "failed, syscall/failed, trace"),
    (
        "exclude, except, leave out, all but, everything but, not, ignore, negate",
        "every program but one, filter, filters, true",
    ),
    ("io_uring, uring, iouring, sqe, cqe", "pairs of events, span"),
    ("unix socket, listening address", "--listen"),
    ("go, golang, goroutine", "return probe, Go, probes, function"),
    ("folder, dir, inode", "path, str, filename_str, folder of the descriptor, opensnoop"),
    ("interrupt, irq, hardirq, softirq", "irq, softirq, irqlat, interrupt"),
    ("kill, killed, crash, segfault, sigkill", "killsnoop, signal, killed, exit, recorder was killed"),
    ("truncated, truncate, unfinished, corrupt, corrupted", "cut off, damaged, Incomplete recordings"),
    (
        "rotate, rotation, retention, prune, old dumps, limit dumps, max-size, max size, size limit, split file, file size",
        "--max-files, --switch-output, newest dumps, flight recorder",
    ),
    ("broken pipe, epipe, sigpipe, head", "closed pipe"),
    ("await, coroutine, event loop", "asyncio, asynchronous iterator"),
    ("nogil, no gil", "free-threaded"),
    ("error, errno, fail, failure, failing", "failed, errno_name, error, errors"),
    (
        "lost, lose, loss, drop, dropped, missing event, overflow, overrun",
        "lost, __lost__, --mmap-pages, losses, --buffer",
    ),
    ("ring, ring buffer, buffer size", "ring buffer, --mmap-pages, --buffer, --watermark"),
    ("flame, flamegraph, flame graph, icicle", "flame, flame graph, FlameGraph, folded"),
    ("stack, stack trace, backtrace, call stack, callstack", "stack, callchain, call chain, --call-graph, -g"),
    ("call graph, callgraph, callers, caller", "--call-graph, -g, call chain, callers, stack"),
    ("unwind, dwarf, frame pointer", "dwarf, --call-graph, unwound"),
    ("symbol, symbols, function name, debug info, demangle", "symbols, symbol, debug file, demangle"),
    ("python frames, python stack, py-spy, pyspy, python function", "--python, --python-frames, Python, frames"),
    ("json, jsonl, ndjson, machine readable", "json, JSON, ndjson"),
    ("csv, tsv, excel, spreadsheet", "CSV, export"),
    (
        "rename, renamed file, delete, deleted file, removed file, unlink, temporary file, tmp",
        "filelife, removed, files disappear",
    ),
    (
        "sql, query, database, mysql, mariadb, postgresql, prepared statement",
        "usdt, SQL, static probe, statements, DuckDB",
    ),
    ("pandas, polars, dataframe, data frame, duckdb, numpy", "columns, Parquet, Arrow, table, batches"),
    ("perfetto, chrome, timeline, gantt", "Perfetto, Timeline, pftrace, timeline"),
    ("pyroscope, parca, speedscope", "pprof"),
    (
        "time range, time window, time slice, start time, end time, since, until, between",
        "--time, part of the recording, --duration",
    ),
    ("thread, threads, tid", "--tids, --tid, _tid, thread"),
    (
        "follow children, follow fork, follow forks, children, child, inherit, fork, subprocess, descendants",
        "--exec, children, follows all threads, --forks, inherit",
    ),
    ("host, cluster, fleet, many machines, remote, ssh", "many hosts, recordings of many, map_reduce, --executor"),
    ("parallel, multiprocess, speed up, faster, many cpus", "--jobs, parallel, several processes, speed"),
    (
        "root, sudo, permission, permission denied, eperm, eacces, capability, capabilities, privilege, unprivileged",
        "without root, CAP_PERFMON, permission, doctor",
    ),
    ("sdt, dtrace, stapsdt, static probe, marker, semaphore", "usdt, static probe"),
    ("kprobe, uprobe, probe, hook, function argument", "probe, uprobe, kprobe, function"),
    (
        "watchpoint, breakpoint, hardware breakpoint, memory write, memory access, variable overwritten, data breakpoint",
        "mem:ADDR/LEN:w, watchpoint",
    ),
    ("counter, pmu, ipc, cache miss, instructions per cycle", "stat, hardware event, counter, PMU"),
    ("every second, periodic, interval, refresh, live", "--interval, __interval__, every second"),
    ("rate limit, throttle, throttling, sampling rate, frequency", "--sampling-limit, --freq, -F, too fast"),
    ("seek, skip, jump, middle", "--time, part of the recording"),
    ("hotplug, hot plug, online, unplug", "offline, went offline"),
    (
        "riscv, risc-v, arm, aarch64, arm64, ppc64, s390x, architecture, endian",
        "recorded machine, another machine, other machines",
    ),
    ("request id, correlate, correlation, match, transaction", "fields with the same values, the same key, span"),
    ("kernel thread, swapper, idle task, idle cpu", "idle, swapper, kworker"),
    ("limit, stop after, timeout, first n", "--duration, --exit-N, stop after"),
    ("unsigned, minus, below zero, sign", "--signed, negative numbers"),
    (
        "unit test, test, fake, fake event, mock, pytest",
        "testing, make_event, run_script, making events, testing scripts",
    ),
    ("diff, compare, before after, regression", "--diff, difference, compare"),
];

/// Programs that many machines run. All other programs are looked up in PATH.
const PROGRAMS: &str = "nginx apache2 httpd haproxy envoy redis redis-server postgres mysqld mariadbd mongod sqlite3 java node \
                        python3 ruby php php-fpm perl dotnet bash sshd dockerd containerd kubelet qemu rustc gcc clang make";

/// Programs whose options mean something else in perf-prof.
const TOOLS: &str = "strace ltrace ftrace bpftrace trace-cmd";

/// Words that a search ignores.
const EMPTY: &str =
    "a an and are by can do does for from get how i in is it me my of on or show the to what where which with";

/// Returns the synonyms of a word or a phrase.
pub fn others(phrase: &str) -> Vec<&'static str> {
    let is = |typed: &str| same(typed, phrase);
    let rows = SYNONYMS.iter().filter(|(typed, _)| typed.split(", ").any(is));
    rows.flat_map(|(_, terms)| terms.split(", ")).collect()
}

/// Returns whether two phrases consist of the same words. Ignores the endings of words.
fn same(one: &str, other: &str) -> bool {
    one == other || one.split(' ').map(stem).eq(other.split(' ').map(stem))
}

/// Returns the rows of the table.
pub fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    SYNONYMS.into_iter()
}

/// Returns each word and phrase of the table with its synonyms.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SYNONYMS.iter().flat_map(|(typed, terms)| typed.split(", ").map(move |typed| (typed, *terms)))
}

/// Returns whether a word is the name of a program that many machines run.
pub fn is_program(word: &str) -> bool {
    PROGRAMS.split_whitespace().any(|program| program == word)
}

/// Returns whether a word is the name of a tool whose options mean something else in perf-prof.
pub fn is_tool(word: &str) -> bool {
    TOOLS.split(' ').any(|tool| tool == word)
}

/// Returns whether a search ignores this word.
pub fn is_empty(word: &str) -> bool {
    EMPTY.split(' ').any(|empty| empty == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_others_whatever_their_endings_are() {
        assert!(others("containers").contains(&"cgroup"));
        assert!(others("flame graphs").contains(&"FlameGraph"));
        assert!(others("deleted files").contains(&"filelife"));
        assert!(others("sql").contains(&"usdt"));
        assert!(others("sched:sched_switch").is_empty());
    }

    #[test]
    fn no_word_stands_in_two_rows_unless_it_has_two_meanings() {
        let mut typed: Vec<&str> = all().map(|(typed, _)| typed).collect();
        typed.sort_unstable();
        let doubled: Vec<_> = typed.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert_eq!(doubled, ["p99"; 0]);
    }
}

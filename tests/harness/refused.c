//! The tests preload this library into the programs that they start. Its perf_event_open() refuses hardware events, as the
//! kernel does on a machine without hardware counters.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/// perf and perf-prof do not pass the library on to traced programs, because it would add a function to the call chains.
__attribute__((constructor)) static void not_what_is_traced(void) {
    if (!strncmp(program_invocation_short_name, "perf", 4)) unsetenv("LD_PRELOAD");
}

typedef long call(long, long, long, long, long, long, long);

long syscall(long number, ...) {
    static call *real;
    long words[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_perf_event_open) {
        const struct perf_event_attr *attr = (const void *)words[0];
        if (attr->type == PERF_TYPE_HARDWARE || attr->type == PERF_TYPE_HW_CACHE || attr->type == PERF_TYPE_RAW) {
            errno = ENOENT;
            return -1;
        }
    }
    if (!real) real = (call *)dlsym(RTLD_NEXT, "syscall");
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

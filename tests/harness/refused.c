//! This library is preloaded into the programs that the tests start. It refuses hardware events in perf_event_open, as
//! on a machine that has none.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/// Programs that perf and perf-prof trace do not get this library: their call chains would have one more function.
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

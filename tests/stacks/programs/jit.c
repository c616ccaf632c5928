/* leaf <- jit_inner <- jit_outer <- main: the two functions in the middle are generated at run time. Their names are
   written to /tmp/perf-PID.map or, with the argument `dump`, to a jitdump file in the current directory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#include "rare.h"

typedef void function(void);

KEPT void leaf(void)
{
    RARE();
    AFTER();
}

/* Writes a function that only calls `callee`. Returns its size in bytes. */
static size_t emit(unsigned char *at, function *callee)
{
#if defined(__x86_64__)
    /* push %rbp; mov %rsp,%rbp; movabs $callee,%rax; call *%rax; pop %rbp; ret */
    static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x5d, 0xc3 };
    memcpy(at, code, sizeof code);
    memcpy(at + 6, &callee, 8);
    return sizeof code;
#else
    /* stp x29,x30,[sp,#-16]!; mov x29,sp; ldr x16,.+16; blr x16; ldp x29,x30,[sp],#16; ret; callee */
    static const uint32_t code[] = { 0xa9bf7bfd, 0x910003fd, 0x58000090, 0xd63f0200, 0xa8c17bfd, 0xd65f03c0 };
    memcpy(at, code, sizeof code);
    memcpy(at + sizeof code, &callee, 8);
    __builtin___clear_cache((char *)at, (char *)at + sizeof code);
    return sizeof code + 8;
#endif
}

struct name {
    const char *name;
    unsigned char *at;
    size_t size;
};

static int write_map(const struct name *names)
{
    char path[64];
    FILE *map;
    int i;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    map = fopen(path, "w");
    if (!map)
        return -1;
    for (i = 0; i < 2; i++)
        fprintf(map, "%lx %zx %s\n", (unsigned long)names[i].at, names[i].size, names[i].name);
    return fclose(map);
}

/* Writes a file as tools/perf/Documentation/jitdump-specification.txt describes it: a header, then a JIT_CODE_LOAD for
   each function. */
static int write_dump(const struct name *names)
{
    struct {
        uint32_t magic, version, size, machine, pad, pid;
        uint64_t time, flags;
    } header = { 0x4a695444, 1, 40, 0, 0, getpid(), 0, 0 };
    struct {
        uint32_t id, size;
        uint64_t time;
        uint32_t pid, tid;
        uint64_t vma, address, code_size, index;
    } load;
    struct timespec now;
    char path[64];
    int fd, i;
#if defined(__x86_64__)
    header.machine = 62;
#else
    header.machine = 183;
#endif
    snprintf(path, sizeof path, "jit-%d.dump", (int)getpid());
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (fd < 0 || write(fd, &header, sizeof header) != sizeof header)
        return -1;
    /* The mapping record tells a tracer where the file is. */
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
        return -1;
    for (i = 0; i < 2; i++) {
        size_t name = strlen(names[i].name) + 1;
        clock_gettime(CLOCK_MONOTONIC, &now);
        memset(&load, 0, sizeof load);
        load.size = sizeof load + name + names[i].size;
        load.time = now.tv_sec * 1000000000ull + now.tv_nsec;
        load.pid = getpid();
        load.tid = getpid();
        load.vma = load.address = (uint64_t)names[i].at;
        load.code_size = names[i].size;
        load.index = i;
        if (write(fd, &load, sizeof load) != sizeof load || write(fd, names[i].name, name) != (ssize_t)name
            || write(fd, names[i].at, names[i].size) != (ssize_t)names[i].size)
            return -1;
    }
    return close(fd);
}

int main(int argc, char **argv)
{
    struct name names[2] = { { "jit_inner", NULL, 0 }, { "jit_outer", NULL, 0 } };
    unsigned char *code = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int dump = argc > 1 && strcmp(argv[1], "dump") == 0, i;
    prepare();
    if (code == MAP_FAILED)
        return 2;
    names[0].at = code + 256;
    names[0].size = emit(names[0].at, leaf);
    names[1].at = code + 1024;
    names[1].size = emit(names[1].at, (function *)names[0].at);
    if (dump ? write_dump(names) : write_map(names)) {
        perror("names of code");
        return 2;
    }
    for (i = 0; i < TIMES; i++) {
        ((function *)names[1].at)();
        AFTER();
    }
    linger(argc, argv);
    return 0;
}

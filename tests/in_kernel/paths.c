// Makes system calls with files, and writes the true path of each file to the file `expected`. The true path is what /proc/self/fd
// shows at that time, or what this program knows. The arguments are a folder, and `threads` for threads that open and close files.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK (-7)

static int expected;
static char folder[512];

static void expect(const char *format, ...) {
    char line[5000];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(expected, line, length) != length) abort();
}

// Calls ftruncate() with a length that makes it fail, so the file stays as it is.
static void of_descriptor(int fd) {
    char link[64], path[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    expect("ftruncate %s\n", length < 0 ? "None" : path);
    if (ftruncate(fd, MARK) == 0) abort();
}

static void of_name(const char *name, const char *path) {
    expect("truncate %s\n", path);
    if (truncate(name, MARK) == 0) abort();
}

static void closes(int fd) {
    char link[64], path[4200];
    int high = dup2(fd, 400);
    snprintf(link, sizeof link, "/proc/self/fd/%d", high);
    ssize_t length = readlink(link, path, sizeof path - 1);
    expect("close %.*s\n", (int)length, path);
    close(high);
}

static char *below(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void child(void (*work)(int), int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        work(fd);
        _exit(0);
    }
    waitpid(pid, 0, 0);
}

static void in_mount(int fd) {
    (void)fd;
    // Programs outside this mount namespace do not see the mount.
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || mount("paths", below("mnt"), "tmpfs", 0, 0)) return;
    int other = open(below("mnt/inside"), O_CREAT | O_RDWR, 0600);
    of_descriptor(other);
    mkdir(below("mnt/deep"), 0700);
    if (chdir(below("mnt/deep"))) abort();
    of_name("x", below("mnt/deep/x"));
}

static void in_root(int fd) {
    if (chroot(below("jail")) || chdir("/")) abort();
    of_name("/etc/x", below("jail/etc/x"));
    of_name("x", below("jail/x"));
    expect("ftruncate %s\n", below("file"));
    if (ftruncate(fd, MARK) == 0) abort();
}

static void all_calls(void) {
    int file = open("file", O_CREAT | O_RDWR, 0600);
    of_descriptor(file);
    of_descriptor(399);
    of_descriptor(-1);
    // The other threads use the lowest descriptors, so this copy gets a high one.
    int copy = dup2(file, 350);
    of_descriptor(copy);
    int other = open("other", O_CREAT | O_RDWR, 0600);
    dup2(other, copy);
    of_descriptor(copy);
    closes(copy);
    close(copy);
    of_descriptor(copy);
    int removed = open("removed", O_CREAT | O_RDWR, 0600);
    unlink("removed");
    of_descriptor(removed);
    int pipes[2], sockets[2];
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) abort();
    of_descriptor(pipes[0]);
    of_descriptor(sockets[1]);
    closes(sockets[1]);
    of_descriptor(memfd_create("memory", 0));
    of_descriptor(epoll_create1(0));
    of_descriptor(open("/proc/self/status", O_RDONLY));
    mkdir("dir", 0700);
    int dir = open("dir", O_RDONLY | O_DIRECTORY);
    of_descriptor(dir);
    of_name("x/../y", below("x/../y"));
    of_name("/nowhere/x", "/nowhere/x");
    expect("faccessat2 %s\n", below("dir/in"));
    syscall(SYS_faccessat2, dir, "in", 0, 0x7000);
    expect("faccessat2 %s\n", below("at"));
    syscall(SYS_faccessat2, AT_FDCWD, "at", 0, 0x7000);
    expect("faccessat2 None\n");
    syscall(SYS_faccessat2, 399, "at", 0, 0x7000);
    child(of_descriptor, file);
    rename("other", "renamed");
    of_descriptor(other);
    mkdir("mnt", 0700);
    child(in_mount, 0);
    mkdir("jail", 0700);
    child(in_root, file);
}

static volatile int is_over;

static void *churn(void *unused) {
    while (!is_over) close(open("/dev/null", O_RDONLY));
    return unused;
}

static void *replaces(void *pipes) {
    usleep(200000);
    int *ends = pipes;
    int copy = dup(ends[1]);
    int other = open("/dev/zero", O_RDONLY);
    dup2(other, ends[0]);
    if (write(copy, "x", 1) != 1) abort();
    return 0;
}

int main(int count, char **arguments) {
    if (count < 2 || !realpath(arguments[1], folder)) return 1;
    expected = open(below("expected"), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    dup3(expected, 300, O_CLOEXEC);
    expected = 300;
    if (count > 3) {
        // After exec, this descriptor is open. The descriptor before it was closed by exec (O_CLOEXEC).
        of_descriptor(atoi(arguments[3]) - 1);
        of_descriptor(atoi(arguments[3]));
        return 0;
    }
    if (chdir(folder)) return 1;
    int has_threads = !strcmp(arguments[2], "threads");
    pthread_t threads[2];
    for (int at = 0; has_threads && at < 2; at++) pthread_create(&threads[at], 0, churn, 0);
    all_calls();
    is_over = 1;
    for (int at = 0; has_threads && at < 2; at++) pthread_join(threads[at], 0);
    if (has_threads) {
        // During read(), another thread replaces the descriptor. The call itself keeps the pipe open.
        int ends[2];
        char byte[77];
        if (pipe(ends)) return 1;
        pthread_create(&threads[0], 0, replaces, ends);
        if (read(ends[0], byte, sizeof byte) != 1) return 1;
        pthread_join(threads[0], 0);
    }
    dup3(expected, 201, O_CLOEXEC);
    dup2(open("file", O_RDONLY), 202);
    execl(arguments[0], arguments[0], folder, arguments[2], "202", (char *)0);
    return 1;
}

/* All programs with known call chains include this file. It has the rare system call that their innermost functions
   make, and macros that keep the compiler from changing the functions. */
#ifndef RARE_H
#define RARE_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A compiler may leave out the frame of a function that calls no other function, even with -fno-omit-frame-pointer. If
   the function asks for its frame address, the compiler must keep the frame. */
#ifdef FRAMES
#define FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define FRAME() ((void)0)
#endif

/* The system call does not use the C library's function, because that function has no frame pointer. The address in a
   sample is that of the instruction after the system call. The nop makes sure that this instruction belongs to the same
   function. */
#if defined(__x86_64__)
#define RARE()                                                                                    \
    do {                                                                                          \
        long rare_ = SYS_getppid;                                                                 \
        FRAME();                                                                                  \
        __asm__ volatile("syscall; nop" : "+a"(rare_) : : "rcx", "r11", "memory");                \
    } while (0)
#elif defined(__aarch64__)
#define RARE()                                                                                    \
    do {                                                                                          \
        register long number_ __asm__("x8") = SYS_getppid;                                        \
        register long result_ __asm__("x0");                                                      \
        FRAME();                                                                                  \
        __asm__ volatile("svc 0; nop" : "=r"(result_) : "r"(number_) : "memory");                      \
    } while (0)
#endif

/* Marks a function that is neither inlined nor cloned under another name. */
#define KEPT __attribute__((noinline, noclone))
/* Written after a call, so that the call is not the last action of the function and does not become a jump. */
#define AFTER() __asm__ volatile("" : : : "memory")

#define TIMES 25

static volatile sig_atomic_t told;

static inline void on_term(int number)
{
    (void)number;
    told = 1;
}

/* With `linger` as its last argument, the program waits for SIGTERM, at most 20 s, so its mappings stay readable. */
static inline void prepare(void)
{
    signal(SIGTERM, on_term);
}

static inline void linger(int argc, char **argv)
{
    int waited;
    if (argc < 2 || strcmp(argv[argc - 1], "linger") != 0)
        return;
    for (waited = 0; waited < 2000 && !told; waited++)
        usleep(10000);
}

#endif

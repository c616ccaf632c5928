/* What the programs of known call chains share: the rare system call that their innermost functions make, and how a function
   is kept as it is written. */
#ifndef RARE_H
#define RARE_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A function that calls no other may go without a frame, whatever the compiler is told; one that asks for it may not. */
#ifdef FRAMES
#define FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define FRAME() ((void)0)
#endif

/* Without the C library's function, which keeps no frame pointer. The instruction after the call, which the sample's address is
   that of, belongs to the same function. */
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

/* A function of its own, whose name nobody changes. */
#define KEPT __attribute__((noinline, noclone))
/* Behind a call it is not the last thing that the function does. */
#define AFTER() __asm__ volatile("" : : : "memory")

#define TIMES 25

static volatile sig_atomic_t told;

static inline void on_term(int number)
{
    (void)number;
    told = 1;
}

/* With the argument `linger` the program stays until it is told to end, so that what it has mapped can still be asked for. */
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

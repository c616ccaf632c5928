/* leaf <- handler <- (the kernel's frame) <- interrupted <- main: with any argument, the handler has its own stack. */
#define _GNU_SOURCE
#include "rare.h"

static volatile long calls;

KEPT void leaf(void)
{
    RARE();
    AFTER();
    calls++;
}

KEPT void handler(int number)
{
    (void)number;
    leaf();
    AFTER();
}

/* Sends the signal with an inline system call, so that the interrupted instruction is in the middle of this function. */
KEPT long interrupted(long n)
{
    volatile long kept = n;
#if defined(__x86_64__)
    long r = SYS_kill;
    __asm__ volatile("syscall" : "+a"(r) : "D"((long)getpid()), "S"((long)SIGUSR1) : "rcx", "r11", "memory");
#else
    long r = kill(getpid(), SIGUSR1);
#endif
    AFTER();
    return kept + r;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    int i;
    (void)argv;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    if (argc > 1) {
        stack_t stack = { .ss_sp = malloc(65536), .ss_size = 65536, .ss_flags = 0 };
        sigaltstack(&stack, NULL);
        action.sa_flags = SA_ONSTACK;
    }
    sigaction(SIGUSR1, &action, NULL);
    for (i = 0; i < TIMES; i++)
        interrupted(i);
    return calls != TIMES;
}

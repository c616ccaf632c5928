/* leaf <- aligned <- caller <- main: the function `aligned` realigns its stack, so its unwind rules are DWARF
   expressions. */
#include "rare.h"

KEPT long leaf(long n)
{
    long r = n + syscall(SYS_getppid);
    AFTER();
    return r;
}

KEPT long aligned(long n, long a, long b, long c, long d, long e, long on_stack)
{
    volatile char room[200] __attribute__((aligned(64)));
    volatile char *more = __builtin_alloca((n & 7) * 16 + 16);
    room[n & 63] = 1;
    more[0] = 2;
    long r = leaf(n + a + b + c + d + e);
    AFTER();
    return r + room[n & 63] + more[0] + on_stack;
}

KEPT long caller(long n)
{
    long r = aligned(n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6);
    AFTER();
    return r * 3;
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    for (i = 0; i < TIMES; i++)
        sum += caller(i);
    linger(argc, argv);
    return sum == 42;
}

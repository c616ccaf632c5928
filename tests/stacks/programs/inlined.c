/* innermost <- second <- third <- carrier <- main: all but `carrier` and `main` are inlined. */
#include "rare.h"

static inline __attribute__((always_inline)) long innermost(long n)
{
    RARE();
    return n + 1;
}

static inline __attribute__((always_inline)) long second(long n)
{
    long r = innermost(n * 3);
    AFTER();
    return r;
}

static inline __attribute__((always_inline)) long third(long n)
{
    long r = second(n + 7);
    AFTER();
    return r;
}

KEPT long carrier(long n)
{
    volatile long kept = n;
    long r = third(n);
    AFTER();
    return r + kept;
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    for (i = 0; i < TIMES; i++)
        sum += carrier(i);
    linger(argc, argv);
    return sum == 42;
}

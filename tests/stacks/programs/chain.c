/* leaf <- middle <- outer <- main: each function has a different kind of frame. */
#include "rare.h"

KEPT long leaf(long n)
{
    volatile long kept = n;
    RARE();
    AFTER();
    return kept + 1;
}

/* This function saves many registers. */
KEPT long middle(long a, long b, long c)
{
    long d = a * b, e = b * c, f = c * a;
    long r = leaf(a) + leaf(b);
    AFTER();
    return r + a + b + c + d + e + f;
}

/* The size of this frame is known only at run time. */
KEPT long outer(long n)
{
    volatile char *room = __builtin_alloca((n & 7) * 16 + 16);
    room[n & 7] = 1;
    long r = middle(n, n + 1, n + 2);
    AFTER();
    return r + room[n & 7];
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    for (i = 0; i < TIMES; i++)
        sum += outer(i);
    linger(argc, argv);
    return sum == 42;
}

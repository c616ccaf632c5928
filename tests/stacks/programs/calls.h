/* leaf <- middle <- outer: functions that call each other, for programs with a code of their own in main(). */
#include "rare.h"

KEPT long leaf(long n)
{
    RARE();
    AFTER();
    return n + 1;
}

KEPT long middle(long n)
{
    volatile long kept = n;
    long r = leaf(n);
    AFTER();
    return r + kept;
}

KEPT long outer(long n)
{
    volatile long kept = n;
    long r = middle(n);
    AFTER();
    return r - kept;
}

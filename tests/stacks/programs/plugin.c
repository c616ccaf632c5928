/* plugin_leaf <- plugin_entry: the part of dlopens.c that is loaded while it runs. */
#include "rare.h"

KEPT static long plugin_leaf(long n)
{
    RARE();
    AFTER();
    return n + 1;
}

KEPT long plugin_entry(long n)
{
    volatile long kept = n;
    long r = plugin_leaf(n);
    AFTER();
    return r + kept;
}

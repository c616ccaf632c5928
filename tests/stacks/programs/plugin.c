/* plugin_leaf <- plugin_entry: the library that dlopens.c loads at run time. */
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

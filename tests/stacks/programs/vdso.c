/* (vdso) <- clock_gettime <- asks <- main: the C library's clock_gettime calls the function in the vdso. For a clock
   that only the kernel can read, the function in the vdso makes the system call. */
#include <time.h>

#include "rare.h"

KEPT long asks(long n)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    AFTER();
    return time.tv_nsec + n;
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    for (i = 0; i < TIMES; i++)
        sum += asks(i);
    linger(argc, argv);
    return sum == 42;
}

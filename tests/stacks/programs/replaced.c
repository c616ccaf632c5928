/* leaf <- middle <- outer <- main: before the calls, the program's file is removed or replaced with another one. */
#include <stdio.h>

#include "calls.h"

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    /* `replaced OTHER linger` replaces the program's file with OTHER. `replaced linger` removes the file. */
    if (argc > 2 ? rename(argv[1], argv[0]) : unlink(argv[0])) {
        perror(argv[0]);
        return 2;
    }
    for (i = 0; i < TIMES; i++)
        sum += outer(i);
    linger(argc, argv);
    return sum == 42;
}

/* leaf <- middle <- outer <- main: the program first copies its own code to anonymous memory at the same address.
   Programs do this to have their code in huge pages. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

#include "calls.h"

static int remap(void)
{
    unsigned long start, end, own = (unsigned long)&remap;
    char line[512], right[5];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found = 0;
    void *copy;
    while (!found && maps && fgets(line, sizeof line, maps))
        found = sscanf(line, "%lx-%lx %4s", &start, &end, right) == 3 && start <= own && own < end;
    if (!found)
        return -1;
    fclose(maps);
    copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return -1;
    memcpy(copy, (void *)start, end - start);
    if (mprotect(copy, end - start, PROT_READ | PROT_EXEC))
        return -1;
    return mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) == (void *)start ? 0 : -1;
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    if (remap()) {
        perror("mremap");
        return 2;
    }
    for (i = 0; i < TIMES; i++)
        sum += outer(i);
    linger(argc, argv);
    return sum == 42;
}

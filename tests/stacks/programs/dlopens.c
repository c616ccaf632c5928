/* plugin_leaf <- plugin_entry <- calls_plugin <- main: the first argument is the path of the library. */
#include <dlfcn.h>
#include <stdio.h>

#include "rare.h"

typedef long entry_function(long);

KEPT long calls_plugin(entry_function *entry, long n)
{
    long r = entry(n);
    AFTER();
    return r * 2;
}

int main(int argc, char **argv)
{
    long sum = 0, i;
    prepare();
    for (i = 0; i < TIMES; i++) {
        /* The program loads and unloads the library for each call. */
        void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
        entry_function *entry = plugin ? (entry_function *)dlsym(plugin, "plugin_entry") : NULL;
        if (!entry) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        sum += calls_plugin(entry, i);
        dlclose(plugin);
    }
    linger(argc, argv);
    return sum == 42;
}

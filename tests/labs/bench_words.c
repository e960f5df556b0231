#include "tests/labs/bench_words.h"

#include <stdbool.h>
#include <stddef.h>

ls_status bench_parse_words(bench_settings *settings, char *a, char *b, char *c, char *d) {
    char program[] = "bench_dp_vs_ddp";
    char *argv[] = {program, a, b, c, d, NULL};
    int argc = 1;
    bool help;
    while (argv[argc]) argc++;
    return bench_parse(settings, argc, argv, &help);
}

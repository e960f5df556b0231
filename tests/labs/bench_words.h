/* bench_dp_vs_ddp's command line, for its tests. */
#ifndef TESTS_LABS_BENCH_WORDS_H
#define TESTS_LABS_BENCH_WORDS_H

#include "labs/bench/dp_vs_ddp/bench.h"

/* bench_parse of up to four words behind the program's name; those that are not needed, at the end, are NULL. */
ls_status bench_parse_words(bench_settings *settings, char *a, char *b, char *c, char *d);

#endif

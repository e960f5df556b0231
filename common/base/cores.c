#define _GNU_SOURCE
#include "common/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LS_CACHES_MAX 8
#define LS_YIELD_US 100.0 /* about one round of the ranks that share a core */
#define LS_SPIN_US 50.0   /* about what a futex sleep and wake-up cost together on a busy machine */
#define LS_BRIEF_US 2.0   /* where other jobs want the core: a rank that takes longer has no core */

static cpu_set_t usable;
static bool one_for_all; /* ls_share_one_core; written before there are threads */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_mask(void) {
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) CPU_ZERO(&usable);
}

int ls_usable_cores(void) {
    pthread_once(&once, read_mask);
    int count = CPU_COUNT(&usable);
    return count > 0 ? count : 1;
}

/* Reads an attribute of the first core's index-th cache; "" if there is none. */
static void read_cache(int index, const char *what, char text[16]) {
    char path[80];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, what);
    FILE *file = fopen(path, "r");
    text[0] = '\0';
    if (!file) return;
    if (!fgets(text, 16, file)) text[0] = '\0';
    fclose(file);
}

double ls_cache_bytes(int level) {
    char text[16];
    for (int index = 0; index < LS_CACHES_MAX; index++) {
        read_cache(index, "level", text);
        if (strtol(text, NULL, 10) != level) continue;
        read_cache(index, "type", text);
        if (strncmp(text, "Instruction", 11) == 0) continue;
        read_cache(index, "size", text); /* "1024K" */
        long kib = strtol(text, NULL, 10);
        return kib > 0 ? (double)kib * 1024 : 0;
    }
    return 0;
}

void ls_run_on_any_core(void) {
    pthread_once(&once, read_mask);
    if (CPU_COUNT(&usable) > 0)
        (void)sched_setaffinity(0, sizeof usable, &usable); /* a thread left pinned still works */
}

void ls_run_on_core(int place, int count) {
    cpu_set_t one;
    int cores = ls_usable_cores(), wanted = (int)((long)(place % count) * cores / count), core = 0;
    if (CPU_COUNT(&usable) == 0) return;
    while (!CPU_ISSET(core, &usable) || wanted-- > 0) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* a thread that may not be pinned still works */
}

bool ls_share_one_core(void) {
    cpu_set_t one;
    int core = 0;
    if (sched_getaffinity(0, sizeof one, &one) != 0 || CPU_COUNT(&one) == 0) return false;
    while (!CPU_ISSET(core, &one)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    one_for_all = sched_setaffinity(0, sizeof one, &one) == 0;
    return one_for_all;
}

double ls_spin_us_for(int participants) {
    if (one_for_all || participants > ls_usable_cores()) return 0;
    return getenv("LS_SHARED_CORES") ? LS_BRIEF_US : LS_SPIN_US;
}

double ls_yield_us_for(int participants) { return !one_for_all && participants > ls_usable_cores() ? LS_YIELD_US : 0; }

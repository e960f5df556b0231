#include "labs/15-failures/diagnose.h"

#include <stdio.h>
#include <string.h>

/* The first N for which "rank N" is directly before `sign` in the output; -1 if there is none. */
static int rank_before(const char *output, const char *sign) {
    for (const char *at = strstr(output, sign); at; at = strstr(at + 1, sign)) {
        const char *digit = at;
        int rank;
        while (digit > output && digit[-1] >= '0' && digit[-1] <= '9') digit--;
        if (digit - output >= 5 && memcmp(digit - 5, "rank ", 5) == 0 && sscanf(digit, "%d", &rank) == 1) return rank;
    }
    return -1;
}

/* The rank that wrote the first line with `sign` in it; -1 if no rank did. A rank's lines begin with "program[rank N]:
 * ". */
static int writer_of(const char *output, const char *sign) {
    for (const char *line = output; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *found = strstr(line, sign), *end = strchr(line, '\n');
        int rank, name = (int)strcspn(line, "[\n");
        if (!found || (end && found > end)) continue;
        if (sscanf(line + name, "[rank %d]:", &rank) == 1) return rank;
    }
    return -1;
}

/* Whether the rank has written a line itself. */
static int has_written(const char *output, int rank) {
    char name[32];
    snprintf(name, sizeof name, "[rank %d]:", rank);
    return strstr(output, name) != NULL;
}

const char *diagnose(const char *output, int *rank) {
    if ((*rank = rank_before(output, " died")) >= 0) return "killed";
    *rank = rank_before(output, " did not arrive within");
    if (*rank >= 0) return has_written(output, *rank) ? "slow" : "stopped";
    if ((*rank = writer_of(output, "is out of memory")) >= 0) return "memory";
    if ((*rank = writer_of(output, "the port is in use")) >= 0) return "port";
    if (strstr(output, "expected the same on all ranks") && (*rank = rank_before(output, " has ")) >= 0)
        return "mismatch";
    *rank = -1;
    return "unknown";
}

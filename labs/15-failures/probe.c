/* Tests lab 15's functions: waits for ranks that arrive, arrive late or never arrive (waits.c), and diagnoses of the
 * output of jobs that failed (outputs.c).
 *
 * Two more checks are not graded: `recorded` diagnoses the recordings of record.sh, and `lines` prints the probe's
 * outputs, with which `make course-check` checks that the programs still print such lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/comm/comm.h"
#include "labs/15-failures/diagnose.h"
#include "labs/15-failures/outputs.h"
#include "labs/15-failures/waits.h"
#include "labs/course/probe/probe.h"

/* --- diagnoses of outputs ------------------------------------------------------------------------------------------ */

static char text[OUTPUT_CAPACITY];

/* The case is named after the output's first line, as far as it fits. */
static void begin_case(probe *p, int ranks) {
    char line[200];
    size_t length = strcspn(text, "\n");
    snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), text);
    probe_case(p, "%d ranks, \"%s\" and so on", ranks, line);
}

/* Passes a copy of exactly the output's length, so that AddressSanitizer sees its end. `word` may be NULL. */
static int ask(probe *p, int kind, int ranks, char word[64]) {
    int rank = -7;
    output_make(p, text, kind, ranks);
    begin_case(p, ranks);
    char *output = strdup(text);
    probe_must(p, "memory", output ? LS_OK : LS_ERR_NO_MEMORY);
    const char *said = diagnose(output, &rank);
    if (word) snprintf(word, 64, "%s", said ? said : "NULL");
    free(output);
    return rank;
}

static void see_word(probe *p, int kind, int ranks) {
    char word[64];
    (void)ask(p, kind, ranks, word);
    probe_see(p, "the diagnosis", "%s", word);
}

static void see_rank(probe *p, int kind, int ranks) {
    probe_see(p, "whose failure it was", "%d", ask(p, kind, ranks, NULL));
}

static void every_output(probe *p, void (*see)(probe *p, int kind, int ranks)) {
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int kind = 0; kind < OUTPUT_KINDS; kind++) see(p, kind, ranks);
    for (int again = 0; again < 60; again++)
        see(p, (int)probe_draw(p, OUTPUT_KINDS), again < 30 ? 2 + (int)probe_draw(p, 7) : 11 + (int)probe_draw(p, 20));
    /* enough times that for each kind a rank of two digits fails, except with one seed in half a million */
    for (int again = 0; again < 12; again++)
        for (int kind = 0; kind < OUTPUT_KINDS; kind++) see(p, kind, 30);
    for (int kind = 0; kind < OUTPUT_KINDS; kind++) see(p, kind, LS_COMM_MAX_RANKS);
}

static void words(probe *p) { every_output(p, see_word); }

static void blame(probe *p) { every_output(p, see_rank); }

/* --- not graded ---------------------------------------------------------------------------------------------------- */

static void recorded(probe *p) {
    const char *folder = getenv("RECORDED");
    for (int i = 1; i <= 6; i++) {
        int rank = -1;
        char path[512];
        snprintf(path, sizeof path, "%s/%d.txt", folder ? folder : "build/labs/15/recorded", i);
        FILE *file = fopen(path, "r");
        size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[length] = 0;
        const char *word = length > 0 ? diagnose(text, &rank) : "there is no such file";
        probe_see(p, probe_name(p, "%d", i), "%s %d", word ? word : "NULL", rank);
    }
}

static void lines(probe *p) {
    for (int again = 0; again < 20; again++)
        for (int kind = 0; kind < OUTPUT_KINDS; kind++) {
            output_make(p, text, kind, 4);
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) probe_see(p, "line", "%s", line);
        }
}

int main(int argc, char **argv) {
    static const probe_check checks[] = {{"slow", waits_slow},
                                         {"deadline", waits_deadline},
                                         {"dead", waits_dead},
                                         {"broken", waits_broken},
                                         {"culprit", waits_culprit},
                                         {"again", waits_again},
                                         {"words", words},
                                         {"blame", blame},
                                         {"recorded", recorded},
                                         {"lines", lines},
                                         {NULL, NULL}};
    return probe_main(argc, argv, checks);
}

/* The machine on which a bench was measured. */
#ifndef LABS_BENCH_SHARED_MACHINE_H
#define LABS_BENCH_SHARED_MACHINE_H

#include <stdio.h>

#include "labs/bench/shared/columns.h"

enum { BENCH_MACHINE_TEXT = 160 };

/* Texts are "unknown" if the machine does not provide them. */
typedef struct bench_machine {
    char cpu[BENCH_MACHINE_TEXT], system[BENCH_MACHINE_TEXT], compiler[BENCH_MACHINE_TEXT];
    char onednn[BENCH_MACHINE_TEXT], commit[BENCH_MACHINE_TEXT], date[BENCH_MACHINE_TEXT];
    int cores;   /* that this process may use */
    double load; /* mean number of running processes over the last minute, when the bench began; < 0: unknown */
} bench_machine;

void bench_describe_machine(bench_machine *machine);

/* In every row of a CSV, so that files of several machines can be concatenated; and as JSON. */
extern const bench_column bench_machine_columns[];
cJSON *bench_machine_object(const bench_machine *machine);

/* One line. */
void bench_print_machine(FILE *file, const bench_machine *machine);

/* Prints a note, unless notes are off, if the machine was already busy when the bench began. */
void bench_note_load(const bench_machine *machine);

#endif

/* A command of a bench, composed word by word, and run as a child process. */
#ifndef LABS_BENCH_SHARED_COMMAND_H
#define LABS_BENCH_SHARED_COMMAND_H

#include <stdbool.h>

#include "common/base/log.h"
#include "labs/bench/shared/child.h"

enum { BENCH_COMMAND_WORDS = 64, BENCH_COMMAND_CAPACITY = 1 << 14 };

typedef struct bench_command {
    char program[BENCH_PATH_CAPACITY];
    char *argv[BENCH_COMMAND_WORDS + 1]; /* the program, then the words; ends with NULL */
    int count;
    size_t used;
    bool is_too_long;
    char text[BENCH_COMMAND_CAPACITY];
} bench_command;

/* Begins a command with a program that is built beside this one, without options. LS_ERR_IO as bench_find_program. */
ls_status bench_command_begin(bench_command *command, const char *name);

/* Begins a command with a program in PATH; false: there is none. */
bool bench_command_begin_tool(bench_command *command, const char *name);

/* Appends one word, including any blanks. */
void bench_command_add(bench_command *command, const char *format, ...) LS_PRINTF(2, 3);

/* bench_child_run. LS_ERR_INVALID, with one line, if there was no room for all words. */
ls_status bench_command_run(const bench_command *command, double timeout_s, bench_output *output);

#endif

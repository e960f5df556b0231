#include "labs/bench/shared/command.h"

#include <stdarg.h>
#include <stdio.h>

static void begin(bench_command *command) {
    command->argv[0] = command->program;
    command->argv[1] = NULL;
    command->count = 1;
    command->used = 0;
    command->is_too_long = false;
}

ls_status bench_command_begin(bench_command *command, const char *name) {
    begin(command);
    return bench_find_program(command->program, name);
}

bool bench_command_begin_tool(bench_command *command, const char *name) {
    begin(command);
    return bench_find_tool(command->program, name);
}

void bench_command_add(bench_command *command, const char *format, ...) {
    char *word = command->text + command->used;
    size_t room = sizeof command->text - command->used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(word, room, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= room || command->count == BENCH_COMMAND_WORDS) {
        command->is_too_long = true;
        return;
    }
    command->used += (size_t)length + 1;
    command->argv[command->count++] = word;
    command->argv[command->count] = NULL;
}

ls_status bench_command_run(const bench_command *command, double timeout_s, bench_output *output) {
    if (command->is_too_long) {
        return ls_fail(LS_ERR_INVALID, "the command %s has more than %d words or %d bytes", command->program,
                       BENCH_COMMAND_WORDS, BENCH_COMMAND_CAPACITY);
    }
    return bench_child_run(command->argv, timeout_s, output);
}

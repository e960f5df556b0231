#define _GNU_SOURCE
#include "labs/course/probe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/base/random.h"
#include "common/base/results.h"
#include "labs/course/probe/confine.h"

struct probe {
    int fd;
    ls_generator generator;
    char name[128];
};

/* One write a line: what was seen before a crash is there. Tabs part the fields, so there is none within them. */
static void put_line(probe *p, const char *kind, const char *what, const char *value) {
    char line[1024];
    int nbytes = snprintf(line, sizeof line, "%s\t%s%s%s\n", kind, what, value ? "\t" : "", value ? value : "");
    if (nbytes >= (int)sizeof line) nbytes = (int)sizeof line - 1, line[nbytes - 1] = '\n';
    (void)!write(p->fd, line, (size_t)nbytes);
}

void probe_case(probe *p, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_line(p, "case", text, NULL);
}

void probe_see(probe *p, const char *what, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put_line(p, "see", what, text);
}

void probe_see_count(probe *p, const char *what, uint64_t value) {
    probe_see(p, what, "%llu", (unsigned long long)value);
}

void probe_must(probe *p, const char *what, ls_status status) {
    probe_see(p, what, "%s", ls_status_text(status));
    if (status != LS_OK) _exit(0);
}

enum { IN_FULL = 4 };

void probe_see_floats(probe *p, const char *what, const float *values, size_t count) {
    char text[IN_FULL * 20] = "none";
    for (size_t i = 0, length = 0; i < count && i < IN_FULL; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, i ? " %.9g" : "%.9g", (double)values[i]);
    if (count <= IN_FULL) {
        probe_see(p, what, "%s", text);
        return;
    }
    uint64_t hash = ls_hash(LS_HASH_SEED, values, count * sizeof *values);
    probe_see(p, what, "%s ... (%zu values, hash %016llx)", text, count, (unsigned long long)hash);
}

void probe_see_wholes(probe *p, const char *what, const int64_t *values, size_t count) {
    char text[IN_FULL * 24] = "none";
    for (size_t i = 0, length = 0; i < count && i < IN_FULL; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, i ? " %lld" : "%lld", (long long)values[i]);
    if (count <= IN_FULL) {
        probe_see(p, what, "%s", text);
        return;
    }
    uint64_t hash = ls_hash(LS_HASH_SEED, values, count * sizeof *values);
    probe_see(p, what, "%s ... (%zu values, hash %016llx)", text, count, (unsigned long long)hash);
}

const char *probe_name(probe *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->name, sizeof p->name, format, arguments);
    va_end(arguments);
    return p->name;
}

uint64_t probe_draw(probe *p, uint64_t bound) { return ls_random32(&p->generator) % bound; }

void probe_draw_floats(probe *p, float *values, size_t count) { ls_fill_uniform(&p->generator, values, count, -1, 1); }

/* --- the program -------------------------------------------------------------------------------------------------- */

struct settings {
    const char *check, *out;
    int64_t seed;
};

static ls_status parse(struct settings *s, int argc, char **argv, ls_parsed *parsed) {
    const ls_option options[] = {
        {.kind = LS_OPTION_STRING,
         .name = "check",
         .to.text = &s->check,
         .argument = "NAME",
         .help = "what to look at"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &s->seed, .argument = "N", .help = "of the inputs"},
        {.kind = LS_OPTION_STRING, .name = "out", .to.text = &s->out, .argument = "FILE", .help = "what was seen"},
    };
    const ls_command command = {.purpose = "Calls a lab's functions and writes down what they do, for build/grade.",
                                .options = options,
                                .count = sizeof options / sizeof options[0]};
    return ls_options_parse(&command, argc, argv, parsed);
}

static ls_status run(const struct settings *s, const probe_check *checks) {
    const probe_check *check = checks;
    while (check->name && (!s->check || strcmp(check->name, s->check) != 0)) check++;
    if (!check->name) return ls_fail(LS_ERR_USAGE, "there is no check '%s'", s->check ? s->check : "");
    probe p = {.fd = s->out ? open(s->out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : STDOUT_FILENO};
    if (p.fd < 0) return ls_fail(LS_ERR_IO, "cannot write %s: %s", s->out, strerror(errno));
    ls_generator_seed(&p.generator, (uint64_t)s->seed);
    probe_confine(p.fd);
    check->run(&p);
    put_line(&p, "end", check->name, NULL);
    return LS_OK;
}

int probe_main(int argc, char **argv, const probe_check *checks) {
    struct settings settings = {.seed = 1};
    ls_parsed parsed;
    ls_log_init(argv[0], -1, false);
    ls_status status = parse(&settings, argc, argv, &parsed);
    if (status == LS_OK && !parsed.help) status = run(&settings, checks);
    return ls_status_exit_code(ls_results_written(status));
}

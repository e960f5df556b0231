#define _GNU_SOURCE
#include "labs/course/probe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
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

/* One write a line, so that observations before a crash are kept. Tabs separate the fields, which contain
 * none. */
static void put_line(probe *p, const char *kind, const char *what, const char *value) {
    char line[1024];
    int nbytes = snprintf(line, sizeof line, "%s\t%s%s%s\n", kind, what, value ? "\t" : "", value ? value : "");
    if (nbytes >= (int)sizeof line) nbytes = (int)sizeof line - 1, line[nbytes - 1] = '\n';
    (void)!probe_write(p->fd, line, (size_t)nbytes);
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

/* A short form for messages; the full number and the bound for comparison (grade/verdict.c). */
void probe_see_near(probe *p, const char *what, double value, double bound) {
    if (isnan(value)) value = (double)NAN; /* its sign has no meaning */
    probe_see(p, what, "%.9g\t%.17g\t%.3g", value, value, bound);
}

void probe_must(probe *p, const char *what, ls_status status) {
    probe_see(p, what, "%s", ls_status_text(status));
    if (status != LS_OK) _exit(0);
}

enum { IN_FULL = 4, FINE = 128 };

/* Writes values[from .. from + IN_FULL - 1], of `count`, as text. */
typedef void write_values(char *text, size_t capacity, const void *values, size_t from, size_t count);

static void write_floats(char *text, size_t capacity, const void *values, size_t from, size_t count) {
    const float *value = values;
    for (size_t i = from, length = 0; i < count && i < from + IN_FULL; i++)
        length += (size_t)snprintf(text + length, capacity - length, i > from ? " %.9g" : "%.9g", (double)value[i]);
}

static void write_wholes(char *text, size_t capacity, const void *values, size_t from, size_t count) {
    const int64_t *value = values;
    for (size_t i = from, length = 0; i < count && i < from + IN_FULL; i++)
        length += (size_t)snprintf(text + length, capacity - length, i > from ? " %lld" : "%lld", (long long)value[i]);
}

/* The first values in full, a few a line; then blocks, each as long as all before it. The first line that differs shows
 * the position. */
static void see_values(probe *p, const char *what, const void *values, size_t count, size_t size, write_values *write) {
    char text[IN_FULL * 24] = "none", name[192];
    write(text, sizeof text, values, 0, count);
    probe_see(p, what, "%s%s", text, count > IN_FULL ? " ..." : "");
    for (size_t from = IN_FULL, to; from < count; from = to) {
        to = from < FINE ? from + IN_FULL : 2 * from;
        if (to > count) to = count;
        uint64_t hash = ls_hash(LS_HASH_SEED, (const char *)values + from * size, (to - from) * size);
        write(text, sizeof text, values, from, to);
        snprintf(name, sizeof name, "%s, values %zu to %zu", what, from, to - 1);
        if (to - from > IN_FULL)
            probe_see(p, name, "%s ... (hash %08x)", text, (unsigned)(hash >> 32));
        else
            probe_see(p, name, "%s", text);
    }
}

void probe_see_floats(probe *p, const char *what, const float *values, size_t count) {
    see_values(p, what, values, count, sizeof *values, write_floats);
}

void probe_see_wholes(probe *p, const char *what, const int64_t *values, size_t count) {
    see_values(p, what, values, count, sizeof *values, write_wholes);
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
    if (!check->name) return ls_fail(LS_ERR_USAGE, "unknown check '%s'", s->check ? s->check : "");
    probe p = {.fd = s->out ? open(s->out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : STDOUT_FILENO};
    if (p.fd < 0) return ls_fail(LS_ERR_IO, "cannot write %s: %s", s->out, strerror(errno));
    ls_generator_seed(&p.generator, (uint64_t)s->seed);
    mallopt(M_ARENA_MAX, 2);    /* else each thread takes 64 MiB of the 1 GiB of address space */
    (void)!probe_confine(p.fd); /* the grader reports it if this does not work */
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

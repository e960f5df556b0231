#define _GNU_SOURCE
#include "labs/bench/shared/machine.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "common/base/cores.h"
#include "common/base/log.h"

/* The value of the first "name : value" line; x86 has "model name", others "Hardware" or no such line. */
static void describe_cpu(char text[BENCH_MACHINE_TEXT]) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || (strncmp(line, "model name", 10) != 0 && strncmp(line, "Hardware", 8) != 0)) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(text, BENCH_MACHINE_TEXT, "%.*s", BENCH_MACHINE_TEXT - 1, colon);
        break;
    }
    if (file) fclose(file);
}

static void describe_system(char text[BENCH_MACHINE_TEXT]) {
    struct utsname name;
    if (uname(&name) != 0) return;
    snprintf(text, BENCH_MACHINE_TEXT, "%.40s %.60s %.40s", name.sysname, name.release, name.machine);
}

/* The value of LS_COMMIT (a build that was copied here has no git folder), or else git's answer for the current folder;
 * "-dirty" if files differ from the commit. */
static void describe_commit(char text[BENCH_MACHINE_TEXT]) {
    const char *said = getenv("LS_COMMIT");
    if (said && said[0]) {
        snprintf(text, BENCH_MACHINE_TEXT, "%.*s", BENCH_MACHINE_TEXT - 1, said);
        return;
    }
    FILE *git = popen("git describe --always --dirty 2>/dev/null", "r");
    char line[BENCH_MACHINE_TEXT];
    if (git && fgets(line, sizeof line, git)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0]) memcpy(text, line, sizeof line);
    }
    if (git) pclose(git);
}

static double read_load(void) {
    double load;
    return getloadavg(&load, 1) == 1 ? load : -1;
}

void bench_describe_machine(bench_machine *machine) {
    *machine = (bench_machine){
        .cpu = "unknown", .system = "unknown", .commit = "unknown", .cores = ls_usable_cores(), .load = read_load()};
#ifdef __clang__
    snprintf(machine->compiler, sizeof machine->compiler, "clang %s", __clang_version__);
#else
    snprintf(machine->compiler, sizeof machine->compiler, "gcc %s", __VERSION__);
#endif
    const dnnl_version_t *onednn = dnnl_version();
    snprintf(machine->onednn, sizeof machine->onednn, "%d.%d.%d", onednn->major, onednn->minor, onednn->patch);
    time_t now = time(NULL);
    struct tm utc;
    strftime(machine->date, sizeof machine->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    describe_cpu(machine->cpu);
    describe_system(machine->system);
    describe_commit(machine->commit);
}

#define TEXT(field) BENCH_COLUMN(.name = #field, BENCH_AT(BENCH_CHARS, bench_machine, field))
const bench_column bench_machine_columns[] = {
    {.name = "cores", BENCH_AT(BENCH_INT, bench_machine, cores)},
    TEXT(cpu),
    TEXT(system),
    TEXT(compiler),
    TEXT(onednn),
    TEXT(commit),
    TEXT(date),
    {.kind = BENCH_END},
};

cJSON *bench_machine_object(const bench_machine *machine) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "cpu", machine->cpu);
    bench_add_number(object, "cores", machine->cores);
    bench_add_number(object, "load_before", machine->load < 0 ? NAN : machine->load);
    bench_add_columns(object, bench_machine_columns + 2, machine); /* the other texts */
    return object;
}

void bench_print_machine(FILE *file, const bench_machine *machine) {
    fprintf(file, "%s, %d core%s; %s; %s, oneDNN %s; commit %s; %s\n", machine->cpu, machine->cores,
            machine->cores == 1 ? "" : "s", machine->system, machine->compiler, machine->onednn, machine->commit,
            machine->date);
}

void bench_note_load(const bench_machine *machine) {
    if (!(machine->load > 0.5 * machine->cores)) return;
    ls_note("this machine is busy, or was a moment ago (load %.1f on %d cores); the times may show it", machine->load,
            machine->cores);
}

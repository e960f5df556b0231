/* stages — runs the stages, the most informative per second first, each under its own deadline.
 *   time  : a stage may take its share of the remaining time: its seconds of GPU_CHECK_STAGE_MAP over those of all
 *           remaining stages. So each gets some time, whatever the budget, and unused time goes to later stages.
 *   fails : only a signal or a missing GPU ends the check early. A child that reaches its own limit is broken (it
 *           hangs); one that is ended by the stage's deadline counts as not run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "labs/bench/gpu_check/gpu_check.h"
#include "labs/bench/shared/machine.h"
#include "labs/bench/shared/output.h"

static bench_output output; /* of children whose output is not used otherwise */

static void run_part_stage(gpu_check *check) {
    const char *name = gpu_check_stage_name(check->stage);
    char all[64], why[GPU_CHECK_TEXT];
    snprintf(all, sizeof all, "all %s", name);
    if (!gpu_check_due(check, all)) return;
    double begin_us = ls_now_us();
    gpu_check_end end = gpu_check_run_part(check, name, 300, why);
    gpu_check_verdict verdict = end == GPU_CHECK_WELL ? GPU_CHECK_HELD : gpu_check_verdict_of(end);
    gpu_check_say(check, all, verdict, (ls_now_us() - begin_us) * 1e-6, NULL, "%s", why);
}

static const struct stage {
    const char *name;
    double seconds;
} stages[] = {
#define SECONDS(name, seconds, what) [GPU_CHECK_##name] = {#name, seconds},
    GPU_CHECK_STAGE_MAP(SECONDS)
#undef SECONDS
        [GPU_CHECK_STAGES] = {"run", 0},
};

static void run_stage(gpu_check *check) {
    switch (check->stage) {
    case GPU_CHECK_look: gpu_check_look(check); break;
    case GPU_CHECK_peaks:
    case GPU_CHECK_rates: run_part_stage(check); break;
    case GPU_CHECK_steps:
    case GPU_CHECK_matrix: gpu_check_steps(check); break;
    case GPU_CHECK_agree: gpu_check_agree(check); break;
    default: gpu_check_tests(check); break;
    }
    gpu_check_show(check);
}

const char *gpu_check_stage_name(gpu_check_stage stage) { return stages[stage].name; }

/* --- items -------------------------------------------------------------------------------------------------------- */

double gpu_check_left_s(const gpu_check *check) { return (check->stage_end_us - ls_now_us()) * 1e-6; }

bool gpu_check_due(gpu_check *check, const char *name) {
    gpu_check_show(check);
    const cJSON *before = gpu_check_find_line(check->before, gpu_check_stage_name(check->stage), name);
    gpu_check_verdict was = before ? gpu_check_verdict_in(before) : GPU_CHECK_NOT_RUN;
    if (was != GPU_CHECK_NOT_RUN && was != GPU_CHECK_BROKEN) return false;
    if (gpu_check_left_s(check) > 0) return true;
    gpu_check_say(check, name, GPU_CHECK_NOT_RUN, -1, NULL, "no time left (--budget, --continue)");
    return false;
}

gpu_check_verdict gpu_check_verdict_of(gpu_check_end end) {
    return end == GPU_CHECK_OUT_OF_TIME ? GPU_CHECK_NOT_RUN : GPU_CHECK_BROKEN;
}

/* Turns "`COMMAND` ended with exit status 1: REASON" around, the reason first. */
static void explain(char why[GPU_CHECK_TEXT], const char *error) {
    const char *behind = error[0] == '`' ? strstr(error, "` ") : NULL;
    if (behind)
        snprintf(why, GPU_CHECK_TEXT, "%s (%.*s)", behind + 2, (int)(behind + 1 - error), error);
    else
        snprintf(why, GPU_CHECK_TEXT, "%s", error);
}

gpu_check_end gpu_check_run(gpu_check *check, char *const *argv, double limit_s, bench_output *said,
                            char why[GPU_CHECK_TEXT], double *seconds) {
    char error[GPU_CHECK_TEXT] = "";
    double left_s = gpu_check_left_s(check), allowed_s = fmax(0, fmin(limit_s, left_s)), begin_us = ls_now_us();
    ls_log_sink before = ls_log_capture(error, sizeof error);
    ls_status status = bench_child_run(argv, allowed_s, said);
    ls_log_restore(before);
    *seconds = (ls_now_us() - begin_us) * 1e-6;
    explain(why, error);
    if (status == LS_OK) return GPU_CHECK_WELL;
    if (status != LS_ERR_TIMEOUT) return GPU_CHECK_FAILED;
    bool hangs = left_s >= limit_s;
    snprintf(why, GPU_CHECK_TEXT, "did not end within %.1f s%s", allowed_s, hangs ? "" : ", all that was left");
    return hangs ? GPU_CHECK_FAILED : GPU_CHECK_OUT_OF_TIME;
}

gpu_check_end gpu_check_run_part(gpu_check *check, const char *part, double limit_s, char why[GPU_CHECK_TEXT]) {
    static char path[BENCH_PATH_CAPACITY];
    char gpu[16];
    double seconds;
    if (bench_find_program(path, "gpu_check") != LS_OK) return GPU_CHECK_FAILED;
    snprintf(gpu, sizeof gpu, "%d", check->gpu);
    char *argv[] = {
        path, "--part", (char *)part, "--out", (char *)check->out, "--gpu", gpu, check->quick ? "--quick" : NULL, NULL};
    return gpu_check_run(check, argv, limit_s, &output, why, &seconds);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* Sets chosen[]: whether --only names the stage. */
static ls_status choose(const char *only, bool chosen[GPU_CHECK_STAGES]) {
    char text[256] = "", *rest;
    for (int s = 0; s < GPU_CHECK_STAGES; s++) chosen[s] = only == NULL;
    if (only) snprintf(text, sizeof text, "%s", only);
    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int s = 0;
        while (s < GPU_CHECK_STAGES && strcmp(word, stages[s].name) != 0) s++;
        if (s == GPU_CHECK_STAGES)
            return ls_fail(LS_ERR_USAGE, "--only: unknown stage '%s'; --help lists the stages", word);
        chosen[s] = true;
    }
    for (int s = 0; s < GPU_CHECK_STAGES; s++)
        if (chosen[s]) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--only names no stage; --help lists the stages");
}

/* A file that --continue extends must be of this commit; a truncated last line is terminated. */
static ls_status open_log(gpu_check *check, const char *commit) {
    static const bench_file outputs[] = {{"gpu_check.jsonl", NULL}, {"gpu_check.json", NULL}, {NULL, NULL}};
    ls_named_files files = {0};
    ls_named_files_add(&files, &(ls_named_file){.option = "--pytorch", .path = check->pytorch});
    ls_status status = bench_prepare_folder(&files, check->out, outputs);
    if (status != LS_OK) return status;
    FILE *file = fopen(check->path, check->go_on ? "ae" : "we");
    if (!file) return ls_fail(LS_ERR_IO, "cannot write %s: %s", check->path, strerror(errno));
    if (check->go_on && ftell(file) > 0) fputc('\n', file);
    check->shown_nbytes = ftell(file);
    fclose(file);
    if (check->go_on) status = gpu_check_read(check->path, &check->before);
    const cJSON *machine = gpu_check_find_line(check->before, "run", "machine");
    const char *older = gpu_check_text(cJSON_GetObjectItemCaseSensitive(machine, "figures"), "commit");
    if (status == LS_OK && machine && strcmp(older, commit) != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "--continue: %s is of commit %s, but this program is of %s; leave --continue out to begin again",
                       check->path, older, commit);
    }
    return status;
}

static void say_machine(gpu_check *check, const bench_machine *machine, const bool chosen[GPU_CHECK_STAGES]) {
    char names[256] = "";
    for (int s = 0; s < GPU_CHECK_STAGES; s++) {
        size_t length = strlen(names);
        if (chosen[s]) snprintf(names + length, sizeof names - length, "%s%s", length ? "," : "", stages[s].name);
    }
    cJSON *figures = bench_machine_object(machine);
    cJSON_AddNumberToObject(figures, "budget_s", check->budget_s);
    cJSON_AddStringToObject(figures, "stages", names);
    gpu_check_say(check, "machine", GPU_CHECK_HELD, -1, figures, "%s", machine->cpu);
}

static void run_stages(gpu_check *check, const bool chosen[GPU_CHECK_STAGES]) {
    double end_us = check->stage_end_us, to_come = 0;
    for (int s = 0; s < GPU_CHECK_STAGES; s++) to_come += chosen[s] ? stages[s].seconds : 0;
    for (int s = 0; s < GPU_CHECK_STAGES; s++) {
        if (!chosen[s]) continue;
        double now_us = ls_now_us();
        check->stage = (gpu_check_stage)s;
        check->stage_end_us = now_us + (end_us - now_us) * stages[s].seconds / to_come;
        to_come -= stages[s].seconds;
        run_stage(check);
    }
    check->stage_end_us = end_us;
}

static ls_status conclude(gpu_check *check) {
    char path[PATH_MAX + 16];
    cJSON *lines;
    int held = 0;
    ls_status status = gpu_check_read(check->path, &lines);
    if (status != LS_OK) return status;
    int broken = gpu_check_print_summary(lines, &held);
    snprintf(path, sizeof path, "%s/gpu_check.json", check->out);
    status = gpu_check_write_reference(lines, path);
    cJSON_Delete(lines);
    if (status == LS_OK) printf("written: %s, %s\n", check->path, path);
    fflush(stdout); /* before a last message on stderr */
    if (status != LS_OK || check->log_failed) return status != LS_OK ? status : LS_ERR_IO;
    if (broken > 0) return ls_fail(LS_ERR_INVALID, "%d results are wrong; see above", broken);
    return held > 0 ? LS_OK : ls_fail(LS_ERR_INVALID, "nothing was checked, so nothing passed");
}

ls_status gpu_check_conduct(gpu_check *check) {
    static bench_machine machine;
    bool chosen[GPU_CHECK_STAGES];
    double begin_us = ls_now_us();
    bench_describe_machine(&machine);
    ls_status status = choose(check->only, chosen);
    if (status == LS_OK) status = open_log(check, machine.commit);
    if (status == LS_OK) {
        check->stage = GPU_CHECK_STAGES;
        say_machine(check, &machine, chosen);
        check->stage = GPU_CHECK_look;
        status = gpu_check_meet(check);
    }
    if (status == LS_OK) {
        gpu_check_hold(check);
        run_stages(check, chosen);
        gpu_check_let_go();
        check->stage = GPU_CHECK_STAGES;
        gpu_check_say(check, "end", GPU_CHECK_HELD, (ls_now_us() - begin_us) * 1e-6, NULL, "all stages are through");
        status = conclude(check);
    }
    cJSON_Delete(check->before);
    return status;
}

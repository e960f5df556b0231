/* tests — the test programs that can run on a GPU, each in its own process, so that one that breaks the GPU's context
 * does not affect the others; directly, and under compute-sanitizer.
 *   held            : its exit status is 0, and cmocka counted passed tests
 *   broken          : if the program that tests all operations fails, each operation's two rungs run in a process of
 *                     their own, which shows which of them failed, and whether the others pass
 *   needs more GPUs : it also skipped some tests: the only reason for which these programs skip
 *   the tool        : counts if it wrote its own summary. If it cannot be used (in some sandboxes), the first program
 *                     shows that, and the others are not run under it. Whole trainings take hours under it, and are
 *                     left out. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "labs/bench/gpu_check/gpu_check.h"

#define TEST_S 60.0 /* less than its stage's limit, so that one that hangs counts as broken */
#define TOOL_S 300.0

static bench_output output;

/* The number in cmocka's closing line "[  WHAT  ] N test(s)", 0 without one. */
static int count(const char *what) {
    const char *const texts[] = {output.out, output.err};
    char form[32];
    int found = 0;
    snprintf(form, sizeof form, "[ %s ] %%d test(s)%%n", what); /* a blank matches any number of blanks */
    for (int t = 0; t < 2; t++) {
        for (const char *at = texts[t]; (at = strchr(at, '[')); at++) {
            int here, end = 0;
            if (sscanf(at, form, &here, &end) == 1 && end > 0) found = here;
        }
    }
    return found;
}

/* The tests that failed, or the one that ran when the program died: "a, b". */
static void name_failures(char *names, size_t capacity) {
    static const char failed[] = "[  FAILED  ] ";
    names[0] = '\0';
    for (const char *at = output.err; (at = strstr(at, failed));) {
        at += sizeof failed - 1;
        int nbytes = (int)strcspn(at, "\n:");
        size_t length = strlen(names);
        bool counts = strstr(at, "test(s)") && strstr(at, "test(s)") < at + nbytes;
        if (!counts && nbytes > 0 && !memmem(names, length, at, (size_t)nbytes))
            snprintf(names + length, capacity - length, "%s%.*s", length ? ", " : "", nbytes, at);
    }
    char *begun = NULL;
    for (char *at = output.out; (at = strstr(at, "[ RUN      ] ")); at++) begun = at + sizeof "[ RUN      ] " - 1;
    if (!names[0] && begun) snprintf(names, capacity, "%.*s", (int)strcspn(begun, "\n"), begun);
}

static cJSON *counted(int passed, int skipped) {
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddNumberToObject(figures, "tests_passed", passed);
    cJSON_AddNumberToObject(figures, "tests_skipped", skipped);
    return figures;
}

/* The verdict of one run of a test program. */
static gpu_check_end run_test(gpu_check *check, char *test, const char *name) {
    char *const argv[] = {test, NULL};
    char why[GPU_CHECK_TEXT], names[GPU_CHECK_TEXT];
    double seconds;
    gpu_check_end end = gpu_check_run(check, argv, TEST_S, &output, why, &seconds);
    int passed = count("PASSED"), skipped = count("SKIPPED");
    if (end != GPU_CHECK_WELL || passed + skipped == 0) {
        name_failures(names, sizeof names);
        gpu_check_say(check, name, gpu_check_verdict_of(end), seconds, NULL, "%s%s%s", names, names[0] ? ": " : "",
                      end == GPU_CHECK_WELL ? "no test ran" : why);
    } else if (skipped > 0) {
        gpu_check_say(check, name, GPU_CHECK_NEEDS_GPUS, seconds, counted(passed, skipped),
                      "%d tests passed, %d need more GPUs", passed, skipped);
    } else {
        gpu_check_say(check, name, GPU_CHECK_HELD, seconds, counted(passed, 0), "%s", "");
    }
    return end;
}

/* After a failure of the program that tests all operations: runs each operation and rung in a separate process. */
static void run_each_operation(gpu_check *check, char *test, const char *name) {
    static const char *const rungs[] = {"naive", "fast"};
    for (int id = 0; id < LS_OP_COUNT; id++) {
        for (int r = 0; r < 2; r++) {
            char one[128];
            snprintf(one, sizeof one, "%s %s %s", name, ls_op_name((ls_op_id)id), rungs[r]);
            if (!gpu_check_due(check, one)) continue;
            setenv("LS_ONE_OPERATION", ls_op_name((ls_op_id)id), 1);
            setenv("LS_BACKEND", rungs[r], 1);
            (void)run_test(check, test, one);
        }
    }
    unsetenv("LS_ONE_OPERATION");
    unsetenv("LS_BACKEND");
}

/* The tool's count, from "===== ERROR SUMMARY: 3 errors" or "===== RACECHECK SUMMARY: 3 hazards displayed"; -1: it
 * wrote no such line. */
static int tool_findings(void) {
    const char *const texts[] = {output.out, output.err};
    int findings = -1, here;
    for (int t = 0; t < 2; t++) {
        for (const char *at = texts[t]; (at = strstr(at, " SUMMARY: ")); at++)
            if (sscanf(at, " SUMMARY: %d", &here) == 1) findings = here;
    }
    return findings;
}

/* False if the tool cannot be used here. *usable: it has written a summary before; if it then writes none for one
 * program, the others are still run. */
static bool run_under_tool(gpu_check *check, const char *sanitizer, char *test, const char *name, bool *usable) {
    char *const argv[] = {(char *)sanitizer,
                          "--tool",
                          (char *)gpu_check_stage_name(check->stage),
                          "--report-api-errors",
                          "no",
                          "--error-exitcode",
                          "9",
                          test,
                          NULL};
    char why[GPU_CHECK_TEXT];
    double seconds;
    gpu_check_end end = gpu_check_run(check, argv, TOOL_S, &output, why, &seconds);
    int findings = tool_findings();
    if (end == GPU_CHECK_OUT_OF_TIME || (findings < 0 && seconds >= TOOL_S)) {
        gpu_check_say(check, name, GPU_CHECK_NOT_RUN, seconds, NULL, "%s", why); /* slow is not broken */
    } else if (findings < 0) {
        const char *said = output.out_nbytes ? bench_last_line(output.out) : bench_last_line(output.err);
        gpu_check_say(check, *usable ? name : "compute-sanitizer", GPU_CHECK_NO_TOOL, seconds, NULL, "%.150s", said);
        return *usable;
    } else if (findings > 0 || end != GPU_CHECK_WELL) {
        gpu_check_say(check, name, GPU_CHECK_BROKEN, seconds, NULL, "%d findings; %s", findings, why);
    } else {
        gpu_check_say(check, name, GPU_CHECK_HELD, seconds, NULL, "%s", "");
    }
    if (findings >= 0 && !*usable)
        gpu_check_say(check, "compute-sanitizer", GPU_CHECK_HELD, -1, NULL, "it can be used here");
    *usable |= findings >= 0;
    return true;
}

static bool is_training(const char *name) { return strstr(name, "training") || strstr(name, "modes"); }

void gpu_check_tests(gpu_check *check) {
    static char sanitizer[BENCH_PATH_CAPACITY];
    bool usable = false, under_tool = check->stage == GPU_CHECK_memcheck || check->stage == GPU_CHECK_racecheck;
    if (under_tool && !bench_find_tool(sanitizer, "compute-sanitizer")) {
        gpu_check_say(check, "compute-sanitizer", GPU_CHECK_NO_TOOL, -1, NULL, "it is not in PATH");
        return;
    }
    int given = 0;
    for (int t = 0; t < check->test_count; t++) {
        const char *slash = strrchr(check->tests[t], '/'), *name = slash ? slash + 1 : check->tests[t];
        if (is_training(name) != (check->stage == GPU_CHECK_training)) continue;
        given++;
        if (!gpu_check_due(check, name)) continue;
        if (!under_tool) {
            gpu_check_end end = run_test(check, check->tests[t], name);
            if (strcmp(name, "test_walk") == 0 && end != GPU_CHECK_WELL && end != GPU_CHECK_OUT_OF_TIME)
                run_each_operation(check, check->tests[t], name);
        } else if (!run_under_tool(check, sanitizer, check->tests[t], name, &usable))
            return;
    }
    if (given == 0) gpu_check_say(check, "tests", GPU_CHECK_NOT_RUN, -1, NULL, "none was given");
}

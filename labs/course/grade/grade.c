/* grade — judges a student's code for one lab.
 *
 *     build/grade --lab=labs/03-allreduce --student=build/labs/03/probe --reference=build/labs/03/reference
 *
 * For each check of lab.conf the student's probe runs, and then the reference's with the same seed: while student code
 * runs, the right answers do not exist yet. This process, which never loads student code, makes the verdicts.
 * LS_LANG=zh: output in Chinese; the file of --json is always the same, since programs read it. Exit status: 0 all
 * points, 1 some or none, 3 no function is written yet, 2 wrong usage. --confines: 0 this machine can confine probes, 1
 * it cannot. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/named_files.h"
#include "common/base/options.h"
#include "common/base/results.h"
#include "labs/course/grade/attempt.h"
#include "labs/course/grade/lab.h"
#include "labs/course/grade/untranslated.h"
#include "labs/course/grade/verdict.h"
#include "labs/course/grade/words.h"
#include "labs/course/probe/confine.h"

/* For processor time and for lack of progress (attempt.h). The reference takes some hundredths of a second for most
 * checks, up to 4 s for a few, and a probe ends a deadlock after 4 s (crew.h). If a check hangs nevertheless, the
 * others count as not run. The reference does not hang; if it is late, the machine is busy, and there is no verdict. */
#define DEADLINE_S 12.0
#define REFERENCE_DEADLINE_S 60.0
#define MEMORY_DEADLINE_S 30.0
#define LONG_US 1e6

enum { EXIT_SOME = 1, EXIT_NOTHING_WRITTEN = 3 };

struct settings {
    const char *lab, *student, *asan, *reference, *refused, *refused_in_words, *json;
    words_language language;
    int64_t seed;
    bool until_broken, confines, untranslated;
};

struct result {
    verdict verdict;
    int points;
    double us; /* the duration of the student's run */
    told why;
};

struct grading {
    const struct settings *settings;
    lab lab;
    phrases *rules;
    struct result results[LAB_MOST_CHECKS];
    int points, of, held, unwritten;
    bool hung, crashed, broken; /* an earlier check */
};

/* --- judging ------------------------------------------------------------------------------------------------------ */

/* Runs the student's probe first. */
static ls_status judge_check(struct grading *g, const lab_check *check, struct result *result) {
    attempt student, reference = {0};
    attempt_request request = {
        .program = g->settings->student, .check = check->name, .seed = g->settings->seed, .deadline_s = DEADLINE_S};
    double begin_us = ls_now_us();
    ls_status status = attempt_run(&student, &request);
    result->us = ls_now_us() - begin_us;
    request.program = g->settings->reference;
    request.deadline_s = REFERENCE_DEADLINE_S;
    if (status == LS_OK) status = attempt_run(&reference, &request);
    if (status == LS_OK) result->verdict = verdict_of(&result->why, &student, &reference, g->rules);
    g->crashed = g->crashed || student.signal;
    attempt_close(&student);
    attempt_close(&reference);
    return status;
}

/* Whether the check failed only after a while: it waited for a deadline, and would do so again. */
static bool waits_in_vain(const struct result *result) {
    return result->verdict != VERDICT_HELD && result->us > LONG_US;
}

/* Runs all other checks again under AddressSanitizer, except those that wait in vain. It gets points only if another
 * check holds; but for a crash it reports the place. */
static ls_status judge_memory(struct grading *g, struct result *result) {
    ls_status status = LS_OK;
    bool runs = g->settings->asan && !g->hung && (g->held > 0 || g->crashed);
    for (int i = 0; runs && status == LS_OK && result->verdict == VERDICT_HELD && i < g->lab.check_count; i++) {
        if (strcmp(g->lab.checks[i].name, LAB_MEMORY_CHECK) == 0 || waits_in_vain(&g->results[i])) continue;
        attempt student;
        attempt_request request = {.program = g->settings->asan,
                                   .check = g->lab.checks[i].name,
                                   .seed = g->settings->seed,
                                   .deadline_s = MEMORY_DEADLINE_S,
                                   .asan = true};
        status = attempt_run(&student, &request);
        if (status == LS_OK) result->verdict = verdict_of_memory(&result->why, &student);
        attempt_close(&student);
    }
    if (!runs || (result->verdict == VERDICT_HELD && g->held == 0)) {
        result->verdict = VERDICT_NOT_RUN;
        if (g->hung)
            words_add(&result->why, WORDS_EARLIER_HUNG);
        else
            words_add(&result->why, WORDS_ANOTHER_MUST_HOLD);
    }
    return status;
}

static ls_status judge(struct grading *g, int i) {
    const lab_check *check = &g->lab.checks[i];
    struct result *result = &g->results[i];
    ls_status status = LS_OK;
    if (g->settings->refused) {
        result->verdict = VERDICT_FORBIDDEN;
        words_add(&result->why, "%s", "%s", g->settings->refused);
    } else if (g->broken && g->settings->until_broken) {
        result->verdict = VERDICT_NOT_RUN;
        words_add(&result->why, WORDS_EARLIER_BROKE);
    } else if (strcmp(check->name, LAB_MEMORY_CHECK) == 0) {
        status = judge_memory(g, result);
    } else if (g->hung) {
        result->verdict = VERDICT_NOT_RUN;
        words_add(&result->why, WORDS_EARLIER_HUNG);
    } else {
        status = judge_check(g, check, result);
    }
    g->hung = g->hung || result->verdict == VERDICT_HUNG;
    g->broken = g->broken || result->verdict != VERDICT_HELD;
    g->held += result->verdict == VERDICT_HELD;
    g->unwritten += result->verdict == VERDICT_NOT_WRITTEN;
    result->points = result->verdict == VERDICT_HELD ? check->points : 0;
    g->points += result->points;
    g->of += check->points;
    return status;
}

static bool nothing_is_written(const struct grading *g) { return g->unwritten > 0 && g->held == 0; }

/* --- output ------------------------------------------------------------------------------------------------------- */

/* If the code is refused, the one reason is printed above all checks. */
static void print_check(const struct grading *g, int i, bool refused) {
    const lab_check *check = &g->lab.checks[i];
    const struct result *result = &g->results[i];
    words_language language = g->settings->language;
    printf(words_in(language, WORDS_CHECK), check->name, result->points, check->points, check->words);
    if (result->verdict == VERDICT_HELD || refused) return;
    printf(words_in(language, WORDS_WHY), verdict_name(result->verdict, language), result->why.text[language]);
    const char *hint = lab_find_hint(&g->lab, check->name, result->why.text[WORDS_ENGLISH]);
    if (hint && result->verdict != VERDICT_NOT_WRITTEN && result->verdict != VERDICT_NOT_RUN)
        printf(words_in(language, WORDS_HINT), hint);
}

static void print_whole(const struct grading *g) {
    words_language language = g->settings->language;
    printf(words_in(language, WORDS_LAB), g->lab.number, g->lab.title);
    const char *refused = g->settings->refused;
    if (refused && g->settings->refused_in_words) refused = g->settings->refused_in_words;
    if (refused) printf(words_in(language, WORDS_WAS_NOT_RUN), refused);
    for (int i = 0; i < g->lab.check_count; i++) print_check(g, i, refused != NULL);
    printf(words_in(language, WORDS_TOTAL), g->lab.number, g->points, g->of,
           nothing_is_written(g) ? words_in(language, WORDS_WRITE_FIRST) : "", (long long)g->settings->seed);
}

/* For programs: the same whatever the student's language is. */
static ls_status write_json(const struct grading *g) {
    cJSON *root = cJSON_CreateObject(), *checks = cJSON_AddArrayToObject(root, "checks");
    cJSON_AddStringToObject(root, "lab", g->lab.number);
    cJSON_AddNumberToObject(root, "points", g->points);
    cJSON_AddNumberToObject(root, "of", g->of);
    cJSON_AddNumberToObject(root, "seed", (double)g->settings->seed);
    cJSON_AddBoolToObject(root, "nothing_written", nothing_is_written(g));
    for (int i = 0; i < g->lab.check_count; i++) {
        cJSON *check = cJSON_CreateObject();
        cJSON_AddStringToObject(check, "check", g->lab.checks[i].name);
        cJSON_AddNumberToObject(check, "points", g->results[i].points);
        cJSON_AddNumberToObject(check, "of", g->lab.checks[i].points);
        cJSON_AddStringToObject(check, "verdict", verdict_name(g->results[i].verdict, WORDS_ENGLISH));
        cJSON_AddStringToObject(check, "invariant", g->lab.checks[i].invariant);
        cJSON_AddStringToObject(check, "why", g->results[i].why.text[WORDS_ENGLISH]);
        cJSON_AddStringToObject(check, "why_zh", g->results[i].why.text[WORDS_CHINESE]);
        cJSON_AddItemToArray(checks, check);
    }
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    if (!text) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for %s", g->settings->json);
    ls_status status = ls_file_write_text(g->settings->json, text);
    cJSON_free(text);
    return status;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static bool is_conf(const char *name) {
    const char *ending = strrchr(name, '.');
    return ending && strcmp(ending, ".conf") == 0;
}

static ls_status check_json(const struct settings *s) {
    const ls_named_file named[] = {{.option = "--lab", .path = s->lab, .owns = is_conf},
                                   {.option = "--student", .path = s->student},
                                   {.option = "--asan", .path = s->asan},
                                   {.option = "--reference", .path = s->reference},
                                   {.option = "--json", .path = s->json, .is_output = true}};
    ls_named_files files = {0};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) ls_named_files_add(&files, &named[i]);
    ls_status status = ls_named_files_check(&files);
    return status == LS_OK ? ls_file_check(s->json) : status;
}

static ls_status parse(struct settings *s, int argc, char **argv, bool *help) {
    /* clang-format off */
    const ls_option options[] = {
        {.kind = LS_OPTION_STRING, .name = "lab", .to.text = &s->lab, .argument = "DIR", .help = "the lab's folder"},
        {.kind = LS_OPTION_STRING, .name = "student", .to.text = &s->student, .argument = "FILE",
         .help = "the probe with the student's code"},
        {.kind = LS_OPTION_STRING, .name = "asan", .to.text = &s->asan, .argument = "FILE",
         .help = "the same, built with AddressSanitizer"},
        {.kind = LS_OPTION_STRING, .name = "reference", .to.text = &s->reference, .argument = "FILE",
         .help = "the probe with the product's code"},
        {.kind = LS_OPTION_STRING, .name = "refused", .to.text = &s->refused, .argument = "WHY",
         .help = "the code is not run, for this reason"},
        {.kind = LS_OPTION_STRING, .name = "refused-in-words", .to.text = &s->refused_in_words, .argument = "WHY",
         .help = "the same in the student's language (LS_LANG)"},
        {.kind = LS_OPTION_INT64, .name = "seed", .to.big_number = &s->seed, .argument = "N",
         .limits = LS_BETWEEN(0, 1e9), .help = "of the inputs", .empty = "drawn anew"},
        {.kind = LS_OPTION_FLAG, .name = "until-broken", .to.flag = &s->until_broken,
         .help = "run no check after the first that does not hold"},
        {.kind = LS_OPTION_FLAG, .name = "confines", .to.flag = &s->confines,
         .help = "only find out whether this machine can confine probes (exit status 0 or 1)"},
        {.kind = LS_OPTION_FLAG, .name = "untranslated", .to.flag = &s->untranslated,
         .help = "only print the reference's texts that have no Chinese (exit status 0: none)"},
        {.kind = LS_OPTION_STRING, .name = "json", .to.text = &s->json, .argument = "FILE",
         .help = "write the verdicts there, too"},
    };
    /* clang-format on */
    const ls_command command = {.purpose = "Judges what a student wrote for a lab: `make grade LAB=03` calls it.",
                                .options = options,
                                .count = sizeof options / sizeof options[0]};
    ls_parsed parsed;
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    *help = parsed.help;
    if (status != LS_OK || parsed.help || s->confines) return status;
    if (!s->lab) return ls_fail(LS_ERR_USAGE, "grade needs a lab: --lab=labs/03-allreduce");
    if (s->untranslated && s->reference) return LS_OK;
    if (!s->refused && (!s->student || !s->reference))
        return ls_fail(LS_ERR_USAGE, "grade needs the two probes: --student and --reference");
    return s->json ? check_json(s) : LS_OK;
}

static int64_t draw_seed(void) {
    uint32_t bits = 1;
    (void)!getrandom(&bits, sizeof bits, 0);
    return 1 + bits % 1000000;
}

static ls_status run(struct grading *g) {
    ls_status status = lab_open(&g->lab, g->settings->lab, g->settings->language);
    if (status == LS_OK) status = phrases_open(&g->rules, g->settings->lab);
    if (status == LS_OK && g->settings->untranslated)
        return untranslated_print(&g->lab, g->rules, g->settings->reference, g->settings->seed);
    if (status == LS_OK && !g->settings->refused && !probe_can_confine())
        puts(words_in(g->settings->language, WORDS_NOT_CONFINED));
    for (int i = 0; status == LS_OK && i < g->lab.check_count; i++) status = judge(g, i);
    if (status == LS_OK) print_whole(g);
    if (status == LS_OK && g->settings->json) status = write_json(g);
    return status;
}

int main(int argc, char **argv) {
    struct settings settings = {0};
    bool help = false;
    ls_log_init(argv[0], -1, false);
    settings.language = words_language_of(getenv("LS_LANG"));
    ls_status status = parse(&settings, argc, argv, &help);
    if (settings.seed == 0) settings.seed = draw_seed();
    if (status == LS_OK && settings.confines) return probe_can_confine() ? 0 : 1;
    struct grading g = {.settings = &settings};
    if (status == LS_OK && !help) status = run(&g);
    bool whole = g.points == g.of, nothing = nothing_is_written(&g);
    lab_close(&g.lab);
    phrases_close(g.rules);
    if (status == LS_OK && !help && ls_results_written(status) == LS_OK)
        return nothing ? EXIT_NOTHING_WRITTEN : whole ? 0 : EXIT_SOME;
    return ls_status_exit_code(ls_results_written(status));
}

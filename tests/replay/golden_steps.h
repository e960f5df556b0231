/* tests/golden/replay_steps.txt: settings of replays, and the result of each. A line is
 *
 *     node=dgx1-v100 work=resnet50 mode=dp n=4 batch=128 = STEP COMPUTE0 EXPOSED0 COMPUTE EXPOSED SENT0
 *
 * in microseconds and bytes of a step: its length, the computation and the exposed communication of the first and of
 * the last device, and the bytes that the first sends. Keys that a line leaves out have the values of
 * ls_plan_defaults. */
#ifndef TESTS_REPLAY_GOLDEN_STEPS_H
#define TESTS_REPLAY_GOLDEN_STEPS_H

#include "labs/replay/engine/account.h"
#include "labs/replay/engine/plan.h"

enum { GOLDEN_NUMBERS = 6, GOLDEN_LINE = 400 };

struct golden_setting {
    char text[GOLDEN_LINE]; /* without the numbers */
    char node[32], work[32], host[16];
    double launch_us, lock_us; /* < 0: the node's */
    struct ls_plan options;
};

/* "KEY=VALUE ..." up to a lone "="; *numbers is the text after it, NULL if there is none. Asserts that the line is well
 * formed. */
void golden_parse(struct golden_setting *setting, const char *line, const char **numbers);

/* Open the node and the workload that the setting names; the caller closes both. Assert success. */
ls_node *golden_node(const struct golden_setting *setting);
ls_workload *golden_workload(const struct golden_setting *setting);
void golden_close(ls_workload *workload);

void golden_numbers(double numbers[GOLDEN_NUMBERS], const struct ls_account *account);

#endif

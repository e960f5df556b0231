/* visits — how often a job has trained on each sample: lab 25.
 *
 *     build/visits --write DIR            samples that count, and weights to begin with (DIR/zeros)
 *     build/visits WEIGHTS                how many samples were trained on how often */
#include <stdio.h>
#include <sys/stat.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "labs/25-missing/visits/counted.h"
#include "labs/bench/shared/settings.h"

enum { SAMPLES = 600 };

static ls_status write_samples(const char *folder) {
    char init[4096];
    (void)mkdir(folder, 0777);
    snprintf(init, sizeof init, "%s/zeros", folder);
    return counted_write(folder, SAMPLES, init) ? LS_OK : LS_ERR_SYSTEM;
}

/* Prints a line for each number of visits that occurs. */
static ls_status print_visits(const char *weights) {
    int counts[SAMPLES];
    if (!counted_read(weights, SAMPLES, counts)) return LS_ERR_INVALID;
    for (int i = 0; i < SAMPLES; i++) {
        int samples = 0, before = 0;
        for (int j = 0; j < SAMPLES; j++) {
            samples += counts[j] == counts[i];
            before += j < i && counts[j] == counts[i];
        }
        if (before > 0) continue;
        if (counts[i] < 0)
            printf("%d samples: no whole number of times\n", samples);
        else
            printf("%d samples: %d times\n", samples, counts[i]);
    }
    return LS_OK;
}

int main(int argc, char **argv) {
    const char *folder = NULL;
    const ls_option options[] = {
        {.kind = LS_OPTION_STRING,
         .name = "write",
         .to.text = &folder,
         .argument = "DIR",
         .help = "write samples that count there, and weights to begin with",
         .empty = "count"},
    };
    const ls_command command = {.purpose =
                                    "Counts how often a job has trained on each sample, from the weights it has saved.",
                                .options = options,
                                .count = sizeof options / sizeof options[0],
                                .operands = "[WEIGHTS]"};
    ls_parsed parsed;
    ls_log_init(argv[0], -1, false);
    ls_status status = ls_options_parse(&command, argc, argv, &parsed);
    if (status != LS_OK || parsed.help) return ls_status_exit_code(status);
    int operands = argc - parsed.first_operand;
    if (operands != (folder ? 0 : 1))
        status = ls_fail(LS_ERR_USAGE, "visits needs either --write DIR or a file of weights");
    else
        status = folder ? write_samples(folder) : print_visits(argv[parsed.first_operand]);
    return ls_status_exit_code(ls_results_written(status));
}

/* phases: the account's time by phase, in the order of phase.h. Every lane of the program that was built has phases by
 * these names; what a trace calls otherwise, or not at all, is "other". */
#include <string.h>

#include "labs/replay/replay/replay.h"

const char *replay_phase_name(int phase) {
    return phase == REPLAY_WAITING ? "waiting" : ls_phase_name((ls_phase)phase);
}

static int phase_of(const char *name) {
    for (int phase = 0; phase < LS_PHASE_COUNT; phase++)
        if (strcmp(name, ls_phase_name((ls_phase)phase)) == 0) return phase;
    return LS_PHASE_OTHER;
}

void replay_add_phases(double phase_ms[REPLAY_PHASES], const struct ls_account *account, int place, double part) {
    const struct ls_device_account *device = &account->devices[place];
    for (int i = 0; i < account->phase_count; i++)
        phase_ms[phase_of(account->phases[i])] += part * device->phase_us[i] / 1e3;
    phase_ms[REPLAY_WAITING] += part * device->idle_us / 1e3;
}

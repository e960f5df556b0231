/* hand_over — the time from a thread's raising of a flag until another continues: two threads of two devices play
 * ping-pong with two flags, waiting as the programs' threads do. The figure is half of a round trip, so no clock has to
 * agree between the two. It is measured twice: with holds so long that the other thread sleeps, and waking it takes a
 * hundred times as long as seeing a flag; and with holds so short that it still spins. */
#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/flag.h"
#include "common/base/log.h"
#include "labs/replay/calibrate/calibrate.h"

enum { THROWS = 5, RUNS = CALIBRATE_RUNS_MAX }; /* runs of 2 ms: short enough for gaps in other load */

#define LONG_US 200.0 /* longer than threads spin */
#define SHORT_US 10.0
#define TIMEOUT_US 30e6

struct game {
    ls_flag there, back;
    ls_device *device; /* of the thread that answers */
    uint32_t throws;
    double held_us;
    ls_status status;
};

/* Spins for held_us, to the other thread as if working. */
static void hold(double held_us) {
    double end_us = ls_now_us() + held_us;
    while (ls_now_us() < end_us) continue;
}

static void *throw_back(void *argument) {
    struct game *game = argument;
    double spin_us = ls_device_spin_us(game->device);
    game->status = ls_device_bind_thread(game->device);
    for (uint32_t i = 1; i <= game->throws; i++) {
        if (!ls_flag_wait(&game->there, i, spin_us, ls_now_us() + TIMEOUT_US)) return NULL;
        hold(game->held_us);
        ls_flag_raise(&game->back);
    }
    return NULL;
}

static ls_status play(calibrate_spread *spread, double held_us, ls_device *const *devices, bool quick) {
    int runs = quick ? 5 : RUNS;
    struct game game = {.device = devices[1], .throws = (uint32_t)(runs * THROWS), .held_us = held_us};
    double us[RUNS], spin_us = ls_device_spin_us(devices[0]);
    uint32_t thrown = 0;
    pthread_t thread;
    bool caught = true;
    int error = pthread_create(&thread, NULL, throw_back, &game);
    if (error != 0) return ls_fail(LS_ERR_SYSTEM, "cannot start a thread: %s", strerror(error));
    for (int run = 0; run < runs; run++) {
        double begin_us = ls_now_us();
        for (int i = 0; i < THROWS && caught; i++) {
            hold(held_us);
            ls_flag_raise(&game.there);
            caught = ls_flag_wait(&game.back, ++thrown, spin_us, ls_now_us() + TIMEOUT_US);
        }
        us[run] = (ls_now_us() - begin_us) / (2.0 * THROWS) - held_us;
        if (us[run] < 0) us[run] = 0; /* less than the clock's own time */
    }
    pthread_join(thread, NULL);
    if (!caught) return ls_fail(LS_ERR_TIMEOUT, "a thread did not answer within 30 s");
    *spread = calibrate_spread_of(us, runs);
    return game.status;
}

ls_status calibrate_hand_over(calibrate_figures *figures, ls_device *const *devices,
                              const calibrate_settings *settings) {
    figures->spin_us = ls_device_spin_us(devices[0]);
    ls_status status = play(&figures->hand_over_us, LONG_US, devices, settings->quick);
    return status == LS_OK ? play(&figures->awake_us, SHORT_US, devices, settings->quick) : status;
}

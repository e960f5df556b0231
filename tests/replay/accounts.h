/* Scenes whose account is known, for the tests of account.c. */
#ifndef TESTS_REPLAY_ACCOUNTS_H
#define TESTS_REPLAY_ACCOUNTS_H

#include "labs/replay/engine/account.h"
#include "tests/replay/scene.h"

/* The account of a scene that has been replayed; the caller frees it (ls_account_free). */
struct ls_account *account_of(const struct scene *s);

/* The time of a step of the trace, replayed on the node; destroys the trace. */
double account_step_us(ls_trace *trace, const ls_node *node);

void account_expect_split(const struct ls_account *account, int place, double compute_us, double exposed_us,
                          double host_us, double idle_us);

/* Begins a scene of two devices, 3 and 9, whose steps are numbered from first_step. */
void account_begin(struct scene *s, int first_step);

/* Device 3 in one step of 19 us: a launch, a kernel of 10 us, an all-reduce of 6 us from the kernel's middle to
 * beyond it, 4 us of host from the kernel's end to beyond that. Then a kernel on device 9, for which all wait.
 *
 *     0      2        9      12      15     16       19
 *     host   kernel-----------
 *                     all_reduce------
 *                            host------------
 *                                           device 9 */
void account_add_step(struct scene *s);

#endif

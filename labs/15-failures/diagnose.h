/* Lab 15: diagnoses a failed job from what its ranks and its launcher have printed. */
#ifndef LABS_FAILURES_DIAGNOSE_H
#define LABS_FAILURES_DIAGNOSE_H

/* `output` is what a job wrote to stderr, whole lines, and its exit status as the last line. Returns one of these
 * words, and sets *rank to the rank that failed:
 *
 *     killed     the process of the rank was killed (kill -KILL)
 *     stopped    its process was stopped (kill -STOP), and did not continue
 *     slow       it was only late: it is alive, and continues
 *     memory     its device had no room for the model
 *     mismatch   it had been started with other settings than rank 0
 *     port       the port of the store that it was to serve was in use
 *     unknown    none of these; *rank is then -1
 *
 * If a rank died, it is the cause even if other ranks did not come in time: a rank that waits for the dead one is late,
 * too. */
const char *diagnose(const char *output, int *rank);

#endif

/* What went wrong, from what the ranks and their launcher have said: lab 15. */
#ifndef LABS_FAILURES_DIAGNOSE_H
#define LABS_FAILURES_DIAGNOSE_H

/* `output`: what a job wrote to stderr, whole lines, and its exit status as the last one. One of these words, and in
 * *rank whose failure it was:
 *
 *     killed     the rank's process was killed (kill -KILL)
 *     stopped    its process was stopped (kill -STOP), and did not go on
 *     slow       it was only late: it lives, and goes on
 *     memory     its device had no room for the model
 *     mismatch   it had been started with other settings than rank 0
 *     port       the port at which it was to serve the store was in use
 *     unknown    none of these; *rank is then -1
 *
 * A rank that died is the cause also where others did not come: who waits for the dead one is late itself. */
const char *diagnose(const char *output, int *rank);

#endif

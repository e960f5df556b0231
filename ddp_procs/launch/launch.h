/* Starts the ranks of a job on this machine, watches them, and ends all of them when one fails; then, if restarts are
 * allowed, starts all of them again.
 *
 * Each rank is a process of the given program with the variables of launch_environment.c, torchrun's among them. The
 * launcher hosts the store, on a Unix socket that only processes of this user can use, with a secret that it makes for
 * each start (LS_STORE, LS_JOB_TOKEN). Nothing listens at MASTER_PORT, which is for programs with a rendezvous of their
 * own. */
#ifndef DDP_LAUNCH_LAUNCH_H
#define DDP_LAUNCH_LAUNCH_H

#include "common/base/status.h"
#include "ddp_procs/launch/launch_options.h"

/* Runs the job to its end. Returns
 *     LS_OK           every rank exited with 0 (in whatever order)
 *     LS_ERR_USAGE    nproc out of range, another launcher has started several of this process, or a rank exited with
 *                     status 2: the command line is wrong
 *     LS_ERR_IO       the program cannot be found or run, or what ranks print could not be written
 *     LS_ERR_PEER     ranks failed, all of them with exit status 3 (each blames another)
 *     LS_ERR_TIMEOUT  the job's deadline passed
 *     LS_ERR_SYSTEM   a rank failed, a signal ended the job, or a system call failed
 * after the lines of launch_report.h, and a warning at each restart. The status is that of the last attempt. In any
 * case, even if the launcher itself is killed, no process of the ranks' group is left, neither a rank nor a process
 * that a rank has started. (A process that creates its own process group or session, as daemons do, has left the
 * group.)
 *
 * A job with `elastic` continues without a rank that fails, as long as enough are left; restarts then start that rank
 * again (launch_policy.c). The result is LS_OK as soon as one rank has exited with 0, since ranks wait for each other
 * before they exit.
 *
 * The ranks' group is not the launcher's: the terminal's signals go to the launcher, and ranks cannot read from the
 * terminal. SIGINT, SIGTERM, SIGHUP (unless it is ignored, as under nohup) and SIGQUIT are passed on to the ranks while
 * it runs; with SIGTSTP (Ctrl-Z) ranks and launcher stop, and go on together. Call it from the main thread, while the
 * process has no other threads that take signals: signals must reach it, and the ranks end with the thread that started them. */
ls_status ddp_launch(const ddp_launch_options *options);

#endif

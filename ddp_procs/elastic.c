/* elastic — training continues with the remaining ranks.
 *   idea  : a group that has lost a rank is broken (common/comm/wait.c), and is not used again. Each surviving rank
 *           keeps the state that a checkpoint would have (kept.h), destroys group and model, and joins the rendezvous
 *           at the launcher's store. All receive the same list: the ranks present, and the step of each. Ranks that are
 *           new or behind receive the state of the most advanced rank; then a new group forms, and continues as a
 *           resumed run does. To admit a rank, rank 0 breaks the group, so that both cases take one path
 *   order : a rank has applied a step's update or has not, since an update does not communicate. No rank begins a
 *           reduction before all have ended the one before; so ranks are at most a step apart. The epoch's order does
 *           not depend on the number of ranks, and step k takes its k-th batch: the remaining samples are sharded
 *           again. Ranks are numbered in the order of the launcher's numbers. The state is that of the lowest among the
 *           most advanced ranks: rank 0, if it is one of them, whose running statistics of batch norm count
 *   cost  : in a step one reading of the clock, and on rank 0 a request to the store every tenth of a second; after a
 *           failure part of a step is repeated
 *   fails : a meeting does not wait for a rank that has died. A rank that dies while a group forms or a state is sent
 *           breaks that group, and the others meet again, each with its old state: a received state replaces it only
 *           when complete. The launcher is the single point of failure: all ranks end with it. (torchft's is its
 *           lighthouse, a server; torchrun's restarts end all ranks and begin at a checkpoint.) The job ends if fewer
 *           than MIN ranks remain, if every rank with the state has died, and if a loss is not finite or an error would
 *           be the same on each rank */
#define _GNU_SOURCE
#include "ddp_procs/elastic.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"

#define LOOK_EVERY_US 1e5
enum {
    /* times --timeout: a rank that is done waits for rank 0, which may have much to write; a new one for a step's end */
    PATIENCE = 10,
    MOST_IDLE = 10, /* groups of the same ranks that broke before a step */
    NAME_CAPACITY = 48
};

/* What a rank reports at a meeting. */
enum { DONE = 1, OVER = 2, FIRST = 4 };
struct rank_report {
    int64_t formed;  /* the last meeting after which it had a group; 0: it is new */
    int64_t step;    /* of the state that it keeps */
    uint64_t nbytes; /* of that; 0: it keeps none */
    uint64_t hash;   /* of that */
    int32_t pid,
        flags; /* DONE: it has trained to the end; OVER: no rank may continue; FIRST: it was rank 0 of that group */
    int32_t resumes, pad; /* --resume-if-present: it would begin at a checkpoint, if one exists */
};

_Static_assert(sizeof(struct rank_report) <= DDP_SAID_NBYTES, "a rank has more to say than a meeting takes");

static struct rank_report report_of(const ddp_meeting *m, int index) {
    struct rank_report report;
    memcpy(&report, m->said[index], sizeof report);
    return report;
}

/* --- ranks at a meeting ------------------------------------------------------------------------------------------ */

static bool any_reports(const ddp_meeting *m, int32_t flag) {
    for (int i = 0; i < m->count; i++)
        if (report_of(m, i).flags & flag) return true;
    return false;
}

/* Whether all ranks that have trained have trained to the end, including rank 0, which writes the files. A rank that
 * joins after that is too late. */
static bool is_done(const ddp_meeting *m) {
    bool written = false;
    for (int i = 0; i < m->count; i++) {
        struct rank_report report = report_of(m, i);
        if (report.formed > 0 && !(report.flags & DONE)) return false;
        written = written || (report.flags & DONE && report.flags & FIRST);
    }
    return written;
}

/* The rank whose state all take: the first among the most advanced; -1: no rank has a state. */
static int find_source(const ddp_meeting *m) {
    int source = -1;
    for (int i = 0; i < m->count; i++) {
        struct rank_report report = report_of(m, i);
        if (report.nbytes > 0 && (source < 0 || report.step > report_of(m, source).step)) source = i;
    }
    return source;
}

static int find(const ddp_meeting *m, int rank, int32_t pid) {
    for (int i = 0; i < m->count; i++)
        if (m->rank[i] == rank && report_of(m, i).pid == pid) return i;
    return -1;
}

static bool is_same(const ddp_meeting *a, const ddp_meeting *b) {
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++) same = find(b, a->rank[i], report_of(a, i).pid) >= 0;
    return same;
}

static ls_status join_meeting(ddp_elastic *e, int32_t flags) {
    const ddp_agreement *a = &e->setup->agreement;
    int least = a->late || e->met.number > 0 ? e->settings->limits.least : a->world_size;
    bool is_new = a->late && e->met.number == 0, patient = is_new || flags & DONE;
    if (e->formed.number > 0 && e->setup->self.rank == 0) flags |= FIRST;
    struct rank_report report = {.formed = e->formed.number,
                                 .step = e->kept.position.step,
                                 .nbytes = e->kept_nbytes,
                                 .hash = e->kept_hash,
                                 .pid = (int32_t)getpid(),
                                 .flags = flags,
                                 .resumes = e->settings->train.resume_if_present != NULL};
    ddp_store_set_timeout(a->store, a->timeout_s * (patient ? PATIENCE : 1));
    ls_status status = ddp_store_meet(a->store, least, &report, sizeof report, &e->met);
    if (status == LS_ERR_PEER) /* it was stopped during an earlier meeting, and runs again */
        status = ddp_store_meet(a->store, least, &report, sizeof report, &e->met);
    ddp_store_set_timeout(a->store, a->timeout_s);
    return status;
}

/* --- the end of the job ------------------------------------------------------------------------------------------ */

/* Tells ranks that arrive later, and would be alone, that the job has ended. `how`: DONE or OVER. */
#define END_KEY "elastic/end"

static ls_status end_job(const ddp_elastic *e, int32_t how) {
    return ddp_store_set(e->setup->agreement.store, END_KEY, &how, sizeof how);
}

/* DONE or OVER, or 0: the job continues. */
static ls_status find_end(const ddp_elastic *e, int32_t *how) {
    ddp_store *store = e->setup->agreement.store;
    bool ended = false;
    size_t nbytes;
    *how = 0;
    ls_status status = ddp_store_check(store, END_KEY, &ended);
    return status == LS_OK && ended ? ddp_store_get(store, END_KEY, how, sizeof *how, &nbytes) : status;
}

/* --- the state --------------------------------------------------------------------------------------------------- */

/* Maps a memfd, its size rounded up to a multiple of 8 bytes; NULL: the error has been reported. */
static void *map_state(int fd, uint64_t nbytes, int protection) {
    void *bytes = mmap(NULL, (nbytes + 7) / 8 * 8, protection, MAP_SHARED, fd, 0);
    if (bytes != MAP_FAILED) return bytes;
    ls_report_error("cannot map the training's state of %" PRIu64 " bytes: %s", nbytes, strerror(errno));
    return NULL;
}

/* Records size and hash of the state that this rank keeps. */
static ls_status hash_state(ddp_elastic *e) {
    struct stat info;
    e->kept_nbytes = e->kept_hash = 0;
    if (e->kept.fd < 0) return LS_OK;
    if (fstat(e->kept.fd, &info) != 0) return ls_fail(LS_ERR_SYSTEM, "the kept state is lost: %s", strerror(errno));
    uint64_t nbytes = (uint64_t)info.st_size;
    void *bytes = map_state(e->kept.fd, nbytes, PROT_READ);
    if (!bytes) return LS_ERR_SYSTEM;
    e->kept_nbytes = nbytes;
    e->kept_hash = ls_hash(LS_HASH_SEED, bytes, nbytes);
    munmap(bytes, (nbytes + 7) / 8 * 8);
    return LS_OK;
}

static ls_status broadcast_state(const ddp_elastic *e, int fd, uint64_t nbytes, int root) {
    bool sends = e->setup->self.rank == root;
    void *bytes = map_state(fd, nbytes, sends ? PROT_READ : PROT_READ | PROT_WRITE);
    if (!bytes) return LS_ERR_SYSTEM;
    ls_stream *stream = ls_device_stream(e->setup->device, LS_STREAM_COMM);
    size_t words = (nbytes + 7) / 8;
    ls_status status =
        ls_comm_settle(stream, ls_comm_broadcast(e->setup->groups.job, stream, bytes, words, LS_INT64, root));
    munmap(bytes, words * 8);
    return status;
}

/* The received state replaces this rank's own only when it is complete. */
static ls_status receive_state(ddp_elastic *e, int root) {
    struct rank_report there = report_of(&e->met, root);
    ls_kept came = {.fd = memfd_create("lockstep", MFD_CLOEXEC), .position = {.step = there.step}};
    ls_status status = LS_OK;
    if (came.fd < 0 || ftruncate(came.fd, (off_t)((there.nbytes + 7) / 8 * 8)) != 0)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the state of rank %d: %s", e->met.rank[root],
                         strerror(errno));
    if (status == LS_OK) status = broadcast_state(e, came.fd, there.nbytes, root);
    if (status == LS_OK && ftruncate(came.fd, (off_t)there.nbytes) != 0)
        status = ls_fail(LS_ERR_SYSTEM, "cannot keep the state of rank %d: %s", e->met.rank[root], strerror(errno));
    if (status != LS_OK) {
        if (came.fd >= 0) close(came.fd);
        return status;
    }
    if (e->kept.fd >= 0) close(e->kept.fd);
    e->kept.fd = came.fd;
    e->kept.position = came.position;
    status = hash_state(e);
    if (status != LS_OK || e->kept_hash == there.hash) return status;
    return ls_fail(LS_ERR_INVALID, "the state received from rank %d differs from the state there", e->met.rank[root]);
}

/* There is no state: LS_OK if no rank has taken a step yet, an error if all that have are gone. */
static ls_status require_state(const ddp_elastic *e) {
    for (int i = 0; i < e->met.count; i++)
        if (report_of(&e->met, i).formed > 0 || e->met.number == 1 || report_of(&e->met, i).resumes) return LS_OK;
    return ls_fail(LS_ERR_PEER,
                   "every rank that had the training's state has died: start the job again, with --resume if there is "
                   "a checkpoint (here --resume-if-present would continue from the checkpoint)");
}

static ls_status share_state(ddp_elastic *e) {
    int source = find_source(&e->met);
    if (source < 0) return require_state(e);
    struct rank_report there = report_of(&e->met, source);
    bool same = true;
    for (int i = 0; i < e->met.count; i++)
        same = same && report_of(&e->met, i).nbytes == there.nbytes && report_of(&e->met, i).hash == there.hash;
    if (same) return LS_OK;
    return e->setup->self.rank == source ? broadcast_state(e, e->kept.fd, there.nbytes, source)
                                         : receive_state(e, source);
}

/* --- the group --------------------------------------------------------------------------------------------------- */

/* Opens the model again if the number of ranks has changed: an open model has memory for its share of a batch. */
static ls_status open_model(ddp_elastic *e) {
    ddp_setup *setup = e->setup;
    ls_status status = LS_OK;
    if (e->model_ranks != e->met.count) {
        ls_model_destroy(setup->model);
        setup->model = NULL;
    }
    e->model_ranks = e->met.count;
    if (!setup->model) status = ddp_setup_open_model(setup, e->settings, 0);
    return status == LS_OK && find_source(&e->met) < 0 ? ddp_setup_fill_model(setup, e->settings, false) : status;
}

/* Forms a group of the ranks that have met, in their order. */
static ls_status form(ddp_elastic *e) {
    ddp_setup *setup = e->setup;
    int self = find(&e->met, e->slot, (int32_t)getpid());
    if (self < 0) return ls_fail(LS_ERR_INVALID, "this rank is not among those in the meeting");
    setup->meeting = e->met.number;
    setup->self.rank = self;
    setup->self.world_size = e->met.count;
    ddp_hosts_choose(&setup->hosts, &e->slots, e->met.rank, e->met.count);
    setup->self.local_world_size = ddp_hosts_count_ranks(&setup->hosts, setup->hosts.of[self], e->met.count);
    ls_status status = ddp_settings_sizes(e->settings, e->met.count, setup->sizes);
    if (status == LS_OK) status = open_model(e);
    if (status == LS_OK) status = ddp_setup_join_groups(setup, e->settings);
    if (status == LS_OK) status = share_state(e);
    return status == LS_OK ? ddp_setup_form_parallel(setup, e->settings) : status;
}

/* Whether other ranks have failed. */
static bool lost_others(ls_status status) { return status == LS_ERR_PEER || status == LS_ERR_TIMEOUT; }

/* A process on another host cannot be checked: it counts as dead if it does not arrive. */
static bool is_running(const ddp_elastic *e, int slot, int32_t pid) {
    if (e->slots.of[slot] != e->slots.of[e->slot]) return false;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd process = {.fd = fd, .events = POLLIN};
    bool ended = fd < 0 || poll(&process, 1, 0) == 1;
    if (fd >= 0) close(fd);
    return !ended;
}

/* "rank 3 (pid 10)", with the launcher's number; with several hosts also the host. */
static const char *name_slot(const ddp_elastic *e, int slot, int32_t pid, char text[NAME_CAPACITY]) {
    int used = snprintf(text, NAME_CAPACITY, "rank %d (pid %d)", slot, (int)pid);
    if (e->slots.count > 1) snprintf(text + used, NAME_CAPACITY - (size_t)used, " on host %d", e->slots.of[slot]);
    return text;
}

/* One rank of the previous group prints which ranks have left and which have joined. */
static void note_changes(const ddp_elastic *e) {
    char changes[LS_COMM_MAX_RANKS * (NAME_CAPACITY + 16)] = "", name[NAME_CAPACITY];
    size_t used = 0;
    const ddp_meeting *now = &e->met, *before = &e->formed;
    int teller = -1, lost = 0, source = find_source(now);
    for (int i = 0; i < now->count; i++)
        if (teller < 0 || report_of(now, i).formed > report_of(now, teller).formed) teller = i;
    if (teller != e->setup->self.rank || before->number == 0) return;
    for (int i = 0; i < before->count; i++) {
        int32_t pid = report_of(before, i).pid;
        if (find(now, before->rank[i], pid) >= 0) continue;
        used += (size_t)snprintf(changes + used, sizeof changes - used, "%s%s %s", used > 0 ? ", " : "",
                                 name_slot(e, before->rank[i], pid, name),
                                 is_running(e, before->rank[i], pid) ? "does not come" : "died");
        lost++;
    }
    for (int i = 0; i < now->count; i++) {
        int32_t pid = report_of(now, i).pid;
        if (find(before, now->rank[i], pid) >= 0) continue;
        used += (size_t)snprintf(changes + used, sizeof changes - used, "%s%s joins", used > 0 ? ", " : "",
                                 name_slot(e, now->rank[i], pid, name));
    }
    void (*say)(const char *format, ...) = lost > 0 ? ls_warn : ls_note;
    say("%s; %d rank%s on from step %" PRId64, used > 0 ? changes : "the group broke, and all are there", now->count,
        now->count == 1 ? " goes" : "s go", source < 0 ? (int64_t)0 : report_of(now, source).step);
}

/* Meets until a group is formed. */
static ls_status assemble(ddp_elastic *e) {
    ls_status status = hash_state(e);
    while (status == LS_OK) {
        ls_log_hold();
        status = find_end(e, &e->end); /* a rank that is alone would wait */
        if (status == LS_OK && e->end == 0) status = join_meeting(e, 0);
        if (status == LS_OK && e->end == 0) status = find_end(e, &e->end);
        if (status == LS_OK && is_done(&e->met)) e->end = DONE;
        if (status != LS_OK || e->end == DONE) return status;
        if (e->end == OVER) return ls_fail(LS_ERR_PEER, "another rank has ended the job for all ranks");
        if (any_reports(&e->met, DONE)) continue; /* that rank joins again, with its state */
        if (!is_same(&e->tried, &e->met)) e->idle = 0;
        e->tried = e->met;
        status = form(e);
        if (status == LS_OK) {
            note_changes(e);
            e->formed = e->met;
            e->step = e->kept.position.step;
            return LS_OK;
        }
        if (!lost_others(status)) break;
        ddp_setup_part(e->setup, status);
        if (++e->idle < MOST_IDLE) status = LS_OK;
    }
    return status;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

/* Called before each step. Breaks the group if ranks wait to be admitted. */
static ls_status check_meeting_due(void *context) {
    ddp_elastic *e = context;
    bool due = false;
    if (e->setup->self.rank > 0) return LS_OK;
    double now_us = ls_now_us();
    if (now_us - e->looked_us < LOOK_EVERY_US) return LS_OK;
    e->looked_us = now_us;
    ls_status status = ddp_store_is_due(e->setup->store, &due);
    if (status != LS_OK || !due) return status;
    (void)ls_comm_abort(e->setup->groups.job, "the ranks form a new group");
    return LS_ERR_PEER;
}

ls_status ddp_elastic_check(const ddp_rank *self) {
    if (self->launched && !self->hosts_store && getenv(DDP_ELASTIC_VARIABLE)) return LS_OK;
    return ls_fail(LS_ERR_USAGE, "--elastic needs a launcher that outlives its ranks: use --spawn N --elastic MIN:MAX, "
                                 "or ddprun; torchrun, mpirun and srun do not work");
}

ls_status ddp_elastic_begin(ddp_elastic *e, ddp_setup *setup, ddp_settings *settings) {
    *e = (ddp_elastic){.setup = setup,
                       .settings = settings,
                       .slot = setup->self.rank,
                       .slots = setup->hosts,
                       .model_ranks = setup->self.world_size};
    ls_kept_open(&e->kept);
    e->kept.may_step = check_meeting_due;
    e->kept.context = e;
    return assemble(e);
}

/* Whether the same error would occur on the other ranks. */
static bool is_for_all(ls_status status) { return status != LS_ERR_NO_MEMORY && status != LS_ERR_SYSTEM; }

bool ddp_elastic_goes_on(ddp_elastic *e, ls_status *status) {
    if (e->kept.reached.step > e->step) e->idle = 0;
    if (*status == LS_OK) {
        *status = join_meeting(e, DONE);
        if (*status == LS_OK && is_done(&e->met)) *status = end_job(e, e->end = DONE);
        if (*status != LS_OK || e->end == DONE) return false;
    } else if (!lost_others(*status) || e->kept.by_itself) {
        char message[200];
        ls_log_sink before = ls_log_capture(message, sizeof message);
        ddp_setup_part(e->setup, *status);
        if (is_for_all(*status) && end_job(e, OVER) == LS_OK) (void)join_meeting(e, OVER);
        ls_log_restore(before);
        return false;
    }
    *status = ls_kept_save(&e->kept);
    ddp_setup_part(e->setup, LS_ERR_PEER);
    ls_model_destroy(e->setup->model);
    e->setup->model = NULL;
    if (*status == LS_OK) *status = assemble(e);
    if (*status == LS_OK && e->end == DONE) ls_note("the others have trained to the end without this rank");
    return *status == LS_OK && e->end == 0;
}

void ddp_elastic_end(ddp_elastic *e, ls_status status) {
    ls_log_release(status != LS_OK);
    ls_kept_close(&e->kept);
}

#define _GNU_SOURCE
#include "tests/ddp_procs/elastic_job.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/train/loop.h"
#include "ddp_procs/ddp.h"
#include "ddp_procs/elastic.h"
#include "ddp_procs/launch/store_pass.h"
#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/ddp_procs/children.h"
#include "tests/parallel/plan.h"

enum { WORDS = 64 };

/* The memory that the processes of a job share. */
static struct shared {
    _Atomic int64_t applied[ELASTIC_RANKS]; /* updates so far, by the launcher's rank number */
    _Atomic int legs;
    int leg_ranks[ELASTIC_LEGS];
    int64_t leg_steps[ELASTIC_LEGS];
    _Atomic uint64_t hash[ELASTIC_RANKS];
    atomic_bool is_back; /* a restarted rank trains */
    atomic_bool missed;
} * shared;

/* This process's rank, in a child. */
static struct life {
    const elastic_job *job;
    int rank;
    bool again;  /* restarted: its fate no longer applies */
    bool doomed; /* a thread is about to kill this rank, which must take no further step */
    bool sends;  /* ... or to unmap its state */
    ddp_setup setup;
    ddp_settings settings;
    ddp_elastic elastic;
    const struct ls_parallel_ops *ops;
    const char *store; /* its address */
    const char *save, *resume;
    int64_t steps;
    int world_size;
} life;

/* --- fates ------------------------------------------------------------------------------------------------------- */

static void die(void) { kill(getpid(), SIGKILL); }

/* True once for each fate. */
static bool meets(moment when, int64_t step) {
    static bool met[ELASTIC_FATES];
    for (int i = 0; i < ELASTIC_FATES && !life.again; i++) {
        const fate *f = &life.job->fates[i];
        if (met[i] || f->rank != life.rank || f->moment != when || (step >= 0 && f->step != step)) continue;
        met[i] = true;
        return true;
    }
    return false;
}

static void *die_in_meeting(void *unused) {
    (void)unused;
    usleep(200000);
    die();
    return NULL;
}

static void *die_in_group(void *meeting) {
    const volatile int64_t *newest = &life.setup.meeting;
    ls_comm *volatile *group = &life.setup.groups.job;
    while (*newest == *(int64_t *)meeting || !*group) usleep(20);
    die();
    return NULL;
}

/* Reading beyond its mapped state raises SIGBUS: the kernel kills it. */
static void *lose_state(void *meeting) {
    const volatile int64_t *newest = &life.setup.meeting;
    while (*newest == *(int64_t *)meeting) usleep(20);
    if (ftruncate(life.elastic.kept.fd, 0) != 0) abort();
    return NULL;
}

/* With priority over threads that spin on its core, if this user may set it: the moment lasts about a millisecond. */
static void start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) abort();
    (void)pthread_setschedparam(thread, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
}

/* Stops this process; another one continues it. */
static void stop(void) {
    pid_t self = getpid(), waker = fork();
    if (waker == 0) {
        sleep(STOPPED_S);
        kill(self, SIGCONT);
        _exit(0);
    }
    kill(self, SIGSTOP);
    waitpid(waker, NULL, 0);
}

/* On a busy machine a restarted rank may need longer to start than the others need for all their steps. So they slow
 * down, by ten seconds in all, and a rank can still join between two steps. */
static void await_return(int64_t step) {
    if (life.again) shared->is_back = true;
    if (life.job->restarts > 0 && step >= 60 && !shared->is_back) usleep(100000);
}

static ls_status forward_backward(ls_parallel *p) {
    int64_t step = (int64_t)p->step;
    shared->missed = shared->missed || life.sends;
    if (meets(IN_FORWARD, step) || life.doomed || life.sends) die();
    await_return(step);
    if (meets(STOPS, step)) stop();
    if (meets(FAILS, step)) return ls_fail(LS_ERR_NO_MEMORY, "no memory, as the test wants it");
    ls_status status = life.ops->forward_backward(p);
    if (meets(BEHIND_BACKWARD, step)) die();
    return status;
}

/* Waits until all other ranks have made the step's update, and wait in the next step. */
static void await_updates(const ls_parallel *p) {
    for (int r = 0; r < life.job->ranks; r++)
        while (r != life.rank && shared->applied[r] <= (int64_t)p->step) usleep(100);
}

static ls_status reduce(ls_parallel *p) {
    int64_t step = (int64_t)p->step;
    ls_status status = life.ops->reduce(p);
    if (status == LS_OK && meets(BEFORE_UPDATE, step)) die();
    if (status != LS_OK || !meets(LOSES_UPDATE, step)) return status;
    await_updates(p);
    (void)ls_comm_abort(ddp_of(p)->job, "the test wants it");
    return LS_ERR_PEER;
}

static ls_status apply(ls_parallel *p) {
    ls_status status = life.ops->apply(p);
    shared->applied[life.rank] = (int64_t)p->step + 1;
    if (meets(AFTER_UPDATE, (int64_t)p->step)) die();
    return status;
}

static const struct ls_parallel_ops *wrap(const struct ls_parallel_ops *ops) {
    static struct ls_parallel_ops wrapped;
    life.ops = ops;
    wrapped = *ops;
    wrapped.forward_backward = forward_backward;
    wrapped.reduce = reduce;
    wrapped.apply = apply;
    return &wrapped;
}

static void before_meeting(ls_status status) {
    static int64_t meeting;
    if (status == LS_OK && meets(WHEN_DONE, -1)) {
        remove(life.settings.train.save_weights);
        die();
    }
    if (status == LS_OK) return;
    meeting = life.setup.meeting;
    if (meets(BEFORE_MEETING, -1)) die();
    if (meets(IN_MEETING, -1)) start(die_in_meeting, NULL);
    if (meets(IN_FORMING, -1)) {
        life.doomed = true;
        start(die_in_group, &meeting);
    }
    if (meets(IN_SENDING, -1)) {
        life.sends = true;
        start(lose_state, &meeting);
    }
    if (meets(LATE, -1)) usleep(500000);
}

/* --- a rank ------------------------------------------------------------------------------------------------------ */

static ls_status train(ls_kept *kept) {
    ls_train_result result;
    ddp_setup *setup = &life.setup;
    ls_status status = ls_train_kept(setup->parallel, &life.settings.train, ddp_sharing_of(&life.settings),
                                     setup->train, setup->test, &result, kept);
    if (status == LS_OK) shared->hash[life.rank] = result.parameter_hash;
    return status;
}

static void note_leg(const ddp_elastic *e) {
    if (life.setup.self.rank > 0) return;
    int leg = shared->legs++;
    if (leg >= ELASTIC_LEGS) abort();
    shared->leg_ranks[leg] = e->met.count;
    shared->leg_steps[leg] = e->step;
}

static ls_status train_elastically(void) {
    ddp_elastic *elastic = &life.elastic;
    ls_status status = ddp_elastic_begin(elastic, &life.setup, &life.settings);
    while (status == LS_OK && life.setup.parallel) {
        note_leg(elastic);
        life.setup.parallel->ops = wrap(life.setup.parallel->ops);
        status = train(&elastic->kept);
        before_meeting(status);
        if (!ddp_elastic_goes_on(elastic, &status)) break;
    }
    ddp_elastic_end(elastic, status);
    return status;
}

static ls_status train_together(void) {
    ls_status status = ddp_setup_join_groups(&life.setup, &life.settings);
    if (status == LS_OK) status = ddp_setup_form_parallel(&life.setup, &life.settings);
    return status == LS_OK ? train(NULL) : status;
}

static void set_number(const char *name, int number) {
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* As if from a launcher and a command line. */
static ls_status read_settings(void) {
    static char line[2048];
    char *argv[WORDS] = {(char *)"ddp_train"}, *rest;
    bool help;
    int argc = 1;
    set_number("RANK", life.rank);
    set_number("LOCAL_RANK", life.rank);
    set_number("WORLD_SIZE", life.world_size);
    set_number("LOCAL_WORLD_SIZE", life.world_size);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "1", 1);
    setenv("LS_STORE", life.store, 1);
    setenv("LS_JOB", "elastic", 1);
    setenv("LS_JOB_TOKEN", "", 1);
    if (life.save)
        unsetenv(DDP_ELASTIC_VARIABLE);
    else
        setenv(DDP_ELASTIC_VARIABLE, life.job->limits, 1);
    snprintf(line, sizeof line, "%s --no-evaluate --quiet --device-kind cpu --timeout %g%s%s%s%s", life.job->options,
             life.job->timeout_s > 0 ? life.job->timeout_s : 50, life.save ? " --save " : "",
             life.save ? life.save : "",
             life.resume      ? " --resume "
             : life.job->init ? " --init "
                              : "",
             life.resume      ? life.resume
             : life.job->init ? life.job->init
                              : "");
    for (char *word = strtok_r(line, " ", &rest); word && argc < WORDS - 1; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    life.settings = ddp_settings_defaults();
    ls_status status = ddp_settings_parse(&life.settings, argc, argv, &help);
    if (status == LS_OK && life.steps > 0) life.settings.train.steps = life.steps;
    return status;
}

static int live(void *unused) {
    char name[64];
    (void)unused;
    ls_log_capture(NULL, 0);
    signal(SIGBUS, SIG_DFL); /* cmocka has a handler for it */
    snprintf(name, sizeof name, "rank%d.txt", life.rank);
    int fd = open(scratch_path(name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    dup2(fd, STDERR_FILENO);
    dup2(fd, STDOUT_FILENO);
    ls_log_init("ddp_train", life.rank, true);
    life.setup = (ddp_setup){0};
    ls_status status = read_settings();
    if (status == LS_OK) status = ddp_rank_discover(&life.setup.self);
    if (status == LS_OK) status = ddp_setup_begin(&life.setup, &life.settings);
    if (status == LS_OK) status = life.save ? train_together() : train_elastically();
    ddp_setup_end(&life.setup, status);
    fflush(NULL);
    return ls_status_exit_code(status);
}

/* --- the job ----------------------------------------------------------------------------------------------------- */

/* The store, in a process of its own: ranks are forked from a process that has no threads. */
static struct host {
    pid_t pid;
    int world_size, ends[2]; /* of a pipe, through which it sends its address */
    char store[DDP_HOST_CAPACITY];
} host;

static int serve(void *unused) {
    ddp_store_server *server = NULL;
    (void)unused;
    const ddp_store_pass pass = {.job = "elastic", .world_size = host.world_size};
    if (ddp_store_serve_job(&server, "unix", 0, &pass) != LS_OK) return 1;
    snprintf(host.store, sizeof host.store, "%s", ddp_store_server_host(server));
    if (write(host.ends[1], host.store, sizeof host.store) < 0) return 1;
    for (;;) pause();
}

static const char *begin_store(int world_size) {
    host.world_size = world_size;
    assert_int_equal(pipe(host.ends), 0);
    host.pid = start_child(serve, NULL);
    assert_int_equal(read(host.ends[0], host.store, sizeof host.store), sizeof host.store);
    close(host.ends[0]);
    close(host.ends[1]);
    return host.store;
}

static void end_store(void) {
    kill(host.pid, SIGKILL);
    assert_int_equal(finish_child(host.pid), 128 + SIGKILL);
}

static pid_t start_rank(int rank, bool again) {
    prepare_training();
    life.rank = rank;
    life.again = again;
    return start_child(live, NULL);
}

static int wait_for(pid_t *pids, int count, int *status) {
    pid_t pid = waitpid(-1, status, 0);
    for (int r = 0; r < count; r++)
        if (pids[r] == pid) return r;
    return -1;
}

void elastic_job_run(elastic_job *job) {
    pid_t pids[ELASTIC_RANKS];
    int restarts = job->restarts, status = 0;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    life = (struct life){.job = job, .store = begin_store(job->ranks), .world_size = job->ranks};
    for (int r = 0; r < job->ranks; r++) pids[r] = start_rank(r, false);
    job->done = job->failed = 0;
    for (int running = job->ranks; running > 0;) {
        int rank = wait_for(pids, job->ranks, &status);
        if (rank < 0) continue;
        bool again = WIFSIGNALED(status) && restarts > 0;
        if (again) {
            restarts--;
            pids[rank] = start_rank(rank, true);
            continue;
        }
        running--;
        job->done += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        job->failed += WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
    end_store();
    job->legs = shared->legs;
    job->missed = shared->missed;
    memcpy(job->leg_ranks, shared->leg_ranks, sizeof job->leg_ranks);
    memcpy(job->leg_steps, shared->leg_steps, sizeof job->leg_steps);
    job->hash = 0;
    for (int r = 0; r < job->ranks; r++) {
        uint64_t hash = shared->hash[r];
        if (hash == 0) continue;
        if (job->hash != 0) assert_true(job->hash == hash);
        job->hash = hash;
    }
    munmap(shared, sizeof *shared);
}

static void show_output(int rank) {
    char name[64];
    snprintf(name, sizeof name, "rank%d.txt", rank);
    fail_msg("rank %d: %s", rank, scratch_read_text(name));
}

static void run_leg(const elastic_job *job, int ranks, int64_t steps, const char *resume, const char *save) {
    pid_t pids[ELASTIC_RANKS];
    life = (struct life){
        .job = job, .store = begin_store(ranks), .world_size = ranks, .save = save, .resume = resume, .steps = steps};
    for (int r = 0; r < ranks; r++) pids[r] = start_rank(r, true);
    for (int r = 0; r < ranks; r++)
        if (finish_child(pids[r]) != 0) show_output(r);
    end_store();
}

uint64_t elastic_job_reference(const elastic_job *job, int64_t steps) {
    const char *resume = NULL;
    char files[2][300];
    snprintf(files[0], sizeof files[0], "%s", scratch_path("leg0"));
    snprintf(files[1], sizeof files[1], "%s", scratch_path("leg1"));
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (int leg = 0, used = 0; leg < job->legs; leg++) {
        int64_t end = leg + 1 < job->legs ? job->leg_steps[leg + 1] : steps;
        if (end <= job->leg_steps[leg]) continue; /* it took no steps */
        run_leg(job, job->leg_ranks[leg], end, resume, files[used]);
        resume = files[used];
        used = 1 - used;
    }
    uint64_t hash = shared->hash[0];
    munmap(shared, sizeof *shared);
    return hash;
}

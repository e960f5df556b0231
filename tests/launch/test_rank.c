/* rank: how the environment is interpreted, and the messages that reject it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "ddp_procs/launch/rank.h"
#include "tests/base/test.h"

static const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR", "MASTER_PORT", "LS_STORE"};
enum { NAME_COUNT = sizeof names / sizeof names[0] };

/* Sets the environment to the values, in the order of the names above; NULL: not set. */
static ls_status discover(const char *const values[NAME_COUNT], ddp_rank *self, char message[512]) {
    for (int i = 0; i < NAME_COUNT; i++) {
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
    }
    memset(self, 0xff, sizeof *self);
    ls_log_capture(message, 512);
    ls_status status = ddp_rank_discover(self);
    ls_log_capture(NULL, 0);
    return status;
}

/* All variables that the table of launchers (common/base/launcher.c) and rank.c read. */
static void forget_launchers(void) {
    static const char *const others[] = {"LS_JOB",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMIX_NAMESPACE",
                                         "OMPI_MCA_ess_base_jobid",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "PMI_LOCAL_RANK",
                                         "PMI_LOCAL_SIZE",
                                         "MPI_LOCALRANKID",
                                         "MPI_LOCALNRANKS",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "SLURM_LOCALID",
                                         "SLURM_NODEID",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_ID",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_TASKS_PER_NODE",
                                         "SLURM_STEP_TASKS_PER_NODE",
                                         "GROUP_WORLD_SIZE",
                                         "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "TORCHELASTIC_USE_AGENT_STORE"};
    for (int i = 0; i < NAME_COUNT; i++) unsetenv(names[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) unsetenv(others[i]);
}

/* The environment is "NAME=VALUE NAME=VALUE ...", without variables of other launchers. */
static ls_status discover_in(const char *environment, ddp_rank *self, char message[512]) {
    char words[1024];
    forget_launchers();
    snprintf(words, sizeof words, "%s", environment);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        setenv(word, equals + 1, 1);
    }
    ls_log_capture(message, 512);
    ls_status status = ddp_rank_discover(self);
    ls_log_capture(NULL, 0);
    forget_launchers();
    return status;
}

TEST_CASE(test_alone) {
    ddp_rank self;
    char message[512];
    assert_int_equal(discover((const char *const[NAME_COUNT]){0}, &self, message), LS_OK);
    assert_int_equal(self.rank, 0);
    assert_int_equal(self.world_size, 1);
    assert_int_equal(self.local_rank, 0);
    assert_int_equal(self.local_world_size, 1);
    assert_false(self.launched);
    assert_false(self.hosts_store);
}

TEST_CASE(test_launched) {
    ddp_rank self;
    char message[512];
    const char *const one[NAME_COUNT] = {"5", "8", "1", "4", "node0", "29500"};
    assert_int_equal(discover(one, &self, message), LS_OK);
    assert_int_equal(self.rank, 5);
    assert_int_equal(self.world_size, 8);
    assert_int_equal(self.local_rank, 1);
    assert_int_equal(self.local_world_size, 4);
    assert_string_equal(self.master_host, "node0");
    assert_int_equal(self.master_port, 29500);
    assert_true(self.launched);
    assert_false(self.hosts_store);
    const char *const zero[NAME_COUNT] = {"0", "2", "0", "2", "127.0.0.1", "1"};
    assert_int_equal(discover(zero, &self, message), LS_OK);
    assert_true(self.hosts_store);
    const char *const client[NAME_COUNT] = {"0", "2", "0", "2", "127.0.0.1", "65535", "unix:0123abc"};
    assert_int_equal(discover(client, &self, message), LS_OK);
    assert_true(self.launched);
    assert_string_equal(self.master_host, "unix:0123abc");
    assert_false(self.hosts_store);
}

TEST_CASE(test_refusals) {
    static const struct {
        const char *values[NAME_COUNT];
        const char *message; /* beginning of the message */
    } cases[] = {
        {{"0"}, "the environment has RANK but not WORLD_SIZE: start the ranks with ddprun, or set all of RANK"},
        {{"0", "2", "0", "2", "127.0.0.1"}, "the environment has RANK but not MASTER_PORT: "},
        {{"0", "2", NULL, "2", "127.0.0.1", "1"}, "the environment has RANK but not LOCAL_RANK: "},
        {{NULL, "2", "0", "2", "127.0.0.1", "1"}, "the environment has WORLD_SIZE but not RANK: "},
        {{NULL, NULL, NULL, NULL, "127.0.0.1"}, "the environment has MASTER_ADDR but not RANK: "},
        {{"2", "2", "0", "2", "h", "1"}, "the environment's RANK is '2', but must be a number from 0 to 1 (less than"},
        {{"-1", "2", "0", "2", "h", "1"}, "the environment's RANK is '-1', but must be a number from 0 to 1"},
        {{"", "2", "0", "2", "h", "1"}, "the environment's RANK is '', but must be"},
        {{"1x", "2", "0", "2", "h", "1"}, "the environment's RANK is '1x', but must be"},
        {{" 1", "2", "0", "2", "h", "1"}, "the environment's RANK is ' 1', but must be"},
        {{"0", "0", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '0', but must be a number from 1 to 64"},
        {{"0", "65", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '65', but must be a number from 1 to 64"},
        {{"0", "4294967297", "0", "1", "h", "1"}, "the environment's WORLD_SIZE is '4294967297', but must be"},
        {{"0", "2", "0", "3", "h", "1"}, "the environment's LOCAL_WORLD_SIZE is '3', but must be a number from 1 to 2"},
        {{"0", "4", "2", "2", "h", "1"}, "the environment's LOCAL_RANK is '2', but must be a number from 0 to 1"},
        {{"0", "2", "0", "2", "h", "0"}, "the environment's MASTER_PORT is '0', but must be a number from 1 to 65535"},
        {{"0", "2", "0", "2", "h", "65536"}, "the environment's MASTER_PORT is '65536', but must be"},
        {{"0", "2", "0", "2", "", "1"}, "the environment's MASTER_ADDR has 0 characters"},
        {{"0", "2", "0", "2", "h", "1", "rank1"},
         "the environment's LS_STORE is 'rank1', but must be 'unix:' and a socket's name"},
        {{"0", "2", "0", "2", "h", "1", "unix:"}, "the environment's LS_STORE is 'unix:', but must be 'unix:' and a"},
        {{"0", "2", "0", "2", "h", "1", "tcp:h"}, "the environment's LS_STORE is 'tcp:h', but must be 'unix:' and a"},
        {{"0", "2", "0", "2", "h", "1", "tcp:h:0"}, "the environment's LS_STORE is 'tcp:h:0', but must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_rank self;
        static const ddp_rank zero;
        char message[512];
        assert_int_equal(discover(cases[i].values, &self, message), LS_ERR_INVALID);
        message[strlen(message) < strlen(cases[i].message) ? strlen(message) : strlen(cases[i].message)] = '\0';
        assert_string_equal(message, cases[i].message);
        assert_memory_equal(&self, &zero, sizeof zero);
    }
}

/* --- other launchers -------------------------------------------------------------------------------------------------- */

#define OMPI(rank, size, local_rank, local_size)                                                                       \
    "OMPI_COMM_WORLD_RANK=" #rank " OMPI_COMM_WORLD_SIZE=" #size " OMPI_COMM_WORLD_LOCAL_RANK=" #local_rank            \
    " OMPI_COMM_WORLD_LOCAL_SIZE=" #local_size " "
#define PMI(rank, size, local_rank, local_size)                                                                        \
    "PMI_RANK=" #rank " PMI_SIZE=" #size " MPI_LOCALRANKID=" #local_rank " MPI_LOCALNRANKS=" #local_size " "
#define STEP(rank, size, local_rank, node, tasks)                                                                      \
    "SLURM_JOB_ID=77 SLURM_STEP_ID=3 SLURM_PROCID=" #rank " SLURM_STEP_NUM_TASKS=" #size " SLURM_LOCALID=" #local_rank \
    " SLURM_NODEID=" #node " SLURM_STEP_TASKS_PER_NODE=" tasks " "
#define TORCH(rank, size, port)                                                                                        \
    "RANK=" #rank " WORLD_SIZE=" #size " LOCAL_RANK=" #rank " LOCAL_WORLD_SIZE=" #size                                 \
    " MASTER_ADDR=h MASTER_PORT=" #port " TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=2 "
#define HAND(rank, size)                                                                                               \
    "RANK=" #rank " WORLD_SIZE=" #size " LOCAL_RANK=" #rank " LOCAL_WORLD_SIZE=" #size                                 \
    " MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
#define AT " MASTER_ADDR=node0 MASTER_PORT=1234 "

enum { ANY_PORT = -1 };

TEST_CASE(test_launchers) {
    static const struct {
        const char *environment;
        int rank, world_size, local_rank, local_world_size, port;
        const char *host, *job;
    } cases[] = {
        {OMPI(1, 4, 1, 4) "PMIX_NAMESPACE=ns", 1, 4, 1, 4, ANY_PORT, "127.0.0.1", "ns"},
        {OMPI(3, 4, 1, 2) "PMIX_NAMESPACE=ns" AT, 3, 4, 1, 2, 1234, "node0", "ns"},
        {PMI(2, 3, 2, 3) AT, 2, 3, 2, 3, 1234, "node0", NULL},
        {PMI(2, 3, 2, 3), 2, 3, 2, 3, ANY_PORT, "127.0.0.1", NULL},
        {STEP(1, 2, 1, 0, "2"), 1, 2, 1, 2, ANY_PORT, "127.0.0.1", "77.3"},
        {STEP(5, 11, 1, 1, "4(x2),3") AT, 5, 11, 1, 4, 1234, "node0", "77.3"},
        {STEP(10, 11, 2, 2, "4(x2),3") AT, 10, 11, 2, 3, 1234, "node0", "77.3"},
        /* a step with fewer tasks than the job; and variables of old versions */
        {STEP(1, 2, 1, 0, "2") "SLURM_NTASKS=8", 1, 2, 1, 2, ANY_PORT, "127.0.0.1", "77.3"},
        {"SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_TASKS_PER_NODE=2", 1, 2, 1,
         2, ANY_PORT, "127.0.0.1", "7.0"},
        /* mpirun that starts its daemons with srun; srun that also provides PMI, with one number from each */
        {OMPI(6, 8, 2, 4) STEP(1, 2, 0, 1, "1(x2)") AT, 6, 8, 2, 4, 1234, "node0", ""},
        {"PMI_RANK=1 PMI_SIZE=2 " STEP(1, 2, 1, 0, "2"), 1, 2, 1, 2, ANY_PORT, "127.0.0.1", "77.3"},
        /* torchrun under srun, one on each node; and ranks that a script has computed for srun's tasks */
        {TORCH(1, 2, 29500) STEP(0, 2, 0, 0, "1(x2)"), 1, 2, 1, 2, 29500, "h", "2.none"},
        {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 " STEP(1, 2, 1, 0, "2") AT, 1, 2, 1, 2, 1234, "node0", "77.3"},
        /* no name that only the ranks of this machine know; and a variable that takes precedence */
        {PMI(2, 4, 0, 2) AT, 2, 4, 0, 2, 1234, "node0", ""},
        {OMPI(1, 4, 1, 4) "PMIX_NAMESPACE=ns LS_JOB=j", 1, 4, 1, 4, ANY_PORT, "127.0.0.1", "j"},
        /* the agent has MASTER_PORT */
        {TORCH(0, 2, 29500) "TORCHELASTIC_USE_AGENT_STORE=True", 0, 2, 0, 2, 30500, "h", "2.none"},
        {TORCH(0, 2, 65000) "TORCHELASTIC_USE_AGENT_STORE=True", 0, 2, 0, 2, 64000, "h", "2.none"},
        {TORCH(0, 2, 29500) "TORCHELASTIC_USE_AGENT_STORE=False", 0, 2, 0, 2, 29500, "h", "2.none"},
        {TORCH(0, 2, 29500) "TORCHELASTIC_USE_AGENT_STORE=True LS_STORE=unix:s LS_JOB=j", 0, 2, 0, 2, 29500, "unix:s",
         "j"},
        /* ddprun of another host */
        {TORCH(1, 2, 29500) "LS_STORE=tcp:node0:4242 LS_JOB=j", 1, 2, 1, 2, 4242, "node0", "j"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_rank self;
        char message[512] = "";
        if (discover_in(cases[i].environment, &self, message) != LS_OK)
            fail_msg("%s: %s", cases[i].environment, message);
        assert_true(self.launched);
        assert_int_equal(self.rank, cases[i].rank);
        assert_int_equal(self.world_size, cases[i].world_size);
        assert_int_equal(self.local_rank, cases[i].local_rank);
        assert_int_equal(self.local_world_size, cases[i].local_world_size);
        assert_string_equal(self.master_host, cases[i].host);
        if (cases[i].port != ANY_PORT) assert_int_equal(self.master_port, cases[i].port);
        if (cases[i].port == ANY_PORT) assert_in_range(self.master_port, 20000, 29999);
        if (cases[i].job) assert_string_equal(self.job, cases[i].job);
        if (!cases[i].job) assert_int_not_equal(strlen(self.job), 0);
    }
}

/* Launchers that start one another, and combinations that are impossible. */
TEST_CASE(test_launchers_that_contradict_each_other) {
    static const struct {
        const char *environment, *refused; /* NULL: accepted, as the given rank */
        int rank, world_size;
    } cases[] = {
        {HAND(0, 1) OMPI(1, 2, 1, 2), "the environment has RANK=0 WORLD_SIZE=1, and from mpirun OMPI_COMM_WORLD_RANK=1",
         0, 0},
        {HAND(0, 1) OMPI(0, 2, 0, 2),
         "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, or unset OMPI_COMM_WORLD_RANK", 0, 0},
        {HAND(0, 2) OMPI(1, 2, 1, 2), "contradict each other", 0, 0},
        {HAND(0, 1) PMI(1, 2, 1, 2), "and from mpiexec PMI_RANK=1 PMI_SIZE=2", 0, 0},
        {HAND(0, 1) STEP(1, 2, 1, 0, "2"), "and from srun SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", 0, 0},
        {HAND(0, 1) STEP(1, 2, 0, 1, "1(x2)"), "contradict each other", 0, 0},
        {"WORLD_SIZE=1 " OMPI(1, 2, 1, 2), "the environment has WORLD_SIZE=1, and from mpirun", 0, 0},
        {"RANK=1 WORLD_SIZE=8 " OMPI(0, 2, 0, 2) AT, "contradict each other", 0, 0},
        {OMPI(0, 1, 0, 1) STEP(1, 2, 1, 0, "2"), "the environment has OMPI_COMM_WORLD_RANK=0", 0, 0},
        {OMPI(0, 2, 0, 2) STEP(1, 4, 0, 1, "1(x4)"), "contradict each other", 0, 0},
        {OMPI(0, 4, 0, 4) STEP(1, 4, 1, 0, "4"), "contradict each other", 0, 0},
        {OMPI(0, 2, 0, 2) PMI(1, 2, 1, 2), "and from mpiexec PMI_RANK=1", 0, 0},
        {"GROUP_WORLD_SIZE=1 " TORCH(0, 2, 29500) OMPI(1, 2, 1, 2), "contradict each other", 0, 0},
        /* the same numbers twice */
        {HAND(1, 2) OMPI(1, 2, 1, 2), NULL, 1, 2},
        {OMPI(1, 2, 1, 2) STEP(1, 2, 1, 0, "2") "PMIX_NAMESPACE=ns", NULL, 1, 2},
        /* a process that starts others; an agent on each machine; mpirun's daemons, whose srun also provides PMI */
        {HAND(1, 2) OMPI(0, 1, 0, 1), NULL, 1, 2},
        {OMPI(1, 2, 1, 2) STEP(0, 1, 0, 0, "1") "PMIX_NAMESPACE=ns", NULL, 1, 2},
        {"GROUP_WORLD_SIZE=2 " TORCH(1, 2, 29500) OMPI(0, 2, 0, 1), NULL, 1, 2},
        {OMPI(1, 4, 1, 4) "PMIX_NAMESPACE=ns PMI_RANK=0 PMI_SIZE=2 " STEP(0, 2, 0, 0, "1(x2)"), NULL, 1, 4},
        {HAND(3, 4) STEP(1, 2, 0, 1, "1(x2)"), NULL, 3, 4},
        /* sbatch's script, and a shell of salloc, are not steps: mpirun within has those variables, too */
        {OMPI(1, 2, 1, 2) "PMIX_NAMESPACE=ns SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0", NULL, 1,
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_rank self;
        char message[512] = "";
        ls_status status = discover_in(cases[i].environment, &self, message);
        bool is_right = cases[i].refused
                            ? status == LS_ERR_USAGE && strstr(message, cases[i].refused)
                            : status == LS_OK && self.rank == cases[i].rank && self.world_size == cases[i].world_size;
        if (!is_right)
            fail_msg("%s: %s, rank %d: %s", cases[i].environment, ls_status_text(status), self.rank, message);
    }
}

/* PyTorch's env:// has four variables, which are enough on one machine. */
TEST_CASE(test_four_variables_are_enough_on_this_machine) {
    ddp_rank self;
    char message[512];
    static const char *const hosts[] = {"127.0.0.1", "localhost"};
    for (int i = 0; i < 2; i++) {
        const char *const four[NAME_COUNT] = {"1", "3", NULL, NULL, hosts[i], "29500"};
        assert_int_equal(discover(four, &self, message), LS_OK);
        assert_int_equal(self.rank, 1);
        assert_int_equal(self.world_size, 3);
        assert_int_equal(self.local_rank, 1);
        assert_int_equal(self.local_world_size, 3);
    }
    const char *const elsewhere[NAME_COUNT] = {"1", "3", NULL, NULL, "node0", "29500"};
    assert_int_equal(discover(elsewhere, &self, message), LS_ERR_INVALID);
    assert_non_null(strstr(message, "the environment has RANK but not LOCAL_RANK"));
}

/* All ranks of one machine derive the same store address; two jobs hardly ever derive the same. */
TEST_CASE(test_ranks_agree_on_a_port) {
    static const char *const jobs[][2] = {
        {OMPI(0, 2, 0, 2) "PMIX_NAMESPACE=1896546305", OMPI(1, 2, 1, 2) "PMIX_NAMESPACE=1896546305"},
        {PMI(0, 2, 0, 2), PMI(1, 2, 1, 2)},
        {STEP(0, 2, 0, 0, "2"), STEP(1, 2, 1, 0, "2")},
    };
    int ports[3];
    for (int i = 0; i < 3; i++) {
        ddp_rank ranks[2];
        char message[512];
        for (int r = 0; r < 2; r++) assert_int_equal(discover_in(jobs[i][r], &ranks[r], message), LS_OK);
        assert_string_equal(ranks[0].job, ranks[1].job);
        ports[i] = ranks[0].master_port;
        assert_int_equal(ranks[1].master_port, ports[i]);
        assert_true(ranks[0].hosts_store);
        assert_false(ranks[1].hosts_store);
    }
    assert_int_not_equal(ports[0], ports[2]);
}

TEST_CASE(test_alone_in_a_job) {
    static const char *const environments[] = {
        OMPI(0, 1, 0, 1) "PMIX_NAMESPACE=ns",
        OMPI(0, 1, 0, 1) AT,
        PMI(0, 1, 0, 1),
        STEP(0, 1, 0, 0, "1"),
        /* sbatch's script and salloc's shell: no copies of this process were started */
        "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0 SLURM_TASKS_PER_NODE=8",
        "SLURM_JOB_ID=77 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0",
        "SLURM_JOB_ID=77 SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0",
        "SLURM_JOB_ID=77 SLURM_NTASKS=8",
    };
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        ddp_rank self;
        char message[512] = "";
        if (discover_in(environments[i], &self, message) != LS_OK) fail_msg("%s: %s", environments[i], message);
        assert_false(self.launched);
        assert_int_equal(self.world_size, 1);
        assert_string_equal(self.job, "");
    }
}

/* A truncated name could also be that of another job. */
TEST_CASE(test_a_long_name_is_refused) {
    static const char *const variables[] = {"LS_JOB", "PMIX_NAMESPACE"};
    char environment[512], message[512], name[LS_JOB_CAPACITY + 1] = "";
    ddp_rank self;
    memset(name, 'x', LS_JOB_CAPACITY);
    for (int i = 0; i < 2; i++) {
        snprintf(environment, sizeof environment, OMPI(0, 2, 0, 2) "%s=%s", variables[i], name);
        assert_int_equal(discover_in(environment, &self, message), LS_ERR_INVALID);
        assert_string_equal(message, "the job's name, 'xxxxxxxxxxxxxxxx...', has 128 characters; expected at most "
                                     "127: set LS_JOB to a shorter name for all ranks");
        snprintf(environment, sizeof environment, OMPI(0, 2, 0, 2) "%s=%s", variables[i], name + 1);
        assert_int_equal(discover_in(environment, &self, message), LS_OK);
        assert_string_equal(self.job, name + 1);
    }
}

TEST_CASE(test_refused_launchers) {
    static const struct {
        const char *environment, *message; /* beginning of the message */
    } cases[] = {
        {OMPI(0, 4, 0, 2) "PMIX_NAMESPACE=ns",
         "mpirun runs 4 ranks, 2 of them on this machine, but does not tell where they meet: set MASTER_ADDR (rank 0's "
         "host) and MASTER_PORT"},
        {OMPI(0, 4, 0, 2) "MASTER_ADDR=h", "mpirun runs 4 ranks, 2 of them on this machine, but does not tell"},
        {STEP(1, 2, 0, 1, "1(x2)"), "srun runs 2 ranks, 1 of them on this machine, but does not tell where"},
        {"PMI_RANK=0 PMI_SIZE=2" AT, "mpiexec does not tell which of its ranks run on this machine: set LOCAL_RANK"},
        {OMPI(2, 2, 0, 2), "the environment's OMPI_COMM_WORLD_RANK is '2', but must be a number from 0 to 1 (less"},
        {OMPI(0, 65, 0, 65), "the environment's OMPI_COMM_WORLD_SIZE is '65', but must be a number from 1 to 64"},
        {PMI(0, 2, 2, 2), "the environment's MPI_LOCALRANKID is '2', but must be"},
        {PMI(x, 2, 0, 2), "the environment's PMI_RANK is 'x', but must be"},
        {STEP(0, 2, 0, 2, "1(x2)"), "the environment's SLURM_STEP_TASKS_PER_NODE is '1(x2)', but must be"},
        {STEP(0, 2, 0, 0, "?"), "the environment's SLURM_STEP_TASKS_PER_NODE is '?', but must be"},
        {OMPI(0, 2, 0, 2) "PMIX_NAMESPACE=ns MASTER_PORT=x", "the environment's MASTER_PORT is 'x', but must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_rank self;
        char message[512] = "";
        assert_int_equal(discover_in(cases[i].environment, &self, message), LS_ERR_INVALID);
        if (strncmp(message, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s: %s", cases[i].environment, message);
    }
}

int main(void) {
    forget_launchers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_launched),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_launchers_that_contradict_each_other),
        cmocka_unit_test(test_four_variables_are_enough_on_this_machine),
        cmocka_unit_test(test_ranks_agree_on_a_port),
        cmocka_unit_test(test_alone_in_a_job),
        cmocka_unit_test(test_a_long_name_is_refused),
        cmocka_unit_test(test_refused_launchers),
    };
    return cmocka_run_group_tests_name("rank", tests, NULL, NULL);
}

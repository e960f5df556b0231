/* ddprun's command line: that of torchrun, as far as one machine needs it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "ddp_procs/launch/launch_agents.h"
#include "ddp_procs/launch/launch_command.h"
#include "ddp_procs/launch/launch_environment.h"
#include "tests/base/test.h"
#include "tests/base/text.h"

enum { WORDS_MAX = 32, LINE_CAPACITY = 512 };

typedef struct parsed {
    ddp_command command;
    char line[LINE_CAPACITY], message[LINE_CAPACITY];
    char *argv[WORDS_MAX];
    ls_status status;
} parsed;

static void parse(parsed *p, const char *line) {
    int argc = 0;
    snprintf(p->line, sizeof p->line, "ddprun %s", line);
    for (char *word = strtok(p->line, " "); word; word = strtok(NULL, " ")) p->argv[argc++] = word;
    p->argv[argc] = NULL;
    ls_log_capture(p->message, sizeof p->message);
    p->status = ddp_command_parse(&p->command, argc, p->argv);
    ls_log_capture(NULL, 0);
    if (p->status != LS_OK) ddp_command_free(&p->command);
}

static const ddp_launch_options *accept_line(parsed *p, const char *line) {
    parse(p, line);
    if (p->status != LS_OK) fail_msg("%s: %s", line, p->message);
    return &p->command.launch;
}

static void expect_argv(const ddp_launch_options *o, const char *expected) {
    char text[LINE_CAPACITY] = "";
    for (int i = 0; o->argv[i]; i++) snprintf(text + strlen(text), sizeof text - strlen(text), " %s", o->argv[i]);
    assert_string_equal(text + 1, expected);
}

/* Lines as printed on pages about torchrun. */
TEST(test_torchruns_lines_for_one_machine) {
    static const char *const lines[] = {
        "--standalone --nnodes=1 --nproc-per-node=2 train --arg 1",
        "--standalone --nnodes 1 --nproc_per_node 2 train --arg 1",
        "--nproc_per_node=2 --nnodes=1 --node_rank=0 --master_addr=localhost --master_port=29511 train --arg 1",
        "--nnodes 1:1 --nproc_per_node 2 --rdzv_id 42 --rdzv_backend c10d --rdzv_endpoint localhost:29400 train --arg "
        "1",
        "--nnodes=1 --nproc-per-node=2 --max-restarts=3 --rdzv-id=job --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1 "
        "train --arg 1",
        "--nproc-per-node 2 --rdzv-backend static --rdzv-endpoint [::1]:29500 --rdzv-conf timeout=900,is_host=1 train "
        "--arg 1",
        "--monitor-interval 5 --start-method fork --role trainer --local-addr 127.0.0.1 --no-python --nproc-per-node 2 "
        "train --arg 1",
        "-t 3 -r 0 --nproc-per-node 2 -- train --arg 1",
    };
    static parsed p;
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        const ddp_launch_options *o = accept_line(&p, lines[i]);
        assert_int_equal(o->nproc, 2);
        assert_string_equal(o->program, "train");
        expect_argv(o, "train --arg 1");
        ddp_command_free(&p.command);
    }
}

TEST(test_values_reach_the_launch) {
    static parsed p;
    char host[256] = "", line[LINE_CAPACITY];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(line, sizeof line,
             "--max-restarts 3 --rdzv-id job --role trainer --master-addr %s --master-port 29511 --grace 2 "
             "--timeout 9 train",
             host);
    const ddp_launch_options *o = accept_line(&p, line);
    assert_int_equal(o->nproc, 1);
    assert_int_equal(o->max_restarts, 3);
    assert_string_equal(o->run_id, "job");
    assert_string_equal(o->role, "trainer");
    assert_string_equal(o->master_addr, host);
    assert_int_equal(o->master_port, 29511);
    assert_true(o->grace_s == 2 && o->timeout_s == 9);
    /* the static back-end uses MASTER_ADDR and MASTER_PORT as its endpoint; c10d's is not needed */
    o = accept_line(&p, "--rdzv-endpoint [::1]:29511 train");
    assert_string_equal(o->master_addr, "::1");
    assert_int_equal(o->master_port, 29511);
    o = accept_line(&p, "--rdzv-endpoint localhost train");
    assert_string_equal(o->master_addr, "localhost");
    assert_int_equal(o->master_port, 0);
    o = accept_line(&p, "--rdzv-backend c10d --rdzv-endpoint localhost:29511 train");
    assert_null(o->master_addr);
    assert_int_equal(o->master_port, 0);
    o = accept_line(&p, "--standalone --rdzv-id job --rdzv-endpoint elsewhere.invalid:1 train");
    assert_null(o->run_id);
    assert_null(o->master_addr);
    o = accept_line(&p, "--nproc-per-node cpu train");
    assert_int_equal(o->nproc, ls_usable_cores());
}

TEST(test_several_machines) {
    static parsed p;
    const ddp_launch_options *o =
        accept_line(&p, "--nnodes 2 --node_rank 1 --master-addr 192.0.2.7 --nproc-per-node 4 train");
    assert_int_equal(o->nnodes, 2);
    assert_int_equal(o->node_rank, 1);
    assert_string_equal(o->master_addr, "192.0.2.7");
    assert_int_equal(o->master_port, DDP_AGENTS_PORT);
    assert_true(o->join_timeout_s == DDP_JOIN_TIMEOUT_S && o->lost_s == DDP_LOST_S);
    /* torchrun's other spelling, with either back-end */
    o = accept_line(&p, "--nnodes 3:3 --node-rank 2 --rdzv-backend c10d --rdzv-endpoint 192.0.2.7:4000 --rdzv-conf "
                        "is_host=0,join_timeout=60 train");
    assert_int_equal(o->nnodes, 3);
    assert_string_equal(o->master_addr, "192.0.2.7");
    assert_int_equal(o->master_port, 4000);
    assert_true(o->join_timeout_s == 60);
}

/* This test assumes no GPU. */
TEST(test_auto_and_gpu_without_gpus) {
    static parsed p;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv("LS_PLUGINS", "/nowhere", 1);
    assert_int_equal(accept_line(&p, "--nproc-per-node auto train")->nproc, ls_usable_cores());
    parse(&p, "--nproc-per-node gpu train");
    assert_int_equal(p.status, LS_ERR_USAGE);
    assert_memory_equal(p.message, "option --nproc-per-node: gpu: ", 30);
}

TEST(test_streams) {
    static parsed p;
    const ddp_launch_options *o = accept_line(&p, "--nproc-per-node 3 --tee 1 train");
    assert_true(o->tee[0] == 1 && o->tee[1] == 1 && o->tee[2] == 1 && o->redirects[0] == 0);
    o = accept_line(&p, "--nproc-per-node 3 -t 0:3,2:1 -r 1:2 --log-dir logs train");
    assert_true(o->tee[0] == 3 && o->tee[1] == 0 && o->tee[2] == 1);
    assert_true(o->redirects[0] == 0 && o->redirects[1] == 2 && o->redirects[2] == 0);
    o = accept_line(&p, "--nproc-per-node 2 --log-dir logs train"); /* as --show prints it, and kept */
    assert_true(o->tee[0] == 3 && o->tee[1] == 3 && o->redirects[0] == 0);
    assert_string_equal(o->log_dir, "logs");
}

TEST(test_what_python_runs) {
    static parsed p;
    unsetenv("PYTHON_EXEC");
    const ddp_launch_options *o = accept_line(&p, "train.py --lr 0.1");
    assert_string_equal(o->program, "python3");
    expect_argv(o, "python3 -u train.py --lr 0.1");
    ddp_command_free(&p.command);
    expect_argv(accept_line(&p, "-m pkg.train -m"), "python3 -u -m pkg.train -m");
    ddp_command_free(&p.command);
    setenv("PYTHON_EXEC", "/opt/python", 1);
    o = accept_line(&p, "./train.py");
    assert_string_equal(o->program, "/opt/python");
    ddp_command_free(&p.command);
    unsetenv("PYTHON_EXEC");
    expect_argv(accept_line(&p, "--no-python ./train.py"), "./train.py");
    expect_argv(accept_line(&p, "./train.pyc"), "./train.pyc");
}

TEST(test_variables) {
    static parsed p;
    setenv("PET_NPROC_PER_NODE", "3", 1);
    setenv("PET_MAX_RESTARTS", "2", 1);
    setenv("PET_STANDALONE", "1", 1);
    const ddp_launch_options *o = accept_line(&p, "train");
    assert_int_equal(o->nproc, 3);
    assert_int_equal(o->max_restarts, 2);
    assert_int_equal(accept_line(&p, "--nproc-per-node 1 train")->nproc, 1);
    unsetenv("PET_NPROC_PER_NODE");
    unsetenv("PET_MAX_RESTARTS");
    unsetenv("PET_STANDALONE");
}

/* Each is rejected in one line that names the option. */
TEST(test_what_one_machine_cannot_do) {
    static const char here[] =
        "is not this machine, and ddprun starts ranks on this machine only: leave the option out, or give localhost";
    static const struct {
        const char *line, *message, *rest;
    } cases[] = {
        {"--nnodes 2 train", "--nnodes 2 needs --master-addr, the address of host 0, the same on all hosts", ""},
        {"--nnodes 1:4 train", "--nnodes 1:4: ddprun takes one number; give --elastic MIN:MAX", NULL},
        {"--nnodes some train", "--nnodes some: expected a number of machines, 1 to 64", ""},
        {"--nnodes 2 --node-rank 2 train", "--node-rank 2: with 2 machines, expected 0 to 1", ""},
        {"--nnodes 2 --standalone --master-addr 10.0.0.1 --node-rank 1 train",
         "--standalone means one machine, but --nnodes is 2", NULL},
        {"--nnodes 2 --master-addr 192.0.2.7 train",
         "--master-addr: 192.0.2.7 is not an address of this machine, which is host 0", NULL},
        {"--nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --rdzv-conf timeout=x train",
         "--rdzv-conf timeout=x: expected a timeout of", NULL},
        {"--node-rank 1 train", "--node-rank 1: expected 0, the number of the only machine", ""},
        {"--master-addr 192.0.2.7 train", "--master-addr: 192.0.2.7 ", here},
        {"--local-addr 192.0.2.7 train", "--local-addr: 192.0.2.7 ", here},
        {"--rdzv-backend c10d --rdzv-endpoint 192.0.2.7:29400 train", "--rdzv-endpoint: 192.0.2.7 ", here},
        {"--rdzv-backend etcd train",
         "--rdzv-backend etcd: expected static or c10d, since ddprun's ranks meet in a store of its own", ""},
        {"--rdzv-endpoint localhost:x train", "--rdzv-endpoint: expected HOST or HOST:PORT, found 'localhost:x'", ""},
        {"--rdzv-endpoint localhost:70000 train",
         "--rdzv-endpoint: expected HOST or HOST:PORT, found 'localhost:70000'", NULL},
        {"--rdzv-endpoint [::1 train", "--rdzv-endpoint: expected HOST or HOST:PORT, found '[::1'", NULL},
        {"--rdzv-endpoint :29400 train", "--rdzv-endpoint: expected HOST or HOST:PORT, found ':29400'", NULL},
        {"--nproc-per-node many train", "option --nproc-per-node: expected a number, gpu, cpu or auto, found 'many'",
         ""},
        {"--nproc-per-node 0 train", "option --nproc-per-node: 0 is out of range; expected 1 to 64", ""},
        {"--nproc-per-node 65 train", "option --nproc-per-node: 65 is out of range", NULL},
        {"--max-restarts -1 train", "option --max-restarts: -1 is out of range; expected at least 0", ""},
        {"--tee 4 train", "option --tee: expected 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:NUMBER,..., found '4'",
         ""},
        {"--tee 1,2 train",
         "option --tee: expected 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:NUMBER,..., found '1,2'", NULL},
        {"--tee 0:1,2 train",
         "option --tee: expected 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:NUMBER,..., found '0:1,2'", NULL},
        {"--tee both train",
         "option --tee: expected 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:NUMBER,..., found 'both'", NULL},
        {"--nproc-per-node 2 --tee 2:1 train", "option --tee: rank 2 is out of range; expected 0 to 1", ""},
        {"--redirects 3 train", "--redirects needs --log-dir for its files", ""},
        {"--no-python --module train", "--module is run by Python, which --no-python forbids: leave one of the two out",
         ""},
        {"--nproc-per-node 2", "ddprun needs the program to run: ddprun [OPTION...] PROGRAM ...", ""},
        {"--run-path train", "unknown option --run-path", NULL},
    };
    static parsed p;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        parse(&p, cases[i].line);
        size_t length = strlen(cases[i].message);
        bool good = p.status == LS_ERR_USAGE && strncmp(p.message, cases[i].message, length) == 0 &&
                    (!cases[i].rest || strcmp(p.message + length, cases[i].rest) == 0);
        if (!good) fail_msg("%s: status %d, '%s'", cases[i].line, (int)p.status, p.message);
    }
}

/* --- the table of variables --------------------------------------------------------------------------------------------- */

static void expect_row(const char *page, const char *name, const char *value) {
    char row[128];
    const char *at = page;
    snprintf(row, sizeof row, "\n%s ", name);
    at = strstr(page, row);
    if (!at) fail_msg("no row of %s", name);
    at += strlen(row);
    at += strspn(at, " ");
    if (strncmp(at, value, strlen(value)) != 0 || strncmp(at + strlen(value), "  ", 2) != 0)
        fail_msg("%s should be '%s': %.60s", name, value, at);
}

TEST(test_the_page_of_variables) {
    static parsed p;
    char *page;
    size_t nbytes;
    unsetenv("OMP_NUM_THREADS");
    accept_line(&p, "--nproc-per-node 4 --rdzv-id job --max-restarts 2 --env");
    assert_true(p.command.show_env);
    FILE *real = stdout;
    stdout = open_memstream(&page, &nbytes);
    ls_status status = ddp_environment_print(&p.command.launch);
    fclose(stdout);
    stdout = real;
    assert_int_equal(status, LS_OK);
    expect_row(page, "RANK", "0 to 3");
    expect_row(page, "WORLD_SIZE", "4");
    expect_row(page, "GROUP_RANK", "0");
    expect_row(page, "ROLE_NAME", "default");
    expect_row(page, "MASTER_ADDR", "127.0.0.1");
    expect_row(page, "MASTER_PORT", "a free port");
    expect_row(page, "TORCHELASTIC_RUN_ID", "job");
    expect_row(page, "TORCHELASTIC_MAX_RESTARTS", "2");
    expect_row(page, "TORCHELASTIC_ERROR_FILE", "not set");
    expect_row(page, "OMP_NUM_THREADS", "1");
    expect_row(page, "LS_JOB_TOKEN", "made for each start");
    free(page);
}

int main(void) {
    alarm(60);
    return run_added_tests();
}

#define _GNU_SOURCE
#include "ddp_procs/launch/launch_command.h"

#include <ctype.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/options.h"
#include "common/seam/devices.h"
#include "ddp_procs/launch/launch_agents.h"
#include "ddp_procs/launch/store_address.h"

/* Options as text. */
struct settings {
    const char *nproc, *nnodes, *local_addr, *tee, *redirects;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_conf;
    int node_rank, start_method;
    double monitor_interval_s;
    bool standalone, module, no_python;
};

/* --- numbers of ranks ------------------------------------------------------------------------------------------------- */

static ls_status count_gpus(const char *word, int *count) {
    char why[512];
    ls_find_gpus_apart(count, why, sizeof why);
    if (*count > 0) return LS_OK;
    *count = ls_usable_cores();
    return strcmp(word, "auto") == 0 ? LS_OK : ls_fail(LS_ERR_USAGE, "option --nproc-per-node: gpu: %s", why);
}

static ls_status find_nproc(const char *text, int *count) {
    char *end;
    if (strcmp(text, "gpu") == 0 || strcmp(text, "auto") == 0) return count_gpus(text, count);
    if (strcmp(text, "cpu") == 0) {
        *count = ls_usable_cores();
        return LS_OK;
    }
    long value = strtol(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0')
        return ls_fail(LS_ERR_USAGE, "option --nproc-per-node: expected a number, gpu, cpu or auto, found '%s'", text);
    if (value < 1 || value > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "option --nproc-per-node: %s is out of range; expected 1 to %d", text,
                       LS_COMM_MAX_RANKS);
    *count = (int)value;
    return LS_OK;
}

/* --- one machine ------------------------------------------------------------------------------------------------------ */

/* "M", or torchrun's form "M:M". */
static ls_status read_nodes(ddp_launch_options *launch, const struct settings *s) {
    int least = 0, most = 0, used = 0, read = sscanf(s->nnodes, "%4d%n:%4d%n", &least, &used, &most, &used);
    if (read == 1) most = least;
    if (read < 1 || s->nnodes[used] != '\0' || least < 1 || most > LS_COMM_MAX_RANKS)
        return ls_fail(LS_ERR_USAGE, "--nnodes %s: expected a number of machines, 1 to %d", s->nnodes,
                       LS_COMM_MAX_RANKS);
    if (least != most)
        return ls_fail(
            LS_ERR_USAGE,
            "--nnodes %s: ddprun takes one number; give --elastic MIN:MAX for ranks of machines that may die",
            s->nnodes);
    launch->nnodes = most;
    launch->node_rank = s->node_rank;
    if (s->node_rank < most) return LS_OK;
    if (most == 1)
        return ls_fail(LS_ERR_USAGE, "--node-rank %d: expected 0, the number of the only machine", s->node_rank);
    return ls_fail(LS_ERR_USAGE, "--node-rank %d: with %d machines, expected 0 to %d", s->node_rank, most, most - 1);
}

/* A socket can be bound to an address of this machine, and to no other. */
static bool has_own_address(const char *host) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    bool own = false;
    if (getaddrinfo(host, "0", &hints, &found) != 0) return false;
    for (const struct addrinfo *at = found; at && !own; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        own = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    return own;
}

static ls_status check_host(const char *option, const char *host, bool several) {
    char name[256] = "", own[256];
    if (!host || ddp_address_is_loopback(host)) return LS_OK;
    bool named = gethostname(name, sizeof name - 1) == 0 && strcmp(name, host) == 0;
    if (named || has_own_address(host)) return LS_OK;
    if (several)
        return ls_fail(LS_ERR_USAGE,
                       "--%s: %s is not an address of this machine, which is host 0 (--node-rank): this machine has %s",
                       option, host, ddp_address_list(own, sizeof own));
    return ls_fail(LS_ERR_USAGE,
                   "--%s: %s is not this machine, and ddprun starts ranks on this machine only: leave the option out, "
                   "or give localhost",
                   option, host);
}

/* HOST, HOST:PORT or [HOST]:PORT; *port 0: none is given. */
static ls_status split_endpoint(const char *text, char *host, size_t capacity, int *port) {
    bool bracketed = text[0] == '[';
    const char *begin = text + bracketed, *behind = strchr(begin, bracketed ? ']' : ':');
    size_t length = behind ? (size_t)(behind - begin) : strlen(begin);
    if (!behind && !bracketed) behind = begin + length;
    if (behind && bracketed) behind++;
    char *end = NULL;
    long value = behind && *behind == ':' ? strtol(behind + 1, &end, 10) : 0;
    bool is_port = end && isdigit((unsigned char)behind[1]) && *end == '\0' && value <= UINT16_MAX;
    bool good = length > 0 && length < capacity && behind && (*behind == '\0' || is_port);
    if (!good) return ls_fail(LS_ERR_USAGE, "--rdzv-endpoint: expected HOST or HOST:PORT, found '%s'", text);
    memcpy(host, begin, length);
    host[length] = '\0';
    *port = (int)value;
    return LS_OK;
}

/* torchrun's static back-end uses the endpoint as MASTER_ADDR and MASTER_PORT. Its other back-ends have a store there,
 * which the ranks of one machine do not need; with several hosts the launchers' store is there in either case. */
static ls_status read_rendezvous(ddp_command *command, const struct settings *s) {
    ddp_launch_options *launch = &command->launch;
    int port = 0;
    bool is_static = strcmp(s->rdzv_backend, "static") == 0;
    if (!is_static && strcmp(s->rdzv_backend, "c10d") != 0)
        return ls_fail(LS_ERR_USAGE,
                       "--rdzv-backend %s: expected static or c10d, since ddprun's ranks meet in a store of its own",
                       s->rdzv_backend);
    if (s->standalone) {
        launch->run_id = NULL;
        return LS_OK;
    }
    if (!s->rdzv_endpoint) return LS_OK;
    bool several = launch->nnodes > 1;
    ls_status status = split_endpoint(s->rdzv_endpoint, command->host, sizeof command->host, &port);
    if (status == LS_OK && launch->node_rank == 0) status = check_host("rdzv-endpoint", command->host, several);
    if (status != LS_OK || !(is_static || several)) return status;
    launch->master_addr = command->host;
    if (port > 0) launch->master_port = port;
    return LS_OK;
}

/* "timeout=900,is_host=1": the time in which all hosts must arrive. */
static ls_status read_conf(ddp_launch_options *launch, const char *conf) {
    static const char *const names[] = {"timeout=", "join_timeout="};
    for (const char *at = conf; at && *at; at += strcspn(at, ","), at += *at == ',') {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            if (strncmp(at, names[i], strlen(names[i])) != 0) continue;
            launch->join_timeout_s = strtod(at + strlen(names[i]), NULL);
            if (launch->join_timeout_s > 0) continue;
            return ls_fail(LS_ERR_USAGE, "--rdzv-conf %s: expected a timeout of more than 0 seconds", conf);
        }
    }
    return LS_OK;
}

static ls_status check_several(ddp_command *command, const struct settings *s) {
    ddp_launch_options *launch = &command->launch;
    if (s->standalone)
        return ls_fail(LS_ERR_USAGE, "--standalone means one machine, but --nnodes is %d: give only one",
                       launch->nnodes);
    if (!launch->master_addr)
        return ls_fail(LS_ERR_USAGE, "--nnodes %d needs --master-addr, the address of host 0, the same on all hosts",
                       launch->nnodes);
    if (launch->master_port == 0) launch->master_port = DDP_AGENTS_PORT;
    return read_conf(launch, s->rdzv_conf);
}

/* --- output ----------------------------------------------------------------------------------------------------------- */

/* "3" for all ranks, or "0:3,1:2" for some. */
static ls_status read_streams(const char *option, const char *text, int nproc, unsigned char streams[]) {
    for (const char *at = text; *at;) {
        int rank = -1, value = -1, used = 0;
        bool some = sscanf(at, "%d:%d%n", &rank, &value, &used) == 2 && used > 0;
        if (!some) (void)sscanf(at, "%d%n", &value, &used);
        bool alone = !some && at == text && at[used] == '\0';
        if (value < 0 || value > DDP_STDOUT + DDP_STDERR || !(alone || some) || (at[used] && at[used] != ','))
            return ls_fail(LS_ERR_USAGE,
                           "option --%s: expected 0, 1 (stdout), 2 (stderr), 3 (both) or RANK:NUMBER,..., found '%s'",
                           option, text);
        if (some && (rank < 0 || rank >= nproc))
            return ls_fail(LS_ERR_USAGE, "option --%s: rank %d is out of range; expected 0 to %d", option, rank,
                           nproc - 1);
        if (some) streams[rank] = (unsigned char)value;
        for (int i = 0; alone && i < nproc; i++) streams[i] = (unsigned char)value;
        at += used + (at[used] == ',');
    }
    return LS_OK;
}

/* With only --log-dir all output is both shown and written to files. */
static ls_status read_output(ddp_launch_options *launch, const struct settings *s) {
    const char *tee = s->tee, *redirects = s->redirects;
    if (launch->log_dir && !tee && !redirects) tee = "3";
    ls_status status = read_streams("tee", tee ? tee : "0", launch->nproc, launch->tee);
    if (status == LS_OK)
        status = read_streams("redirects", redirects ? redirects : "0", launch->nproc, launch->redirects);
    for (int i = 0; status == LS_OK && !launch->log_dir && i < launch->nproc; i++)
        if (launch->redirects[i]) status = ls_fail(LS_ERR_USAGE, "--redirects needs --log-dir for its files");
    return status;
}

/* --- the program ------------------------------------------------------------------------------------------------------ */

static bool is_script(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(dot, ".py") == 0;
}

/* torchrun runs its operand with Python, unless --no-python is given; ddprun does so only for Python scripts and
 * modules. */
static ls_status find_program(ddp_command *command, const struct settings *s, char **operands, int count) {
    const char *python = getenv("PYTHON_EXEC");
    if (s->module && s->no_python)
        return ls_fail(LS_ERR_USAGE, "--module is run by Python, which --no-python forbids: leave one of the two out");
    if (count == 0 && command->show_env) return LS_OK;
    if (count == 0) return ls_fail(LS_ERR_USAGE, "ddprun needs the program to run: ddprun [OPTION...] PROGRAM ...");
    command->launch.argv = operands;
    command->launch.program = operands[0];
    if (!s->module && (s->no_python || !is_script(operands[0]))) return LS_OK;
    char **argv = command->argv = calloc((size_t)count + 4, sizeof *argv);
    if (!argv) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory for the ranks' arguments");
    *argv++ = (char *)(python && python[0] ? python : "python3");
    *argv++ = (char *)"-u";
    if (s->module) *argv++ = (char *)"-m";
    memcpy(argv, operands, (size_t)count * sizeof *argv);
    command->launch.argv = command->argv;
    command->launch.program = command->argv[0];
    return LS_OK;
}

/* --- the command line ------------------------------------------------------------------------------------------------- */

static ls_status interpret(ddp_command *command, const struct settings *s, char **operands, int count) {
    ddp_launch_options *launch = &command->launch;
    ls_status status = read_nodes(launch, s);
    bool several = launch->nnodes > 1;
    if (status == LS_OK && launch->node_rank == 0) status = check_host("master-addr", launch->master_addr, several);
    if (status == LS_OK) status = check_host("local-addr", s->local_addr, false);
    if (status == LS_OK) status = read_rendezvous(command, s);
    if (status == LS_OK && several) status = check_several(command, s);
    if (status == LS_OK) status = find_nproc(s->nproc, &launch->nproc);
    if (status == LS_OK) status = ddp_limits_parse(&launch->limits, launch->elastic, several ? 0 : launch->nproc);
    if (status == LS_OK) status = read_output(launch, s);
    return status == LS_OK ? find_program(command, s, operands, count) : status;
}

enum { TABLE_ROWS = 16 };

/* Rows of one or two lines keep the tables readable. */
/* clang-format off */
static size_t rank_rows(ddp_command *c, struct settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Ranks"},
        {.kind = LS_OPTION_STRING, .name = "nproc-per-node", .to.text = &s->nproc, .argument = "N",
         .help = "number of ranks to start, each a process; gpu: the number of GPUs; cpu: of cores; auto: gpu if there are any, else cpu"},
        {.kind = LS_OPTION_INT, .name = "max-restarts", .to.number = &c->launch.max_restarts, .argument = "K", .limits = LS_AT_LEAST(0),
         .help = "restart all ranks when a rank fails, at most K times; not after wrong usage (status 2)"},
        {.kind = LS_OPTION_STRING, .name = "elastic", .to.text = &c->launch.elastic, .argument = "MIN:MAX", .empty = "none may die",
         .help = "continue without ranks that die, while at least MIN are left; --max-restarts then restarts single ranks, which join again; for "
                 "ddp_train"},
        {.kind = LS_OPTION_DOUBLE, .name = "grace", .to.real = &c->launch.grace_s, .argument = "SECONDS", .limits = LS_AT_LEAST(0),
         .help = "after a failure, seconds between SIGTERM and SIGKILL for the other ranks"},
        {.kind = LS_OPTION_DOUBLE, .name = "timeout", .to.real = &c->launch.timeout_s, .argument = "SECONDS", .limits = LS_AT_LEAST(0),
         .empty = "none", .help = "end the job after this many seconds, restarts included"},
        {.kind = LS_OPTION_FLAG, .name = "module", .letter = 'm', .to.flag = &s->module,
         .help = "PROGRAM is a Python module: python3 -u -m PROGRAM"},
        {.kind = LS_OPTION_FLAG, .name = "no-python", .to.flag = &s->no_python,
         .help = "run PROGRAM itself although its name ends in .py"},
    };
    _Static_assert(sizeof table / sizeof *table <= TABLE_ROWS, "TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t output_rows(ddp_command *c, struct settings *s, ls_option *rows) {
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Output"},
        {.kind = LS_OPTION_STRING, .name = "log-dir", .to.text = &c->launch.log_dir, .argument = "DIR",
         .help = "write the ranks' output to DIR/RUN/attempt_K/RANK/stdout.log and stderr.log; without --redirects and --tee also show the output "
                 "(--tee 3)"},
        {.kind = LS_OPTION_STRING, .name = "tee", .letter = 't', .to.text = &s->tee, .argument = "STREAMS", .empty = "0",
         .help = "show output lines with their rank in front: 1: stdout, 2: stderr, 3: both; or per rank: 0:3,1:2"},
        {.kind = LS_OPTION_STRING, .name = "redirects", .letter = 'r', .to.text = &s->redirects, .argument = "STREAMS", .empty = "0",
         .help = "write these streams only to the files of --log-dir"},
        {.kind = LS_OPTION_FLAG, .name = "env", .to.flag = &c->show_env,
         .help = "print the ranks' environment variables, with values and origins, and exit"},
    };
    _Static_assert(sizeof table / sizeof *table <= TABLE_ROWS, "TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}

static size_t meeting_rows(ddp_command *c, struct settings *s, ls_option *rows) {
    static const char *const start_methods[] = {"spawn", "fork", "forkserver", NULL};
    const ls_option table[] = {
        {.kind = LS_OPTION_HEADING, .help = "Several machines, and where ranks meet: torchrun's options"},
        {.kind = LS_OPTION_FLAG, .name = "standalone", .to.flag = &s->standalone, .help = "use one machine; ignore --rdzv options"},
        {.kind = LS_OPTION_STRING, .name = "nnodes", .to.text = &s->nnodes, .argument = "M",
         .help = "number of machines; start ddprun on each (docs/hosts.md)"},
        {.kind = LS_OPTION_INT, .name = "node-rank", .to.number = &s->node_rank, .argument = "R", .limits = LS_AT_LEAST(0),
         .help = "number of this machine, from 0"},
        {.kind = LS_OPTION_STRING, .name = "master-addr", .to.text = &c->launch.master_addr, .argument = "HOST", .empty = "127.0.0.1",
         .help = "MASTER_ADDR, the address of machine 0"},
        {.kind = LS_OPTION_INT, .name = "master-port", .to.number = &c->launch.master_port, .argument = "PORT", .limits = LS_BETWEEN(0, UINT16_MAX),
         .empty = "a free port",
         .help = "MASTER_PORT, for programs that rendezvous by themselves (ddp_train uses a socket); with several machines the port of ddprun on "
                 "machine 0 (29500)"},
        {.kind = LS_OPTION_STRING, .name = "local-addr", .to.text = &s->local_addr, .argument = "HOST", .help = "this machine; no effect"},
        {.kind = LS_OPTION_STRING, .name = "rdzv-backend", .to.text = &s->rdzv_backend, .argument = "NAME", .help = "static or c10d"},
        {.kind = LS_OPTION_STRING, .name = "rdzv-endpoint", .to.text = &s->rdzv_endpoint, .argument = "HOST[:PORT]",
         .help = "address of machine 0; sets --master-addr and --master-port with static or several machines"},
        {.kind = LS_OPTION_STRING, .name = "rdzv-id", .to.text = &c->launch.run_id, .argument = "NAME", .empty = "a name of its own",
         .help = "name of the run: TORCHELASTIC_RUN_ID, and the start of the folder's name in --log-dir"},
        {.kind = LS_OPTION_STRING, .name = "rdzv-conf", .to.text = &s->rdzv_conf, .argument = "KEY=VALUE,...",
         .help = "timeout=SECONDS: how long several machines wait for each other (300); other keys have no effect"},
        {.kind = LS_OPTION_STRING, .name = "role", .to.text = &c->launch.role, .argument = "NAME", .help = "ROLE_NAME"},
        {.kind = LS_OPTION_DOUBLE, .name = "monitor-interval", .to.real = &s->monitor_interval_s, .argument = "SECONDS", .limits = LS_ABOVE(0),
         .help = "no effect: the kernel reports a rank's end at once"},
        {.kind = LS_OPTION_CHOICE, .name = "start-method", .to.number = &s->start_method, .choices = start_methods, .help = "no effect: each rank is a program"},
    };
    _Static_assert(sizeof table / sizeof *table <= TABLE_ROWS, "TABLE_ROWS is too small");
    memcpy(rows, table, sizeof table);
    return sizeof table / sizeof *table;
}
/* clang-format on */

ls_status ddp_command_parse(ddp_command *command, int argc, char **argv) {
    struct settings s = {.nproc = "1", .nnodes = "1", .rdzv_backend = "static", .monitor_interval_s = 0.1};
    ls_option rows[3 * TABLE_ROWS];
    *command = (ddp_command){.launch = {.grace_s = DDP_LAUNCH_GRACE_S,
                                        .role = "default",
                                        .join_timeout_s = DDP_JOIN_TIMEOUT_S,
                                        .lost_s = DDP_LOST_S}};
    size_t count = rank_rows(command, &s, rows);
    count += output_rows(command, &s, rows + count);
    count += meeting_rows(command, &s, rows + count);
    const ls_command table = {
        .purpose = "Runs PROGRAM as N ranks on this machine, or on M machines together with the ddprun of each; ends "
                   "all of them when one\n"
                   "fails. Each default may come from the environment: PET_NPROC_PER_NODE=4.",
        .options = rows,
        .count = count,
        .operands = "PROGRAM [ARGUMENT...]",
        .variables = "PET_",
    };
    ls_parsed parsed;
    ls_status status = ls_options_parse(&table, argc, argv, &parsed);
    command->help = parsed.help;
    if (status != LS_OK || parsed.help) return status;
    return interpret(command, &s, argv + parsed.first_operand, argc - parsed.first_operand);
}

void ddp_command_free(ddp_command *command) { free(command->argv); }

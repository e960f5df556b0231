/* Training in tests: one plan for a single device, DataParallel and DistributedDataParallel, run step by step in
 * separate processes, and its results.
 *
 * Everything runs in forked processes, the single-process modes too, so that no test inherits another's threads. These
 * functions do not assert; a process reports through its outcome. */
#ifndef TESTS_PARALLEL_PLAN_H
#define TESTS_PARALLEL_PLAN_H

#include "common/seam/step.h"
#include "ddp_procs/distributed.h"
#include "tests/comm/ranks.h"
#include "tests/parallel/groups.h"

/* From MODE_SPLIT on ranks have parts of a network: some of its blocks, or a part of each layer. */
enum mode {
    MODE_SINGLE,
    MODE_DP,
    MODE_DDP,
    MODE_TOPK,
    MODE_ZERO1,
    MODE_ZERO2,
    MODE_ZERO3,
    MODE_PIPELINE,
    MODE_TENSOR,
    MODES,
    MODE_SPLIT = MODE_PIPELINE
};

enum { MAX_STEPS = 64, MAX_RANKS = 8 };

/* The length of a wait after which a run counts as failed. */
#define PLAN_TIMEOUT_S 20.0

struct plan {
    enum mode mode;
    int devices; /* DP: devices; DDP: ranks; single: 1 */
    const char *model;
    const ls_network *network; /* in place of the model of that name; NULL: use the name */
    int every;                 /* blocks of a segment, of which only the input is kept; 0: keep all activations */
    size_t batch;              /* samples a step over all devices */
    size_t steps;
    int accumulate;             /* micro-batches of a step; 0: 1 */
    ls_dtype precision;         /* with LS_FP16 the loss is scaled */
    size_t samples;             /* 0: data/digits, in file order, whole batches only; else that many random samples */
    const char *text;           /* a text's training set in place of both; NULL: none */
    bool strided;               /* DDP: DistributedSampler's shards rather than DataParallel's chunks */
    const char *stored, *state; /* initial weights: a stored run and a prefix; NULL: PyTorch's for the seed */
    uint64_t seed;              /* rank r has seed + r */
    size_t first_step;          /* the first batch of the data to be used */
    ls_optimizer_options optimizer;
    const char *streams; /* LS_CPU_STREAMS; NULL: inline. With GPUs CUDA_ON_CPU_STREAMS; NULL: eager */
    /* GPUs instead of CPU devices: device (or rank) i gets GPU i modulo gpus; 0: CPU devices */
    int gpus;
    bool rush;        /* run_plan does not wait between the steps, so only the last step has an outcome */
    bool losses_only; /* run_plan hashes no weights */
    bool nccl; /* on GPUs, parameters and gradients are sent through NCCL; otherwise by copies (DP), staged (DDP) */
    bool sync_bn;
    int output_device; /* for DP */
    /* for DDP, and its variants */
    const char *allreduce; /* NULL: naive */
    double bucket_cap_mb;  /* 0: the default */
    bool no_overlap;
    ddp_join_options join;
    bool find_unused, compare_each_step;
    ls_dtype compress;             /* the type in which gradients are sent */
    int prefetch;                  /* ZeRO-3: units that are gathered ahead */
    double fraction;               /* top-k; 0: 1, with DDP's bits */
    bool forgets;                  /* top-k without feedback */
    int parts;                     /* of a network that is split; 0: two if the number of ranks is even, else one */
    ddp_schedule_kind schedule;    /* of a pipeline */
    bool sequence;                 /* ranks that share layers have their own rows */
    bool sharded;                  /* replicas of a network that is split shard the optimizer's state: ZeRO-1 */
    struct plan_groups groups;     /* created by plan_groups_open, in the process that opens a session */
    const ls_bootstrap *bootstrap; /* of the ranks, for groups that get GPUs */
};

/* The results of one process, in memory that it shares with the parent. */
struct outcome {
    ls_status status;
    char message[512];
    uint64_t weights[MAX_STEPS], state[MAX_STEPS]; /* hashes after each step: parameters; parameters and buffers */
    double losses[MAX_STEPS];                      /* of this rank; 0: another rank has them */
    float scales[MAX_STEPS];                       /* of the loss, after each step; 0 without a scaler */
    int64_t skipped;                               /* updates that were skipped because of infinities */
    uint64_t bytes[LS_PHASE_COUNT];                /* moved in each phase by all devices of the process */
    int64_t batches_tracked;                       /* by the first batch norm, after the run */
    double gradient_error, buffer_error;           /* filled by the caller's `look` */
    size_t buckets;
};

/* A session: one device or several, a model and a mode. */
struct session {
    int rank, world_size;
    int device_count;
    ls_device *devices[MAX_RANKS];
    ls_model *model;
    ls_parallel *parallel;
    struct plan_groups attached; /* attached to this rank's GPU; to be destroyed before it */
};

/* Opens the plan's session. `comm`, a group of all ranks, is NULL except for DDP and its variants. Ranks other than 0
 * get other initial weights, except if they have parts of the same ones. On failure only `comm` and the plan's groups
 * remain to be closed. On GPUs the session takes over these, also on failure. */
ls_status session_open(struct session *s, const struct plan *plan, ls_comm *comm);
void session_close(struct session *s);

/* The table of modes. `open` creates s->parallel. */
struct plan_mode {
    const struct ls_mode *mode;
    ls_status (*open)(struct session *s, const struct plan *plan, ls_comm *comm);
};
extern const struct plan_mode plan_modes[MODES];

/* Does once, in a process that is about to fork ranks, what takes longer than most of their work: oneDNN generates the
 * machine code of matrix multiplies, and the topology of the machine is read. */
void prepare_training(void);

/* prepare_training, then run_good_ranks. */
void run_training_ranks(int world_size, void (*body)(struct rank *rank), const void *argument);

/* The number of processes of the plan, and whether they are ranks of a group; the number of parts of the network, and
 * of its replicas with different samples. */
int plan_ranks(const struct plan *plan);
bool plan_has_group(const struct plan *plan);
bool plan_has_buckets(const struct plan *plan); /* of gradients */
int plan_parts(const struct plan *plan);
int plan_replicas(const struct plan *plan);

/* The plan whose bits this plan must have: in another mode, with as many replicas. */
struct plan plan_equal(const struct plan *plan);

/* Enqueues one step, without waiting. */
ls_status session_step(struct session *s, const ls_batch *batch);

ls_status session_synchronize(struct session *s);

/* Distributes the buffers of other stages to each rank. */
ls_status session_share_buffers(struct session *s);

/* Hashes of the parameters, and of parameters and buffers, independent of their layout and of the ranks that hold them.
 * Waits for the device. */
ls_status session_hash(struct session *s, uint64_t *weights, uint64_t *state);

/* The loss scaler's state; all zero without one. */
ls_status session_scaler(const struct session *s, struct ls_scaler_state *scaler);

/* The loss of a step, which must still be in the ring. */
ls_status session_loss(struct session *s, uint64_t step, double *loss);

/* All batches of a run, in memory. */
struct samples {
    float *inputs, *targets;
    uint16_t *halves; /* the inputs, rounded to the plan's precision; batches use them, except of tokens */
    int64_t *labels;
    ls_batch batches[MAX_STEPS];
};

/* The samples of a replica (ls_parallel's data_rank and data_size). */
bool samples_make(struct samples *samples, const struct plan *plan, const ls_model *model, int rank, int world_size);
void samples_free(struct samples *samples);

/* Memory that forked processes share with the parent, zero-filled. */
void *shared_alloc(size_t nbytes);
void shared_free(void *memory, size_t nbytes);

/* Runs the plan, waiting after each step, in plan->devices processes for DDP and one otherwise, and fills
 * outcomes[rank]. `look` (may be NULL) is called in each process after the last step's reduction and before its
 * update. */
void run_plan(const struct plan *plan, struct outcome *outcomes, void (*look)(struct session *s, struct outcome *o));

/* The loss of the whole batch at a step. */
double global_loss(const struct plan *plan, const struct outcome *outcomes, size_t step);

/* The first step (from 0) after which the weights differ, or -1. Compares `steps` steps. */
int first_difference(const struct outcome *left, const struct outcome *right, size_t steps);

#endif

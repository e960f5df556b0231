/* Wrong options, files and limits: one line with the error, the right exit status, and nothing left behind. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/base/scratch.h"
#include "tests/base/test.h"
#include "tests/base/text.h"
#include "tests/programs/program.h"

/* Checks that stdout is empty, and stderr has `lines` lines, the first of which is NAME: error: ... `text` .... */
static void expect_complaint(const program *p, const char *name, int status, int lines, const char *text) {
    char begin[64];
    snprintf(begin, sizeof begin, "%s: error: ", name);
    bool good = p->status == status && p->out_text[0] == '\0' && count_lines(p->err_text) == lines &&
                strncmp(p->err_text, begin, strlen(begin)) == 0 && strstr(p->err_text, text);
    if (!good) {
        fail_msg("expected status %d, %d line(s) '%s...%s'; got status %d, stdout '%s', stderr '%s'", status, lines,
                 begin, text, p->status, p->out_text, p->err_text);
    }
}

/* The same complaint from one process, from the only rank, and from ddp_train before it starts ranks. */
static void expect_refusal(const char *options, int status, const char *text) {
    static program p;
    int files = scratch_file_count();
    program_run(&p, "dp_train --devices 2 %s", options);
    expect_complaint(&p, "dp_train", status, 1, text);
    program_run(&p, "ddp_train %s", options);
    expect_complaint(&p, "ddp_train", status, 1, text);
    program_run(&p, "ddp_train --spawn 2 %s", options);
    expect_complaint(&p, "ddp_train", status, 1, text);
    assert_int_equal(scratch_file_count(), files);
}

struct refusal {
    const char *line; /* options, or a whole command line */
    int status;
    const char *text;
};

TEST_IN(programs, test_options_of_both_programs) {
    static const struct refusal cases[] = {
        {"--bogus", 2, "unknown option --bogus"},
        {"extra", 2, "'extra' is not an option"},
        {"--save", 2, "--save needs a value"},
        {"--model nope", 2, "unknown model \"nope\""},
        {"--model mlp:", 2, "\"mlp:\""},
        {"--model mlp:784,0,10", 2, "expected sizes from 1"},
        {"--model wide:64", 2, "has one size"},
        {"--model deep:784,10", 2, "unknown model \"deep:784,10\""},
        {"--batch-size 0", 2, "--batch-size: 0 is out of range"},
        {"--batch-size 9223372036854775807", 2, "exceeds the limit"},
        {"--per-device-batch 9223372036854775807", 2, "exceed the limit"},
        {"--batch-size 65 --per-device-batch 32", 2, "--batch-size 65 and --per-device-batch 32 contradict each other"},
        {"--lr nan", 2, "--lr: 'nan' is not a number"},
        {"--optimizer adam --momentum 0.9", 2, "momentum and nesterov belong to sgd"},
        {"--optimizer sgd --nesterov", 2, "nesterov needs a momentum above 0"},
        {"--steps 0", 2, "--steps: 0 is out of range"},
        {"--epochs 0", 2, "--epochs: 0 is out of range"},
        {"--epochs 9223372036854775807", 2, "epochs are too many"},
        {"--timeout 0", 2, "--timeout: 0 is out of range"},
        {"--timeout 1e300", 2, "--timeout 1e+300 s is out of range"},
        {"--host-lock -1", 2, "--host-lock: -1 is out of range"},
        {"--host-lock nan", 2, "--host-lock: 'nan' is not a number"},
        {"--host-lock 1e9", 2, "--host-lock: 1e9 is out of range"},
        {"--device-kind tpu", 2, "--device-kind: 'tpu' is unknown"},
        {"--device-kind cuda", 1, "no GPU can be used: "}, /* test machines have none */
        {"--cuda-graph", 2, "--cuda-graph records the work of GPUs"},
        {"--device-memory 10x", 2, "'10x' is not a size"},
        {"--offload gradients", 2, "--offload: 'gradients' is unknown"},
        {"--data random:abc", 2, "expected a number as the seed"},
        {"--data random:-1", 2, "expected a number as the seed"},
        {"--data stream:data/digits --normalize auto", 2, "--normalize auto needs all samples"},
        {"--data data/digits/README.md", 1, "README.md is a file; expected a folder with files in MNIST's format"},
        {"--checkpoint-activations 0", 2,
         "--checkpoint-activations 0: expected a number of blocks, 1 or more, or sqrt"},
        {"--checkpoint-activations -1", 2, "--checkpoint-activations -1: expected"},
        {"--checkpoint-activations 2x", 2, "--checkpoint-activations 2x: expected"},
        {"--checkpoint-activations 2147483648", 2, "--checkpoint-activations 2147483648: expected"},
        {"--data /no/such/folder", 1, "there is no data folder /no/such/folder"},
        {"--model wide", 1, "1 x 28 x 28 = 784 values, but the model takes 4096"},
        {"--resume /no/such/file", 1, "cannot open /no/such/file: No such file or directory"},
        {"--resume-if-present /proc/version", 1, "/proc/version is not a valid safetensors file"},
        {"--drop-last --batch-size 5000", 1, "do not fill a batch of 5000"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) expect_refusal(cases[i].line, cases[i].status, cases[i].text);
}

/* For a program that the line names. */
static void expect_named_refusal(const struct refusal *expected) {
    static program p;
    const char *program_name = strstr(expected->line, "ddprun") ? "ddprun" : strstr(expected->line, "ddp_train");
    program_run(&p, "%s", expected->line);
    char name[16] = "dp_train";
    if (program_name) snprintf(name, sizeof name, "%.*s", (int)strcspn(program_name, " "), program_name);
    expect_complaint(&p, name, expected->status, 1, expected->text);
}

TEST_IN(programs, test_devices_and_ranks) {
    static const struct refusal cases[] = {
        {"dp_train --devices 0", 2, "--devices: 0 is out of range"},
        {"dp_train --devices -1", 2, "--devices: -1 is out of range"},
        {"dp_train --devices 65", 2, "--devices: 65 is out of range"},
        {"dp_train --devices 3 --batch-size 2", 2, "3 devices cannot share a batch of 2 samples"},
        {"dp_train --device-ids 0,0", 2, "device 0 is named twice"},
        {"dp_train --device-kind cpu --device-ids 1,0,1", 2, "device 1 is named twice, which only GPUs may be"},
        {"ddp_train --shard-state -1", 2, "--shard-state: -1 is out of range"},
        {"ddp_train --spawn 2 --shard-state 2 --no-overlap", 2, "--no-overlap cannot be combined with --shard-state 2"},
        {"ddp_train --spawn 2 --shard-state 2 --find-unused", 2,
         "--find-unused cannot be combined with --shard-state 2"},
        {"ddp_train --spawn 2 --shard-state 3 --find-unused", 2,
         "--find-unused cannot be combined with --shard-state 3"},
        {"ddp_train --spawn 2 --shard-state 4", 2, "--shard-state: 4 is out of range"},
        {"ddp_train --spawn 2 --shard-state 3 --prefetch-blocks 3", 2, "--prefetch-blocks: 3 is out of range"},
        {"ddp_train --spawn 2 --shard-state 2 --prefetch-blocks 2", 2,
         "--prefetch-blocks chooses what --shard-state 3 gathers"},
        {"dp_train --devices 2 --device-kind meta --offload optimizer", 2,
         "--offload cannot be combined with meta devices"},
        {"dp_train --replicate nccl", 2, "give --replicate flat"},
        {"dp_train --device-ids 0,,1", 2, "not a list of whole numbers"},
        {"dp_train --device-ids 0,1 --output-device 2", 2, "output device 2 is not among the devices"},
        {"dp_train --devices 2 --device-ids 0,1", 2, "exclude each other"},
        {"dp_train --single --devices 2", 2, "--single trains on one device"},
        {"LS_CPU_ISA=bogus dp_train", 2, "LS_CPU_ISA is \"bogus\""},
        {"LS_CPU_ISA= ddp_train --spawn 2", 2, "LS_CPU_ISA is \"\""},
        {"LS_CPU_STREAMS=bogus dp_train", 2, "LS_CPU_STREAMS is \"bogus\""},
        {"LS_CPU_STREAMS=shuffle: ddp_train", 2, "LS_CPU_STREAMS is \"shuffle:\""},
        {"LS_CPU_STREAMS=bogus ddp_train --spawn 2", 2, "LS_CPU_STREAMS is \"bogus\""},
        {"ddp_train --spawn -1", 2, "--spawn: -1 is out of range"},
        {"ddp_train --spawn 65", 2, "--spawn: 65 is out of range"},
        {"ddp_train --spawn abc", 2, "--spawn: 'abc' is not a whole number"},
        {"ddp_train --spawn 3 --batch-size 2", 2, "3 devices cannot share a batch of 2 samples"},
        {"ddp_train --spawn 3 --batch-size 64", 1, "64 samples cannot be shared equally by 3 ranks"},
        {"ddp_train --spawn 2 --device-ids 0", 2, "names 1 device for 2 ranks"},
        {"ddp_train --spawn 2 --device-ids 3,3", 2, "device 3 is named twice"},
        {"ddp_train --backend nccl", 2, "--backend nccl works between GPUs"},
        {"ddp_train --spawn 2 --backend nccl", 2, "--backend nccl works between GPUs"},
        {"RANK=0 ddp_train", 1, "has RANK but not WORLD_SIZE"},
        {"RANK=5 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 ddp_train", 1,
         "RANK is '5', but must be a number from 0 to 1"},
        {"ddprun", 2, "ddprun needs the program to run"},
        {"ddprun --nproc-per-node 0 ddp_train", 2, "--nproc-per-node: 0 is out of range"},
        {"ddprun --nproc-per-node 2 /no/such/program", 1, "cannot run '/no/such/program'"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) expect_named_refusal(&cases[i]);
}

TEST_IN(programs, test_lists_and_parts_of_layers) {
    static const struct refusal cases[] = {
        {"ddp_train --compress topk:0", 2, "--compress topk:0: expected none, fp16, bf16, topk:FRACTION"},
        {"ddp_train --compress topk", 2, "--compress topk: expected none"},
        {"ddp_train --spawn 2 --compress topk:0.1 --shard-state 1", 2,
         "--compress topk:0.1 cannot be combined with --shard-state"},
        {"ddp_train --spawn 2 --compress topk:0.1 --precision fp16", 2,
         "--compress topk:0.1 cannot be combined with --precision fp16: unsent elements would be scaled by an "
         "earlier"},
        {"ddp_train --spawn 2 --compress topk:0.1 --find-unused", 2,
         "--find-unused cannot be combined with --compress topk:0.1: unsent elements of an unused parameter"},
        {"ddp_train --spawn 3 --tensor 2", 2, "--tensor 2 needs a multiple of 2 ranks, but there are 3"},
        {"ddp_train --tensor 0", 2, "--tensor: 0 is out of range"},
        {"ddp_train --spawn 2 --sequence-parallel", 2, "--sequence-parallel shards what --tensor leaves replicated"},
        {"ddp_train --spawn 2 --tensor 2 --sequence-parallel", 2, "--sequence-parallel needs a text's positions"},
        {"ddp_train --spawn 4 --tensor 4 --model gpt:2,6,24,16 --data sums:1", 2,
         "layer transformer.h.0.attn has 6 heads, which 4 ranks cannot share equally"},
        {"ddp_train --spawn 4 --tensor 4 --model gpt:2,4,24,18 --data sums:1 --sequence-parallel", 2,
         "a context of 18 positions cannot be shared equally by 4 ranks"},
        {"ddp_train --spawn 2 --tensor 2 --model branched", 2, "no pair of layers for --tensor to cut"},
        {"ddp_train --spawn 2 --debug-values --compress fp16", 2, "--debug-values cannot be combined with --compress"},
        {"ddp_train --spawn 2 --debug-values --elastic 1:2", 2, "--debug-values cannot be combined with --elastic"},
        {"ddp_train --spawn 2 --tensor 2 --shard-state 3", 2, "--tensor cannot be combined with --shard-state 3"},
        {"ddp_train --spawn 2 --tensor 2 --uneven", 2, "--tensor cannot be combined with --uneven"},
        {"ddp_train --spawn 2 --tensor 2 --find-unused", 2, "--tensor cannot be combined with --find-unused"},
        {"ddp_train --spawn 2 --tensor 2 --cuda-graph", 2, "--cuda-graph"},
        {"ddp_train --spawn 2 --tensor 2 --compress topk:0.1", 2, "--tensor cannot be combined with --compress topk"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) expect_named_refusal(&cases[i]);
}

/* ddprun does not know the program: the ranks print their line, only once since it is the same, and ddprun names the
 * rank that failed. */
TEST_IN(programs, test_ranks_of_ddprun) {
    static const struct refusal cases[] = {
        {"--model nope", 2, "unknown model \"nope\""},
        {"--data /no/such/folder", 1, "there is no data folder /no/such/folder"},
        {"--batch-size 1", 2, "2 devices cannot share a batch of 1 samples"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        static program p;
        assert_int_equal(program_run(&p, "ddprun --nproc-per-node 2 ddp_train %s", cases[i].line), cases[i].status);
        assert_string_equal(p.out_text, "");
        assert_int_equal(program_take_failures(&p) > 0, cases[i].status != 2);
        if (count_lines(p.err_text) != 2) fail_msg("not two lines: %s", p.err_text);
        if (count_text(p.err_text, cases[i].text) < 2) fail_msg("'%s' is not in: %s", cases[i].text, p.err_text);
        assert_non_null(strstr(p.err_text, "ddprun: error: rank "));
    }
}

/* --- files to write ------------------------------------------------------------------------------------------------ */

static const char *const outputs[] = {"--save", "--metrics", "--summary", "--dump-losses"};

TEST_IN(programs, test_files_that_cannot_be_written) {
    char options[700], name[NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[NAME_MAX + 1] = '\0';
    assert_int_equal(mkdir(scratch_path("folder"), 0700), 0);
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        snprintf(options, sizeof options, "%s /no/such/folder/file", outputs[i]);
        expect_refusal(options, 1, "cannot write /no/such/folder/file: No such file or directory");
        snprintf(options, sizeof options, "%s %s", outputs[i], scratch_path("folder"));
        expect_refusal(options, 1, "cannot write ");
        /* if one file cannot be written, none is begun */
        snprintf(options, sizeof options, "--metrics %s %s /proc/version/file", scratch_path("m"), outputs[i]);
        expect_refusal(options, 1, "cannot write /proc/version/file: ");
    }
    snprintf(options, sizeof options, "--save %s", scratch_path(name)); /* detected at the start, not at the end */
    expect_refusal(options, 1, ": File name too long");
    snprintf(options, sizeof options, "--metrics %s", scratch_path("pipe"));
    expect_refusal(options, 1, "no process reads this pipe");
}

/* A file of lines may be a device; that it is full is reported with the first lines, once for each file, and the run
 * continues to its results. */
TEST_IN(programs, test_full_devices) {
    static const char *const options[] = {"--metrics /dev/full", "--dump-losses /dev/full",
                                          "--metrics /dev/full --dump-losses /dev/full"};
    static const char *const full =
        "error: cannot write all of /dev/full: No space left on device; writing there has stopped, "
        "and this run will end as failed\n";
    static program p;
    for (int i = 0; i < (int)COUNT_OF(options); i++) {
        int files = i == 2 ? 2 : 1;
        assert_int_equal(program_run(&p, "dp_train --devices 2 --steps 2 %s", options[i]), 1);
        assert_int_equal(count_text(p.err_text, full), files);
        assert_int_equal(count_lines(p.err_text), files);
        assert_non_null(strstr(p.out_text, "final loss"));
        assert_int_equal(program_run(&p, "ddp_train --spawn 2 --steps 2 %s", options[i]), 1);
        assert_int_equal(program_take_failures(&p), 1);
        assert_int_equal(count_lines(p.err_text), files + 1);
        assert_non_null(strstr(p.err_text, "[rank 0]: error: cannot write all of /dev/full"));
    }
    expect_refusal("--save /dev/full", 1, "cannot write /dev/full: not a regular file");
    expect_refusal("--summary /dev/full", 1, "cannot write /dev/full: not a regular file");
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

TEST_IN(programs, test_too_little_memory) {
    expect_refusal("--device-memory 500K", 1,
                   "device 0 is out of memory: 814144 bytes asked for parameters (parameter), 0 of 512000 bytes in "
                   "use; use a smaller model");
    static program p;
    /* enough for the parameters, too little for the buckets */
    assert_int_equal(program_run(&p, "ddp_train --device-memory 1500K --quiet"), 1);
    assert_int_equal(count_lines(p.err_text), 1);
    assert_non_null(strstr(p.err_text, "device 0 is out of memory: "));
    assert_non_null(strstr(p.err_text, "(bucket), "));
    assert_non_null(strstr(p.err_text, "of 1536000 bytes in use (parameter 814144, "));
}

/* DataParallel's imbalance: the device of the outputs and the optimizer is full, the others are not. */
TEST_IN(programs, test_memory_for_all_but_device_0) {
    static program p;
    assert_int_equal(program_run(&p, "dp_train --devices 3 --steps 1 --summary %s", scratch_path("s")), 0);
    size_t nbytes;
    char *text = scratch_read(scratch_path("s"), &nbytes), *at = text;
    double peak[3];
    for (int d = 0; d < 3; d++) {
        at = strstr(at, "\"total\":");
        assert_non_null(at);
        peak[d] = atof(at += strlen("\"total\":"));
    }
    free(text);
    assert_true(peak[1] < peak[0] && peak[2] < peak[0]);
    double between = (peak[0] + (peak[1] > peak[2] ? peak[1] : peak[2])) / 2;
    program_run(&p, "dp_train --devices 3 --steps 1 --device-memory %.0f", between);
    expect_complaint(&p, "dp_train", 1, 1, "device 0 is out of memory: ");
}

int main(void) {
    alarm(230);
    return run_added_tests();
}

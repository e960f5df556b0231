/* Choosing devices from options and from what a machine has. No GPU is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/device/plugin.h"
#include "common/seam/devices.h"
#include "tests/base/scratch.h"
#include "tests/base/stderr_text.h"
#include "tests/base/test.h"

static const ls_int_list none = {0};

static ls_device_choice gpus(int count) { return (ls_device_choice){.kind = LS_DEVICE_CUDA, .gpu_count = count}; }
static ls_device_choice cpus(void) { return (ls_device_choice){.kind = LS_DEVICE_CPU}; }

static void expect_list(const ls_device_choice *choice, int count, const int *indices) {
    assert_int_equal(choice->count, count);
    for (int i = 0; i < count; i++) assert_int_equal(choice->indices[i], indices[i]);
}

/* --- one process ---------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, all_gpus_or_the_first_ones) {
    ls_device_choice choice = gpus(3);
    assert_int_equal(ls_devices_choose(&choice, &none, 0), LS_OK);
    expect_list(&choice, 3, (int[]){0, 1, 2});
    assert_int_equal(ls_devices_choose(&choice, &none, 2), LS_OK);
    expect_list(&choice, 2, (int[]){0, 1});
    assert_int_equal(ls_devices_gpus(&choice), 2);
    choice = cpus(); /* as many as requested, whatever the machine has */
    assert_int_equal(ls_devices_choose(&choice, &none, 64), LS_OK);
    assert_int_equal(choice.count, 64);
    assert_int_equal(ls_devices_gpus(&choice), 0);
}

TEST_IN(scratch, devices_may_share_a_gpu_but_not_a_core) {
    const ls_int_list ids = {4, {0, 1, 0, 0}};
    ls_device_choice choice = gpus(2);
    assert_int_equal(ls_devices_choose(&choice, &ids, 0), LS_OK);
    expect_list(&choice, 4, ids.values);
    assert_int_equal(ls_devices_gpus(&choice), 2);
    choice = cpus();
    assert_int_equal(ls_devices_choose(&choice, &ids, 0), LS_ERR_USAGE);
    scratch_expect_error("device 0 is named twice", "only GPUs");
}

TEST_IN(scratch, more_devices_than_gpus_are_told_how_to_share) {
    ls_device_choice choice = gpus(1);
    assert_int_equal(ls_devices_choose(&choice, &none, 4), LS_ERR_USAGE);
    scratch_expect_error("--devices 4: there is 1 GPU;", "--device-ids 0,0,0,0,");
    choice = gpus(3);
    assert_int_equal(ls_devices_choose(&choice, &none, 64), LS_ERR_USAGE);
    scratch_expect_error("there are 3 GPUs", "--device-ids 0,1,2,0,1,2,0,1,2,0");
}

TEST_IN(scratch, a_gpu_that_is_not_there) {
    const ls_int_list ids = {2, {1, 2}};
    ls_device_choice choice = gpus(2);
    assert_int_equal(ls_devices_choose(&choice, &ids, 0), LS_OK); /* opening it fails */
    snprintf(choice.found, sizeof choice.found, "0: NVIDIA H200, 1: NVIDIA H200");
    assert_int_equal(ls_devices_check(&choice), LS_ERR_USAGE);
    scratch_expect_error("GPU 2 does not exist; there are 0: NVIDIA H200, 1: NVIDIA H200", NULL);
    choice = gpus(3);
    assert_int_equal(ls_devices_choose(&choice, &ids, 0), LS_OK);
    assert_int_equal(ls_devices_check(&choice), LS_OK);
    choice = cpus();
    assert_int_equal(ls_devices_choose(&choice, &ids, 0), LS_OK);
    assert_int_equal(ls_devices_check(&choice), LS_OK);
}

/* --- ranks ---------------------------------------------------------------------------------------------------------- */

TEST_IN(scratch, ranks_take_gpus_in_turn) {
    ls_device_choice choice = gpus(2);
    assert_int_equal(ls_devices_for_ranks(&choice, &none, 5), LS_OK);
    expect_list(&choice, 5, (int[]){0, 1, 0, 1, 0});
    assert_int_equal(ls_devices_gpus(&choice), 2);
    const ls_int_list ids = {3, {1, 0, 1}};
    assert_int_equal(ls_devices_for_ranks(&choice, &ids, 3), LS_OK);
    expect_list(&choice, 3, ids.values);
    assert_int_equal(ls_devices_for_ranks(&choice, &ids, 2), LS_ERR_USAGE);
    scratch_expect_error("--device-ids names 3 devices for 2 ranks", NULL);
    choice = cpus();
    assert_int_equal(ls_devices_for_ranks(&choice, &none, 3), LS_OK);
    expect_list(&choice, 3, (int[]){0, 1, 2});
    assert_int_equal(ls_devices_for_ranks(&choice, &ids, 3), LS_ERR_USAGE);
    scratch_expect_error("device 1 is named twice", NULL);
}

/* --- the kind ------------------------------------------------------------------------------------------------------- */

static const char *said(bool verbose, int device_kind, int flags, ls_status expected) {
    ls_train_options options = ls_train_defaults();
    ls_device_choice choice;
    options.device_kind = device_kind;
    stderr_begin();
    ls_log_verbose(verbose);
    ls_status status = ls_devices_find(&choice, &options, flags);
    ls_log_verbose(false);
    const char *text = stderr_end();
    assert_int_equal(status, expected);
    assert_int_equal(choice.kind, LS_DEVICE_CPU);
    assert_int_equal(choice.gpu_count, 0);
    return text;
}

TEST_IN(scratch, where_there_is_no_gpu_auto_takes_the_cpu) {
    setenv("LS_PLUGINS", "/no/such/folder", 1);
    const int apart[] = {0, LS_DEVICES_APART};
    for (int i = 0; i < 2; i++) {
        const char *text = said(true, LS_TRAIN_DEVICES_AUTO, LS_DEVICES_TELL | apart[i], LS_OK);
        assert_non_null(strstr(text, "device-kind auto takes the CPU: there is no /no/such/folder/ls_cuda.so"));
        assert_string_equal(said(false, LS_TRAIN_DEVICES_AUTO, LS_DEVICES_TELL | apart[i], LS_OK), "");
        assert_string_equal(said(true, LS_TRAIN_DEVICES_AUTO, apart[i], LS_OK), "");
        assert_string_equal(said(true, LS_TRAIN_DEVICES_CPU, LS_DEVICES_TELL | apart[i], LS_OK), "");
        said(true, LS_TRAIN_DEVICES_CUDA, LS_DEVICES_TELL | apart[i], LS_ERR_UNSUPPORTED);
        scratch_expect_error("no GPU can be used: there is no /no/such/folder/ls_cuda.so", "--device-kind cpu");
    }
}

/* GPUs are expected if the user names a folder, even one without plug-ins, or if a folder has a plug-in. If a driver
 * reports that there is no GPU, that is final. */
TEST_IN(scratch, a_gpu_that_was_to_be_expected_is_missed) {
    ls_train_options options = ls_train_defaults();
    ls_device_choice choice;
    setenv("LS_PLUGINS", scratch_folder(), 1);
    assert_int_equal(ls_devices_find(&choice, &options, LS_DEVICES_TELL), LS_OK);
    assert_true(choice.gpu_expected);
    assert_non_null(strstr(choice.found, "/ls_cuda.so; make builds the file where nvcc is found"));
    assert_int_equal(ls_devices_find(&choice, &options, 0), LS_OK); /* one of several processes prints it */
    assert_false(choice.gpu_expected);
    options.device_kind = LS_TRAIN_DEVICES_CPU;
    assert_int_equal(ls_devices_find(&choice, &options, LS_DEVICES_TELL), LS_OK);
    assert_false(choice.gpu_expected);
    assert_true(ls_plugin_gpu_is_missed("CUDA does not start"));
    assert_false(ls_plugin_gpu_is_missed(LS_NO_GPU " (CUDA_VISIBLE_DEVICES=)"));
}

TEST_IN(scratch, options_of_gpus_on_cpu_devices) {
    ls_train_options options = ls_train_defaults();
    ls_device_choice choice;
    options.device_kind = LS_TRAIN_DEVICES_CPU;
    options.tf32 = true;
    stderr_begin();
    ls_status status = ls_devices_find(&choice, &options, LS_DEVICES_TELL);
    const char *text = stderr_end();
    assert_int_equal(status, LS_OK);
    assert_non_null(strstr(text, "--tf32 has no effect"));
    options.cuda_graph = true;
    assert_int_equal(ls_devices_find(&choice, &options, 0), LS_ERR_USAGE);
    scratch_expect_error("--cuda-graph", "--device-kind cuda");
}

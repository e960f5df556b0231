/* look — examines the machine: the GPU, its driver and libraries, whether host memory can be pinned, how long a process
 * takes to start, and five steps of training, which use most features briefly. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/comm/nccl_plugin.h"
#include "labs/bench/gpu_check/gpu_check.h"

enum { MEET_S = 120, PINNED_NBYTES = 64 << 20 };

/* --- in a process of their own ------------------------------------------------------------------------------------ */

ls_status gpu_check_open(const gpu_check *check, bool tf32, ls_device **device) {
    ls_device_options options = {.kind = LS_DEVICE_CUDA, .index = check->gpu, .devices_on_node = 1, .tf32 = tf32};
    return ls_device_open(device, &options);
}

static ls_status say_gpu(gpu_check *check) {
    ls_gpu_facts gpu;
    char why[400] = "", capability[16];
    ls_find_gpus(&check->gpu_count, why, sizeof why);
    const struct ls_cuda_plugin *plugin = check->gpu_count ? gpu_check_plugin() : NULL;
    if (check->gpu_count == 0) return ls_fail(LS_ERR_UNSUPPORTED, "there is no GPU to check: %s", why);
    ls_status status = plugin ? plugin->describe(check->gpu, &gpu) : LS_ERR_UNSUPPORTED;
    if (status != LS_OK) return status;
    snprintf(capability, sizeof capability, "%d.%d", gpu.capability_major, gpu.capability_minor);
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddStringToObject(figures, "name", gpu.name);
    cJSON_AddNumberToObject(figures, "count", check->gpu_count);
    cJSON_AddStringToObject(figures, "compute_capability", capability);
    cJSON_AddNumberToObject(figures, "multiprocessors", gpu.multiprocessors);
    cJSON_AddNumberToObject(figures, "memory_bytes", (double)gpu.memory_bytes);
    cJSON_AddNumberToObject(figures, "driver_version", gpu.driver_version);
    cJSON_AddNumberToObject(figures, "runtime_version", gpu.runtime_version);
    gpu_check_say(check, "gpu", GPU_CHECK_HELD, -1, figures, "%s", gpu.name);
    return LS_OK;
}

/* Versions as cuBLAS and NCCL encode them: 10000 * major + 100 * minor + patch. */
static void say_version(gpu_check *check, const char *name, const char *key, int version) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddStringToObject(figures, key, text);
    gpu_check_say(check, name, GPU_CHECK_HELD, -1, figures, "%s", text);
}

static ls_status say_libraries(gpu_check *check, ls_device *device) {
    int version;
    ls_status status = gpu_check_plugin()->blas_version(ls_device_stream(device, LS_STREAM_COMPUTE), &version);
    if (status != LS_OK) return status;
    say_version(check, "cuBLAS", "cublas", version);
    struct ls_nccl_identity identity;
    char why[400] = "";
    const struct ls_nccl_plugin *nccl = ls_plugin_open("ls_nccl.so", "ls_nccl_plugin", why, sizeof why);
    if (nccl && nccl->identify(device, &identity, why, sizeof why) == LS_OK)
        say_version(check, "NCCL", "nccl", identity.version);
    else
        gpu_check_say(check, "NCCL", GPU_CHECK_NO_TOOL, -1, NULL, "%s", why);
    return LS_OK;
}

static ls_status say_page_locking(gpu_check *check, ls_device *device) {
    void *memory = malloc(PINNED_NBYTES);
    if (!memory) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to page-lock");
    bool locked = ls_device_pin_host(device, memory, PINNED_NBYTES);
    ls_device_unpin_host(device, memory);
    free(memory);
    gpu_check_say(check, "page-locking", locked ? GPU_CHECK_HELD : GPU_CHECK_NO_TOOL, -1, NULL, "%s",
                  locked
                      ? ""
                      : "the driver refuses to page-lock host memory (ulimit -l, or a sandbox): batches are copied in "
                        "two steps");
    return LS_OK;
}

/* Times the start, from opening the device to the end of the first operation. */
static ls_status start(gpu_check *check, const char *name, const char *key, ls_device **device) {
    double begin_us = ls_now_us();
    void *memory;
    ls_status status = gpu_check_open(check, false, device);
    if (status != LS_OK) return status;
    ls_stream *stream = ls_device_stream(*device, LS_STREAM_COMPUTE);
    status = ls_device_alloc(*device, LS_MEMORY_WORKSPACE, 4, "a first operation", &memory);
    if (status == LS_OK) ls_fill(stream, memory, 1, 1);
    ls_status done = ls_stream_synchronize(stream);
    if (status == LS_OK) ls_device_free(*device, memory);
    if (status == LS_OK) status = done;
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddNumberToObject(figures, key, (ls_now_us() - begin_us) * 1e-6);
    if (status == LS_OK) gpu_check_say(check, name, GPU_CHECK_HELD, -1, figures, "%s", "");
    if (status == LS_OK) return LS_OK;
    cJSON_Delete(figures);
    ls_device_close(*device);
    return status;
}

ls_status gpu_check_part_gpu(gpu_check *check) {
    ls_device *device;
    ls_status status = say_gpu(check);
    if (status == LS_OK) status = start(check, "a cold start", "start_cold_s", &device);
    if (status != LS_OK) return status;
    status = say_libraries(check, device);
    if (status == LS_OK) status = say_page_locking(check, device);
    ls_device_close(device);
    return status;
}

ls_status gpu_check_part_start(gpu_check *check) {
    ls_device *device;
    ls_status status = start(check, "a start beside the idle context", "start_warm_s", &device);
    if (status == LS_OK) ls_device_close(device);
    return status;
}

/* --- the stage ---------------------------------------------------------------------------------------------------- */

ls_status gpu_check_meet(gpu_check *check) {
    char why[GPU_CHECK_TEXT];
    double end_us = check->stage_end_us;
    check->stage_end_us = ls_now_us() + MEET_S * 1e6; /* whatever the budget: all other stages depend on this one */
    gpu_check_end end = gpu_check_run_part(check, "gpu", MEET_S, why);
    check->stage_end_us = end_us;
    gpu_check_show(check);
    if (end != GPU_CHECK_WELL) {
        gpu_check_say(check, "gpu", GPU_CHECK_BROKEN, -1, NULL, "%s", why);
        return ls_fail(LS_ERR_UNSUPPORTED, "%s. Nothing was checked, so nothing passed", why);
    }
    cJSON *lines;
    ls_status status = gpu_check_read(check->path, &lines);
    if (status != LS_OK) return status;
    double count = gpu_check_figure(gpu_check_find_line(lines, "look", "gpu"), "count");
    cJSON_Delete(lines);
    check->gpu_count = count >= 1 ? (int)count : 1;
    return LS_OK;
}

static void ask_driver(gpu_check *check) {
    static char path[BENCH_PATH_CAPACITY];
    static bench_output output;
    char gpu[32], why[GPU_CHECK_TEXT] = "there is no nvidia-smi in PATH";
    double seconds = -1;
    if (!gpu_check_due(check, "driver")) return;
    snprintf(gpu, sizeof gpu, "--id=%d", check->gpu);
    char *argv[] = {path, gpu, "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader", NULL};
    bool asked =
        bench_find_tool(path, "nvidia-smi") && gpu_check_run(check, argv, 30, &output, why, &seconds) == GPU_CHECK_WELL;
    if (!asked) {
        gpu_check_say(check, "driver", GPU_CHECK_NO_TOOL, seconds, NULL, "%s", why);
        return;
    }
    char said[GPU_CHECK_TEXT], driver[GPU_CHECK_TEXT];
    snprintf(said, sizeof said, "%.*s", GPU_CHECK_TEXT - 1, bench_last_line(output.out));
    snprintf(driver, sizeof driver, "%.*s", (int)strcspn(said, ", "), said);
    cJSON *figures = cJSON_CreateObject();
    cJSON_AddStringToObject(figures, "driver", driver);
    gpu_check_say(check, "driver", GPU_CHECK_HELD, seconds, figures, "%s", said);
}

/* With `debug`, waits after each operation, so that the message names the one that fails. */
static bool train_a_little(gpu_check *check, const char *name, bool debug) {
    char gpu[16];
    if (!gpu_check_due(check, name)) return true;
    snprintf(gpu, sizeof gpu, "%d", check->gpu);
    const char *arguments[] = {"--single",
                               "--device-kind=cuda",
                               "--device-ids",
                               gpu,
                               "--model=mlp",
                               "--steps=5",
                               "--no-evaluate",
                               "--quiet",
                               debug ? "--debug-launches" : NULL,
                               NULL};
    gpu_check_training run;
    gpu_check_train(check, &run, "dp_train", arguments);
    bool held = run.end == GPU_CHECK_WELL && isfinite(run.final_loss);
    gpu_check_say(check, name, held ? GPU_CHECK_HELD : gpu_check_verdict_of(run.end), run.seconds, NULL, "%s",
                  held         ? run.weights
                  : run.why[0] ? run.why
                               : "the loss is not finite");
    return held || run.end == GPU_CHECK_OUT_OF_TIME;
}

void gpu_check_look(gpu_check *check) {
    static const char debugged[] = "mlp, 5 steps, --debug-launches";
    char why[GPU_CHECK_TEXT];
    bool held = train_a_little(check, "mlp, 5 steps", false);
    if (!held || gpu_check_find_line(check->before, "look", debugged)) (void)train_a_little(check, debugged, true);
    if (gpu_check_due(check, "a start beside the idle context")) {
        gpu_check_end end = gpu_check_run_part(check, "start", MEET_S, why);
        if (end != GPU_CHECK_WELL)
            gpu_check_say(check, "a start beside the idle context", gpu_check_verdict_of(end), -1, NULL, "%s", why);
    }
    ask_driver(check);
}

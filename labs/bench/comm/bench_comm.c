/* bench_comm — every collective operation over sizes, numbers of ranks and all-reduce algorithms: time, algbw, busbw;
 * every result checked in every element; messages and bytes counted and compared with the cost formulas.
 *
 * Exit status 1 if a result is wrong or a count differs, 3 if a rank is lost. gnuplot draws from the CSV
 * (plots/allreduce.gp). */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/results.h"
#include "kernels/cpu/cpu.h"
#include "labs/bench/comm/bench_comm.h"

/* Bytes of a group's buffers, over all ranks. */
static size_t group_bytes(const comm_settings *settings, int n) {
    size_t nbytes = 0;
    for (int c = 0; c < settings->case_count; c++)
        if (comm_owner(settings, c) == c) nbytes += (size_t)n * comm_slots_bytes(settings, n, c);
    return nbytes;
}

/* The memory that the kernel can give without killing a process; SIZE_MAX if unknown. */
static size_t available_bytes(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    size_t kib = 0;
    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %zu kB", &kib) != 1) kib = 0;
    if (file) fclose(file);
    return kib > 0 ? kib << 10 : SIZE_MAX;
}

static ls_status check_memory(const comm_settings *settings) {
    size_t most = settings->n.count > 0 ? group_bytes(settings, settings->n.values[settings->n.count - 1]) : 0;
    size_t available = available_bytes();
    if (most <= available / 4 * 3) return LS_OK;
    return ls_fail(
        LS_ERR_NO_MEMORY,
        "the buffers of %d ranks need %zu MiB, and this machine has %zu MiB to give; choose smaller --sizes, "
        "fewer --allreduce or a smaller --n",
        settings->n.values[settings->n.count - 1], most >> 20, available >> 20);
}

static ls_status measure_n(comm_results *results, int n, int round) {
    const comm_settings *settings = results->settings;
    ls_status status = LS_OK;
    for (int g = 0; status == LS_OK && g < results->group_count; g++) {
        const comm_group *group = &results->groups[g];
        if (group->n != n) continue;
        ls_note("round %d of %d: %s, %s buffers, N %d: %d rows", round + 1, settings->rounds,
                comm_variant_backend(group->variant), comm_variant_buffers(group->variant), n, group->row_count);
        status = comm_run_group(settings, group, round);
    }
    return status == LS_OK && settings->compare ? comm_run_others(results, n, round) : status;
}

static ls_status measure(comm_results *results) {
    const comm_settings *settings = results->settings;
    ls_status status = LS_OK;
    for (int round = 0; round < settings->rounds; round++)
        for (int i = 0; status == LS_OK && i < settings->n.count; i++)
            status = measure_n(results, settings->n.values[i], round);
    return status;
}

static ls_status report(const comm_results *results) {
    ls_status status = comm_print_rows(results);
    if (status == LS_OK) status = comm_write_files(results);
    ls_status counts = comm_check_counts(results);
    return status == LS_OK ? counts : status;
}

static ls_status bench(const comm_settings *settings, const bench_machine *machine) {
    comm_results *results;
    ls_status status = ls_cpu_kernels_check();
    if (status == LS_OK) status = comm_prepare_files(settings);
    if (status == LS_OK) status = check_memory(settings);
    if (status == LS_OK) status = comm_results_create(&results, settings, machine);
    if (status != LS_OK) return status;
    comm_print_heading(results);
    bench_note_load(machine);
    status = measure(results);
    if (status == LS_OK) status = report(results);
    comm_results_destroy(results);
    return status;
}

int main(int argc, char **argv) {
    comm_settings settings;
    bench_machine machine;
    bool help = false;
    ls_log_init(argv[0], -1, false);
    ls_status status = comm_parse(&settings, argc, argv, &help);
    if (status != LS_OK || help) return ls_status_exit_code(status);
    ls_log_init(argv[0], -1, settings.quiet);
    bench_describe_machine(&machine);
    status = bench(&settings, &machine);
    return ls_status_exit_code(ls_results_written(status));
}

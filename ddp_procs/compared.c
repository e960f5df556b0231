/* compared — the facts that must be equal on all ranks, and those that may differ.
 *   idea  : every option is compared unless its row says otherwise, so that a new option is compared by default
 *   free  : the effect of an option may be compared in its place: the samples (--data, whose path may differ between
 *           machines), the kind of device that auto has chosen, the batch that --per-device-batch makes. A rank has its
 *           own devices, limits and notes. Rank 0 writes files, and all ranks read the files that rank 0 reads
 *   left  : the environment's LS_CPU_ISA, LS_CPU_STREAMS and OMP_NUM_THREADS, which change no bit of a weight update;
 *           and the libraries' versions: a rank's gradients are its own, and all ranks update by the same sums */
#include "ddp_procs/compared.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/build_id.h"
#include "common/base/log.h"

/* Increased when two versions' groups or facts become incompatible, whatever the builds. */
#define PROTOCOL "1"

/* --- settings ------------------------------------------------------------------------------------------------------- */

static void add_option(ddp_facts *facts, const ls_option *row) {
    char name[64], text[PATH_MAX];
    const char *given = row->kind == LS_OPTION_STRING ? *row->to.text : NULL;
    ls_option_text(row, text, sizeof text);
    /* the whole text that was given, however long: facts keep a hash of it */
    const char *value = row->agreement == LS_ALL_OR_NONE ? (given ? "one" : "none") : given ? given : text;
    snprintf(name, sizeof name, "--%s", row->name);
    ddp_facts_add(facts, name, value);
}

static void add_settings(ddp_facts *facts, const ls_option *rows, size_t count) {
    char build[LS_BUILD_ID_CAPACITY];
    ddp_facts_add(facts, "the program's build", ls_build_id(build, NULL));
    ddp_facts_add(facts, "the ranks' protocol", PROTOCOL);
    for (size_t i = 0; i < count; i++)
        if (rows[i].kind != LS_OPTION_HEADING && rows[i].agreement != LS_MAY_DIFFER) add_option(facts, &rows[i]);
}

ls_status ddp_agree_on_settings(const ddp_agreement *agreement, const ls_option *rows, size_t count) {
    ddp_facts *facts = calloc(1, sizeof *facts);
    if (!facts) return ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks' settings");
    add_settings(facts, rows, count);
    ls_status status = ddp_agree(agreement, "settings", facts);
    free(facts);
    return status;
}

/* --- data ----------------------------------------------------------------------------------------------------------- */

static ls_status add_found(ddp_facts *facts, const ddp_found *found) {
    char text[256], build[LS_BUILD_ID_CAPACITY];
    const char *kind = ls_device_kind_name(found->device_kind);
    bool plugin = found->device_kind == LS_DEVICE_CUDA;
    snprintf(text, sizeof text, "%s%s%s", kind, plugin ? ", by ls_cuda.so of build " : "",
             plugin ? ls_build_id(build, "ls_cuda.so") : "");
    ddp_facts_add(facts, "the kind of devices", text);
    ls_status status = ls_dataset_describe(found->train, text, sizeof text);
    if (status == LS_OK) ddp_facts_add(facts, "the training data", text);
    if (status != LS_OK || !found->test) return status; /* --no-evaluate, which is compared, needs no test data */
    status = ls_dataset_describe(found->test, text, sizeof text);
    if (status == LS_OK) ddp_facts_add(facts, "the test data", text);
    return status;
}

ls_status ddp_agree_on_data(const ddp_agreement *agreement, const ddp_found *found, ls_status so_far) {
    ddp_facts *facts = calloc(1, sizeof *facts);
    ls_status status = so_far;
    if (status == LS_OK && !facts)
        status = ls_fail(LS_ERR_NO_MEMORY, "cannot allocate memory to compare the ranks' data");
    if (status == LS_OK) status = add_found(facts, found);
    if (status == LS_OK)
        status = ddp_agree(agreement, "data", facts);
    else
        ddp_agree_give_up(agreement, "data");
    free(facts);
    return status;
}

#include "common/checkpoint/weights.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/state_dict.h"

/* --- prefixes that others add to names --------------------------------------------------------------------------- */

static bool all_begin_with(const ls_safetensors *file, const char *prefix) {
    for (size_t t = 0; t < ls_safetensors_count(file); t++) {
        if (strncmp(ls_safetensors_at(file, t)->name, prefix, strlen(prefix)) != 0) return false;
    }
    return ls_safetensors_count(file) > 0;
}

/* Finds the prefix of all names: each wrapper of a model adds its own. */
static void find_prefix(const ls_safetensors *file, char prefix[LS_STATE_NAME_NBYTES]) {
    static const char *const wrappers[] = {LS_MODULE_PREFIX, "_orig_mod."};
    bool found = true;
    for (prefix[0] = '\0'; found;) {
        found = false;
        for (size_t w = 0; !found && w < 2; w++) {
            char longer[LS_STATE_NAME_NBYTES];
            int length = snprintf(longer, sizeof longer, "%s%s", prefix, wrappers[w]);
            found = length < (int)sizeof longer && all_begin_with(file, longer);
            if (found) memcpy(prefix, longer, sizeof longer);
        }
    }
}

/* --- loading ----------------------------------------------------------------------------------------------------- */

/* How the file's tensors were changed, in clauses. */
struct account {
    char text[256];
};

static void say(struct account *account, const char *format, size_t count, const char *what) {
    size_t used = strlen(account->text), capacity = sizeof account->text;
    used += (size_t)snprintf(account->text + used, capacity - used, "%s", used > 0 ? "; " : "");
    if (used < capacity) snprintf(account->text + used, capacity - used, format, count, what);
}

static void note_changes(const ls_state_dict *dict, const struct ls_state_source *source) {
    struct account account = {""};
    size_t stripped = ls_safetensors_count(source->file), kept = 0, converted[LS_SAFETENSOR_DTYPE_COUNT] = {0};
    for (size_t t = 0; t < dict->count; t++) {
        const ls_safetensor *stored = ls_state_find(source, &dict->tensors[t]);
        kept += stored != NULL;
        if (stored && stored->dtype != dict->tensors[t].dtype) converted[stored->dtype]++;
    }
    if (source->prefix[0]) say(&account, "%zu names without their \"%s\"", stripped, source->prefix);
    for (int d = 0; d < LS_SAFETENSOR_DTYPE_COUNT; d++) {
        const char *name = ls_safetensor_dtype_name((ls_safetensor_dtype)d);
        if (converted[d] > 0) say(&account, "%zu tensors converted from %s to F32", converted[d], name);
    }
    if (source->ignored)
        say(&account, "%zu tensors of a checkpoint left out%s", stripped - kept, "");
    else if (stripped > kept)
        say(&account, "%zu masks and second names of tensors left out%s", stripped - kept, "");
    if (account.text[0]) ls_note("%s: %s", source->path, account.text);
}

/* If ranks shard the parameters, each reads its parts from the file that it has opened itself. */
static ls_status compare_ranks(const ls_state_dict *dict, const ls_safetensors *file, const char *path) {
    if (!dict->group) return LS_OK;
    ls_stream *stream = ls_device_stream(dict->device, LS_STREAM_COMPUTE);
    uint64_t hash = ls_safetensors_hash(file), hashes[LS_COMM_MAX_RANKS];
    ls_comm_label(dict->group, "hash of weights", -1);
    ls_status status = ls_comm_settle(stream, ls_comm_all_gather(dict->group, stream, &hash, hashes, 1, LS_INT64));
    if (status != LS_OK) return status;
    return ls_safetensors_compare_ranks(path, hashes, ls_comm_world_size(dict->group));
}

ls_status ls_weights_load(ls_model *model, const char *path, bool tell) {
    ls_safetensors *file;
    ls_state_dict dict = {0};
    char prefix[LS_STATE_NAME_NBYTES];
    ls_status status = ls_safetensors_open(&file, path);
    if (status != LS_OK) return status;
    bool has_checksum = ls_is_checkpoint(file) || ls_safetensors_metadata(file, LS_SAFETENSORS_CRC32);
    if (has_checksum) status = ls_checkpoint_verify(file, path);
    if (status != LS_OK) {
        ls_safetensors_close(file);
        return status;
    }
    find_prefix(file, prefix);
    struct ls_state_source source = {.file = file,
                                     .path = path,
                                     .reader = "the model",
                                     .prefix = prefix,
                                     .network = ls_model_network(model),
                                     .convert = true};
    if (ls_is_checkpoint(file)) source.ignored = ls_checkpoint_tensors;
    status = ls_state_dict_open(&dict, model, 0);
    if (status == LS_OK) {
        ls_state_dict_add_model(&dict, model);
        status = ls_state_dict_check(&dict, &source);
    }
    if (status == LS_OK) status = ls_state_dict_check_finite(&dict, &source);
    if (status == LS_OK) status = compare_ranks(&dict, file, path);
    if (status == LS_OK) status = ls_state_dict_read(&dict, &source, 0, dict.count);
    ls_model_parameters_changed(model);
    if (status == LS_OK && tell) note_changes(&dict, &source);
    ls_state_dict_close(&dict);
    ls_safetensors_close(file);
    return status;
}

/* --- saving ------------------------------------------------------------------------------------------------------ */

/* fd -1: to the path. */
static ls_status write_weights(ls_model *model, int fd, const char *path, const char *prefix) {
    ls_state_dict dict;
    const ls_safetensors_text metadata[] = {{"format", "pt"}}; /* as PyTorch's loaders expect */
    ls_status status = ls_state_dict_open(&dict, model, 0);
    if (status != LS_OK) return status;
    ls_state_dict_add_model(&dict, model);
    ls_state_dict_put_prefix(&dict, prefix);
    status = fd < 0 ? ls_state_dict_write(&dict, path, metadata, 1)
                    : ls_state_dict_write_fd(&dict, fd, "the weights' memory", metadata, 1);
    ls_state_dict_close(&dict);
    return status;
}

ls_status ls_weights_save(ls_model *model, const char *path, const char *prefix) {
    return write_weights(model, -1, path, prefix);
}

ls_status ls_weights_write(ls_model *model, int fd) { return write_weights(model, fd, NULL, ""); }

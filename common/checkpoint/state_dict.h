/* ls_state_dict: the named tensors of a run that a file stores, and their addresses in memory. Weights (weights.h) and
 * checkpoints (checkpoint.h) are such lists; this module alone converts between a list and a file. Private to
 * common/checkpoint. */
#ifndef LS_CHECKPOINT_STATE_DICT_H
#define LS_CHECKPOINT_STATE_DICT_H

#include "common/checkpoint/safetensors.h"
#include "common/nn/model.h"

#define LS_STATE_NAME_NBYTES 96

struct ls_state_tensor {
    char name[LS_STATE_NAME_NBYTES]; /* in the file */
    ls_safetensor_dtype dtype;
    int ndim;
    size_t shape[4];
    size_t nbytes;
    void *memory;   /* of the dict's device, or of the host */
    bool on_device; /* device, not host */
    bool optional;  /* a file may lack it; its memory is then unchanged */
    /* F32 on the device, sharded over the dict's group: memory holds elements first .. first + held - 1 */
    bool is_shared_out;
    bool is_copy; /* another rank has the same shard: this one is read from a file, but not written to it */
    size_t first, held;
    /* F32 on the device, split by tensor parallelism: this rank's part has part_count floats, laid out as `cut` says
     * (common/nn/cut.h). Memory holds that part, or (is_shared_out) this rank's shard of it; NULL: not split */
    const struct ls_cut *cut;
    size_t part_count;
};

typedef struct ls_state_dict {
    ls_device *device;
    ls_comm *group;     /* over which tensors are sharded; NULL: this process has all of each */
    ls_comm *cut_group; /* that has the other parts of split tensors */
    int cut_rank;
    struct ls_state_tensor *tensors;
    size_t count, capacity;
} ls_state_dict;

/* A file to read a dict from. */
struct ls_state_source {
    const ls_safetensors *file;
    const char *path;
    const char *reader;         /* the user of the tensors, in messages: "the model" */
    const char *prefix;         /* of every name in the file; may be "" */
    const char *const *ignored; /* NULL, or prefixes of names to skip, ended by NULL */
    const ls_network *network;  /* whose other names are accepted (ls_network_may_name); NULL: none */
    bool convert;               /* accept F16, BF16 and F64 for F32 */
};

/* Creates a dict with room for the model's tensors and `more` others. LS_ERR_NO_MEMORY: there is nothing to close. */
ls_status ls_state_dict_open(ls_state_dict *dict, const ls_model *model, size_t more);
void ls_state_dict_close(ls_state_dict *dict);

/* Adds the model's parameters, buffers and (optional) counts of batches, under PyTorch's names. */
void ls_state_dict_add_model(ls_state_dict *dict, ls_model *model);

/* Puts `prefix` (shorter than LS_STATE_NAME_NBYTES - LS_TENSOR_NAME_NBYTES) in front of all names. */
void ls_state_dict_put_prefix(ls_state_dict *dict, const char *prefix);

/* Adds a tensor, for which there must be room. */
void ls_state_dict_add(ls_state_dict *dict, const struct ls_state_tensor *tensor);

/* The file's entry for the tensor; NULL: none. */
const ls_safetensor *ls_state_find(const struct ls_state_source *source, const struct ls_state_tensor *tensor);

/* Checks that the file holds exactly these tensors, and others only if they are allowed. LS_ERR_INVALID names the first
 * that is missing, has a different shape or type, is not allowed, or is a second name of a tensor with different
 * values. */
ls_status ls_state_dict_check(const ls_state_dict *dict, const struct ls_state_source *source);

/* After the check: checks that all values are finite as F32. LS_ERR_INVALID names the first tensor with one that is
 * not. */
ls_status ls_state_dict_check_finite(const ls_state_dict *dict, const struct ls_state_source *source);

/* After the check: sets tensors begin .. end-1 from the file. LS_ERR_NO_MEMORY comes before anything is changed.
 * Host-blocking. */
ls_status ls_state_dict_read(const ls_state_dict *dict, const struct ls_state_source *source, size_t begin, size_t end);

/* Fills in type, shape and cut of a tensor of the model, or of an optimizer moment of that tensor. */
void ls_state_dict_shape(struct ls_state_tensor *tensor, const ls_parameters *all, size_t index);

/* Writes all tensors; the file is replaced as a whole or not at all. With a group: collective, and the group's rank 0
 * writes. Sharded tensors are gathered in device memory, one at a time. Host-blocking. */
ls_status ls_state_dict_write(const ls_state_dict *dict, const char *path, const ls_safetensors_text *metadata,
                              size_t metadata_count);

/* The same to an open file; `path` is for messages. The dict must not have groups. */
ls_status ls_state_dict_write_fd(const ls_state_dict *dict, int fd, const char *path,
                                 const ls_safetensors_text *metadata, size_t metadata_count);

#endif

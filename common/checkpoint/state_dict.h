/* ls_state_dict: the named tensors that a file keeps of a run, and where in memory they live. Weights (weights.h) and
 * checkpoints (checkpoint.h) are such lists; this is all that knows how one becomes a file and a file one again.
 * Private to common/checkpoint. */
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
    void *memory;   /* of the dict's device, or the host's */
    bool on_device; /* which of the two */
    bool optional;  /* a file may lack it; then the memory stays as it is */
    /* F32 on the device, of which each rank of the dict's group has a part: memory holds elements first .. first + held - 1 */
    bool is_shared_out;
    bool is_copy; /* of a part that another rank has, too: it is read from a file, and not written to it */
    size_t first, held;
    /* F32 on the device, of which each rank of the cut has a part of so many floats, laid out as `cut` says (common/nn/cut.h):
     * that is what memory holds, or what the group above shares out; NULL: it is whole */
    const struct ls_cut *cut;
    size_t part_count;
};

typedef struct ls_state_dict {
    ls_device *device;
    ls_comm *group;     /* that shares tensors out; NULL: this process has all of each */
    ls_comm *cut_group; /* that has the other parts of tensors that are cut */
    int cut_rank;
    struct ls_state_tensor *tensors;
    size_t count, capacity;
} ls_state_dict;

/* A file to read a dict from. */
struct ls_state_source {
    const ls_safetensors *file;
    const char *path;
    const char *reader;         /* who needs the tensors, in messages: "the model" */
    const char *prefix;         /* stands in front of every name in the file; "" */
    const char *const *ignored; /* NULL, or beginnings of names (up to a NULL) that are passed over */
    const ls_network *network;  /* whose file may have further tensors (ls_network_may_name); NULL: none */
    bool convert;               /* F16, BF16 and F64 are taken where F32 is needed */
};

/* Room for the model's tensors and `more` others. LS_ERR_NO_MEMORY: there is nothing to close. */
ls_status ls_state_dict_open(ls_state_dict *dict, const ls_model *model, size_t more);
void ls_state_dict_close(ls_state_dict *dict);

/* The model's parameters, buffers and (optional) counts of batches, under PyTorch's names. */
void ls_state_dict_add_model(ls_state_dict *dict, ls_model *model);

/* Puts `prefix` (shorter than LS_STATE_NAME_NBYTES - LS_TENSOR_NAME_NBYTES) in front of all names. */
void ls_state_dict_put_prefix(ls_state_dict *dict, const char *prefix);

/* One more, for which there must be room. */
void ls_state_dict_add(ls_state_dict *dict, const struct ls_state_tensor *tensor);

/* Where the file keeps the tensor; NULL: it does not. */
const ls_safetensor *ls_state_find(const struct ls_state_source *source, const struct ls_state_tensor *tensor);

/* Whether the file holds just these tensors, and what else it may have. LS_ERR_INVALID names the first that is missing, has
 * another shape or type, does not belong, or is another tensor by a second name and differs from it. */
ls_status ls_state_dict_check(const ls_state_dict *dict, const struct ls_state_source *source);

/* After the check: whether all that becomes F32 is finite then. LS_ERR_INVALID names the first tensor that is not. */
ls_status ls_state_dict_check_finite(const ls_state_dict *dict, const struct ls_state_source *source);

/* After the check: sets tensors begin .. end-1 from the file. LS_ERR_NO_MEMORY comes before anything is changed.
 * Host-blocking. */
ls_status ls_state_dict_read(const ls_state_dict *dict, const struct ls_state_source *source, size_t begin, size_t end);

/* A tensor of the model, or what an optimizer has for each of its elements: fills in type, shape and cut. */
void ls_state_dict_shape(struct ls_state_tensor *tensor, const ls_parameters *all, size_t index);

/* Writes all tensors; the file is replaced as a whole or not at all. With a group: collective, and rank 0 of it writes. The
 * parts of a tensor that is shared out are brought together in device memory, one tensor at a time. Host-blocking. */
ls_status ls_state_dict_write(const ls_state_dict *dict, const char *path, const ls_safetensors_text *metadata,
                              size_t metadata_count);

/* The same to an open file; `path` is for messages. Of a dict without groups. */
ls_status ls_state_dict_write_fd(const ls_state_dict *dict, int fd, const char *path,
                                 const ls_safetensors_text *metadata, size_t metadata_count);

#endif

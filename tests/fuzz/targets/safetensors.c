/* safetensors files: a file that opens can be used as its header describes. */
#include <string.h>

#include "common/checkpoint/safetensors.h"
#include "tests/fuzz/targets/targets.h"

/* Reads a tensor's first and last byte, and all of its header entry. */
static void look_at(const ls_safetensors *file, const ls_safetensor *tensor) {
    size_t nbytes = ls_safetensor_dtype_nbytes(tensor->dtype);
    fuzz_require(tensor->ndim >= 0 && tensor->ndim <= LS_SAFETENSOR_MAX_DIMS, "a tensor has 0 to 8 dimensions");
    for (int d = 0; d < tensor->ndim; d++) nbytes *= tensor->shape[d];
    fuzz_require(nbytes == tensor->nbytes, "a tensor's bytes are those of its shape");
    const volatile uint8_t *bytes = tensor->data;
    if (nbytes > 0) (void)(bytes[0] + bytes[nbytes - 1]);
    fuzz_require(strlen(ls_safetensor_dtype_name(tensor->dtype)) >= 2, "a dtype has a name");
    fuzz_require(ls_safetensors_find(file, tensor->name) == tensor, "a tensor is found by its name");
}

void fuzz_safetensors(const uint8_t *data, size_t nbytes) {
    ls_safetensors *file = NULL;
    ls_status status = ls_safetensors_open(&file, fuzz_memory_file(data, nbytes));
    fuzz_require((status == LS_OK) == (file != NULL), "a file is there if and only if it was read");
    if (!file) return;
    for (size_t i = 0; i < ls_safetensors_count(file); i++) {
        const ls_safetensor *tensor = ls_safetensors_at(file, i);
        look_at(file, tensor);
        if (i == 0) continue;
        const ls_safetensor *before = ls_safetensors_at(file, i - 1);
        fuzz_require((const char *)before->data + before->nbytes == tensor->data, "tensors follow one another");
    }
    fuzz_require(!ls_safetensors_find(file, "no such tensor \x01"), "what is not there is not found");
    (void)ls_safetensors_metadata(file, "format");
    ls_safetensors_close(file);
}

#include "tests/comm/values.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void value_set(void *buffer, ls_dtype dtype, size_t index, double value) {
    switch (dtype) {
    case LS_FP32: ((float *)buffer)[index] = (float)value; break;
    case LS_FP16: ((uint16_t *)buffer)[index] = ls_fp16_from_float((float)value); break;
    case LS_BF16: ((uint16_t *)buffer)[index] = ls_bf16_from_float((float)value); break;
    case LS_INT32: ((int32_t *)buffer)[index] = (int32_t)value; break;
    case LS_INT64: ((int64_t *)buffer)[index] = (int64_t)value; break;
    case LS_FP64: ((double *)buffer)[index] = value; break;
    case LS_DTYPE_COUNT: break;
    }
}

double value_get(const void *buffer, ls_dtype dtype, size_t index) {
    switch (dtype) {
    case LS_FP32: return (double)((const float *)buffer)[index];
    case LS_FP16: return (double)ls_fp16_to_float(((const uint16_t *)buffer)[index]);
    case LS_BF16: return (double)ls_bf16_to_float(((const uint16_t *)buffer)[index]);
    case LS_INT32: return (double)((const int32_t *)buffer)[index];
    case LS_INT64: return (double)((const int64_t *)buffer)[index];
    case LS_FP64: return ((const double *)buffer)[index];
    case LS_DTYPE_COUNT: break;
    }
    return 0;
}

void value_at(void *element, ls_dtype dtype, int rank, size_t index) {
    uint64_t random = mix(((uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + index % LS_VALUES_PERIOD * 0xd1342543de82ef95u);
    if (dtype == LS_INT32 || dtype == LS_INT64) {
        memcpy(element, &random, ls_dtype_nbytes(dtype));
    } else {
        value_set(element, dtype, 0, (double)(int64_t)random * 0x1p-62);
    }
}

/* Continues the first period of a buffer to its end. */
static void repeat(char *buffer, size_t element_nbytes, size_t count) {
    for (size_t done = LS_VALUES_PERIOD; done < count; done += LS_VALUES_PERIOD) {
        size_t left = count - done < LS_VALUES_PERIOD ? count - done : LS_VALUES_PERIOD;
        memcpy(buffer + done * element_nbytes, buffer, left * element_nbytes);
    }
}

void fill_values(void *buffer, ls_dtype dtype, int rank, size_t first, size_t count) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (size_t i = 0; i < count && i < LS_VALUES_PERIOD; i++)
        value_at((char *)buffer + i * nbytes, dtype, rank, first + i);
    repeat(buffer, nbytes, count);
}

void fill_small_integers(void *buffer, ls_dtype dtype, int rank, size_t count) {
    for (size_t i = 0; i < count; i++) value_set(buffer, dtype, i, (double)((i * 7 + (size_t)rank * 3) % 23));
}

/* The sum of two floats in double is exact or rounds to the same float (double has more than twice the bits). */
double reduce_real(double a, double b, ls_dtype dtype, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return dtype == LS_FP64 ? a + b : (double)(float)(a + b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

static int64_t reduce_int(int64_t a, int64_t b, ls_reduce_op op) {
    if (op == LS_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return op == LS_REDUCE_MIN ? (a < b ? a : b) : (a > b ? a : b);
}

static int64_t as_int(const void *element, ls_dtype dtype) {
    if (dtype == LS_INT32) return *(const int32_t *)element;
    return *(const int64_t *)element;
}

static void reduced_at(void *element, ls_dtype dtype, ls_reduce_op op, int world_size, size_t index) {
    int64_t value;
    value_at(&value, dtype, 0, index);
    if (dtype == LS_INT32 || dtype == LS_INT64) {
        int64_t result = as_int(&value, dtype);
        for (int r = 1; r < world_size; r++) {
            value_at(&value, dtype, r, index);
            result = reduce_int(result, as_int(&value, dtype), op);
        }
        memcpy(element, &result, ls_dtype_nbytes(dtype)); /* the low half is the sum modulo 2^32 */
        return;
    }
    double result = value_get(&value, dtype, 0);
    for (int r = 1; r < world_size; r++) {
        value_at(&value, dtype, r, index);
        result = reduce_real(result, value_get(&value, dtype, 0), dtype, op);
    }
    value_set(element, dtype, 0, result);
}

void fill_reduced(void *buffer, ls_dtype dtype, ls_reduce_op op, int world_size, size_t first, size_t count) {
    size_t nbytes = ls_dtype_nbytes(dtype);
    for (size_t i = 0; i < count && i < LS_VALUES_PERIOD; i++)
        reduced_at((char *)buffer + i * nbytes, dtype, op, world_size, first + i);
    repeat(buffer, nbytes, count);
}

uint64_t hash_bytes(const void *memory, size_t nbytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ ((const unsigned char *)memory)[i]) * 0x100000001b3u;
    return hash;
}

#include "common/base/dtype.h"

#include <string.h>

size_t ls_dtype_nbytes(ls_dtype dtype) {
    static const size_t nbytes[] = {
#define LS_ROW(name, type, size) [LS_##name] = (size),
        LS_DTYPE_MAP(LS_ROW)
#undef LS_ROW
    };
    return nbytes[dtype];
}

const char *ls_dtype_name(ls_dtype dtype) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "int32", "int64"};
    return names[dtype];
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float ls_bf16_to_float(uint16_t bits) { return float_of((uint32_t)bits << 16); }

uint16_t ls_bf16_from_float(float value) {
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u); /* NaN: keep it one */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float ls_fp16_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    /* place the 15 bits where a float has them and let a multiplication repair the exponent's bias, subnormals too */
    float scaled = float_of(magnitude << 13) * 0x1p112f;
    return float_of(sign | bits_of(scaled));
}

uint16_t ls_fp16_from_float(float value) {
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above rounds to infinity */
    if (magnitude <
        0x38800000u) { /* below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the float's end */
        uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return (uint16_t)(sign | subnormal);
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

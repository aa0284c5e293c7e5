/* One Python number, or some of them: told as flags, and written into memory as a code says. */

#ifndef TENSORFERRY_ELEMENTS_H
#define TENSORFERRY_ELEMENTS_H

#include "_objects.h"

#include <float.h>
#include <math.h>

enum {
    DOUBT = -1,
    BOOL = 1,
    INT = 2,
    FLOAT = 4,
    COMPLEX = 8,
    WIDE = 16,       /* an int beyond 32 bits */
    LARGE = 32,      /* an int beyond 2**53, which a float64 may not hold */
    UNSIGNED = 64,   /* an int from 2**63, which only uint64 holds */
    NEGATIVE = 128,  /* an int below 0 */
    BEYOND = 256,    /* a finite float beyond float32 */
    SPECIAL = 512,   /* an infinite float, or NaN */
    MISFIT = 1024    /* a number that does not fit what it was to be written as */
};

INLINE int put(char **to, const void *value, size_t size)
{
    memcpy(*to, value, size);
    *to += size;
    return 0;
}

INLINE uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A float's upper half, as a double becomes one: rounded once, to even. A float cannot have all bits of a double, but
   those that decide: two more than the result, of which the last is set if any behind it is. */
INLINE uint16_t to_bfloat16(double value)
{
    const uint64_t below = (1ULL << 43) - 1, all = bits_of(value), decide = (all | ((all & below) + below)) & ~below;
    float narrow;
    double exact;
    uint32_t bits;
    memcpy(&exact, &decide, sizeof exact);
    narrow = (float)exact;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Rounded to even where all but ten bits are cut off; no choice is a jump, so that several can be done at once. */
INLINE uint16_t to_float16(double value)
{
    const uint64_t bits = bits_of(value), size = bits & INT64_MAX;
    const uint64_t normal = ((size + (1ULL << 41) - 1 + (size >> 42 & 1)) >> 42) - (1008ULL << 10); /* with another bias */
    /* Where a double's last bit is worth as much as a subnormal's, the sum is rounded as that is. */
    const uint64_t subnormal = bits_of(fabs(value) + 0x1p28);
    const uint64_t is_small = 0 - ((size - (1009ULL << 52)) >> 63);
    /* 65520 lies halfway from the largest to what would be the next. */
    const uint64_t is_large = 0 - ((bits_of(65520.0) - 1 - size) >> 63);
    return (uint16_t)((subnormal & is_small) | (normal & ~is_small & ~is_large) | (0x7C00 & is_large) |
                      (bits >> 48 & 0x8000));
}

/* NaN in bfloat16 keeps its sign, and in float16 as much as there is place for, or else it is 1. */
INLINE uint16_t nan_as(char code, double value)
{
    uint64_t bits;
    uint16_t half;
    memcpy(&bits, &value, sizeof bits);
    half = (uint16_t)(code == 'E' ? 0x7FC0 : bits >> 42 & 0x3FF ? 0x7C00 | (bits >> 42 & 0x3FF) : 0x7C01);
    return (uint16_t)(half | (bits >> 48 & 0x8000));
}

INLINE int is_infinite(char code, uint16_t half)
{
    return (half & 0x7FFF) == (code == 'E' ? 0x7F80 : 0x7C00);
}

INLINE int put_half(char **to, char code, double value)
{
    uint16_t half = value != value ? nan_as(code, value) : code == 'E' ? to_bfloat16(value) : to_float16(value);
    if (is_infinite(code, half) && value - value == 0.0)
        return MISFIT;
    return put(to, &half, sizeof half);
}

INLINE int put_float(char **to, char code, double value)
{
    float narrow;
    switch (code) {
    case 'e':
    case 'E':
        return put_half(to, code, value);
    case 'd':
        return put(to, &value, sizeof value);
    case 'f':
        narrow = (float)value;
        return put(to, &narrow, sizeof narrow);
    case 'D':
        put(to, &value, sizeof value);
        value = 0.0;
        return put(to, &value, sizeof value);
    case 'F':
        narrow = (float)value;
        put(to, &narrow, sizeof narrow);
        narrow = 0.0f;
        return put(to, &narrow, sizeof narrow);
    default:
        return MISFIT;
    }
}

#define PUT_INT(type, low, high)                 \
    do {                                         \
        type narrow = (type)value;               \
        if (value < (low) || value > (high))     \
            return MISFIT;                       \
        return put(to, &narrow, sizeof narrow); \
    } while (0)

INLINE int put_int(char **to, char code, long long value)
{
    switch (code) {
    case 'q':
        PUT_INT(int64_t, INT64_MIN, INT64_MAX);
    case 'i':
        PUT_INT(int32_t, INT32_MIN, INT32_MAX);
    case 'h':
        PUT_INT(int16_t, INT16_MIN, INT16_MAX);
    case 'b':
        PUT_INT(int8_t, INT8_MIN, INT8_MAX);
    case 'Q':
        PUT_INT(uint64_t, 0, INT64_MAX);
    case 'I':
        PUT_INT(uint32_t, 0, UINT32_MAX);
    case 'H':
        PUT_INT(uint16_t, 0, UINT16_MAX);
    case 'B':
        PUT_INT(uint8_t, 0, UINT8_MAX);
    case '?':
        return MISFIT;
    default:
        return put_float(to, code, (double)value);
    }
}

INLINE int read_float(char **to, char code, double value)
{
    int found = FLOAT;
    if (!(value >= -(double)FLT_MAX && value <= (double)FLT_MAX))
        found |= value - value == 0.0 ? BEYOND : SPECIAL;
    return found | (code ? put_float(to, code, value) : 0);
}

/* The least and the greatest of some ints: which flags they have is asked once for all of them. */
typedef struct {
    long long low, high;
} Range;

static int found_in(const Range *range)
{
    int found = 0;
    if (range->low > range->high)
        return 0;
    found |= (range->low < 0) * NEGATIVE;
    found |= (range->low < INT32_MIN || range->high > INT32_MAX) * WIDE;
    found |= (range->low < -(1LL << 53) || range->high > 1LL << 53) * LARGE;
    return found;
}

INLINE int read_int(char **to, char code, PyObject *element, Range *range)
{
    int overflow;
    long long value = int_of(element, &overflow);
    if (overflow) {
        uint64_t whole;
        if (overflow < 0)
            return DOUBT;
        whole = PyLong_AsUnsignedLongLong(element);
        if (whole == (uint64_t)-1 && PyErr_Occurred()) {
            PyErr_Clear();
            return DOUBT;
        }
        return INT | WIDE | LARGE | UNSIGNED | (code == 'Q' ? put(to, &whole, sizeof whole) : code ? MISFIT : 0);
    }
    range->low = value < range->low ? value : range->low;
    range->high = value > range->high ? value : range->high;
    return INT | (code ? put_int(to, code, value) : 0);
}

static int read_bool(char **to, char code, int value)
{
    unsigned char byte = (unsigned char)value;
    if (!code)
        return BOOL;
    return BOOL | (code == '?' ? put(to, &byte, 1) : put_int(to, code, value));
}

static int read_complex(char **to, char code, PyObject *element)
{
    double real = PyComplex_RealAsDouble(element), imaginary = PyComplex_ImagAsDouble(element);
    int found = read_float(to, 0, real) | read_float(to, 0, imaginary);
    float narrow;
    found = (found & ~FLOAT) | COMPLEX;
    if (code == 'D') {
        put(to, &real, sizeof real);
        put(to, &imaginary, sizeof imaginary);
    } else if (code == 'F') {
        narrow = (float)real;
        put(to, &narrow, sizeof narrow);
        narrow = (float)imaginary;
        put(to, &narrow, sizeof narrow);
    } else if (code)
        found |= MISFIT;
    return found;
}

INLINE int read_element(char **to, char code, PyObject *element, Range *range)
{
    PyTypeObject *type = Py_TYPE(element);
    if (type == &PyFloat_Type)
        return read_float(to, code, float_of(element));
    if (type == &PyLong_Type)
        return read_int(to, code, element, range);
    if (element == Py_True || element == Py_False)
        return read_bool(to, code, element == Py_True);
    if (type == &PyComplex_Type)
        return read_complex(to, code, element);
    return DOUBT;
}

INLINE int read_each(char **to, char code, PyObject *const *elements, int count, Range *range)
{
    int found = 0;
    for (int index = 0; index < count; index++) {
        found |= read_element(to, found & MISFIT ? 0 : code, elements[index], range);
        if (found < 0)
            return DOUBT; /* at once: the elements that follow may be gone */
    }
    return found;
}

#endif

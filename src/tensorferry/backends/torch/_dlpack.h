/* DLPack's structures, of version 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html), and what they say of a layout. */

#ifndef TENSORFERRY_DLPACK_H
#define TENSORFERRY_DLPACK_H

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MAJOR = 1, HOST = 1, MOST_AXES = 8 };

typedef struct {
    uint32_t major, minor;
} Version;

typedef struct {
    int32_t type, id;
} Device;

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} Dtype;

typedef struct {
    void *data;
    Device device;
    int32_t ndim;
    Dtype dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct Exchange {
    Version version;
    struct Exchange *previous;
    void *allocate;
    void *export_managed;
    void *import_managed;
    int (*describe)(void *object, Tensor *description);
    void *current_stream;
} Exchange;

typedef enum { OTHER, APART, COMPACT } Layout;

static int is_compact(const Tensor *tensor)
{
    int64_t step = 1;
    for (int32_t axis = tensor->ndim; tensor->strides && axis-- > 0;) {
        if (tensor->shape[axis] != 1 && tensor->strides[axis] != step)
            return 0;
        step *= tensor->shape[axis];
    }
    return 1;
}

/* Whether surely no two elements share memory: along each axis, a step is longer than all smaller axes reach. */
static int are_apart(const Tensor *tensor)
{
    int32_t order[MOST_AXES], count = 0;
    int64_t reach = 0;
    if (tensor->ndim > MOST_AXES)
        return 0;
    for (int32_t axis = 0; axis < tensor->ndim; axis++) {
        int32_t at = count;
        if (tensor->shape[axis] == 1)
            continue;
        for (; at > 0 && tensor->strides[order[at - 1]] > tensor->strides[axis]; at--)
            order[at] = order[at - 1];
        order[at] = axis;
        count++;
    }
    for (int32_t at = 0; at < count; at++) {
        int64_t step = tensor->strides[order[at]];
        if (step <= reach)
            return 0;
        reach += step * (tensor->shape[order[at]] - 1);
    }
    return 1;
}

static Layout layout_of(const Tensor *tensor)
{
    for (int32_t axis = 0; axis < tensor->ndim; axis++)
        if (tensor->shape[axis] < 1)
            return OTHER;
    return is_compact(tensor) ? COMPACT : are_apart(tensor) ? APART : OTHER;
}

#endif

/* What is read of one tensor: its dtype, memory and layout, and from these the key of its signature. */

#ifndef TENSORFERRY_READER_H
#define TENSORFERRY_READER_H

#include "_dlpack.h"

enum { MOST_ROWS = 64 };

/* What the backend says of a dtype. */
typedef struct {
    Dtype dtype;
    PyObject *named;    /* the framework's own object */
    PyObject *as_integer; /* the dtype of integers as which NumPy gets it; or None, if NumPy gets it as it is */
    PyObject *of_numpy;   /* the name of the dtype that NumPy gives these integers */
    int is_ambiguous;   /* other dtypes look the same to DLPack, so the tensor is asked */
    int has_signature;  /* otherwise its tensors are described */
    int may_be_negative;
    int is_listed;      /* `to_list` gives its exact numbers */
} Row;

typedef struct {
    PyObject ob_base;
    const Exchange *exchange;
    Py_ssize_t count;
    Row rows[MOST_ROWS];
    size_t header;
    uintptr_t lowest;
    PyObject *found; /* NumPy's dtypes by their names */
    PyObject *given; /* the arguments; these are borrowed from them: */
    PyObject *kinds[2], *settings, *modes, *forward, *is_negative, *has_address, *array_type, *set_flags, *compact;
    PyObject *tracing, *view, *to_numpy, *to_list, *view_as, *numpy_dtype, *allocate;
    PyObject *signature_otherwise, *array_otherwise;
    PyObject *level, *dtype, *requires_grad, *data; /* names of attributes */
    int has_failed; /* whether a tensor could not be described */
} Reader;

typedef struct {
    const Row *row;
    uintptr_t address;
    Tensor tensor;
    Layout layout;
} Seen;

static const Row *row_of(const Reader *reader, Dtype dtype)
{
    for (const Row *row = reader->rows; row < reader->rows + reader->count; row++)
        if (!memcmp(&row->dtype, &dtype, sizeof dtype))
            return row;
    return NULL;
}

static int is_true(PyObject *found)
{
    int truth = found == NULL ? -1 : PyObject_IsTrue(found);
    Py_XDECREF(found);
    return truth;
}

/* Whether PyTorch describes a tensor. It does not if the tensor has no memory, or another layout than strides.

   It takes a millisecond to fail, because its exception has a backtrace of C++. So after the first time, each tensor is
   looked at in Python before. */
static int is_described(Reader *reader, PyObject *x, Tensor *tensor)
{
    if (reader->has_failed && is_true(PyObject_CallFunctionObjArgs(reader->has_address, x, NULL)) <= 0) {
        PyErr_Clear();
        return 0;
    }
    if (reader->exchange->describe(x, tensor) == 0)
        return 1;
    reader->has_failed = 1;
    PyErr_Clear();
    return 0;
}

/* What the description of a tensor says of its dtype and memory: 0 if PyTorch has none, or if it is in doubt. */
static int is_seen(Reader *reader, PyObject *x, Seen *seen, int with_layout)
{
    if (!is_described(reader, x, &seen->tensor))
        return 0;
    seen->address = (uintptr_t)seen->tensor.data + (uintptr_t)seen->tensor.byte_offset;
    seen->row = row_of(reader, seen->tensor.dtype);
    /* The address of a view of freed storage is at most its offset. */
    if (seen->row == NULL || seen->address < reader->lowest)
        return 0;
    seen->layout = with_layout ? layout_of(&seen->tensor) : OTHER;
    return 1;
}

/* 1: seen; 0: in doubt, without an exception; -1: an exception. `with_layout` is 0 if the layout does not matter. */
static int see(Reader *reader, PyObject *x, Seen *seen, int with_layout)
{
    PyObject *dtype;
    int same;
    if (!is_seen(reader, x, seen, with_layout))
        return 0;
    if (!seen->row->is_ambiguous)
        return 1;
    dtype = PyObject_GetAttr(x, reader->dtype);
    if (dtype == NULL)
        return -1;
    same = dtype == seen->row->named;
    Py_DECREF(dtype);
    return same;
}

/* The same, and no other code runs between the description of the tensor and the return: a mode can change the tensor when
   it is asked for its dtype. */
static int see_now(Reader *reader, PyObject *x, Seen *seen)
{
    int found = see(reader, x, seen, 1);
    if (found > 0 && seen->row->is_ambiguous) {
        const Row *row = seen->row;
        found = is_seen(reader, x, seen, 1) && seen->row == row;
    }
    return found;
}

static int is_of_a_kind(const Reader *reader, PyObject *x)
{
    PyObject *kind = (PyObject *)Py_TYPE(x);
    return kind == reader->kinds[0] || kind == reader->kinds[1];
}

/* Whether no mode changes what tensors are: 1, 0, or -1 and an exception. */
static int is_ordinary_now(const Reader *reader)
{
    PyObject *level = PyObject_GetAttr(reader->forward, reader->level);
    long number;
    int modes;
    if (level == NULL)
        return -1;
    number = PyLong_AsLong(level);
    Py_DECREF(level);
    if (number >= 0 || (number == -1 && PyErr_Occurred()))
        return number >= 0 ? 0 : -1;
    modes = is_true(PyObject_CallNoArgs(reader->modes));
    return modes < 0 ? -1 : !modes;
}

/* What a signature contains, without Python objects, so that those of many tensors are compared in no time. */
typedef struct {
    const Row *row;
    PyObject *kind;
    Device device;
    int32_t rank;
    int misalignment, requires_grad;
} Key;

/* What the memory of a tensor says of its key: 1; 0: in doubt; -1: an exception. `mask` has the bits of the address that
   count. What was seen is true until other code runs. */
static int look(Reader *reader, PyObject *x, uintptr_t mask, Key *key, Seen *seen)
{
    int found = is_of_a_kind(reader, x) ? see_now(reader, x, seen) : 0;
    if (found <= 0)
        return found;
    if (seen->layout != COMPACT || !seen->row->has_signature)
        return 0;
    key->row = seen->row;
    key->kind = (PyObject *)Py_TYPE(x);
    key->device = seen->tensor.device;
    key->rank = seen->tensor.ndim;
    key->misalignment = (int)(seen->address & mask);
    return 1;
}

/* What PyTorch must be asked for the rest of it. */
static int ask(const Reader *reader, PyObject *x, Key *key)
{
    if (key->row->may_be_negative) {
        int negative = is_true(PyObject_CallFunctionObjArgs(reader->is_negative, x, NULL));
        if (negative)
            return negative < 0 ? -1 : 0;
    }
    key->requires_grad = is_true(PyObject_GetAttr(x, reader->requires_grad));
    return key->requires_grad < 0 ? -1 : 1;
}

static int key_of(Reader *reader, PyObject *x, uintptr_t mask, Key *key)
{
    Seen seen;
    int found = look(reader, x, mask, key, &seen);
    return found > 0 ? ask(reader, x, key) : found;
}

static PyObject *signature_of(const Reader *reader, const Key *key)
{
    const int on_host = key->device.type == HOST;
    PyObject *rank = PyLong_FromLong(key->rank), *misalignment = PyLong_FromLong(key->misalignment), *made = NULL;
    PyObject *marks = key->requires_grad ? Py_True : Py_False;
    PyObject *device = on_host ? NULL : Py_BuildValue("(ii)", key->device.type, key->device.id);
    if (rank != NULL && misalignment != NULL && (on_host || device != NULL))
        made = PyTuple_Pack(on_host ? 6 : 7, key->kind, key->row->named, rank, reader->compact, misalignment, marks, device);
    Py_XDECREF(rank);
    Py_XDECREF(misalignment);
    Py_XDECREF(device);
    return made;
}

/* The lengths of the axes of a tensor, which stay when the tensor is gone. */
typedef struct {
    int32_t rank;
    int64_t lengths[MOST_AXES];
} Shape;

/* 0 if there are too many axes. */
static int shape_of(const Tensor *tensor, Shape *shape)
{
    if (tensor->ndim > MOST_AXES)
        return 0;
    shape->rank = tensor->ndim;
    if (tensor->ndim > 0)
        memcpy(shape->lengths, tensor->shape, (size_t)tensor->ndim * sizeof *tensor->shape);
    return 1;
}

static int has_shape(const Tensor *tensor, const Shape *shape)
{
    return tensor->ndim == shape->rank &&
           (shape->rank == 0 || !memcmp(tensor->shape, shape->lengths, (size_t)shape->rank * sizeof *tensor->shape));
}

#endif

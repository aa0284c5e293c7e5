/* Many small arrays: what they are is read and compared, and their bytes are copied into one, one after the other.

   Nothing is decided here: whatever is in doubt is left to Python, which compares and joins too, in ten times the time.

   What an array is, is read from its object, whose first fields are public
   (https://numpy.org/doc/stable/reference/c-api/types-and-structures.html#c.PyArrayObject). Python tries out at first
   whether they are where they should be. An array may change while other code runs, so nothing that is read here is
   kept: `join` compares again what it copies. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* In C order, without gaps (NPY_ARRAY_C_CONTIGUOUS). */
enum { C_ORDER = 0x0001, MOST_HELD = 1 << 20 };

typedef struct {
    PyObject ob_base;
    char *data;
    int rank;
    Py_ssize_t *shape, *strides;
    PyObject *base, *dtype;
    int flags;
} Array;

/* Whether an object is an array in C order of this dtype, whose axes have these lengths. */
static int is_like(PyObject *x, PyTypeObject *type, const PyObject *dtype, int rank, const Py_ssize_t *shape)
{
    const Array *array = (const Array *)x;
    if (Py_TYPE(x) != type || array->dtype != dtype || array->rank != rank || !(array->flags & C_ORDER))
        return 0;
    return rank == 0 || !memcmp(array->shape, shape, (size_t)rank * sizeof *shape);
}

PyDoc_STRVAR(seen_doc,
             "seen(array, /)\n--\n\nAddress, shape, dtype and flags of an array, to compare them with its attributes.");

static PyObject *seen(PyObject *Py_UNUSED(module), PyObject *x)
{
    const Array *array = (const Array *)x;
    PyObject *shape;
    if (array->rank < 0 || array->rank > 64 || (shape = PyTuple_New(array->rank)) == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no array has so many axes");
        return NULL;
    }
    for (int axis = 0; axis < array->rank; axis++) {
        PyObject *length = PyLong_FromSsize_t(array->shape[axis]);
        if (length == NULL) {
            Py_DECREF(shape);
            return NULL;
        }
        PyTuple_SetItem(shape, axis, length);
    }
    return Py_BuildValue("(nNOi)", (Py_ssize_t)(uintptr_t)array->data, shape, array->dtype, array->flags);
}

PyDoc_STRVAR(alike_doc,
             "are_alike(arrays, type, /)\n--\n\n"
             "Whether all objects of a list are of this type, which is numpy.ndarray, have one dtype, equal shapes and no gaps.\n"
             "False says nothing.");

static PyObject *are_alike(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    PyObject *arrays;
    int alike;
    if (count != 2 || !PyType_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "are_alike takes a list and a type");
        return NULL;
    }
    arrays = PySequence_Tuple(arguments[0]);
    if (arrays == NULL)
        return NULL;
    count = PyTuple_Size(arrays);
    alike = count > 0 && Py_TYPE(PyTuple_GetItem(arrays, 0)) == (PyTypeObject *)arguments[1];
    if (alike) {
        const Array *first = (const Array *)PyTuple_GetItem(arrays, 0);
        for (Py_ssize_t index = 0; alike && index < count; index++)
            alike = is_like(PyTuple_GetItem(arrays, index), (PyTypeObject *)arguments[1], first->dtype, first->rank,
                            first->shape);
    }
    Py_DECREF(arrays);
    return PyBool_FromLong(alike);
}

static void copy_all(const char *const *from, Py_ssize_t count, char *to, size_t size)
{
    for (Py_ssize_t index = 0; index < count; index++)
        memcpy(to + (size_t)index * size, from[index], size);
}

PyDoc_STRVAR(join_doc,
             "join(arrays, target, type, /)\n--\n\n"
             "Copy arrays into the rows of another array in C order, of one axis more. All are of this type, which is\n"
             "numpy.ndarray. False, and nothing is copied, if one has another dtype or shape than a row, or gaps.");

static PyObject *join(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    const Array *target;
    PyTypeObject *type;
    PyObject *arrays;
    Py_buffer written;
    const char **from;
    size_t size;
    int alike;
    if (count != 3 || Py_TYPE(arguments[1]) != (PyTypeObject *)arguments[2]) {
        PyErr_SetString(PyExc_TypeError, "join takes a list, an array and its type");
        return NULL;
    }
    /* It is an array that can be written, and stays where it is while its buffer is taken. */
    if (PyObject_GetBuffer(arguments[1], &written, PyBUF_WRITABLE) < 0)
        return NULL;
    target = (const Array *)arguments[1];
    type = (PyTypeObject *)arguments[2];
    arrays = PySequence_Tuple(arguments[0]);
    count = arrays == NULL ? 0 : PyTuple_Size(arrays);
    from = PyMem_Calloc((size_t)count + 1, sizeof *from);
    if (arrays == NULL || from == NULL) {
        Py_XDECREF(arrays);
        PyMem_Free(from);
        PyBuffer_Release(&written);
        return arrays == NULL ? NULL : PyErr_NoMemory();
    }
    alike = target->rank > 0 && target->shape[0] == count && count > 0 && target->flags & C_ORDER;
    for (Py_ssize_t index = 0; alike && index < count; index++) {
        PyObject *x = PyTuple_GetItem(arrays, index);
        alike = is_like(x, type, target->dtype, target->rank - 1, target->shape + 1);
        from[index] = ((const Array *)x)->data;
    }
    size = alike ? (size_t)written.len / (size_t)count : 0;
    if (alike && written.len > MOST_HELD) {
        /* The tuple keeps the arrays, and an array that has another owner does not give its memory back. */
        Py_BEGIN_ALLOW_THREADS
        copy_all(from, count, written.buf, size);
        Py_END_ALLOW_THREADS
    } else if (size > 0)
        copy_all(from, count, written.buf, size);
    PyMem_Free((void *)from);
    Py_DECREF(arrays);
    PyBuffer_Release(&written);
    return PyBool_FromLong(alike);
}

/* -- rows of unequal lengths, padded -------------------------------------------------------------------------------- */

/* An element, as often as there is room for. */
static void repeat(char *to, size_t size, const char *element, size_t item, int is_zero)
{
    size_t done = item;
    if (is_zero || size == 0) {
        memset(to, 0, size);
        return;
    }
    memcpy(to, element, item);
    for (size_t part; done < size; done += part) {
        part = size - done < done ? size - done : done;
        memcpy(to + done, to, part);
    }
}

typedef struct {
    const char *values, *element;
    char *to;
    size_t item, width, room; /* bytes of an element, of each place in a row, and of a padded row */
    Py_ssize_t count, *lengths;
    int left;
} Padding;

static void pad_all(const Padding *padding)
{
    static const char zeros[32];
    const int is_zero = padding->item <= sizeof zeros && !memcmp(padding->element, zeros, padding->item);
    const char *from = padding->values;
    for (Py_ssize_t index = 0; index < padding->count; index++) {
        char *row = padding->to + (size_t)index * padding->room;
        const size_t size = (size_t)padding->lengths[index] * padding->width, missing = padding->room - size;
        repeat(padding->left ? row : row + size, missing, padding->element, padding->item, is_zero);
        if (size > 0)
            memcpy(padding->left ? row + missing : row, from, size);
        from += size;
    }
}

/* 0 and an exception if these are no lengths, or there is no such room: what it takes is known before anything is written. */
static int read_padding(Padding *padding, PyObject *lengths, const Py_buffer *values, const Py_buffer *written,
                        const Py_buffer *element)
{
    Py_ssize_t total = 0, longest = 0;
    for (Py_ssize_t index = 0; index < padding->count; index++) {
        const Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GetItem(lengths, index));
        if (length == -1 && PyErr_Occurred())
            return 0;
        if (length < 0 || length > PY_SSIZE_T_MAX - total)
            break;
        padding->lengths[index] = length;
        longest = length > longest ? length : longest;
        total += length;
        if (index + 1 == padding->count) {
            padding->item = (size_t)element->len;
            padding->width = total == 0 ? 0 : (size_t)(values->len / total);
            padding->room = (size_t)(written->len / padding->count);
            if (element->len > 0 && written->len % padding->count == 0 && padding->room % padding->item == 0 &&
                padding->width % padding->item == 0 && (size_t)values->len == padding->width * (size_t)total &&
                (longest == 0 || padding->width <= padding->room / (size_t)longest))
                return 1;
        }
    }
    PyErr_SetString(PyExc_ValueError, "the memory has another size than the rows");
    return 0;
}

PyDoc_STRVAR(pad_doc,
             "pad(values, lengths, target, element, left, /)\n--\n\n"
             "Copy rows into those of an array, which are longer: a row for each length. Their bytes are one after the other in\n"
             "`values`. An element fills the rest of each, which is on the left if so asked.");

static PyObject *pad(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    enum { VALUES, LENGTHS, TARGET, ELEMENT, LEFT, ALL };
    Py_buffer values = {.obj = NULL}, written = {.obj = NULL}, element = {.obj = NULL};
    PyObject *lengths;
    Padding padding;
    int done = 0;
    if (given != ALL) {
        PyErr_SetString(PyExc_TypeError, "pad takes 5 arguments");
        return NULL;
    }
    memset(&padding, 0, sizeof padding);
    padding.left = PyObject_IsTrue(arguments[LEFT]);
    lengths = padding.left < 0 ? NULL : PySequence_Tuple(arguments[LENGTHS]);
    if (lengths == NULL)
        return NULL;
    padding.count = PyTuple_Size(lengths);
    padding.lengths = PyMem_Calloc((size_t)padding.count + 1, sizeof *padding.lengths);
    if (padding.lengths == NULL)
        PyErr_NoMemory();
    else if (PyObject_GetBuffer(arguments[VALUES], &values, PyBUF_SIMPLE) == 0 &&
             PyObject_GetBuffer(arguments[TARGET], &written, PyBUF_WRITABLE) == 0 &&
             PyObject_GetBuffer(arguments[ELEMENT], &element, PyBUF_SIMPLE) == 0)
        done = read_padding(&padding, lengths, &values, &written, &element);
    if (done) {
        padding.values = values.buf;
        padding.to = written.buf;
        padding.element = element.buf;
    }
    if (done && written.len > MOST_HELD) {
        Py_BEGIN_ALLOW_THREADS
        pad_all(&padding);
        Py_END_ALLOW_THREADS
    } else if (done)
        pad_all(&padding);
    for (Py_buffer *each[] = {&values, &written, &element}, **next = each; next < each + 3; next++)
        if ((*next)->obj != NULL)
            PyBuffer_Release(*next);
    PyMem_Free(padding.lengths);
    Py_DECREF(lengths);
    return done ? Py_NewRef(Py_None) : NULL;
}

/* What arrays have in common: they differ only in shape, address and who else has their memory. */
typedef struct {
    PyObject *dtype;
    int rank, flags;
    Py_ssize_t first;
} Alike;

enum { MOST_GROUPS = 32 };

/* The number of the group of an array, which may be a new one; -1 if there would be too many. */
static Py_ssize_t group_of(Alike *groups, Py_ssize_t *known, const Array *array, Py_ssize_t index)
{
    Py_ssize_t at = 0;
    while (at < *known && !(groups[at].dtype == array->dtype && groups[at].rank == array->rank &&
                            groups[at].flags == array->flags))
        at++;
    if (at == MOST_GROUPS)
        return -1;
    if (at == *known)
        groups[(*known)++] = (Alike){array->dtype, array->rank, array->flags, index};
    return at;
}

static int64_t size_of(const Array *array)
{
    int64_t size = 1;
    for (int axis = 0; axis < array->rank; axis++)
        size *= array->shape[axis];
    return size;
}

PyDoc_STRVAR(signatures_doc,
             "signatures(arrays, type, modulo, /)\n--\n\n"
             "What is equal only for as many arrays of this type, which is numpy.ndarray, that have in the same order the same\n"
             "dtypes, numbers of axes, flags, and addresses modulo a power of two up to 256: a tuple of the different dtypes,\n"
             "numbers of axes and flags, and bytes. None if another object or an array without elements is among them, or\n"
             "there are more than 32 of these.");

static PyObject *signatures(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Alike groups[MOST_GROUPS];
    PyObject *arrays, *found, *kinds;
    Py_ssize_t known = 0, at = 0;
    size_t modulo;
    uint8_t *numbers;
    if (count != 3 || !PyType_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "signatures takes a list, a type and a number");
        return NULL;
    }
    modulo = PyLong_AsSize_t(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    arrays = PySequence_Tuple(arguments[0]);
    if (arrays == NULL)
        return NULL;
    count = PyTuple_Size(arrays);
    numbers = PyMem_Malloc(2 * (size_t)count + 1);
    for (Py_ssize_t index = 0; numbers != NULL && at >= 0 && index < count; index++) {
        const Array *array = (const Array *)PyTuple_GetItem(arrays, index);
        const int is_array = Py_TYPE(PyTuple_GetItem(arrays, index)) == (PyTypeObject *)arguments[1];
        at = is_array && size_of(array) > 0 ? group_of(groups, &known, array, index) : -1;
        if (at >= 0) {
            numbers[2 * index] = (uint8_t)at;
            numbers[2 * index + 1] = (uint8_t)((uintptr_t)array->data & (modulo - 1));
        }
    }
    if (numbers == NULL || at < 0) {
        Py_DECREF(arrays);
        PyMem_Free(numbers);
        return numbers == NULL ? PyErr_NoMemory() : Py_NewRef(Py_None);
    }
    for (at = 0; at < known; at++) /* an array may get another dtype while other code runs */
        Py_INCREF(groups[at].dtype);
    kinds = PyTuple_New(known);
    for (at = 0; at < known; at++) {
        PyObject *kind = kinds == NULL ? NULL : Py_BuildValue("(Oii)", groups[at].dtype, groups[at].rank, groups[at].flags);
        Py_DECREF(groups[at].dtype);
        if (kind == NULL)
            Py_CLEAR(kinds);
        else
            PyTuple_SetItem(kinds, at, kind);
    }
    found = kinds == NULL ? NULL : PyBytes_FromStringAndSize((const char *)numbers, 2 * count);
    Py_DECREF(arrays);
    PyMem_Free(numbers);
    if (found == NULL) {
        Py_XDECREF(kinds);
        return NULL;
    }
    return Py_BuildValue("(NN)", kinds, found);
}

PyDoc_STRVAR(facts_doc,
             "facts(arrays, type, /)\n--\n\n"
             "Group arrays of this type, which is numpy.ndarray, by dtype, number of axes and flags. The positions of the\n"
             "first of each group; and for each array its group and number of elements, as two runs of int64.\n"
             "None if another object is among them, or there are more than 32 groups.");

static PyObject *facts(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Alike groups[MOST_GROUPS];
    PyObject *arrays, *found, *firsts;
    Py_ssize_t known = 0;
    int64_t *numbers;
    if (count != 2 || !PyType_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "facts takes a list and a type");
        return NULL;
    }
    arrays = PySequence_Tuple(arguments[0]);
    if (arrays == NULL)
        return NULL;
    count = PyTuple_Size(arrays);
    found = PyByteArray_FromStringAndSize(NULL, 2 * count * (Py_ssize_t)sizeof *numbers);
    if (found == NULL) {
        Py_DECREF(arrays);
        return NULL;
    }
    numbers = (int64_t *)PyByteArray_AsString(found);
    for (Py_ssize_t index = 0; index < count; index++) {
        const Array *array = (const Array *)PyTuple_GetItem(arrays, index);
        Py_ssize_t at = -1;
        if (Py_TYPE(PyTuple_GetItem(arrays, index)) == (PyTypeObject *)arguments[1])
            at = group_of(groups, &known, array, index);
        if (at < 0) {
            known = -1;
            break;
        }
        numbers[index] = at;
        numbers[count + index] = size_of(array);
    }
    Py_DECREF(arrays);
    if (known < 0) {
        Py_DECREF(found);
        Py_RETURN_NONE;
    }
    firsts = PyTuple_New(known);
    for (Py_ssize_t at = 0; firsts != NULL && at < known; at++) {
        PyObject *first = PyLong_FromSsize_t(groups[at].first);
        if (first == NULL) {
            Py_CLEAR(firsts);
            break;
        }
        PyTuple_SetItem(firsts, at, first);
    }
    if (firsts == NULL) {
        Py_DECREF(found);
        return NULL;
    }
    return Py_BuildValue("(NN)", firsts, found);
}

PyDoc_STRVAR(extents_doc,
             "extents(arrays, type, /)\n--\n\n"
             "The addresses of the first bytes of arrays of this type, which is numpy.ndarray, without gaps, then those of the\n"
             "bytes after their last ones, each in eight bytes. None if another object is among them, or there are more than 32\n"
             "different dtypes, numbers of axes and flags.");

static PyObject *extents(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Alike groups[MOST_GROUPS];
    PyObject *arrays, *made = NULL;
    Py_ssize_t known = 0, at = 0;
    uint64_t *found;
    if (count != 2 || !PyType_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "extents takes a list and a type");
        return NULL;
    }
    arrays = PySequence_Tuple(arguments[0]);
    if (arrays == NULL)
        return NULL;
    count = PyTuple_Size(arrays);
    found = PyMem_Malloc((3 * (size_t)count + 1) * sizeof *found);
    if (found == NULL) {
        Py_DECREF(arrays);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t index = 0; at >= 0 && index < count; index++) {
        const Array *array = (const Array *)PyTuple_GetItem(arrays, index);
        const int is_array = Py_TYPE(PyTuple_GetItem(arrays, index)) == (PyTypeObject *)arguments[1];
        at = is_array ? group_of(groups, &known, array, index) : -1;
        if (at >= 0) {
            found[index] = (uint64_t)(uintptr_t)array->data;
            found[count + index] = (uint64_t)size_of(array);
            found[2 * count + index] = (uint64_t)at;
        }
    }
    if (at >= 0) {
        uint64_t sizes[MOST_GROUPS];
        for (at = 0; at < known; at++) /* an array may get another dtype while other code runs */
            Py_INCREF(groups[at].dtype);
        for (at = 0; at < known; at++) {
            PyObject *size = PyErr_Occurred() ? NULL : PyObject_GetAttrString(groups[at].dtype, "itemsize");
            sizes[at] = size == NULL ? 0 : PyLong_AsUnsignedLongLong(size);
            Py_XDECREF(size);
            Py_DECREF(groups[at].dtype);
        }
        for (Py_ssize_t index = 0; index < count; index++)
            found[count + index] = found[index] + found[count + index] * sizes[found[2 * count + index]];
        if (!PyErr_Occurred())
            made = PyBytes_FromStringAndSize((const char *)found, 2 * count * (Py_ssize_t)sizeof *found);
    } else
        made = Py_NewRef(Py_None);
    Py_DECREF(arrays);
    PyMem_Free(found);
    return made;
}

/* A run of bytes in memory, and the byte after its last. */
typedef struct {
    uint64_t start, end;
} Run;

/* Sort runs by their starts, with as much memory besides. Gives where the sorted ones are. */
static Run *sorted(Run *runs, Run *others, Py_ssize_t count)
{
    for (Py_ssize_t width = 1; width < count; width *= 2) {
        Run *before = runs;
        for (Py_ssize_t low = 0; low < count; low += 2 * width) {
            Py_ssize_t left = low, middle = low + width < count ? low + width : count, right = middle, to = low;
            Py_ssize_t high = middle + width < count ? middle + width : count;
            while (left < middle || right < high) {
                const int takes_left = right == high || (left < middle && runs[left].start <= runs[right].start);
                others[to++] = takes_left ? runs[left++] : runs[right++];
            }
        }
        runs = others;
        others = before;
    }
    return runs;
}

/* The numbers of a buffer, or of a list of integers, which are put into every second place: 0 and an exception if there
   are others. */
static int read_numbers(PyObject *numbers, uint64_t *to, Py_ssize_t count)
{
    Py_buffer buffer;
    int done;
    if (PyList_Check(numbers)) {
        for (Py_ssize_t index = 0; index < count; index++) {
            PyObject *number = index < PyList_Size(numbers) ? PyList_GetItem(numbers, index) : NULL;
            if (number == NULL) {
                PyErr_SetString(PyExc_ValueError, "there are other starts than ends");
                return 0;
            }
            to[2 * index] = PyLong_AsUnsignedLongLong(number);
            if (to[2 * index] == (uint64_t)-1 && PyErr_Occurred())
                return 0;
        }
        return 1;
    }
    if (PyObject_GetBuffer(numbers, &buffer, PyBUF_SIMPLE) < 0)
        return 0;
    done = buffer.len == count * (Py_ssize_t)sizeof *to;
    for (Py_ssize_t index = 0; done && index < count; index++)
        memcpy(&to[2 * index], (const uint64_t *)buffer.buf + index, sizeof *to);
    PyBuffer_Release(&buffer);
    if (!done)
        PyErr_SetString(PyExc_ValueError, "there are other starts than ends");
    return done;
}

PyDoc_STRVAR(apart_doc,
             "are_apart(starts, ends, /, *others)\n--\n\n"
             "Whether no two runs of bytes have one in common, where a run without bytes counts as one of a byte. Their first\n"
             "bytes, and those after the last ones, are lists of integers, or buffers of uint64. There may be several of both.");

static PyObject *are_apart(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t given)
{
    Py_ssize_t count = 0, done = 0;
    int apart = 1, in_order = 1;
    Run *runs, *found;
    if (given < 2 || given % 2) {
        PyErr_SetString(PyExc_TypeError, "are_apart takes starts and ends");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < given; at += 2) {
        const Py_ssize_t size = PyObject_Size(arguments[at]);
        if (size < 0)
            return NULL;
        count += size;
    }
    runs = PyMem_Malloc((2 * (size_t)count + 1) * sizeof *runs);
    if (runs == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t at = 0; at < given; at += 2) {
        const Py_ssize_t size = PyObject_Size(arguments[at]);
        const int fits = size >= 0 && size <= count - done; /* a list may have changed */
        if (!fits && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there are other starts than ends");
        if (!fits || !read_numbers(arguments[at], &runs[done].start, size) ||
            !read_numbers(arguments[at + 1], &runs[done].end, size)) {
            PyMem_Free(runs);
            return NULL;
        }
        done += size;
    }
    count = done;
    for (Py_ssize_t index = 1; in_order && index < count; index++)
        in_order = runs[index - 1].start <= runs[index].start;
    found = in_order ? runs : sorted(runs, runs + count, count);
    for (Py_ssize_t index = 1; apart && index < count; index++)
        apart = found[index - 1].end <= found[index].start && found[index - 1].start < found[index].start;
    PyMem_Free(runs);
    return PyBool_FromLong(apart);
}

static PyMethodDef methods[] = {
    {"seen", (PyCFunction)seen, METH_O, seen_doc},
    {"are_alike", (PyCFunction)(void (*)(void))are_alike, METH_FASTCALL, alike_doc},
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL, join_doc},
    {"pad", (PyCFunction)(void (*)(void))pad, METH_FASTCALL, pad_doc},
    {"are_apart", (PyCFunction)(void (*)(void))are_apart, METH_FASTCALL, apart_doc},
    {"signatures", (PyCFunction)(void (*)(void))signatures, METH_FASTCALL, signatures_doc},
    {"extents", (PyCFunction)(void (*)(void))extents, METH_FASTCALL, extents_doc},
    {"facts", (PyCFunction)(void (*)(void))facts, METH_FASTCALL, facts_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensorferry.host._joins",
    .m_doc = "Many arrays: what they are, and how they become one.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__joins(void)
{
    return PyModuleDef_Init(&definition);
}

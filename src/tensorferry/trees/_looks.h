/* What is told of objects without their help: whether one recurs, and whether they hold nothing but plain values. */

#ifndef TENSORFERRY_LOOKS_H
#define TENSORFERRY_LOOKS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/* -- whether one recurs ------------------------------------------------------------------------------------------- */

enum { FEW = 16 };

/* Whether no address occurs twice: 1, 0, or -1 and an exception. */
static int are_apart(const uintptr_t *addresses, Py_ssize_t count)
{
    size_t slots = 4 * FEW, at;
    uintptr_t *seen;
    int apart = 1;
    if (count <= FEW) {
        for (Py_ssize_t index = 1; index < count; index++)
            for (Py_ssize_t before = 0; before < index; before++)
                if (addresses[index] == addresses[before])
                    return 0;
        return 1;
    }
    while (slots < 2 * (size_t)count)
        slots *= 2;
    seen = PyMem_Calloc(slots, sizeof *seen);
    if (seen == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t index = 0; apart && index < count; index++) {
        at = (size_t)((uint64_t)addresses[index] * 0x9E3779B97F4A7C15u >> 20) & (slots - 1);
        while (seen[at] != 0 && seen[at] != addresses[index])
            at = (at + 1) & (slots - 1);
        apart = seen[at] == 0;
        seen[at] = addresses[index];
    }
    PyMem_Free(seen);
    return apart;
}

PyDoc_STRVAR(different_doc, "are_different(objects, /)\n--\n\nWhether no object of a list occurs twice.");

static PyObject *are_different(PyObject *Py_UNUSED(module), PyObject *objects)
{
    uintptr_t *addresses;
    Py_ssize_t size;
    int apart;
    if (!PyList_Check(objects))
        return PyErr_Format(PyExc_TypeError, "are_different takes a list");
    size = PyList_Size(objects);
    addresses = PyMem_Malloc(((size_t)size + 1) * sizeof *addresses);
    if (addresses == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < size; index++)
        addresses[index] = (uintptr_t)PyList_GetItem(objects, index);
    apart = are_apart(addresses, size);
    PyMem_Free(addresses);
    return apart < 0 ? NULL : PyBool_FromLong(apart);
}

/* -- whether they are plain --------------------------------------------------------------------------------------- */

/* The types of plain values, and of dicts that keep their order, which may have attributes. */
typedef struct {
    PyObject *plain, *ordered, *attributes;
} Known;

static int is_plain(const Known *known, PyObject *x, long levels);

/* Not by a look into a set: the hash of a type may be found by any code. */
static int is_plain_kind(const Known *known, PyObject *x)
{
    for (Py_ssize_t index = 0; index < PyTuple_Size(known->plain); index++)
        if (PyTuple_GetItem(known->plain, index) == (PyObject *)Py_TYPE(x))
            return 1;
    return 0;
}

/* The same for the objects of a list or tuple. To look at one may run code that changes the list. */
static int are_plain_in(const Known *known, PyObject *row, long levels)
{
    const int is_list = PyList_Check(row);
    int found = 1;
    for (Py_ssize_t index = 0; found > 0 && index < (is_list ? PyList_Size(row) : PyTuple_Size(row)); index++) {
        PyObject *x = Py_NewRef(is_list ? PyList_GetItem(row, index) : PyTuple_GetItem(row, index));
        found = is_plain(known, x, levels);
        Py_DECREF(x);
    }
    return found;
}

/* The same for the values of a dict: most have nothing but plain values, and need no list of these. */
static int are_plain_values(const Known *known, PyObject *dict, long levels)
{
    Py_ssize_t position = 0;
    PyObject *key, *value, *values;
    int found = 1;
    while (found && PyDict_Next(dict, &position, &key, &value))
        found = is_plain_kind(known, value);
    if (found)
        return 1;
    values = PyDict_Values(dict);
    found = values == NULL ? -1 : are_plain_in(known, values, levels);
    Py_XDECREF(values);
    return found;
}

/* Whether an object is a plain value, or a dict, list or tuple of such, and so on: 1, 0 if not, or if it is nested deeper,
   or -1 and an exception. */
static int is_plain(const Known *known, PyObject *x, long levels)
{
    PyTypeObject *kind = Py_TYPE(x);
    if (is_plain_kind(known, x))
        return 1;
    if (levels <= 1)
        return 0;
    if (kind == &PyList_Type || kind == &PyTuple_Type)
        return are_plain_in(known, x, levels - 1);
    if ((PyObject *)kind == known->ordered) {
        PyObject *attributes = PyObject_GetAttr(x, known->attributes);
        const Py_ssize_t count = attributes == NULL ? -1 : PyObject_Size(attributes);
        Py_XDECREF(attributes);
        if (count != 0)
            return count < 0 ? -1 : 0;
    } else if (kind != &PyDict_Type)
        return 0;
    return are_plain_values(known, x, levels - 1);
}

PyDoc_STRVAR(plain_doc,
             "are_plain(objects, plain, ordered, levels, /)\n--\n\n"
             "Whether objects are of plain types, which are given as a tuple, or dicts, lists or tuples of such, on so\n"
             "many levels. A dict may also be of the type `ordered`, without attributes. False says nothing.");

static PyObject *are_plain(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Known known;
    PyObject *objects;
    long levels;
    int found;
    if (count != 4 || !PyTuple_Check(arguments[1]) || !PyType_Check(arguments[2]) ||
        !PyType_IsSubtype((PyTypeObject *)arguments[2], &PyDict_Type)) {
        PyErr_SetString(PyExc_TypeError, "are_plain takes objects, a tuple, a type of dicts and a number");
        return NULL;
    }
    levels = PyLong_AsLong(arguments[3]);
    if (levels == -1 && PyErr_Occurred())
        return NULL;
    objects = PySequence_Tuple(arguments[0]);
    if (objects == NULL)
        return NULL;
    known = (Known){arguments[1], arguments[2], PyUnicode_InternFromString("__dict__")};
    found = known.attributes == NULL ? -1 : are_plain_in(&known, objects, levels);
    Py_XDECREF(known.attributes);
    Py_DECREF(objects);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

#endif

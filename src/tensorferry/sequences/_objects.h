/* How floats, ints and lists lie in memory, if that is known: a call for each element takes longer than all the rest.

   It is not part of the stable ABI, so it is known of versions up to 3.14, and tried out in each process; else they are
   asked. */

#ifndef TENSORFERRY_OBJECTS_H
#define TENSORFERRY_OBJECTS_H

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#define INLINE static inline __attribute__((always_inline))
#else
#define PREFETCH(address) ((void)(address))
#define INLINE static __forceinline
#endif

static int knows_floats = 0, knows_lists = 0;
typedef enum { UNKNOWN, SIZED, TAGGED } Layout;
static Layout knows_ints = UNKNOWN;

INLINE double float_of(PyObject *element)
{
    double value;
    if (!knows_floats)
        return PyFloat_AsDouble(element);
    memcpy(&value, (const char *)element + sizeof(PyObject), sizeof value);
    return value;
}

/* An int of at most two digits; 0: it has more. */
INLINE int short_int(Layout layout, PyObject *element, int64_t *value)
{
    /* A signed count of digits, or from 3.12 one shifted by three bits whose lowest are the sign; digits of 30 bits. */
    const char *at = (const char *)element + sizeof(PyObject);
    int64_t sign;
    Py_ssize_t count;
    uint64_t word;
    size_t one;
    memcpy(&count, at, sizeof count);
    if (layout == SIZED) {
        sign = (int64_t)count >> 63;
        count = (Py_ssize_t)((count ^ sign) - sign);
    } else {
        sign = -(int64_t)(count >> 1 & 1);
        count >>= 3;
    }
    if (count > 2)
        return 0;
    /* Without a jump, which for numbers of any size is foreseen half the time: two digits, or what is before the first,
       and that. */
    one = (size_t)(count >> 1) ^ 1;
    memcpy(&word, at + sizeof count - 4 * one, sizeof word);
    *value = (uint32_t)(word >> 32 * one) | ((int64_t)(word >> 32) << 30 & ((int64_t)one - 1));
    *value &= -(int64_t)(count != 0);
    *value = (*value ^ sign) - sign;
    return 1;
}

INLINE long long int_of(PyObject *element, int *overflow)
{
    int64_t value;
    if (knows_ints != UNKNOWN && short_int(knows_ints, element, &value)) {
        *overflow = 0;
        return value;
    }
    return PyLong_AsLongLongAndOverflow(element, overflow);
}

/* The elements of a list, which are as many as its length says until Python code runs. */
INLINE PyObject *const *elements_of(PyObject *list)
{
    PyObject *const *elements;
    memcpy(&elements, (const char *)list + sizeof(PyObject) + sizeof(Py_ssize_t), sizeof elements);
    return elements;
}

/* Whether the objects of a type are a header and so many bytes, and of some more for each item. */
static int has_size(PyTypeObject *type, size_t size, size_t item)
{
    PyObject *whole = PyObject_GetAttrString((PyObject *)type, "__basicsize__");
    PyObject *each = PyObject_GetAttrString((PyObject *)type, "__itemsize__");
    int same = whole != NULL && each != NULL && PyLong_AsSize_t(whole) == sizeof(PyObject) + size &&
               PyLong_AsSize_t(each) == item;
    Py_XDECREF(whole);
    Py_XDECREF(each);
    return same;
}

/* Try out what is known of this version; -1 and an exception if there is no memory for that. */
static int try_out_objects(void)
{
    static const long long probes[] = {0, 1, -1, 255, 257, -7, 0x3FFFFFFF, 0x40000000, -0x40000000, 0x123456789ABCDEF,
                                       -0xFFFFFFFFFFFFFFF, 0x1000000000000000, INT64_MAX, INT64_MIN};
    const uint32_t one = 1;
    const char is_little = *(const char *)&one;
    int overflow;
    if (Py_Version >= 0x030F0000)
        return 0;
    if (has_size(&PyFloat_Type, sizeof(double), 0)) {
        PyObject *probe = PyFloat_FromDouble(-1.0 / 3.0);
        if (probe == NULL)
            return -1;
        knows_floats = 1;
        knows_floats = float_of(probe) == -1.0 / 3.0;
        Py_DECREF(probe);
    }
    if (!PyErr_Occurred() && has_size(&PyLong_Type, 8, 4) && sizeof(Py_ssize_t) == 8 && is_little) {
        knows_ints = Py_Version >= 0x030C0000 ? TAGGED : SIZED;
        for (size_t index = 0; index < sizeof probes / sizeof *probes && knows_ints != UNKNOWN; index++) {
            PyObject *probe = PyLong_FromLongLong(probes[index]);
            if (probe == NULL)
                return -1;
            if (int_of(probe, &overflow) != probes[index] || overflow)
                knows_ints = UNKNOWN;
            Py_DECREF(probe);
        }
    }
    /* A header, a length, and where the elements are and for how many there is room. */
    if (!PyErr_Occurred() && has_size(&PyList_Type, sizeof(Py_ssize_t) + sizeof(void *) + sizeof(Py_ssize_t), 0)) {
        PyObject *probe = Py_BuildValue("[OOO]", Py_None, Py_True, Py_False);
        if (probe == NULL)
            return -1;
        knows_lists = elements_of(probe)[0] == Py_None && elements_of(probe)[1] == Py_True &&
                      elements_of(probe)[2] == Py_False;
        Py_DECREF(probe);
    }
    return PyErr_Occurred() ? -1 : 0;
}

#endif

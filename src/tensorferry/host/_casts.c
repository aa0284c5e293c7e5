/* Casts of whole arrays that neither NumPy nor ml_dtypes gives as we define them: rounded once, and cut off.

   Nothing is decided here, and nothing is checked but sizes: Python names the dtypes, and gives contiguous memory. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

/* How many numbers are looked at together: some that fit into the processor's nearest cache. */
enum { AT_ONCE = 1024 };

/* Memory that is read, memory that is written, and how many numbers there are in each. */
typedef struct {
    Py_buffer source, target;
    Py_ssize_t count;
} Pair;

/* -1 and an exception if one of them is no contiguous memory, or if they have not as many elements. */
static int take(Pair *pair, PyObject *source, Py_ssize_t item, PyObject *target, Py_ssize_t other)
{
    if (PyObject_GetBuffer(source, &pair->source, PyBUF_SIMPLE) < 0)
        return -1;
    if (PyObject_GetBuffer(target, &pair->target, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&pair->source);
        return -1;
    }
    pair->count = pair->source.len / item;
    if (pair->source.len != pair->count * item || pair->target.len != pair->count * other) {
        PyBuffer_Release(&pair->source);
        PyBuffer_Release(&pair->target);
        PyErr_SetString(PyExc_ValueError, "the memory has another size than the numbers");
        return -1;
    }
    return 0;
}

static PyObject *give_back(Pair *pair)
{
    PyBuffer_Release(&pair->source);
    PyBuffer_Release(&pair->target);
    Py_RETURN_NONE;
}

/* -- rounded once ------------------------------------------------------------------------------------------------ */

static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* A number without its last bits. If any of them was set, the last one that stays is set ("rounded to odd"). */
static inline uint64_t to_odd(uint64_t bits, uint64_t below)
{
    return (bits | ((bits & below) + below)) & ~below;
}

static void round_doubles(const double *from, uint64_t below, float *to, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        const uint64_t bits = to_odd(bits_of(from[index]), below);
        double value;
        memcpy(&value, &bits, sizeof value);
        to[index] = (float)value;
    }
}

/* The last eleven bits of an integer are those that a double may not have. */
static void round_integers(const uint64_t *from, int is_signed, uint64_t below, float *to, Py_ssize_t count)
{
    const uint64_t held = 1ULL << 53;
    double values[AT_ONCE];
    for (Py_ssize_t start = 0; start < count; start += AT_ONCE) {
        const Py_ssize_t some = count - start < AT_ONCE ? count - start : AT_ONCE;
        for (Py_ssize_t index = 0; index < some; index++) {
            uint64_t whole = from[start + index];
            if (is_signed ? whole + held > 2 * held : whole > held)
                whole = to_odd(whole, 0x7FF);
            values[index] = is_signed ? (double)(int64_t)whole : (double)whole;
        }
        round_doubles(values, below, to + start, some);
    }
}

PyDoc_STRVAR(round_doc,
             "round_to_odd(source, code, lost, target, /)\n--\n\n"
             "Write numbers as float32, so that they can be rounded to fewer bits as if they never were float32.\n\n"
             "The source is of a character of the struct module's: 'd', 'q' or 'Q'. Of its bits as a float64, so many\n"
             "are lost: the last one before them is set if any of them was.");

static PyObject *round_to_odd(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Pair pair;
    Py_UCS4 code;
    long lost;

    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "round_to_odd takes 4 arguments");
        return NULL;
    }
    code = PyUnicode_ReadChar(arguments[1], 0);
    lost = PyLong_AsLong(arguments[2]);
    if (PyErr_Occurred())
        return NULL;
    if ((code != 'd' && code != 'q' && code != 'Q') || lost < 29 || lost > 52) {
        PyErr_SetString(PyExc_ValueError, "there is no such code, or no float32 has as many bits");
        return NULL;
    }
    if (take(&pair, arguments[0], 8, arguments[3], sizeof(float)) < 0)
        return NULL;
    if (code == 'd')
        round_doubles(pair.source.buf, (1ULL << lost) - 1, pair.target.buf, pair.count);
    else
        round_integers(pair.source.buf, code == 'q', (1ULL << lost) - 1, pair.target.buf, pair.count);
    return give_back(&pair);
}

/* -- cut off ----------------------------------------------------------------------------------------------------- */

/* Without its fraction, modulo 2**64; of NaN and infinity, 0. */
static uint64_t modulo(double value)
{
    if (fabs(value) < 0x1p63)
        return (uint64_t)(int64_t)value;
    if (!isfinite(value))
        return 0;
    value = fmod(value, 0x1p64);
    return value < 0 ? 0 - (uint64_t)-value : (uint64_t)value;
}

/* The lowest bits of a byte, with the sign that the first of them stands for. */
static inline uint8_t lowest(uint8_t whole, int bits, int is_signed)
{
    const int low = whole & ((1 << bits) - 1);
    return (uint8_t)(is_signed && low >> (bits - 1) ? low - (1 << bits) : low);
}

/* Of two's complement, the lowest bytes are the integer modulo. */
#define WRITE(whole)                                                                                                   \
    for (Py_ssize_t index = 0; index < count; index++)                                                                 \
        if (item == 8)                                                                                                 \
            ((uint64_t *)to)[index] = (uint64_t)(whole);                                                               \
        else if (item == 4)                                                                                            \
            ((uint32_t *)to)[index] = (uint32_t)(whole);                                                               \
        else if (item == 2)                                                                                            \
            ((uint16_t *)to)[index] = (uint16_t)(whole);                                                               \
        else                                                                                                           \
            ((uint8_t *)to)[index] = (uint8_t)(whole)

/* Most numbers are small. Whether all are is seen first, so that they need not be looked at one by one. */
static inline void cut_some(const double *values, void *to, Py_ssize_t item, Py_ssize_t count)
{
    const uint64_t small = bits_of(0x1p31) - 1;
    uint64_t large = 0;
    for (Py_ssize_t index = 0; index < count; index++)
        large |= small - (bits_of(values[index]) & INT64_MAX);
    if (large >> 63)
        WRITE(modulo(values[index]));
    else
        WRITE((int64_t)(int32_t)values[index]);
}

static void cut_each(const double *values, void *to, Py_ssize_t item, Py_ssize_t count)
{
    /* Of each size, a loop that is made for it. */
    if (item == 8)
        cut_some(values, to, 8, count);
    else if (item == 4)
        cut_some(values, to, 4, count);
    else if (item == 2)
        cut_some(values, to, 2, count);
    else
        cut_some(values, to, 1, count);
}

static void cut_all(const void *from, int is_double, int bits, int is_signed, uint8_t *to, Py_ssize_t count)
{
    const Py_ssize_t item = bits < 8 ? 1 : bits / 8;
    double values[AT_ONCE];
    for (Py_ssize_t start = 0; start < count; start += AT_ONCE) {
        const Py_ssize_t some = count - start < AT_ONCE ? count - start : AT_ONCE;
        const double *doubles = values;
        if (is_double)
            doubles = (const double *)from + start;
        else
            for (Py_ssize_t index = 0; index < some; index++)
                values[index] = ((const float *)from)[start + index];
        cut_each(doubles, to + start * item, item, some);
    }
    if (bits < 8)
        for (Py_ssize_t index = 0; index < count; index++)
            to[index] = lowest(to[index], bits, is_signed);
}

PyDoc_STRVAR(cut_doc,
             "cut_off(source, code, bits, is_signed, target, /)\n--\n\n"
             "Write floats as integers of so many bits: without fractions, modulo 2**bits; of NaN and infinity, 0.\n\n"
             "The source is of a character of the struct module's: 'f' or 'd'. There are 1 to 8, 16, 32 or 64 bits. If\n"
             "there are less than eight, they are the lowest of a byte, with the sign.");

static PyObject *cut_off(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Pair pair;
    Py_UCS4 code;
    long bits, is_signed;

    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "cut_off takes 5 arguments");
        return NULL;
    }
    code = PyUnicode_ReadChar(arguments[1], 0);
    bits = PyLong_AsLong(arguments[2]);
    is_signed = PyObject_IsTrue(arguments[3]);
    if (PyErr_Occurred())
        return NULL;
    if ((code != 'f' && code != 'd') || bits < 1 || (bits > 8 && bits != 16 && bits != 32 && bits != 64)) {
        PyErr_SetString(PyExc_ValueError, "there is no such code, or no integer of so many bits");
        return NULL;
    }
    if (take(&pair, arguments[0], code == 'd' ? 8 : 4, arguments[4], bits < 8 ? 1 : bits / 8) < 0)
        return NULL;
    cut_all(pair.source.buf, code == 'd', (int)bits, (int)is_signed, pair.target.buf, pair.count);
    return give_back(&pair);
}

static PyMethodDef methods[] = {
    {"round_to_odd", (PyCFunction)(void (*)(void))round_to_odd, METH_FASTCALL, round_doc},
    {"cut_off", (PyCFunction)(void (*)(void))cut_off, METH_FASTCALL, cut_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensorferry.host._casts",
    .m_doc = "Casts of contiguous arrays: rounded once, and cut off.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__casts(void)
{
    return PyModuleDef_Init(&definition);
}

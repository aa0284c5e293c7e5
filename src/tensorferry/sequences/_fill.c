/* Python numbers, read out of nested lists and tuples into memory.

   Nothing is decided here: what is found is told, and whatever is in doubt is left to Python, as DOUBT.

   Only exact floats, ints, bools, complex numbers, lists and tuples are looked at, whose functions run no Python code,
   and the interpreter's lock is kept: so what is borrowed from a list stays. Where an exception is made, which may
   start a collection, and that anything, nothing that was borrowed is used any more. */

#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#define INLINE static inline __attribute__((always_inline))
#else
#define PREFETCH(address) ((void)(address))
#define INLINE static __forceinline
#endif

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

enum { DEEPEST = 64, AT_ONCE = 32 };

/* What elements are written as: a character of the struct module's, 'E' (bfloat16), two of them, or 0: they are only
   looked at. */
typedef struct {
    char code;
    char *to;
    Py_ssize_t depth;
    Py_ssize_t shape[DEEPEST];
    Py_ssize_t start, stop; /* along the first axis */
} Reader;

/* How floats, ints and lists lie in memory, if that is known: a call for each element takes longer than all the rest. It
   is not part of the stable ABI, so it is known of versions up to 3.14, and tried out in each process; else they are
   asked. */
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

INLINE int put(char **to, const void *value, size_t size)
{
    memcpy(*to, value, size);
    *to += size;
    return 0;
}

/* A float's upper half, as a double becomes one: by way of a float, each time rounded to even. */
INLINE uint16_t to_bfloat16(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

INLINE uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
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

static int read_some(char **to, char code, PyObject *const *elements, int count, Range *range)
{
    /* As the most frequent of all, in a loop that is made for it. */
    return code == 'd' ? read_each(to, 'd', elements, count, range) : read_each(to, code, elements, count, range);
}

/* As many floats, or ints, of which most lists are made: in loops of which the compiler does several steps at once. */
static int put_floats(char **to, char code, const double *values)
{
    const uint64_t largest = bits_of(FLT_MAX);
    int found = FLOAT, infinite = 0;
    uint64_t beyond = 0;
    float narrow[AT_ONCE];
    uint16_t halves[AT_ONCE];
    for (int index = 0; index < AT_ONCE; index++)
        beyond |= largest - (bits_of(values[index]) & INT64_MAX);
    if (beyond >> 63) {
        for (int index = 0; index < AT_ONCE; index++)
            found |= read_float(to, found & MISFIT ? 0 : code, values[index]);
        return found;
    }
    switch (code) {
    case 'd':
        return found | put(to, values, AT_ONCE * sizeof *values);
    case 'f':
        for (int index = 0; index < AT_ONCE; index++)
            narrow[index] = (float)values[index];
        return found | put(to, narrow, sizeof narrow);
    case 'E':
        for (int index = 0; index < AT_ONCE; index++)
            halves[index] = to_bfloat16(values[index]);
        break;
    case 'e':
        for (int index = 0; index < AT_ONCE; index++)
            halves[index] = to_float16(values[index]);
        break;
    default:
        for (int index = 0; code && index < AT_ONCE; index++)
            found |= put_float(to, code, values[index]);
        return found;
    }
    for (int index = 0; index < AT_ONCE; index++)
        infinite |= is_infinite(code, halves[index]);
    return found | (infinite ? MISFIT : put(to, halves, sizeof halves));
}

static int put_ints(char **to, char code, const int64_t *values, Range *range)
{
    int found = INT;
    int32_t narrow[AT_ONCE];
    int64_t low = INT64_MAX, high = INT64_MIN, every = 0, bits = 0;
    for (int index = 0; index < AT_ONCE; index++) {
        every |= values[index];
        bits |= values[index] ^ (values[index] >> 63);
    }
    if (bits >> 53) {
        for (int index = 0; index < AT_ONCE; index++) {
            low = values[index] < low ? values[index] : low;
            high = values[index] > high ? values[index] : high;
        }
    } else {
        /* Of as many bits as the least and the greatest, which is all that is asked of them. */
        low = every < 0 ? ~bits : 0;
        high = bits;
    }
    range->low = low < range->low ? low : range->low;
    range->high = high > range->high ? high : range->high;
    if (code == 'q')
        return found | put(to, values, AT_ONCE * sizeof *values);
    if (code == 'i' && bits <= INT32_MAX) {
        for (int index = 0; index < AT_ONCE; index++)
            narrow[index] = (int32_t)values[index];
        return found | put(to, narrow, sizeof narrow);
    }
    for (int index = 0; code && index < AT_ONCE; index++)
        found |= found & MISFIT ? 0 : put_int(to, code, values[index]);
    return found;
}

static int are_floats(PyObject *const *elements, double *values)
{
    PyTypeObject *const type = &PyFloat_Type;
    int index = 0;
    for (; index < AT_ONCE && Py_TYPE(elements[index]) == type; index++)
        memcpy(&values[index], (const char *)elements[index] + sizeof(PyObject), sizeof *values);
    return index == AT_ONCE;
}

static int are_short_ints(PyObject *const *elements, int64_t *values)
{
    PyTypeObject *const type = &PyLong_Type;
    const Layout layout = knows_ints;
    int index = 0;
    while (index < AT_ONCE && Py_TYPE(elements[index]) == type && short_int(layout, elements[index], &values[index]))
        index++;
    return index == AT_ONCE;
}

static int read_block(char **to, char code, PyObject *const *elements, Range *range)
{
    double floats[AT_ONCE];
    int64_t ints[AT_ONCE];
    if (knows_floats && are_floats(elements, floats))
        return put_floats(to, code, floats);
    if (knows_ints != UNKNOWN && are_short_ints(elements, ints))
        return put_ints(to, code, ints, range);
    return read_some(to, code, elements, AT_ONCE, range);
}

/* A row of elements. Those to come are asked for before they are read: they may lie anywhere in memory. */
static int read_row(Reader *reader, PyObject *row, int is_list, Py_ssize_t start, Py_ssize_t stop)
{
    PyObject *const *direct = is_list && knows_lists ? elements_of(row) : NULL, *elements[AT_ONCE];
    const char code = reader->code;
    char *to = reader->to;
    int found = 0;
    Range range = {INT64_MAX, INT64_MIN};
    if (direct != NULL)
        for (; stop - start >= 2 * AT_ONCE; start += AT_ONCE) {
            for (int index = AT_ONCE; index < 2 * AT_ONCE; index++) {
                /* Its type and its value, between which a line of the cache may end. */
                PREFETCH(direct[start + index]);
                PREFETCH((const char *)direct[start + index] + sizeof(PyObject));
            }
            found |= read_block(&to, found & MISFIT ? 0 : code, direct + start, &range);
            if (found < 0)
                return DOUBT;
        }
    for (; start < stop; start += AT_ONCE) {
        int count = (int)(stop - start < AT_ONCE ? stop - start : AT_ONCE);
        for (int index = 0; index < count; index++) {
            PyObject *element = direct    ? direct[start + index]
                                : is_list ? PyList_GetItem(row, start + index)
                                          : PyTuple_GetItem(row, start + index);
            if (element == NULL) {
                PyErr_Clear();
                return DOUBT;
            }
            PREFETCH(element);
            elements[index] = element;
        }
        found |= count == AT_ONCE ? read_block(&to, found & MISFIT ? 0 : code, elements, &range)
                                  : read_some(&to, found & MISFIT ? 0 : code, elements, count, &range);
        if (found < 0)
            return DOUBT;
    }
    reader->to = to;
    return found | found_in(&range);
}

static int read_rows(Reader *reader, PyObject *rows, Py_ssize_t level)
{
    int is_list = PyList_CheckExact(rows), found = 0;
    Py_ssize_t length = reader->shape[level], start = level ? 0 : reader->start, stop = level ? length : reader->stop;
    if (!is_list && !PyTuple_CheckExact(rows))
        return DOUBT;
    if ((is_list ? PyList_Size(rows) : PyTuple_Size(rows)) != length)
        return DOUBT;
    if (level + 1 == reader->depth)
        return read_row(reader, rows, is_list, start, stop);
    for (Py_ssize_t index = start; index < stop; index++) {
        PyObject *row = is_list ? PyList_GetItem(rows, index) : PyTuple_GetItem(rows, index);
        if (row == NULL) {
            PyErr_Clear();
            return DOUBT;
        }
        found |= read_rows(reader, row, level + 1);
        if (found < 0)
            return DOUBT;
        if (found & MISFIT)
            reader->code = 0;
    }
    return found;
}

static Py_ssize_t size_of(char code)
{
    switch (code) {
    case '?':
    case 'b':
    case 'B':
        return 1;
    case 'h':
    case 'H':
    case 'e':
    case 'E':
        return 2;
    case 'i':
    case 'I':
    case 'f':
        return 4;
    case 'q':
    case 'Q':
    case 'd':
    case 'F':
        return 8;
    case 'D':
        return 16;
    default:
        return 0;
    }
}

PyDoc_STRVAR(look_doc,
             "look(row, /)\n--\n\n"
             "Which numbers are in a list or a tuple, as flags; DOUBT if there is anything else in it.");

static PyObject *look(PyObject *Py_UNUSED(module), PyObject *row)
{
    Reader reader = {.depth = 1};
    int is_list = PyList_CheckExact(row);
    if (!is_list && !PyTuple_CheckExact(row))
        return PyLong_FromLong(DOUBT);
    reader.stop = reader.shape[0] = is_list ? PyList_Size(row) : PyTuple_Size(row);
    return PyLong_FromLong(read_rows(&reader, row, 0));
}

/* The lengths of all axes, and which part of the first is read; -1 and an exception if they are none. */
static int read_shape(Reader *reader, PyObject *const *arguments, Py_ssize_t count)
{
    reader->depth = PyTuple_Size(arguments[0]);
    if (reader->depth < 0)
        return -1;
    if (reader->depth < 1 || reader->depth > DEEPEST) {
        PyErr_SetString(PyExc_ValueError, "there are 1 to 64 axes");
        return -1;
    }
    for (Py_ssize_t level = 0; level < reader->depth; level++)
        reader->shape[level] = PyLong_AsSsize_t(PyTuple_GetItem(arguments[0], level));
    reader->start = count > 1 ? PyLong_AsSsize_t(arguments[1]) : 0;
    reader->stop = count > 1 ? PyLong_AsSsize_t(arguments[2]) : reader->shape[0];
    if (PyErr_Occurred())
        return -1;
    if (reader->start < 0 || reader->stop < reader->start || reader->stop > reader->shape[0]) {
        PyErr_SetString(PyExc_ValueError, "no such part of the first axis");
        return -1;
    }
    return 0;
}

/* Whether there is room for as many elements, axis by axis: no product of lengths can be too large for its type. */
static int has_room(const Reader *reader, Py_ssize_t room)
{
    Py_ssize_t length = reader->stop - reader->start, level = 0;
    int empty = 0;
    for (Py_ssize_t each = 1; each < reader->depth; each++)
        empty |= reader->shape[each] <= 0;
    if (empty || length == 0)
        return room == 0;
    while (room % length == 0 && room != 0) {
        room /= length;
        if (++level == reader->depth)
            return room == 1;
        length = reader->shape[level];
    }
    return 0;
}

PyDoc_STRVAR(fill_doc,
             "fill(memory, code, rows, shape=None, start=0, stop=shape[0], /)\n--\n\n"
             "Write the numbers of nested lists and tuples of a shape into memory, or those of a part of its first axis, as\n"
             "a character of the struct module's says, or 'E': bfloat16, or 'F' and 'D': complex numbers of two of 'f'\n"
             "and 'd'. Without a shape they are one row, as long as the memory has room for.\n\n"
             "Gives which numbers there are, as flags. With MISFIT among them, and as DOUBT, the memory does not hold them.");

static PyObject *fill(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    Reader reader = {.depth = 1};
    Py_ssize_t item = 0;
    Py_buffer memory;
    int found;

    if (count != 3 && count != 4 && count != 6) {
        PyErr_SetString(PyExc_TypeError, "fill takes 3, 4 or 6 arguments");
        return NULL;
    }
    if (PyUnicode_GetLength(arguments[1]) == 1) {
        Py_UCS4 code = PyUnicode_ReadChar(arguments[1], 0);
        reader.code = code < 128 ? (char)code : 0;
        item = size_of(reader.code);
    }
    if (item == 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "there is no such code");
        return NULL;
    }
    if (count > 3 && read_shape(&reader, arguments + 3, count - 3) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &memory, PyBUF_WRITABLE) < 0)
        return NULL;
    if (count == 3)
        reader.stop = reader.shape[0] = memory.len / item;
    if (memory.len % item || !has_room(&reader, memory.len / item)) {
        PyBuffer_Release(&memory);
        PyErr_SetString(PyExc_ValueError, "the memory has another size than the numbers");
        return NULL;
    }
    reader.to = memory.buf;
    found = read_rows(&reader, arguments[2], 0);
    PyBuffer_Release(&memory);
    return PyLong_FromLong(found);
}

static PyMethodDef methods[] = {
    {"look", look, METH_O, look_doc},
    {"fill", (PyCFunction)(void (*)(void))fill, METH_FASTCALL, fill_doc},
    {NULL, NULL, 0, NULL},
};

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

static int set_up(PyObject *Py_UNUSED(module))
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

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)set_up},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensorferry.sequences._fill",
    .m_doc = "Python numbers, read out of nested lists and tuples into memory.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__fill(void)
{
    return PyModuleDef_Init(&definition);
}

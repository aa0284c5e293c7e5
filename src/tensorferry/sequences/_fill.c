/* Python numbers, read out of nested lists and tuples into memory.

   Nothing is decided here: what is found is told, and whatever is in doubt is left to Python, as DOUBT.

   Only exact floats, ints, bools, complex numbers, lists and tuples are looked at, whose functions run no Python code,
   and the interpreter's lock is kept: so what is borrowed from a list stays. Where an exception is made, which may
   start a collection, and that anything, nothing that was borrowed is used any more. */

#include "_elements.h"

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

/* What a batch of nested lists is written into: each list is padded to the shape of the reader, whose first axis counts
   them. */
typedef struct {
    Reader reader;
    const char *value;
    Py_ssize_t item, axis;
    int left, is_zero;
    Py_ssize_t steps[DEEPEST];   /* elements from one place to the next along each axis */
    Py_ssize_t lengths[DEEPEST]; /* those of the list that is being read */
} Batch;

/* The lengths of a nested list along its first elements, and how deep it is; 0: it is no list, or nested too deep. */
static Py_ssize_t lengths_of(PyObject *list, Py_ssize_t *lengths)
{
    Py_ssize_t depth = 0;
    while (PyList_CheckExact(list)) {
        if (depth == DEEPEST - 1)
            return 0;
        lengths[depth] = PyList_Size(list);
        if (lengths[depth++] == 0)
            break;
        list = PyList_GetItem(list, 0);
        if (list == NULL) {
            PyErr_Clear();
            return 0;
        }
    }
    return depth;
}

static void put_values(Batch *batch, Py_ssize_t count)
{
    char *to = batch->reader.to;
    const size_t size = (size_t)(count * batch->item);
    size_t done = (size_t)batch->item;
    if (count == 0 || !batch->reader.code)
        return;
    batch->reader.to += size;
    if (batch->is_zero) {
        memset(to, 0, size);
        return;
    }
    memcpy(to, batch->value, done);
    for (size_t part; done < size; done += part) {
        part = size - done < done ? size - done : done;
        memcpy(to + done, to, part);
    }
}

/* The elements of a list, and the values before or behind them. */
static int read_padded(Batch *batch, PyObject *list, Py_ssize_t level)
{
    Reader *reader = &batch->reader;
    const Py_ssize_t length = batch->lengths[level - 1], missing = reader->shape[level] - length;
    const Py_ssize_t before = batch->left && level == batch->axis ? missing : 0;
    int found = 0;
    if (!PyList_CheckExact(list) || PyList_Size(list) != length)
        return DOUBT;
    put_values(batch, before * batch->steps[level]);
    if (level + 1 == reader->depth)
        found = read_row(reader, list, 1, 0, length);
    for (Py_ssize_t index = 0; level + 1 < reader->depth && index < length && found >= 0; index++) {
        PyObject *inner = PyList_GetItem(list, index);
        int seen = inner == NULL ? DOUBT : read_padded(batch, inner, level + 1);
        if (inner == NULL)
            PyErr_Clear();
        found = seen < 0 ? DOUBT : found | seen;
    }
    if (found < 0)
        return DOUBT;
    if (found & MISFIT)
        reader->code = 0;
    put_values(batch, (missing - before) * batch->steps[level]);
    return found;
}

static int read_batch(Batch *batch, PyObject *lists, char *mask, char *counts)
{
    const Reader *reader = &batch->reader;
    const Py_ssize_t whole = reader->shape[batch->axis];
    int found = 0;
    if (!PyList_CheckExact(lists) || PyList_Size(lists) != reader->shape[0])
        return DOUBT;
    for (Py_ssize_t index = 0; index < reader->shape[0]; index++) {
        PyObject *list = PyList_GetItem(lists, index);
        int64_t length;
        if (list == NULL || lengths_of(list, batch->lengths) != reader->depth - 1) {
            PyErr_Clear();
            return DOUBT;
        }
        for (Py_ssize_t level = 1; level < reader->depth; level++)
            if (batch->lengths[level - 1] > reader->shape[level])
                return DOUBT;
        length = batch->lengths[batch->axis - 1];
        if (counts != NULL)
            memcpy(counts + index * (Py_ssize_t)sizeof length, &length, sizeof length);
        if (mask != NULL) {
            char *row = mask + index * whole;
            memset(row, 0, (size_t)whole);
            memset(row + (batch->left ? whole - length : 0), 1, (size_t)length);
        }
        found |= read_padded(batch, list, 1);
        if (found < 0)
            return DOUBT;
    }
    return found;
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

/* As what elements are written, and the size of one; -1 and an exception if there is no such code. */
static int read_code(Reader *reader, Py_ssize_t *item, PyObject *argument)
{
    if (PyUnicode_GetLength(argument) == 1) {
        Py_UCS4 code = PyUnicode_ReadChar(argument, 0);
        reader->code = code < 128 ? (char)code : 0;
        *item = size_of(reader->code);
    }
    if (*item != 0)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "there is no such code");
    return -1;
}

static int has_rows(const Py_buffer *memory, Py_ssize_t count, Py_ssize_t size)
{
    return count == 0 || size == 0 ? memory->len == 0 : memory->len % count == 0 && memory->len / count == size;
}

static void release(Py_buffer *memory)
{
    if (memory->obj != NULL)
        PyBuffer_Release(memory);
}

static PyObject *lengths_as_tuple(const Py_ssize_t *lengths, Py_ssize_t count)
{
    PyObject *result = PyTuple_New(count);
    for (Py_ssize_t index = 0; result != NULL && index < count; index++) {
        PyObject *length = PyLong_FromSsize_t(lengths[index]);
        if (length == NULL || PyTuple_SetItem(result, index, length) < 0)
            Py_CLEAR(result);
    }
    return result;
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
    if (read_code(&reader, &item, arguments[1]) < 0)
        return NULL;
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

PyDoc_STRVAR(type_of_doc,
             "type_of(row, /)\n--\n\n"
             "The type that all elements of a list have; None if there are several, or none, or it is no list.");

static PyObject *type_of(PyObject *Py_UNUSED(module), PyObject *row)
{
    PyTypeObject *type = NULL;
    Py_ssize_t count = PyList_CheckExact(row) ? PyList_Size(row) : 0;
    PyObject *const *direct = knows_lists && count ? elements_of(row) : NULL;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *element = direct ? direct[index] : PyList_GetItem(row, index);
        if (element == NULL || (type != NULL && Py_TYPE(element) != type)) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        type = Py_TYPE(element);
    }
    return Py_NewRef(type == NULL ? Py_None : (PyObject *)type);
}

PyDoc_STRVAR(measure_doc,
             "measure(lists, /)\n--\n\n"
             "The greatest and the least length along each axis of the nested lists in a list, by their first elements; None\n"
             "if some are deeper than others, or are no lists.");

static PyObject *measure(PyObject *Py_UNUSED(module), PyObject *lists)
{
    Py_ssize_t high[DEEPEST], low[DEEPEST], lengths[DEEPEST], depth = 0, count = PyList_CheckExact(lists) ? PyList_Size(lists) : 0;
    PyObject *most, *least;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *list = PyList_GetItem(lists, index);
        Py_ssize_t found = list == NULL ? 0 : lengths_of(list, lengths);
        if (found == 0 || (index != 0 && found != depth)) {
            PyErr_Clear();
            Py_RETURN_NONE;
        }
        depth = found;
        for (Py_ssize_t level = 0; level < depth; level++) {
            high[level] = index == 0 || lengths[level] > high[level] ? lengths[level] : high[level];
            low[level] = index == 0 || lengths[level] < low[level] ? lengths[level] : low[level];
        }
    }
    if (depth == 0)
        Py_RETURN_NONE;
    most = lengths_as_tuple(high, depth);
    least = most == NULL ? NULL : lengths_as_tuple(low, depth);
    return Py_BuildValue("(NN)", most, least);
}

PyDoc_STRVAR(pad_doc,
             "pad(memory, code, lists, shape, axis, left, value, mask=None, lengths=None, /)\n--\n\n"
             "Write the numbers of the nested lists in a list into memory, as fill does, each padded with a value to a shape,\n"
             "whose first axis counts them. On one axis the value stands on the left, if so asked. For that axis may be\n"
             "written, too: a mask of bytes that are 1 where a list has elements, and its lengths, as 64-bit integers.\n\n"
             "Gives which numbers there are, as flags. With MISFIT among them, and as DOUBT, the memory does not hold them.");

static PyObject *pad(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    enum { MEMORY, CODE, LISTS, SHAPE, AXIS, LEFT, VALUE, MASK, LENGTHS, ALL };
    static const char zeros[16];
    Batch batch = {.axis = 0};
    Py_buffer memory = {.obj = NULL}, value = {.obj = NULL}, mask = {.obj = NULL}, lengths = {.obj = NULL};
    PyObject *result = NULL;

    if (count != ALL) {
        PyErr_SetString(PyExc_TypeError, "pad takes 9 arguments");
        return NULL;
    }
    if (read_code(&batch.reader, &batch.item, arguments[CODE]) < 0 || read_shape(&batch.reader, arguments + SHAPE, 1) < 0)
        return NULL;
    batch.axis = PyLong_AsSsize_t(arguments[AXIS]);
    batch.left = PyObject_IsTrue(arguments[LEFT]);
    if (PyErr_Occurred())
        return NULL;
    if (batch.axis < 1 || batch.axis >= batch.reader.depth) {
        PyErr_SetString(PyExc_ValueError, "no such axis of the lists");
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[MEMORY], &memory, PyBUF_WRITABLE) < 0 ||
        PyObject_GetBuffer(arguments[VALUE], &value, PyBUF_SIMPLE) < 0 ||
        (arguments[MASK] != Py_None && PyObject_GetBuffer(arguments[MASK], &mask, PyBUF_WRITABLE) < 0) ||
        (arguments[LENGTHS] != Py_None && PyObject_GetBuffer(arguments[LENGTHS], &lengths, PyBUF_WRITABLE) < 0))
        goto done;
    if (memory.len % batch.item || !has_room(&batch.reader, memory.len / batch.item) || value.len != batch.item ||
        (mask.obj != NULL && !has_rows(&mask, batch.reader.shape[0], batch.reader.shape[batch.axis])) ||
        (lengths.obj != NULL && !has_rows(&lengths, batch.reader.shape[0], (Py_ssize_t)sizeof(int64_t)))) {
        PyErr_SetString(PyExc_ValueError, "the memory has another size than the numbers");
        goto done;
    }
    batch.reader.to = memory.buf;
    batch.value = value.buf;
    batch.is_zero = memcmp(value.buf, zeros, (size_t)batch.item) == 0;
    /* Where there is no room, there may be no product of all lengths either. */
    for (Py_ssize_t level = batch.reader.depth - 1, step = memory.len != 0; level > 0; step *= batch.reader.shape[level--])
        batch.steps[level] = step;
    result = PyLong_FromLong(read_batch(&batch, arguments[LISTS], mask.buf, lengths.buf));
done:
    release(&memory);
    release(&value);
    release(&mask);
    release(&lengths);
    return result;
}

/* Whether two keys are surely the same: no code of a class decides it. */
static int is_same_key(PyObject *key, PyObject *other)
{
    if (key == other)
        return 1;
    if (Py_TYPE(key) != Py_TYPE(other))
        return 0;
    return (PyUnicode_CheckExact(key) || PyLong_CheckExact(key)) && PyObject_RichCompareBool(key, other, Py_EQ) == 1;
}

/* A column that is made: its list, and where its values go in it, if that is known. */
typedef struct {
    PyObject *list, **values;
} Column;

static void put_value(const Column *column, Py_ssize_t index, PyObject *value)
{
    if (column->values != NULL)
        column->values[index] = Py_NewRef(value);
    else
        PyList_SetItem(column->list, index, Py_NewRef(value));
}

/* Put a sample into the columns, at this index; 0 if it differs from the first. */
static int put_sample(PyObject *sample, PyObject *keys, const Column *columns, Py_ssize_t size, Py_ssize_t index)
{
    if (keys != NULL) {
        PyObject *key, *value;
        Py_ssize_t place = 0;
        if (PyDict_Size(sample) != size)
            return 0;
        for (Py_ssize_t column = 0; column < size; column++) {
            if (!PyDict_Next(sample, &place, &key, &value) || !is_same_key(key, PyTuple_GetItem(keys, column)))
                return 0;
            put_value(&columns[column], index, value);
        }
        return 1;
    }
    if (PyTuple_Check(sample)) {
        if (PyTuple_Size(sample) != size)
            return 0;
        for (Py_ssize_t column = 0; column < size; column++)
            put_value(&columns[column], index, PyTuple_GetItem(sample, column));
        return 1;
    }
    if (PyList_Size(sample) != size)
        return 0;
    for (Py_ssize_t column = 0; column < size; column++)
        put_value(&columns[column], index, PyList_GetItem(sample, column));
    return 1;
}

/* New lists for so many columns, in a list, and what is known of each; NULL and an exception if there is no memory. */
static PyObject *new_columns(Py_ssize_t size, Py_ssize_t count, Column **columns)
{
    PyObject *made = PyList_New(size);
    *columns = PyMem_Calloc((size_t)size + 1, sizeof **columns);
    if (*columns == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t column = 0; made != NULL && *columns != NULL && column < size; column++) {
        PyObject *list = PyList_New(count);
        if (list == NULL)
            break;
        PyList_SetItem(made, column, list);
        (*columns)[column] = (Column){list, knows_lists ? (PyObject **)elements_of(list) : NULL};
    }
    if (PyErr_Occurred())
        Py_CLEAR(made);
    return made;
}

PyDoc_STRVAR(apart_doc,
             "apart(samples, /)\n--\n\n"
             "The values of dicts, tuples or lists of one type: for each key or place, a list of the values of all. None if\n"
             "one has another type or length, or its keys are not surely those of the first, in its order.");

static PyObject *apart(PyObject *Py_UNUSED(module), PyObject *samples)
{
    Py_ssize_t count = PyList_CheckExact(samples) ? PyList_Size(samples) : 0, size, index = 0;
    PyObject *first = count ? PyList_GetItem(samples, 0) : NULL, *keys = NULL, *made;
    PyTypeObject *type;
    Column *columns;
    if (first == NULL || !(PyDict_Check(first) || PyTuple_Check(first) || PyList_Check(first)))
        Py_RETURN_NONE;
    type = Py_TYPE(first);
    size = PyDict_Check(first) ? PyDict_Size(first) : PyTuple_Check(first) ? PyTuple_Size(first) : PyList_Size(first);
    /* All is allocated before anything is read: an allocation may collect garbage, which runs code. */
    made = new_columns(size, count, &columns);
    if (made != NULL && PyDict_Check(first))
        keys = PySequence_Tuple(first);
    if (made != NULL && !PyErr_Occurred() && (keys == NULL || PyTuple_Size(keys) == size))
        for (; index < count && index < PyList_Size(samples); index++) {
            PyObject *sample = PyList_GetItem(samples, index);
            if (Py_TYPE(sample) != type || !put_sample(sample, keys, columns, size, index))
                break;
        }
    PyMem_Free(columns);
    Py_XDECREF(keys);
    if (made != NULL && index == count)
        return made;
    Py_XDECREF(made);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"apart", apart, METH_O, apart_doc},
    {"look", look, METH_O, look_doc},
    {"type_of", type_of, METH_O, type_of_doc},
    {"measure", measure, METH_O, measure_doc},
    {"pad", (PyCFunction)(void (*)(void))pad, METH_FASTCALL, pad_doc},
    {"fill", (PyCFunction)(void (*)(void))fill, METH_FASTCALL, fill_doc},
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *Py_UNUSED(module))
{
    return try_out_objects();
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

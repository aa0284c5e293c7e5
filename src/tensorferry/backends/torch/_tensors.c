/* What PyTorch tensors are, read through the C functions that DLPack defines.

   PyTorch has them from 2.10 on, in `Tensor.__dlpack_c_exchange_api__`
   (https://dmlc.github.io/dlpack/latest/python_spec.html). One call in C says what five attributes say in Python: dtype,
   shape, strides, address and device.

   Nothing is decided here. What a dtype means, and what is called for it, is given by the backend. Whatever is in doubt
   is left to a function in Python, which is given too, and works without this file.

   What DLPack says of a tensor is read before any Python code can run. After that, only its address is compared. */

#include "_reader.h"

enum { FEW = 16 };

/* -- one tensor --------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(signature_doc, "signature(x, /)\n--\n\nThe signature of a tensor, or None: see `Quick.signature`.");

static PyObject *signature(Reader *reader, PyObject *x)
{
    Key key;
    int found = is_ordinary_now(reader);
    if (found == 0)
        Py_RETURN_NONE;
    if (found > 0)
        found = key_of(reader, x, 63, &key);
    if (found < 0)
        return NULL;
    return found ? signature_of(reader, &key) : PyObject_CallFunctionObjArgs(reader->signature_otherwise, x, NULL);
}

/* NumPy's dtype for a row, which is looked up when the first of its tensors is read: ml_dtypes takes long to import. */
static PyObject *dtype_of(const Reader *reader, const Row *row)
{
    PyObject *found = PyDict_GetItemWithError(reader->found, row->of_numpy);
    if (found != NULL || PyErr_Occurred())
        return found;
    found = PyObject_CallFunctionObjArgs(reader->numpy_dtype, row->of_numpy, NULL);
    if (found == NULL || PyDict_SetItem(reader->found, row->of_numpy, found) < 0) {
        Py_XDECREF(found);
        return NULL;
    }
    Py_DECREF(found); /* the dict has it */
    return found;
}

/* An array over the memory of a tensor without a gradient; or None, if a tracer would record the view as integers. */
static PyObject *array_of(const Reader *reader, const Row *row, PyObject *x)
{
    PyObject *tracer, *integers, *found, *made, *dtype;
    if (row->as_integer == Py_None)
        return PyObject_CallFunctionObjArgs(reader->to_numpy, x, NULL);
    tracer = PyObject_CallNoArgs(reader->tracing);
    if (tracer == NULL)
        return NULL;
    Py_DECREF(tracer);
    if (tracer != Py_None)
        Py_RETURN_NONE;
    dtype = dtype_of(reader, row);
    if (dtype == NULL)
        return NULL;
    integers = PyObject_CallFunctionObjArgs(reader->view, x, row->as_integer, NULL);
    found = integers == NULL ? NULL : PyObject_CallFunctionObjArgs(reader->to_numpy, integers, NULL);
    made = found == NULL ? NULL : PyObject_CallFunctionObjArgs(reader->view_as, found, dtype, NULL);
    Py_XDECREF(integers);
    Py_XDECREF(found);
    return made;
}

PyDoc_STRVAR(array_doc,
             "array(x, /)\n--\n\n"
             "An array over the memory of a tensor, read-only if it requires grad; or None. An exception of the\n"
             "framework's own function is raised.");

static PyObject *array(Reader *reader, PyObject *x)
{
    Seen seen;
    PyObject *made, *done, *source = x;
    uintptr_t address;
    int found = see(reader, x, &seen, 1), recorded;
    if (found < 0)
        return NULL;
    if (found == 0 || seen.layout == OTHER || seen.tensor.device.type != HOST)
        return PyObject_CallFunctionObjArgs(reader->array_otherwise, x, NULL);
    recorded = is_true(PyObject_GetAttr(x, reader->requires_grad));
    if (recorded < 0)
        return NULL;
    /* Like `detach`, but without the version counter, which an array does not need, in half the time. */
    source = recorded ? PyObject_GetAttr(x, reader->data) : Py_NewRef(x);
    if (source == NULL)
        return NULL;
    made = array_of(reader, seen.row, source);
    Py_DECREF(source);
    if (made == NULL || (PyObject *)Py_TYPE(made) != reader->array_type)
        return made;
    /* Under some modes it gives an array of its own, with values that were never set. */
    memcpy(&address, (const char *)made + reader->header, sizeof address);
    if (address != seen.address) {
        Py_DECREF(made);
        Py_RETURN_NONE;
    }
    if (!recorded)
        return made;
    done = PyObject_CallFunctionObjArgs(reader->set_flags, made, Py_False, NULL);
    if (done == NULL)
        Py_CLEAR(made);
    Py_XDECREF(done);
    return made;
}

/* Whether float operations on this thread treat the smallest floats as zero. */
static int are_flushed(void)
{
    volatile double smallest = 5e-324;
    return smallest * 1.0 == 0.0;
}

PyDoc_STRVAR(numbers_doc,
             "numbers(x, /)\n--\n\n"
             "The numbers of a tensor on the host, as `Tensor.tolist` gives them; or None. An exception of this is raised.");

static PyObject *numbers(Reader *reader, PyObject *x)
{
    Seen seen;
    int found = see(reader, x, &seen, 0);
    if (found > 0 && (seen.tensor.device.type != HOST || !seen.row->is_listed || are_flushed()))
        found = 0;
    if (found > 0) {
        const int modes = is_true(PyObject_CallNoArgs(reader->modes));
        found = modes < 0 ? -1 : !modes;
    }
    if (found < 0)
        return NULL;
    return found ? PyObject_CallFunctionObjArgs(reader->to_list, x, NULL) : Py_NewRef(Py_None);
}

PyDoc_STRVAR(environment_doc, "environment()\n--\n\nWhat the functions `settings` give: see `Quick.environment`.");

static PyObject *environment(Reader *reader, PyObject *Py_UNUSED(none))
{
    const Py_ssize_t count = PyTuple_Size(reader->settings);
    PyObject *found = PyTuple_New(count);
    for (Py_ssize_t index = 0; found != NULL && index < count; index++) {
        PyObject *setting = PyObject_CallNoArgs(PyTuple_GetItem(reader->settings, index));
        if (setting == NULL)
            Py_CLEAR(found);
        else
            PyTuple_SetItem(found, index, setting);
    }
    return found;
}

/* -- many tensors ------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(alike_doc,
             "alike(tensors, /)\n--\n\n"
             "The dtype of all tensors of a list, if each has memory of its own kind; else None. Devices and shapes may\n"
             "differ.");

static PyObject *alike(Reader *reader, PyObject *list)
{
    PyObject *tensors = PySequence_Tuple(list);
    const Py_ssize_t count = tensors == NULL ? 0 : PyTuple_Size(tensors);
    const Row *row = NULL;
    int found = tensors == NULL ? -1 : 1;
    for (Py_ssize_t index = 0; found > 0 && index < count; index++) {
        Seen seen;
        PyObject *x = PyTuple_GetItem(tensors, index);
        found = is_of_a_kind(reader, x) ? see(reader, x, &seen, 0) : 0;
        if (found > 0 && index > 0 && seen.row != row)
            found = 0;
        row = found > 0 ? seen.row : NULL;
    }
    Py_XDECREF(tensors);
    if (found < 0)
        return NULL;
    return Py_NewRef(row == NULL ? Py_None : row->named);
}

PyDoc_STRVAR(together_doc,
             "together(tensors, /)\n--\n\n"
             "The signature that all tensors of a list have, which are of equal shapes; or None: see\n"
             "`Quick.signature_together`.");

static PyObject *together(Reader *reader, PyObject *list)
{
    PyObject *tensors, *made = NULL;
    Key first, key;
    Shape shape;
    Seen seen;
    int found = is_ordinary_now(reader);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    tensors = PySequence_Tuple(list);
    if (tensors == NULL)
        return NULL;
    memset(&key, 0, sizeof key); /* it is compared as bytes */
    memset(&first, 0, sizeof first);
    for (Py_ssize_t index = 0; found > 0 && index < PyTuple_Size(tensors); index++) {
        PyObject *x = PyTuple_GetItem(tensors, index);
        found = look(reader, x, 0, &key, &seen);
        if (found > 0)
            found = index == 0 ? shape_of(&seen.tensor, &shape) : has_shape(&seen.tensor, &shape);
        if (found > 0)
            found = ask(reader, x, &key);
        if (found > 0 && index == 0)
            first = key;
        else if (found > 0)
            found = !memcmp(&first, &key, sizeof key);
    }
    if (found > 0)
        made = PyTuple_Size(tensors) > 0 ? signature_of(reader, &first) : Py_NewRef(Py_None);
    Py_DECREF(tensors);
    return found == 0 ? Py_NewRef(Py_None) : made;
}

/* Whether all objects of a tuple are tensors whose bits are their values: 1, 0, or -1 and an exception. */
static int are_plain(const Reader *reader, PyObject *tensors, const Row *row)
{
    for (Py_ssize_t index = 0; index < PyTuple_Size(tensors); index++) {
        PyObject *x = PyTuple_GetItem(tensors, index);
        int negative = 0;
        if (!is_of_a_kind(reader, x))
            return 0;
        if (row->may_be_negative)
            negative = is_true(PyObject_CallFunctionObjArgs(reader->is_negative, x, NULL));
        if (negative)
            return negative < 0 ? -1 : 0;
    }
    return 1;
}

/* Copy tensors of one dtype and shape one after the other: 1, 0 if one is in doubt, or -1 and an exception.

   No other code runs between the look at a tensor and its copy, so that its memory is there. */
static int copy_all(Reader *reader, PyObject *tensors, const Row *row, const Shape *shape, char *to, size_t length)
{
    const size_t size = length / (size_t)PyTuple_Size(tensors);
    for (Py_ssize_t index = 0; index < PyTuple_Size(tensors); index++) {
        Seen seen;
        int found = see_now(reader, PyTuple_GetItem(tensors, index), &seen);
        if (found <= 0)
            return found;
        if (seen.row != row || seen.layout != COMPACT || seen.tensor.device.type != HOST ||
            !has_shape(&seen.tensor, shape))
            return 0;
        memcpy(to + (size_t)index * size, (const void *)seen.address, size);
    }
    return 1;
}

/* A new array for so many tensors of a shape. */
static PyObject *new_array(const Reader *reader, Py_ssize_t count, const Shape *shape, const Row *row)
{
    PyObject *lengths = PyTuple_New(shape->rank + 1), *made;
    for (int32_t axis = 0; lengths != NULL && axis <= shape->rank; axis++) {
        PyObject *length = PyLong_FromLongLong(axis == 0 ? count : shape->lengths[axis - 1]);
        if (length == NULL)
            Py_CLEAR(lengths);
        else
            PyTuple_SetItem(lengths, axis, length);
    }
    if (lengths == NULL)
        return NULL;
    made = PyObject_CallFunctionObjArgs(reader->allocate, lengths, row->named, NULL);
    Py_DECREF(lengths);
    return made;
}

PyDoc_STRVAR(join_doc,
             "join(tensors, /)\n--\n\n"
             "A new array with the values of the tensors of a list; or None, if they are not all of one dtype and shape, in\n"
             "host memory without gaps.");

static PyObject *join(Reader *reader, PyObject *list)
{
    PyObject *tensors, *made = NULL;
    Py_buffer written;
    Shape shape;
    Seen seen;
    Py_ssize_t count;
    int found = is_ordinary_now(reader);
    if (found <= 0)
        return found < 0 ? NULL : Py_NewRef(Py_None);
    tensors = PySequence_Tuple(list);
    if (tensors == NULL)
        return NULL;
    count = PyTuple_Size(tensors);
    found = count > 0 && is_of_a_kind(reader, PyTuple_GetItem(tensors, 0));
    if (found > 0)
        found = see_now(reader, PyTuple_GetItem(tensors, 0), &seen);
    if (found > 0)
        found = seen.row->has_signature && seen.layout == COMPACT && shape_of(&seen.tensor, &shape);
    if (found > 0)
        found = are_plain(reader, tensors, seen.row);
    if (found > 0) {
        made = new_array(reader, count, &shape, seen.row);
        found = made == NULL || PyObject_GetBuffer(made, &written, PyBUF_WRITABLE) < 0 ? -1 : 1;
        if (found > 0) {
            size_t size = (size_t)count * seen.row->dtype.bits / 8;
            for (int32_t axis = 0; axis < shape.rank; axis++)
                size *= (size_t)shape.lengths[axis];
            found = size == (size_t)written.len;
            if (found)
                found = copy_all(reader, tensors, seen.row, &shape, written.buf, size);
            PyBuffer_Release(&written);
        }
    }
    Py_DECREF(tensors);
    if (found > 0)
        return made;
    Py_XDECREF(made);
    return found < 0 ? NULL : Py_NewRef(Py_None);
}

/* The list of positions for a signature, which takes the reference to the signature; borrowed. */
static PyObject *places_of(PyObject *found, PyObject *made)
{
    PyObject *places = made == NULL ? NULL : PyDict_GetItemWithError(found, made);
    if (places == NULL && made != NULL && !PyErr_Occurred()) {
        places = PyList_New(0);
        if (places != NULL && PyDict_SetItem(found, made, places) < 0)
            Py_CLEAR(places);
        else
            Py_XDECREF(places); /* the dict has it */
    }
    Py_XDECREF(made);
    return places;
}

static int append(PyObject *places, Py_ssize_t index)
{
    PyObject *number = PyLong_FromSsize_t(index);
    int done = number == NULL ? -1 : PyList_Append(places, number);
    Py_XDECREF(number);
    return done;
}

/* The positions of tensors by their signatures: 1, 0 if one has none, or -1 and an exception. */
static int group(Reader *reader, PyObject *tensors, uintptr_t mask, PyObject *found)
{
    Key keys[FEW];
    PyObject *known[FEW], *places;
    int count = 0, at = 0;
    for (Py_ssize_t index = 0; index < PyTuple_Size(tensors); index++) {
        PyObject *x = PyTuple_GetItem(tensors, index);
        Key key;
        int seen;
        memset(&key, 0, sizeof key); /* it is compared as bytes */
        seen = key_of(reader, x, mask, &key);
        if (seen < 0)
            return -1;
        if (seen == 0) {
            PyObject *made = PyObject_CallFunctionObjArgs(reader->signature_otherwise, x, NULL);
            if (made == Py_None) {
                Py_DECREF(made);
                return 0;
            }
            places = places_of(found, made);
        } else {
            /* Most are like the one before. */
            for (int tried = 0; tried < count && memcmp(&keys[at], &key, sizeof key); tried++)
                at = tried;
            if (count == 0 || memcmp(&keys[at], &key, sizeof key)) {
                places = places_of(found, signature_of(reader, &key));
                if (count < FEW) {
                    at = count++;
                    keys[at] = key;
                    known[at] = places;
                }
            } else
                places = known[at];
        }
        if (places == NULL || append(places, index) < 0)
            return -1;
    }
    return 1;
}

/* The tensors and the mask of what counts of their addresses, which are given as a list and a power of two: a new tuple.
   NULL without an exception if a mode changes what tensors are. */
static PyObject *read_modulo(const Reader *reader, PyObject *const *arguments, Py_ssize_t count, uintptr_t *mask)
{
    size_t modulo;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "there are 2 arguments");
        return NULL;
    }
    if (is_ordinary_now(reader) <= 0)
        return NULL;
    modulo = PyLong_AsSize_t(arguments[1]);
    if (PyErr_Occurred())
        return NULL;
    *mask = modulo - 1;
    return PySequence_Tuple(arguments[0]);
}

static PyObject *none_or_raised(void)
{
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(grouped_doc,
             "grouped(tensors, modulo, /)\n--\n\n"
             "The positions of the tensors of a list by their signatures, in which addresses count modulo a power of two;\n"
             "or None: see `Quick.grouped`.");

static PyObject *grouped(Reader *reader, PyObject *const *arguments, Py_ssize_t count)
{
    uintptr_t mask;
    PyObject *tensors = read_modulo(reader, arguments, count, &mask), *found;
    int done;
    if (tensors == NULL)
        return none_or_raised();
    found = PyDict_New();
    done = found == NULL ? -1 : group(reader, tensors, mask, found);
    Py_DECREF(tensors);
    if (done > 0)
        return found;
    Py_XDECREF(found);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(signatures_doc,
             "signatures(tensors, modulo, /)\n--\n\n"
             "Bytes that are equal only for as many tensors with the same signatures in the same order, in which addresses\n"
             "count modulo a power of two; or None, if one is in doubt.");

static PyObject *signatures(Reader *reader, PyObject *const *arguments, Py_ssize_t count)
{
    uintptr_t mask;
    PyObject *tensors = read_modulo(reader, arguments, count, &mask), *made = NULL;
    int done = 1;
    Key *keys;
    if (tensors == NULL)
        return none_or_raised();
    count = PyTuple_Size(tensors);
    keys = PyMem_Calloc((size_t)count + 1, sizeof *keys); /* they are compared as bytes */
    if (keys == NULL) {
        Py_DECREF(tensors);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t index = 0; done > 0 && index < count; index++)
        done = key_of(reader, PyTuple_GetItem(tensors, index), mask, &keys[index]);
    Py_DECREF(tensors);
    if (done >= 0)
        made = done > 0 ? PyBytes_FromStringAndSize((const char *)keys, count * (Py_ssize_t)sizeof *keys) : Py_NewRef(Py_None);
    PyMem_Free(keys);
    return made;
}

/* Where the bytes of a tensor begin, and where they end. A tensor without gaps may have no strides. */
static void extent_of(const Seen *seen, uint64_t *start, uint64_t *end)
{
    const Tensor *tensor = &seen->tensor;
    uint64_t elements = 1, last = 0;
    for (int32_t axis = 0; axis < tensor->ndim; axis++) {
        elements *= (uint64_t)tensor->shape[axis];
        if (tensor->strides != NULL && tensor->shape[axis] > 1)
            last += (uint64_t)(tensor->shape[axis] - 1) * (uint64_t)tensor->strides[axis];
    }
    if (elements > 0 && tensor->strides != NULL)
        elements = last + 1;
    *start = (uint64_t)seen->address;
    *end = *start + elements * (tensor->dtype.bits / 8);
}

PyDoc_STRVAR(extents_doc,
             "extents(tensors, /)\n--\n\n"
             "The addresses of the first bytes of the tensors of a list, then those of the bytes after their last ones, each in\n"
             "eight bytes; or None, if one is in doubt.");

static PyObject *extents(Reader *reader, PyObject *list)
{
    PyObject *tensors = PySequence_Tuple(list), *made;
    const Py_ssize_t count = tensors == NULL ? 0 : PyTuple_Size(tensors);
    uint64_t *found;
    int seen = 1;
    if (tensors == NULL)
        return NULL;
    found = PyMem_Calloc(2 * (size_t)count + 1, sizeof *found);
    if (found == NULL) {
        Py_DECREF(tensors);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t index = 0; seen > 0 && index < count; index++) {
        Seen each;
        PyObject *x = PyTuple_GetItem(tensors, index);
        seen = is_of_a_kind(reader, x) && is_seen(reader, x, &each, 0);
        if (seen > 0)
            extent_of(&each, &found[index], &found[count + index]);
    }
    Py_DECREF(tensors);
    made = seen > 0 ? PyBytes_FromStringAndSize((const char *)found, 2 * count * (Py_ssize_t)sizeof *found)
                    : Py_NewRef(Py_None);
    PyMem_Free(found);
    return made;
}

/* -- the type ----------------------------------------------------------------------------------------------------- */

static void deallocate(PyObject *self)
{
    Reader *reader = (Reader *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(reader->given);
    Py_XDECREF(reader->found);
    Py_XDECREF(reader->level);
    Py_XDECREF(reader->dtype);
    Py_XDECREF(reader->requires_grad);
    Py_XDECREF(reader->data);
    release(self);
    Py_DECREF(type);
}

/* -1 and an exception if there are no such functions, or too many dtypes. */
static int read_arguments(Reader *reader, PyObject *arguments)
{
    static char *names[] = {"exchange", "rows", "kinds", "settings", "modes", "forward", "is_negative", "has_address", "array_type", "set_flags",
                            "compact", "tracing", "view", "to_numpy", "to_list", "view_as", "numpy_dtype", "allocate", "signature", "array", "lowest", "header", NULL};
    PyObject *capsule, *rows;
    Py_ssize_t lowest, header;
    if (!PyArg_ParseTupleAndKeywords(arguments, reader->given, "$OO!(OO)O!OOOOOOOOOOOOOOOOnn", names, &capsule, &PyTuple_Type, &rows,
                                     &reader->kinds[0], &reader->kinds[1], &PyTuple_Type, &reader->settings, &reader->modes, &reader->forward,
                                     &reader->is_negative, &reader->has_address, &reader->array_type, &reader->set_flags, &reader->compact,
                                     &reader->tracing, &reader->view, &reader->to_numpy, &reader->to_list, &reader->view_as, &reader->numpy_dtype, &reader->allocate,
                                     &reader->signature_otherwise,
                                     &reader->array_otherwise, &lowest, &header))
        return -1;
    reader->lowest = (uintptr_t)lowest;
    reader->header = (size_t)header;
    reader->exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (reader->exchange == NULL)
        return -1;
    if (reader->exchange->version.major != MAJOR || reader->exchange->describe == NULL) {
        PyErr_SetString(PyExc_ValueError, "these functions are of another version, or describe no tensors");
        return -1;
    }
    if (PyTuple_Size(rows) > MOST_ROWS) {
        PyErr_SetString(PyExc_ValueError, "there are too many dtypes");
        return -1;
    }
    while (reader->count < PyTuple_Size(rows)) {
        Row *row = &reader->rows[reader->count];
        if (!PyArg_ParseTuple(PyTuple_GetItem(rows, reader->count), "bbOOOpppp", &row->dtype.code, &row->dtype.bits,
                              &row->named, &row->as_integer, &row->of_numpy, &row->is_ambiguous, &row->has_signature,
                              &row->may_be_negative, &row->is_listed))
            return -1;
        row->dtype.lanes = 1;
        reader->count++;
    }
    reader->level = PyUnicode_InternFromString("_current_level");
    reader->dtype = PyUnicode_InternFromString("dtype");
    reader->requires_grad = PyUnicode_InternFromString("requires_grad");
    reader->data = PyUnicode_InternFromString("data");
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Reader *reader = (Reader *)allocate(type, 0); /* all zeros */
    if (reader == NULL)
        return NULL;
    reader->found = PyDict_New();
    reader->given = keywords == NULL ? PyDict_New() : PyDict_Copy(keywords);
    if (reader->given == NULL || reader->found == NULL || read_arguments(reader, arguments) < 0) {
        Py_DECREF((PyObject *)reader);
        return NULL;
    }
    return (PyObject *)reader;
}

static PyMethodDef methods[] = {
    {"signature", (PyCFunction)signature, METH_O, signature_doc},
    {"array", (PyCFunction)array, METH_O, array_doc},
    {"numbers", (PyCFunction)numbers, METH_O, numbers_doc},
    {"environment", (PyCFunction)environment, METH_NOARGS, environment_doc},
    {"alike", (PyCFunction)alike, METH_O, alike_doc},
    {"together", (PyCFunction)together, METH_O, together_doc},
    {"join", (PyCFunction)join, METH_O, join_doc},
    {"grouped", (PyCFunction)(void (*)(void))grouped, METH_FASTCALL, grouped_doc},
    {"signatures", (PyCFunction)(void (*)(void))signatures, METH_FASTCALL, signatures_doc},
    {"extents", (PyCFunction)extents, METH_O, extents_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(reader_doc,
             "Reader(*, exchange, rows, kinds, settings, modes, forward, is_negative, has_address, array_type, set_flags, compact,\n"
             "       tracing, view, to_numpy, to_list, view_as, numpy_dtype, allocate, signature, array,\n"
             "       lowest, header)\n--\n\n"
             "Reads tensors of some types.\n\n"
             "exchange: Tensor.__dlpack_c_exchange_api__.\n"
             "rows: For each dtype a tuple: DLPack's code and bits, the dtype, the dtype of integers as which NumPy gets it\n"
             "    and the name of the dtype that NumPy gives these (or None twice), whether other dtypes have this code too, whether\n"
             "    its tensors have signatures, whether they may have a negative bit, whether `to_list` gives its numbers.\n"
             "kinds: The two types.\n"
             "settings: Functions of settings that change what PyTorch can do.\n"
             "modes: A function that says whether a mode is active.\n"
             "forward: torch.autograd.forward_ad.\n"
             "is_negative: Tensor.is_neg.\n"
             "has_address: A function that says whether a tensor is strided, of a known dtype, and on the host.\n"
             "array_type: numpy.ndarray.\n"
             "set_flags: ndarray.setflags.\n"
             "compact: What a signature calls the layout of a compact tensor.\n"
             "tracing: A function that gives the tracer that records now, or None.\n"
             "view, to_numpy, to_list: Tensor.view, Tensor.numpy and Tensor.tolist.\n"
             "view_as: A method of arrays that views them as another dtype.\n"
             "numpy_dtype: The function that gives NumPy's dtype for a name.\n"
             "allocate: The function that gives a new array of a shape, for a dtype of PyTorch.\n"
             "signature: The function that reads the signatures of all others.\n"
             "array: The function that makes arrays of all others.\n"
             "lowest: No memory has a lower address.\n"
             "header: Where in an array its address is.");

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, (void *)reader_doc},
    {Py_tp_new, (void *)make},
    {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    .name = "tensorferry.backends.torch._tensors.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reader_slots,
};

static int set_up(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&reader_spec);
    int done = type == NULL ? -1 : PyModule_AddObjectRef(module, "Reader", type);
    Py_XDECREF(type);
    return done;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)set_up},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensorferry.backends.torch._tensors",
    .m_doc = "What PyTorch tensors are, read through the C functions that DLPack defines.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__tensors(void)
{
    return PyModuleDef_Init(&definition);
}

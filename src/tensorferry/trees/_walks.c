/* Trees of a known structure: the next one is taken apart into its leaves, and made again from others.

   Nothing is decided here. Which containers there are, how each is opened and made, and of which types the leaves are,
   is given as plain data. A tree that is otherwise in anything is another structure, of which Python makes a program.
   What is no dict, list or tuple of Python is opened and made by the functions that are given for it.

   While Python code runs, nothing is read that it could change: values are held, lists are copied before one of theirs is
   opened. What is taken apart stays in memory of C until all of it is there. */

#include "_looks.h"

/* How objects of a type are opened and made: by functions; as a dict, list or tuple; as a tuple whose type is called. */
enum { BY_FUNCTIONS, AS_DICT, AS_LIST, AS_TUPLE, AS_NAMED, WAYS };

typedef struct {
    PyTypeObject *kind;
    int way;
    Py_ssize_t size, inner;
    Py_ssize_t *places; /* of the containers inside it, in order */
    PyObject *opened, *made, *owner;
} Row;

typedef struct {
    PyObject ob_base;
    PyObject *rows, *kinds, *not_made; /* whatever the rest refers to */
    PyObject *dtype;                   /* the name of the attribute */
    Py_ssize_t containers, leaves;
    Row *each;
    Py_ssize_t *places;
    PyTypeObject **types;
} Walk;

/* -- take apart --------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject **leaves, **kept;
    uintptr_t *met;
    Py_ssize_t leaf, container;
} Taken;

static int take(const Walk *walk, Taken *taken, PyObject *x);

/* The value at a position of a container, whose next container inside is at `*inner`: 1, 0 if it is of another structure,
   or -1 and an exception. */
static int take_value(const Walk *walk, Taken *taken, const Row *row, Py_ssize_t at, Py_ssize_t *inner, PyObject *value)
{
    if (*inner < row->inner && row->places[*inner] == at) {
        ++*inner;
        return take(walk, taken, value);
    }
    taken->leaves[taken->leaf++] = Py_NewRef(value);
    return 1;
}

static int take_dict(const Walk *walk, Taken *taken, const Row *row, PyObject *copy)
{
    Py_ssize_t position = 0, at = 0, inner = 0;
    PyObject *key, *value;
    int done = PyDict_Size(copy) == row->size;
    while (done > 0 && PyDict_Next(copy, &position, &key, &value)) {
        if (at == row->size)
            return 0;
        Py_INCREF(value);
        done = take_value(walk, taken, row, at++, &inner, value);
        Py_DECREF(value);
    }
    return done > 0 ? at == row->size : done;
}

static int take_tuple(const Walk *walk, Taken *taken, const Row *row, PyObject *tuple)
{
    Py_ssize_t inner = 0;
    int done = PyTuple_Size(tuple) == row->size;
    for (Py_ssize_t at = 0; done > 0 && at < row->size; at++)
        done = take_value(walk, taken, row, at, &inner, PyTuple_GetItem(tuple, at));
    return done;
}

static int take_list(const Walk *walk, Taken *taken, const Row *row, PyObject *list)
{
    PyObject *tuple;
    int done;
    if (PyList_Size(list) != row->size)
        return 0;
    if (row->inner == 0) {
        for (Py_ssize_t at = 0; at < row->size; at++)
            taken->leaves[taken->leaf++] = Py_NewRef(PyList_GetItem(list, at));
        return 1;
    }
    tuple = PyList_AsTuple(list);
    if (tuple == NULL)
        return -1;
    done = take_tuple(walk, taken, row, tuple);
    Py_DECREF(tuple);
    return done;
}

/* As `Opening.open` says: what it is made again from goes to `*whole`. */
static int take_opened(const Walk *walk, Taken *taken, const Row *row, PyObject *x, PyObject **whole)
{
    PyObject *opened = PyObject_CallFunctionObjArgs(row->opened, x, NULL), *values;
    int done;
    if (opened == NULL || opened == Py_None) {
        Py_XDECREF(opened);
        return opened == NULL ? -1 : 0;
    }
    if (!PyTuple_Check(opened) || PyTuple_Size(opened) != 2) {
        Py_DECREF(opened);
        PyErr_SetString(PyExc_TypeError, "an opened container is a pair");
        return -1;
    }
    *whole = Py_NewRef(PyTuple_GetItem(opened, 0));
    values = PySequence_Tuple(PyTuple_GetItem(opened, 1));
    Py_DECREF(opened);
    if (values == NULL)
        return -1;
    done = take_tuple(walk, taken, row, values);
    Py_DECREF(values);
    return done;
}

/* A container, and those inside it: 1, 0 if it is of another structure, or -1 and an exception. */
static int take(const Walk *walk, Taken *taken, PyObject *x)
{
    const Py_ssize_t number = taken->container;
    const Row *row = &walk->each[number];
    int done = -1;
    if (Py_TYPE(x) != row->kind)
        return 0;
    taken->met[number] = (uintptr_t)x;
    taken->container++;
    if (Py_EnterRecursiveCall(" in a tree"))
        return -1;
    if (row->way == AS_DICT) {
        PyObject *copy = taken->kept[number] = PyDict_Copy(x);
        done = copy == NULL ? -1 : take_dict(walk, taken, row, copy);
    } else if (row->way == BY_FUNCTIONS)
        done = take_opened(walk, taken, row, x, &taken->kept[number]);
    else {
        taken->kept[number] = Py_NewRef(Py_None);
        done = row->way == AS_LIST ? take_list(walk, taken, row, x) : take_tuple(walk, taken, row, x);
    }
    Py_LeaveRecursiveCall();
    return done;
}

static void drop(PyObject **objects, Py_ssize_t count)
{
    for (Py_ssize_t index = 0; index < count; index++)
        Py_XDECREF(objects[index]);
}

/* A list that takes the references to objects. */
static PyObject *list_of(PyObject **objects, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    if (list == NULL) {
        drop(objects, count);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < count; index++)
        PyList_SetItem(list, index, objects[index]);
    return list;
}

static PyObject *numbers_of(const uintptr_t *numbers, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t index = 0; list != NULL && index < count; index++) {
        PyObject *number = PyLong_FromSize_t(numbers[index]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, index, number);
    }
    return list;
}

/* The lists of leaves and of what containers are made from, the addresses of these if some recur, and what else there is. */
static PyObject *given_back(const Walk *walk, Taken *taken, PyObject *made)
{
    const int apart = are_apart(taken->met, walk->containers);
    PyObject *leaves, *kept, *met = NULL;
    if (apart == 0)
        met = numbers_of(taken->met, walk->containers);
    else if (apart > 0)
        met = Py_NewRef(Py_None);
    leaves = list_of(taken->leaves, walk->leaves);
    kept = list_of(taken->kept, walk->containers);
    if (leaves == NULL || kept == NULL || met == NULL) {
        Py_XDECREF(leaves);
        Py_XDECREF(kept);
        Py_XDECREF(met);
        Py_XDECREF(made);
        return NULL;
    }
    if (made == NULL)
        return Py_BuildValue("(NNN)", leaves, kept, met);
    return Py_BuildValue("(NNNN)", leaves, kept, met, made);
}

/* Take a tree apart: 1; 0 if it is of another structure, and -1 and an exception, where nothing is left to drop. */
static int take_all(const Walk *walk, PyObject *tree, int with_types, Taken *taken)
{
    const size_t count = (size_t)(walk->leaves + 2 * walk->containers);
    PyObject **memory = PyMem_Calloc(count + 1, sizeof *memory);
    int done = 1;
    if (memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *taken = (Taken){memory, memory + walk->leaves, (uintptr_t *)(memory + walk->leaves + walk->containers), 0, 0};
    if (walk->containers == 0)
        taken->leaves[taken->leaf++] = Py_NewRef(tree);
    else
        done = take(walk, taken, tree);
    for (Py_ssize_t index = 0; done > 0 && with_types && index < walk->leaves; index++)
        done = Py_TYPE(taken->leaves[index]) == walk->types[index];
    if (done <= 0) {
        drop(taken->leaves, taken->leaf);
        drop(taken->kept, taken->container);
        PyMem_Free(memory);
    }
    return done;
}

static PyObject *take_apart(const Walk *walk, PyObject *tree, int with_types)
{
    Taken taken;
    PyObject *found;
    int done = take_all(walk, tree, with_types, &taken);
    if (done <= 0)
        return done < 0 ? NULL : Py_NewRef(Py_None);
    found = given_back(walk, &taken, NULL);
    PyMem_Free(taken.leaves);
    return found;
}

PyDoc_STRVAR(take_doc,
             "take(tree, /)\n--\n\n"
             "The leaves of a tree, what its containers are made again from, and their ids if one recurs, or else None.\n"
             "None in place of all, if it has another structure, or leaves of other types.");

static PyObject *walk_take(PyObject *self, PyObject *tree)
{
    return take_apart((Walk *)self, tree, 1);
}

PyDoc_STRVAR(open_doc, "open(tree, /)\n--\n\nThe same for a tree whose leaves may be of any types.");

static PyObject *walk_open(PyObject *self, PyObject *tree)
{
    return take_apart((Walk *)self, tree, 0);
}

/* -- make again --------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *leaves, *kept; /* tuples */
    Py_ssize_t leaf, container;
} Making;

static PyObject *make_container(const Walk *walk, Making *making);

/* The values of a container, in a tuple. */
static PyObject *make_values(const Walk *walk, Making *making, const Row *row)
{
    PyObject *values, **found;
    Py_ssize_t inner = 0, at;
    if (row->inner == 0) {
        values = PyTuple_GetSlice(making->leaves, making->leaf, making->leaf + row->size);
        making->leaf += row->size;
        return values;
    }
    found = PyMem_Malloc((size_t)row->size * sizeof *found);
    if (found == NULL)
        return PyErr_NoMemory();
    for (at = 0; at < row->size; at++) {
        if (inner < row->inner && row->places[inner] == at) {
            inner++;
            found[at] = make_container(walk, making);
            if (found[at] == NULL)
                break;
        } else
            found[at] = Py_NewRef(PyTuple_GetItem(making->leaves, making->leaf++));
    }
    values = at < row->size ? NULL : PyTuple_New(row->size);
    if (values == NULL)
        drop(found, at);
    for (at = 0; values != NULL && at < row->size; at++)
        PyTuple_SetItem(values, at, found[at]);
    PyMem_Free(found);
    return values;
}

/* A dict of the keys of another one, or of a list, in order. */
static PyObject *dict_of(PyObject *keys, PyObject *values)
{
    const Py_ssize_t count = PyTuple_Size(values);
    const int is_dict = PyDict_Check(keys);
    Py_ssize_t position = 0, at = 0;
    PyObject *made = PyDict_New(), *key, *before;
    while (made != NULL && at < count) {
        int done;
        if (is_dict)
            done = PyDict_Next(keys, &position, &key, &before);
        else
            done = at < PyList_Size(keys) && (key = PyList_GetItem(keys, at)) != NULL;
        if (!done)
            break;
        Py_INCREF(key); /* to compare it may run any code */
        done = PyDict_SetItem(made, key, PyTuple_GetItem(values, at++));
        Py_DECREF(key);
        if (done < 0)
            Py_CLEAR(made);
    }
    if (made != NULL && (at < count || PyObject_Size(keys) != count)) {
        PyErr_SetString(PyExc_ValueError, "a dict has as many keys as values");
        Py_CLEAR(made);
    }
    return made;
}

/* The container of some values: what `Opening.make` gives. */
static PyObject *make_of(const Row *row, PyObject *whole, PyObject *values)
{
    PyObject *list, *made;
    if (row->way == AS_TUPLE)
        return Py_NewRef(values);
    if (row->way == AS_NAMED)
        return PyObject_Call((PyObject *)row->kind, values, NULL);
    if (row->way == AS_DICT && (PyDict_CheckExact(whole) || PyList_CheckExact(whole)))
        return dict_of(whole, values);
    list = PySequence_List(values);
    if (list == NULL || row->way == AS_LIST)
        return list;
    made = PyObject_CallFunctionObjArgs(row->made, whole, list, NULL);
    Py_DECREF(list);
    return made;
}

/* Put the container that could not be made, and why, in place of the exception that says why. */
static void blame(const Walk *walk, const Row *row)
{
    PyObject *type, *value, *traceback, *error;
    if (PyErr_ExceptionMatches(walk->not_made) || !PyErr_ExceptionMatches(PyExc_Exception))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    error = PyObject_CallFunctionObjArgs(walk->not_made, row->owner, value, NULL);
    if (error != NULL)
        PyErr_SetObject(walk->not_made, error);
    Py_XDECREF(error);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static PyObject *make_container(const Walk *walk, Making *making)
{
    const Row *row = &walk->each[making->container];
    PyObject *whole = PyTuple_GetItem(making->kept, making->container++), *values, *made = NULL;
    if (Py_EnterRecursiveCall(" in a tree"))
        return NULL;
    values = make_values(walk, making, row);
    if (values != NULL) {
        made = make_of(row, whole, values);
        Py_DECREF(values);
    }
    if (made == NULL)
        blame(walk, row);
    Py_LeaveRecursiveCall();
    return made;
}

PyDoc_STRVAR(make_doc,
             "make(kept, leaves, /)\n--\n\n"
             "A tree of what `take` kept of another one, and of other leaves. The exception of a container that cannot be\n"
             "made is put into one of the type that was given.");

static PyObject *walk_make(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Walk *walk = (Walk *)self;
    PyObject *made = NULL;
    Making making = {NULL, NULL, 0, 0};
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "make takes 2 arguments");
        return NULL;
    }
    making.kept = PySequence_Tuple(arguments[0]);
    making.leaves = making.kept == NULL ? NULL : PySequence_Tuple(arguments[1]);
    if (making.leaves != NULL) {
        if (PyTuple_Size(making.kept) != walk->containers || PyTuple_Size(making.leaves) != walk->leaves)
            PyErr_SetString(PyExc_ValueError, "these are of another structure");
        else if (walk->containers == 0)
            made = Py_NewRef(PyTuple_GetItem(making.leaves, 0));
        else
            made = make_container(walk, &making);
    }
    Py_XDECREF(making.kept);
    Py_XDECREF(making.leaves);
    return made;
}

/* -- take apart, convert, make again -------------------------------------------------------------------------------- */

/* How leaves are converted: functions by their types, at which positions, which dtypes the results may have, and what is
   raised where a leaf is not accepted. */
typedef struct {
    PyObject *paths, *places, *dtypes, *refusals;
} Way;

/* Whether a result has one of the dtypes, if these matter: 1, 0, or -1 and an exception. */
static int has_dtype(const Walk *walk, const Way *way, PyObject *made)
{
    PyObject *dtype, *known;
    if (way->dtypes == Py_None)
        return 1;
    dtype = PyObject_GetAttr(made, walk->dtype);
    if (dtype == NULL)
        return -1;
    known = PyDict_GetItemWithError(way->dtypes, dtype);
    Py_DECREF(dtype);
    return known != NULL ? 1 : -(PyErr_Occurred() != NULL);
}

/* What a function gives for a leaf: 1; 0 if it is not accepted; -1 and an exception. */
static int convert_leaf(const Walk *walk, const Way *way, PyTypeObject *kind, PyObject *leaf, PyObject **found)
{
    PyObject *path = PyDict_GetItemWithError(way->paths, (PyObject *)kind), *before = *found;
    int done;
    if (path == NULL)
        return -(PyErr_Occurred() != NULL);
    Py_INCREF(path);
    *found = PyObject_CallFunctionObjArgs(path, leaf, NULL);
    Py_DECREF(path);
    Py_XDECREF(before);
    done = *found == NULL ? -1 : *found != Py_None;
    if (done > 0)
        done = has_dtype(walk, way, *found);
    if (done >= 0 || !PyErr_ExceptionMatches(way->refusals))
        return done;
    PyErr_Clear();
    return 0;
}

/* What functions give for the leaves at some positions: 1; 0 if one is not accepted, or is twice among them; -1 and an
   exception. */
static int convert_leaves(const Walk *walk, const Taken *taken, const Way *way, PyObject **found)
{
    const Py_ssize_t size = way->places == Py_None ? walk->leaves : PyList_Size(way->places);
    uintptr_t *addresses = PyMem_Malloc((2 * (size_t)size + 1) * sizeof *addresses), *places;
    int done = 1;
    if (addresses == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    places = addresses + size;
    for (Py_ssize_t index = 0; done > 0 && index < size; index++) {
        PyObject *number = way->places == Py_None ? NULL : PyList_GetItem(way->places, index);
        size_t at = number == NULL ? (size_t)index : PyLong_AsSize_t(number);
        if (at < (size_t)walk->leaves && !PyErr_Occurred()) {
            places[index] = at;
            addresses[index] = (uintptr_t)taken->leaves[at];
        } else {
            PyErr_SetString(PyExc_IndexError, "there is no such leaf");
            done = -1;
        }
    }
    if (done > 0)
        done = are_apart(addresses, size);
    for (Py_ssize_t index = 0; done > 0 && index < size; index++) {
        uintptr_t at = places[index];
        done = convert_leaf(walk, way, walk->types[at], taken->leaves[at], &found[at]);
    }
    PyMem_Free(addresses);
    return done;
}

/* A tuple of objects. */
static PyObject *tuple_of(PyObject *const *objects, PyObject *const *others, Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t index = 0; made != NULL && index < count; index++)
        PyTuple_SetItem(made, index, Py_NewRef(objects[index] == NULL ? others[index] : objects[index]));
    return made;
}

/* The tree made again of what functions give for its leaves; None if one is not accepted, or a container is not made. */
static PyObject *convert_taken(const Walk *walk, const Taken *taken, const Way *way)
{
    PyObject **found = PyMem_Calloc((size_t)walk->leaves + 1, sizeof *found), *made = NULL;
    Making making = {NULL, NULL, 0, 0};
    int done;
    if (found == NULL)
        return PyErr_NoMemory();
    done = convert_leaves(walk, taken, way, found);
    if (done > 0) {
        making.leaves = tuple_of(found, taken->leaves, walk->leaves);
        making.kept = tuple_of(taken->kept, taken->kept, walk->containers);
        if (making.leaves != NULL && making.kept != NULL)
            made = walk->containers == 0 ? Py_NewRef(PyTuple_GetItem(making.leaves, 0)) : make_container(walk, &making);
        Py_XDECREF(making.leaves);
        Py_XDECREF(making.kept);
        if (made == NULL && PyErr_ExceptionMatches(walk->not_made)) {
            PyErr_Clear(); /* it is raised, with its path, by what makes the tree otherwise */
            done = 0;
        }
    }
    drop(found, walk->leaves);
    PyMem_Free(found);
    return done == 0 ? Py_NewRef(Py_None) : made;
}

PyDoc_STRVAR(convert_doc,
             "convert(tree, paths, places, dtypes, refusals, /)\n--\n\n"
             "What `take` gives, and the tree with what functions give for its leaves.\n\n"
             "None in place of the tree, if one of these leaves is twice in it or has no function, if a function gives None,\n"
             "gives another dtype or raises one of some exceptions, or if a container cannot be made.\n\n"
             "paths: A dict of functions by the types of the leaves.\n"
             "places: The positions of the leaves that are converted; None for all.\n"
             "dtypes: A dict with the dtypes that the results may have; None for any.\n"
             "refusals: The exceptions, a tuple.");

static PyObject *walk_convert(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    const Walk *walk = (Walk *)self;
    Taken taken;
    PyObject *made, *found;
    int done;
    Way way;
    if (count != 5 || !PyDict_Check(arguments[1]) || !(arguments[2] == Py_None || PyList_Check(arguments[2])) ||
        !(arguments[3] == Py_None || PyDict_Check(arguments[3])) || !PyTuple_Check(arguments[4])) {
        PyErr_SetString(PyExc_TypeError, "convert takes a tree, a dict, a list or None, a dict or None, and a tuple");
        return NULL;
    }
    way = (Way){arguments[1], arguments[2], arguments[3], arguments[4]};
    done = take_all(walk, arguments[0], 1, &taken);
    if (done <= 0)
        return done < 0 ? NULL : Py_NewRef(Py_None);
    made = convert_taken(walk, &taken, &way);
    if (made != NULL)
        found = given_back(walk, &taken, made);
    else {
        drop(taken.leaves, walk->leaves);
        drop(taken.kept, walk->containers);
        found = NULL;
    }
    PyMem_Free(taken.leaves);
    return found;
}

/* -- the type ----------------------------------------------------------------------------------------------------- */

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    const Walk *walk = (Walk *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(walk->rows);
    Py_VISIT(walk->kinds);
    Py_VISIT(walk->not_made);
    return 0;
}

static void deallocate(PyObject *self)
{
    Walk *walk = (Walk *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(walk->rows);
    Py_XDECREF(walk->kinds);
    Py_XDECREF(walk->not_made);
    Py_XDECREF(walk->dtype);
    PyMem_Free(walk->each);
    PyMem_Free(walk->places);
    PyMem_Free(walk->types);
    release(self);
    Py_DECREF(type);
}

/* How many containers are inside those of all rows, or -1 and an exception. */
static Py_ssize_t count_inner(PyObject *rows)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t number = 0; number < PyTuple_Size(rows); number++) {
        PyObject *row = PyTuple_GetItem(rows, number);
        Py_ssize_t inner = PyTuple_Check(row) && PyTuple_Size(row) == 7 ? PyObject_Size(PyTuple_GetItem(row, 3)) : -1;
        if (inner < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a row is a tuple of 7");
            return -1;
        }
        found += inner;
    }
    return found;
}

/* -1 and an exception if the rows are no structure. */
static int read_rows(Walk *walk)
{
    Py_ssize_t place = 0, leaves = 0, expected = 1;
    for (Py_ssize_t number = 0; number < walk->containers; number++) {
        Row *row = &walk->each[number];
        PyObject *places;
        row->places = walk->places + place;
        if (!PyArg_ParseTuple(PyTuple_GetItem(walk->rows, number), "O!inO!OOO", &PyType_Type, &row->kind, &row->way, &row->size,
                              &PyTuple_Type, &places, &row->opened, &row->made, &row->owner))
            return -1;
        row->inner = PyTuple_Size(places);
        for (Py_ssize_t at = 0; at < row->inner; at++) {
            Py_ssize_t value = walk->places[place++] = PyLong_AsSsize_t(PyTuple_GetItem(places, at));
            if (PyErr_Occurred())
                return -1;
            if (value < 0 || value >= row->size || (at > 0 && value <= row->places[at - 1]))
                row->way = WAYS;
        }
        if (row->way < 0 || row->way >= WAYS || row->size < row->inner || row->size > PY_SSIZE_T_MAX / 64 - leaves ||
            --expected < 0) {
            PyErr_SetString(PyExc_ValueError, "this is no structure");
            return -1;
        }
        expected += row->inner;
        leaves += row->size - row->inner;
    }
    if (expected != (walk->containers == 0) || walk->leaves != leaves + (walk->containers == 0)) {
        PyErr_SetString(PyExc_ValueError, "there are other leaves, or containers");
        return -1;
    }
    for (Py_ssize_t index = 0; index < walk->leaves; index++) {
        PyObject *kind = PyTuple_GetItem(walk->kinds, index);
        if (!PyType_Check(kind)) {
            PyErr_SetString(PyExc_TypeError, "kinds are types");
            return -1;
        }
        walk->types[index] = (PyTypeObject *)kind;
    }
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *rows, *kinds, *not_made;
    Py_ssize_t inner;
    Walk *walk;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Walk takes no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "O!O!O", &PyTuple_Type, &rows, &PyTuple_Type, &kinds, &not_made))
        return NULL;
    inner = count_inner(rows);
    walk = inner < 0 ? NULL : (Walk *)allocate(type, 0); /* all zeros */
    if (walk == NULL)
        return NULL;
    walk->rows = Py_NewRef(rows);
    walk->kinds = Py_NewRef(kinds);
    walk->not_made = Py_NewRef(not_made);
    walk->dtype = PyUnicode_InternFromString("dtype");
    walk->containers = PyTuple_Size(rows);
    walk->leaves = PyTuple_Size(kinds);
    walk->each = PyMem_Calloc((size_t)walk->containers + 1, sizeof *walk->each);
    walk->places = PyMem_Calloc((size_t)inner + 1, sizeof *walk->places);
    walk->types = PyMem_Calloc((size_t)walk->leaves + 1, sizeof *walk->types);
    if (walk->dtype == NULL || walk->each == NULL || walk->places == NULL || walk->types == NULL)
        PyErr_NoMemory();
    if (PyErr_Occurred() || read_rows(walk) < 0) {
        Py_DECREF((PyObject *)walk);
        return NULL;
    }
    return (PyObject *)walk;
}

static PyMethodDef walk_methods[] = {
    {"take", walk_take, METH_O, take_doc},
    {"open", walk_open, METH_O, open_doc},
    {"make", (PyCFunction)(void (*)(void))walk_make, METH_FASTCALL, make_doc},
    {"convert", (PyCFunction)(void (*)(void))walk_convert, METH_FASTCALL, convert_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(walk_doc,
             "Walk(rows, kinds, not_made, /)\n--\n\n"
             "Takes trees of one structure apart, and makes them again.\n\n"
             "rows: For each container, one before those inside it, a tuple: its type; how it is opened and made (0 by the\n"
             "    functions, 1 as a dict, 2 as a list, 3 as a tuple, 4 as a tuple by a call of its type); the number of its\n"
             "    values; the positions of those that are containers; what opens it; what makes it; what stands for it in\n"
             "    an exception.\n"
             "kinds: The type of each leaf.\n"
             "not_made: The exception for a container that cannot be made, of what stands for it and of why.");

static PyType_Slot walk_slots[] = {
    {Py_tp_doc, (void *)walk_doc},
    {Py_tp_new, (void *)make},
    {Py_tp_dealloc, (void *)deallocate},
    {Py_tp_traverse, (void *)traverse},
    {Py_tp_methods, walk_methods},
    {0, NULL},
};

static PyType_Spec walk_spec = {
    .name = "tensorferry.trees._walks.Walk",
    .basicsize = sizeof(Walk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = walk_slots,
};

/* -- the module --------------------------------------------------------------------------------------------------- */

static int set_up(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&walk_spec);
    int done = type == NULL ? -1 : PyModule_AddObjectRef(module, "Walk", type);
    Py_XDECREF(type);
    return done;
}

static PyMethodDef methods[] = {
    {"are_different", are_different, METH_O, different_doc},
    {"are_plain", (PyCFunction)(void (*)(void))are_plain, METH_FASTCALL, plain_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)set_up},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensorferry.trees._walks",
    .m_doc = "Trees of a known structure: taken apart, and made again.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__walks(void)
{
    return PyModuleDef_Init(&definition);
}

/* Starts a module of the shared library, given the capsule that the library has for it.

   mypyc itself makes one more small library for each module, which does the same. */

#include <Python.h>

static PyObject *start(PyObject *self, PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);
    if (name == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a capsule without a name");
        return NULL;
    }
    PyObject *(*init)(void) = (PyObject *(*)(void))PyCapsule_GetPointer(capsule, name);
    return init == NULL ? NULL : init();
}

static PyMethodDef methods[] = {
    {"start", start, METH_O, "Run a module's body and return the module."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "servetwin_start", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_servetwin_start(void)
{
    return PyModule_Create(&definition);
}

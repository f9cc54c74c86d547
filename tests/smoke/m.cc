#include <nanobind/nanobind.h>
#include <stdexcept>
NB_MODULE(_toy, m) { m.def("add", [](int a, int b) { return a + b; }); m.def("boom", [] { throw std::runtime_error("x"); }); }

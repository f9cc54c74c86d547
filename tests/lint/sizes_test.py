"""No file or function of the tree is too long, and the lint detects those that are."""

from tests.lint import sizes
from tests.source_tree import SourceFile, source_files

_CC = """
namespace pagemill {
// A brace in a comment { does not count.
class Pool : public Base {
 public:
  explicit Pool(int blocks) : blocks_{blocks} { Fill(); }
  int free() const { return free_; }
};

StatusOr<int> Allocate(std::map<int, int> a, int b) {
  const char* text = "{";
  for (int i = 0; i < b; ++i) {
    auto f = [&](int x) { return x; };
  }
  return 1;
}
}  // namespace pagemill
"""


def _files():
    return list(source_files(*sizes.CODE, "BUILD.bazel"))


def test_nothing_is_too_long(capsys):
    files = _files()
    assert files
    notes = [line for file in files for line in sizes.warnings(file)]
    with capsys.disabled():
        print(f"\nsizes: {len(files)} files, {len(notes)} deserve a second thought")
        print("\n".join(notes))
    errors = [line for file in files for line in sizes.errors(file)]
    assert not errors, "\n".join(errors)


def test_cc_functions_are_found():
    found = {f.name: (f.line, f.lines, f.parameters) for f in sizes.cc_functions(_CC)}
    assert found == {"Pool": (6, 1, 1), "free": (7, 1, 0), "Allocate": (10, 7, 2)}


def test_long_cc_function_is_an_error():
    body = "  Step();\n" * sizes.FUNCTION_LINES
    text = f"void Run(int a,\n         int b) {{\n{body}}}\n"
    (error,) = sizes.errors(SourceFile("cc/a.cc", text))
    assert error == "cc/a.cc:1: Run has 83 lines, at most 80"


def test_long_python_function_is_an_error():
    text = "def run():\n" + "    step()\n" * sizes.FUNCTION_LINES
    (error,) = sizes.errors(SourceFile("a.py", text))
    assert error == "a.py:1: run has 81 lines, at most 80"


def test_long_files_are_errors():
    assert list(sizes.errors(SourceFile("a.py", "a = 1\n" * 601)))
    assert list(sizes.errors(SourceFile("cc/BUILD.bazel", "\n" * 301)))
    assert not list(sizes.errors(SourceFile("a.py", "a = 1\n" * 600)))


def test_many_parameters_are_a_warning():
    text = "def f(self, a, b, c, d, e, f, g, *, h=1):\n    pass\n"
    (warning,) = sizes.warnings(SourceFile("a.py", text))
    assert "7 parameters" in warning
    (warning,) = sizes.warnings(SourceFile("a.cc", "A::A(int a, B<c, d> b, int c, int d, int e,"
                                           " int f, int g) {}\n"))  # fmt: skip
    assert "7 parameters" in warning

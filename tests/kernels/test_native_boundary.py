"""What is handed to C++ is alive and of the right shape and dtype, and the library is the right one."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch

import gomhc
from gomhc import HyperConnection, Orthostochastic, kernels
from gomhc.kernels import forms, ops
from gomhc.kernels import library as boundary
from gomhc.kernels.forms import single
from gomhc.kernels.stamp import has_stamp, stamp
from gomhc.layers import Pending

pytestmark = pytest.mark.skipif(boundary.library() is None, reason="the library is not built: no C++ compiler")

KERNELS = Path(gomhc.__file__).parent / "kernels"
OPERATORS = ("read", "read_shared", "write")


def run(code, *flags):
    return subprocess.run(
        [sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )


def transposed(*shape):
    """A tensor of this shape that is not contiguous, so that C++ is given a copy which nobody else refers to."""
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).mT if len(shape) > 1 else torch.randn(2 * shape[0])[::2]


class Watched:
    """The library, with a look at each task before it is carried out."""

    def __init__(self, native):
        self.native, self.calls = native, []

    def __getattr__(self, name):
        def function(task, threads):
            owned = {tensor.data_ptr() for tensor in task.tensors}
            addresses = {field: getattr(task, field) for field in task.shapes}
            dangling = [field for field, address in addresses.items() if address is not None and address not in owned]
            self.calls.append((name, dangling))
            getattr(self.native, name)(task, threads)

        return function


def test_every_tensor_whose_address_is_passed_is_owned_by_the_call(monkeypatch):
    watched = Watched(boundary.library())
    monkeypatch.setattr(boundary, "library", lambda: watched)
    n, d, c, k = 6, 3, 8, 9
    logits = transposed(n, 3).requires_grad_()
    torch.autograd.grad(ops.mixing(logits, single("go", d, 1)), logits, transposed(n, d, d))
    inputs = [transposed(*shape).requires_grad_() for shape in ((n, d, c), (k, d * c), (k,), (k,))]
    outputs = ops.read(*inputs, 0.0, 1e-6)[:3]
    torch.autograd.grad(outputs, inputs, [transposed(*output.shape) for output in outputs])
    inputs = [inputs[0], *(transposed(*shape).requires_grad_() for shape in ((n, d, d), (n, d), (n, c)))]
    torch.autograd.grad(ops.write(*inputs), inputs, transposed(n, d, c))
    inputs = [inputs[0], *(transposed(*shape).requires_grad_() for shape in ((d, d), (d,), (n, c)))]
    torch.autograd.grad(ops.write(*inputs), inputs, transposed(n, d, c))
    torch.autograd.grad(ops.read_shared(inputs[0], inputs[2]), (inputs[0], inputs[2]), transposed(n, c))
    names = ["map", "map", "read", "read", "write", "write", "write", "write", "sum", "sum"]
    assert watched.calls == [(f"gomhc_{name}", []) for name in names]


def test_the_gradient_of_a_sum_of_reads_is_what_the_streams_are_read_with():
    """The cotangent of a sum is expanded, so C++ gets a copy of it. On Python 3.12 this gave 6e12."""
    x = torch.randn(8, 4, 8, requires_grad=True)
    HyperConnection(None, 8, Orthostochastic(num_streams=4)).read(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 0.25))


@pytest.mark.parametrize("backend", [name for name in ("native", "batched", "plain") if name in kernels.available()])
def test_branches_may_return_transposed_tensors(backend):
    torch.manual_seed(0)
    convolution = torch.nn.Conv1d(8, 8, 3, padding=1)
    connection = HyperConnection(lambda x: convolution(x.mT).mT, 8, Orthostochastic(num_streams=2))
    streams = torch.randn(2, 5, 2, 8, requires_grad=True)
    cotangent = torch.randn(2, 2, 5, 8).transpose(1, 2)
    with kernels.use(backend):
        (gradient,) = torch.autograd.grad(connection(streams), streams, cotangent)
    with kernels.use("plain"):
        (expected,) = torch.autograd.grad(connection(streams), streams, cotangent)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-5)


def test_threads_do_not_disturb_each_other():
    torch.manual_seed(0)
    inputs = [torch.randn(50, 4, 16) for _ in range(8)]
    connection = HyperConnection(None, 16, Orthostochastic(num_streams=4), start="near-identity")

    def gradient(x):
        x = x.clone().requires_grad_()
        return torch.autograd.grad(connection.read(x)[0].sum(), x)[0]

    expected, wrong = [gradient(x) for x in inputs], []

    def work(index):
        for _ in range(50):
            if not torch.equal(gradient(inputs[index]), expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Wrong input
# ----------------------------------------------------------------------------------------------------------------------

N, D, C, P = 5, 3, 8, 4
RIGHT = {
    "mixing": ((N, 15), single("go", D, 2)),
    "read": ((N, D, C), (2 * D + P, D * C), (2 * D + P,), (2 * D + P,), 0.0, 1e-6),
    "connect": (
        *((N, D, C), (N, D, D), (N, D), (N, C), (2 * D + 15, D * C), (3,), (2 * D + 15,), 0.0, 1e-6),
        single("go", D, 2),
    ),
    "read_shared": ((N, D, C), (D,)),
    "write": ((N, D, C), (N, D, D), (N, D), (N, C)),
    "mixing_backward": ((N, 15), (N, D, D), single("go", D, 2)),
    "read_backward": (
        *((N, C), (N, D), (N, P), (N, D, C), (2 * D + P, D * C), (2 * D + P,), (2 * D + P,), (N, 2 * D + P), (N,)),
        0.0,
    ),
    "read_shared_backward": ((N, C), (N, D, C), (D,)),
    "connect_backward": (
        *((N, D, C), (N, C), (N, D), (N, D, D), (N, D, C), (N, D, D), (N, D), (N, C)),
        *((2 * D + 15, D * C), (3,), (2 * D + 15,), (N, D, C), (N, 2 * D + 15), (N,), 0.0, single("go", D, 2)),
    ),
    "write_backward": ((N, D, C), (N, D, C), (N, D, D), (N, D), (N, C)),
}
"""Shapes of tensors, and numbers, that each operator takes."""


def arguments(given):
    return [torch.randn(value) if isinstance(value, tuple) else value for value in given]


def wrong_shapes(shape):
    yield (*shape, 1)
    yield shape[1:]
    for axis, size in enumerate(shape):
        yield (*shape[:axis], size + 1, *shape[axis + 1 :])
        yield (*shape[:axis], size - 1, *shape[axis + 1 :])


WRONG = [
    (name, place, wrong)
    for name, given in RIGHT.items()
    for place, shape in enumerate(given)
    if isinstance(shape, tuple)
    for wrong in wrong_shapes(shape)
    if not (name == "mixing" and wrong[-1:] == (15,))  # any batch will do,
    and not (name == "read_shared" and place == 0 and len(wrong) == 3 and wrong[1] == D)  # of any width
    and not (name == "read" and place == 0 and wrong[-2:] == (D, C) and len(wrong) == 3)  # of one dimension
]
STATIC = [("read", (D, C)), ("read_shared", (D, C)), ("write", (D, D)), ("write", (D,))]
"""`gomhc.kernels` takes these: one token, or coefficients that all tokens share."""


@pytest.mark.parametrize("name", RIGHT)
def test_operators_take_what_is_right(name):
    getattr(ops, name)(*arguments(RIGHT[name]))


@pytest.mark.parametrize("name", RIGHT)
def test_operators_leave_their_inputs_as_they_are(name):
    cases = [RIGHT[name]]
    if "mixing" in name:  # one stream has no logits, and an empty tensor no address
        single_stream = {(N, 15): (N, 0), (N, D, D): (N, 1, 1)}
        cases.append(tuple(single_stream.get(value, single("go", 1, 1)) for value in RIGHT[name]))
    for case in cases:
        given = arguments(case)
        copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]
        getattr(ops, name)(*given)
        for value, copy in zip(given, copies, strict=True):
            assert not isinstance(value, torch.Tensor) or torch.equal(value, copy)


def test_streams_of_no_channels_are_a_value_error():
    with pytest.raises(ValueError, match="c >= 1"):
        kernels.write(torch.randn(5, 3, 0), torch.randn(5, 3, 3), torch.randn(5, 3), torch.randn(5, 0))


@pytest.mark.parametrize(("name", "place", "wrong"), WRONG)
def test_a_wrong_shape_is_a_value_error(name, place, wrong):
    given = arguments(RIGHT[name])
    given[place] = torch.randn(wrong)
    with pytest.raises(ValueError, match=r"got|must"):
        getattr(ops, name)(*given)
    if name in OPERATORS and (name, wrong) not in STATIC:
        with pytest.raises(ValueError, match=r"got|must"):
            getattr(kernels, name)(*given)


@pytest.mark.parametrize(("place", "wrong"), [(place, wrong) for name, place, wrong in WRONG if name == "write"])
def test_a_wrong_shape_is_a_value_error_where_no_gradient_is_wanted(place, wrong):
    """C++ is called without an operator then."""
    given = arguments(RIGHT["write"])
    given[place] = torch.randn(wrong)
    if ("write", wrong) in STATIC:
        return
    first, second = (HyperConnection(None, C, num_streams=D) for _ in range(2))
    with torch.no_grad():
        with pytest.raises(ValueError, match=r"got|must"):
            kernels.write(*given)
        streams, mix, weights, output = given
        state = first.read(torch.randn(N, D, C))[1]._replace(streams=streams, mix=mix, write=weights)
        with pytest.raises((ValueError, RuntimeError), match=r"got|must|size"):
            second.read(Pending(state, output))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("name", RIGHT)
def test_a_wrong_dtype_is_a_value_error_where_c_would_read_it(name, dtype):
    for place, value in enumerate(RIGHT[name]):
        if not isinstance(value, tuple):
            continue
        given = arguments(RIGHT[name])
        given[place] = given[place].to(dtype)
        if dtype == torch.bfloat16 and place == 0 and name in ("read", "read_shared"):
            continue  # streams, and nothing else of their dtype
        with pytest.raises(ValueError, match=r"must be (float32|of the dtype of the streams) on the CPU"):
            getattr(ops, name)(*given)


@pytest.mark.parametrize("wrong", [*wrong_shapes((15,)), (N, 14), (N, 16), ()])
def test_a_wrong_number_of_logits_is_a_value_error(wrong):
    with pytest.raises(ValueError, match="logits must be"):
        kernels.orthostochastic(torch.randn(wrong), D, 2)


WRONG_FORMS = [
    *("", " ", "go", "go:3:2", "go:3:2:0:0", "gone:3:2:0", "go:3:two:0", "go:3:2:zero", "go:3.0:2:0", "go:3:2:0 "),
    *("go:0:1:0", "go:3:0:0", "go:-3:-2:0", "go:65:1:0", "go:64:4:0", "go-square:33:6:0", "go-unitary:2:97:0"),
    *("go-householder:64:4:0", "go-householder:0:1:0", "go-givens:65:1:0", "go-givens:3:0:0"),
    *("go:4294967299:2:0", "go:3:4294967298:0", "go:99999999999999999999:2:0"),
    *("sinkhorn:0:20:0", "sinkhorn:4:0:0", "sinkhorn:4:1001:0", "sinkhorn-v4:65:20:0", "sinkhorn-linear:-4:20:0"),
    *("permutations:9:1:0", "permutations:0:1:0", "transportation:65:1:0", "transportation:0:1:0"),
    *("quaternions:3:1:0", "projection:65:1:0", "rows:0:1:0", "spectral-sphere:65:1:0"),
    *("go:3:2:0 go:3:2:0", "kronecker:6:2:0", "kronecker:6:2:0 go:3:2:0", "kronecker:6:2:0 go:3:2:0 go:3:2:0"),
    *("kronecker:6:1:0 go:3:2:0 go:2:2:0", "kronecker:6:-1:0", "kronecker:0:0:0", "kronecker:2:0:0"),
    *("kronecker:128:2:0 go:64:1:0 go:2:1:0", "kronecker:6:2:0 go:3:2:0 kronecker:2:1:0"),
    *("average:3:0:0", "average:3:2:0 go:3:2:0", "average:3:2:0 go:3:2:0 go:2:2:0", "average:65:1:0 go:65:1:0"),
    " ".join(["average:3:64:0", *["go:3:1:0"] * 64]),
    " ".join([*["average:3:1:0"] * 64, "go:3:1:0"]),
    " ".join([*["average:3:1:0"] * 5000, "go:3:1:0"]),
]


@pytest.mark.parametrize("form", WRONG_FORMS, ids=lambda form: form[:60])
def test_a_form_that_c_cannot_take_is_a_value_error(form):
    """Whatever the tensors are: it is refused before C++ sees any."""
    for num_logits in (0, 3, 15, 30):
        with pytest.raises(ValueError, match="the compiled map takes"):
            ops.mixing(torch.randn(N, num_logits), form)
        with pytest.raises(ValueError, match="the compiled map takes"):
            ops.mixing_backward(torch.randn(N, num_logits), torch.randn(N, D, D), form)


@pytest.mark.parametrize("form", [form for form in forms.NUM_LOGITS if form != "go"])
def test_a_wrong_shape_is_a_value_error_for_every_map(form):
    d = forms.QUATERNION if form == "quaternions" else D
    text, p = single(form, d, 2), forms.NUM_LOGITS[form](d, 2)
    ops.mixing(torch.randn(N, p), text)
    for wrong in ((N, p + 1), (N, abs(p - 1)), (N, p, 2), (p + 1,)):
        with pytest.raises(ValueError, match="logits must be"):
            ops.mixing(torch.randn(wrong), text)
    for wrong in ((N, d, d + 1), (N, d), (N + 1, d, d), (N - 1, d, d)):
        with pytest.raises(ValueError, match="matrix must be"):
            ops.mixing_backward(torch.randn(N, p), torch.randn(wrong), text)


def test_more_streams_than_fit_are_left_to_torch():
    streams, mix, weights, y = torch.randn(3, 70, 4), torch.randn(3, 70, 70), torch.randn(3, 70), torch.randn(3, 4)
    with pytest.raises(ValueError, match="1 to 64 streams"):
        ops.write(streams, mix, weights, y)
    torch.testing.assert_close(
        kernels.write(streams, mix, weights, y), mix @ streams + weights[..., None] * y[:, None], rtol=1e-4, atol=1e-4
    )


def test_weights_may_be_static_where_the_mix_is_not():
    streams, mix, weights, y = torch.randn(5, 3, 4), torch.randn(5, 3, 3), torch.randn(3), torch.randn(5, 4)
    expected = mix @ streams + weights[:, None] * y[:, None]
    torch.testing.assert_close(kernels.write(streams, mix, weights, y), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(dtype):
    logits = torch.randn(7, 15).to(dtype)
    for backend in kernels.available():
        with kernels.use(backend):
            matrix = kernels.orthostochastic(logits, 3, 2)
        assert matrix.dtype == dtype
        torch.testing.assert_close(matrix.float(), kernels.orthostochastic(logits.float(), 3, 2), rtol=0, atol=2**-8)


def test_tensors_of_two_devices_are_a_value_error():
    streams, mix, weights, y = arguments(RIGHT["write"])
    with pytest.raises(ValueError, match="all tensors must be on one device, got cpu, meta"):
        kernels.write(streams, mix.to("meta"), weights, y)


def test_checks_stand_without_asserts():
    """`python -O` leaves asserts out."""
    code = """
import torch, gomhc
from gomhc.kernels import ops
assert False, "this is run with -O"
wrong = 0
for call in (
    lambda: ops.mixing(torch.randn(5, 14), "go:3:2:0"),
    lambda: gomhc.kernels.orthostochastic(torch.randn(5, 14), 3, 2),
    lambda: ops.write(torch.randn(5, 3, 8), torch.randn(5, 3, 2), torch.randn(5, 3), torch.randn(5, 8)),
    lambda: ops.write(torch.randn(5, 3, 8), torch.randn(5, 3, 3).double(), torch.randn(5, 3), torch.randn(5, 8)),
):
    try:
        call()
    except ValueError:
        wrong += 1
print(wrong)
"""
    done = run(code, "-O")
    assert done.stdout == "4\n", done.stderr


def test_a_negated_view_is_negated():
    """torch may keep a sign beside the memory."""
    logits = torch.randn(5, 3, 2)
    negated = torch.view_as_complex(logits).conj().imag
    assert negated.is_neg()
    expected = ops.mixing((-logits[..., 1]).contiguous(), single("go", 3, 1))
    assert torch.equal(ops.mixing(negated, single("go", 3, 1)), expected)


# The library itself
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the sources, in which the library is looked for."""
    shutil.copytree(KERNELS / "native", tmp_path / "native")
    monkeypatch.setattr(boundary, "FOLDER", tmp_path)
    return tmp_path


def built():
    expected = stamp(KERNELS / "native")
    return next(path for path in KERNELS.glob("_native*") if has_stamp(path, expected))


def search():
    return boundary.search.__wrapped__()


def stale(path):
    expected = stamp(KERNELS / "native").encode()
    path.write_bytes(built().read_bytes().replace(expected, b"0" * len(expected)))


def test_a_library_of_other_sources_is_not_loaded_and_one_warning_says_what_to_do(folder):
    stale(folder / "_native.so")
    with pytest.warns(UserWarning, match="was built from other sources") as caught:
        found = search()
    assert found.library is None
    assert len(caught) == 1
    assert "delete it and install gomhc again" in str(caught[0].message)
    assert found.problem.startswith("not used: _native.so was built from other sources")


def test_after_a_source_has_changed_the_library_is_stale(folder):
    shutil.copy(built(), folder)
    with open(folder / "native" / "tasks.h", "a") as file:
        file.write("// changed\n")
    with pytest.warns(UserWarning, match="was built from other sources"):
        assert search().library is None


def test_of_two_files_the_right_one_is_loaded_whatever_their_names(folder):
    stale(folder / "_native.a.so")
    shutil.copy(built(), folder / "_native.b.so")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search().library is not None


def test_a_damaged_or_foreign_file_is_not_used(folder):
    mark = f"gomhc native sources {stamp(folder / 'native')}".encode()
    (folder / "_native.so").write_bytes(mark)
    with pytest.warns(UserWarning, match="cannot be loaded"):
        assert search().library is None


def test_a_library_without_a_function_is_not_used(folder):
    mark = f"gomhc native sources {stamp(folder / 'native')}".encode()
    other = Path(shutil.which("g++") or pytest.skip("needs a C++ compiler"))
    (folder / "empty.cpp").write_text("")
    subprocess.run([other, "-shared", "-o", folder / "_native.so", folder / "empty.cpp"], check=True)
    with open(folder / "_native.so", "ab") as file:
        file.write(mark)
    with pytest.warns(UserWarning, match="cannot be loaded.*gomhc_map"):
        assert search().library is None


def test_without_the_sources_the_library_is_not_used(folder):
    shutil.copy(built(), folder)
    shutil.rmtree(folder / "native")
    with pytest.warns(UserWarning, match="cannot be loaded"):
        assert search().library is None


def test_without_a_file_there_is_no_warning(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        advice = "install a C++ compiler (GCC 11, clang 14 or newer) and install gomhc again"
        in_a_clone = "to import it in a clone: pip install --editable ."  # Python prefers the sources in its folder
        assert search() == (None, f"not built in {folder}: {advice}; {in_a_clone}")


CMAKE = """-- The CXX compiler identification is unknown
CMake Error at CMakeLists.txt:5 (project):
  No CMAKE_CXX_COMPILER could be found.

  Tell CMake where to find the compiler by setting either the environment
  variable "CXX" or the CMake cache entry CMAKE_CXX_COMPILER.
-- Configuring incomplete, errors occurred!
"""
TOO_OLD = """[1/2] Building CXX object CMakeFiles/_native.dir/kernels.cpp.o
FAILED: CMakeFiles/_native.dir/kernels.cpp.o
In file included from kernels.cpp:19:
lanes.h:34:19: error: '__builtin_shufflevector' was not declared in this scope
lanes.h:35:20: error: '__builtin_shufflevector' was not declared in this scope
"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (CMAKE, "No CMAKE_CXX_COMPILER could be found"),
        (TOO_OLD, "lanes.h:34:19: error: '__builtin_shufflevector' was not declared in this scope"),
        ("kernels.cpp(12): fatal error C1083: Cannot open include file", None),
        ("", "the build failed without an error message"),
    ],
)
def test_after_a_build_that_failed_the_first_error_is_the_reason(folder, log, error):
    (folder / "build_failure.txt").write_text(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = search().problem
    assert problem.startswith(f"not built: {error or log}; install a C++ compiler")
    assert problem.endswith(f"or see {folder / 'build_failure.txt'}")


def test_structures_are_those_of_the_header():
    """Names, order and types, as tasks.h declares them."""
    header = re.sub(r"//.*", "", (KERNELS / "native" / "tasks.h").read_text())
    kinds = {"int64_t": ctypes.c_int64, "int": ctypes.c_int, "float": ctypes.c_float}
    for task in (forms.Part, *boundary.TASKS.values()):
        body = re.search(rf"struct {task.__name__} {{(.*?)}};", header, re.DOTALL).group(1)
        fields = []
        for declaration in body.split(";"):
            words = declaration.replace("const ", "").split(maxsplit=1)
            for name in words[1].split(",") if words else ():
                pointer = "*" in name
                address = ctypes.POINTER(forms.Part) if words[0] == "Part" else ctypes.c_void_p
                fields.append((name.strip(" *"), address if pointer else kinds[words[0]]))
        assert fields == list(task._fields_)


def test_constants_are_those_of_the_header():
    header = (KERNELS / "native" / "tasks.h").read_text()
    constants = dict(re.findall(r"([A-Z_]+) = ([^,;]+)[,;]", header))
    for name in ("LARGEST", "LARGEST_ROTATION", "MOST_PARTS"):
        assert int(constants[name]) == getattr(forms, name)
    kinds = re.search(r"enum Kind {(.*?)}", header, re.DOTALL).group(1)
    assert [kind.strip().lower().replace("_", "-") for kind in kinds.split(",")] == list(forms.KINDS)
    assert constants["SATURATION"] == "1 << 16"
    assert kernels.plain_map.SATURATION == 2.0**16


def test_a_second_openmp_library_with_a_space_in_its_path_that_is_deleted_does_no_harm(tmp_path):
    """As after an update while the program runs, or in a folder of a user's own."""
    maps = Path("/proc/self/maps")
    paths = (
        {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "libgomp" in line}
        if maps.exists()
        else ()
    )
    if not paths:
        pytest.skip("torch does not run on libgomp here")
    copy = tmp_path / "a folder" / "libgomp.so.1"
    code = f"""
import ctypes, os, shutil, sys
os.mkdir({str(copy.parent)!r})
shutil.copy({sorted(paths)[0]!r}, {str(copy)!r})
ctypes.CDLL({str(copy)!r}, mode=ctypes.RTLD_GLOBAL)
os.unlink({str(copy)!r})
import torch, gomhc
torch.set_num_threads(2)
logits = torch.randn(5000, 28)
print(gomhc.kernels.available()[0])
with gomhc.kernels.use("plain"):
    plain = gomhc.kernels.orthostochastic(logits, 4, 2)
assert (gomhc.kernels.orthostochastic(logits, 4, 2) - plain).abs().max() < 1e-5
"""
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "native\n"), done.stderr


# Choosing a version
# ----------------------------------------------------------------------------------------------------------------------


def test_native_may_be_forced_where_float64_comes_by():
    with kernels.use("native"):
        connection = HyperConnection(torch.tanh, 8, Orthostochastic(num_streams=4))  # its start is computed in float64
        connection.double()(torch.randn(3, 4, 8, dtype=torch.float64))
        assert kernels.chosen(torch.zeros(2)) == "native"
        assert kernels.chosen(torch.zeros(2, dtype=torch.float64)) == "plain"


def test_a_forced_version_is_that_of_its_thread_alone():
    inside, done, seen = threading.Event(), threading.Event(), {}

    def other():
        with kernels.use("batched"):
            seen["other"] = kernels.chosen(torch.zeros(2))
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(60)
    seen["here"] = kernels.chosen(torch.zeros(2))
    with kernels.use("plain"):
        done.set()
        thread.join()
        seen["forced here"] = kernels.chosen(torch.zeros(2))
    assert seen == {"other": "batched", "here": "native", "forced here": "plain"}
    assert kernels.chosen(torch.zeros(2)) == "native"
    assert kernels.dispatch._forced_last is None


@pytest.mark.unchecked
def test_compiled_code_follows_a_forced_version():
    torch._dynamo.reset()
    chosen = torch.compile(lambda x: x + ("native", "plain").index(kernels.chosen(x)), fullgraph=True, backend="eager")
    x = torch.zeros(1)
    assert chosen(x) == 0
    with kernels.use("plain"):
        assert chosen(x) == 1
    assert chosen(x) == 0


def test_private_parts_of_torch_are_used_in_one_file_of_the_library_and_one_of_the_laboratory():
    private = re.compile(r"\btorch\._[A-Za-z]|from torch\._|import torch\._")
    root = KERNELS.parent
    files = {str(path.relative_to(root)) for path in root.rglob("*.py") if private.search(path.read_text())}
    # Before torch 2.13, nothing public raises the limit of compiled models, which costs.py has to.
    assert files == {"kernels/transforms.py", "lab/comparison/costs.py"}


def test_without_the_private_function_everything_is_plain_and_right():
    code = """
import torch
del torch._C._are_functorch_transforms_active
import gomhc
logits = torch.randn(3, 6)
assert gomhc.kernels.chosen(logits) == "plain"
print(gomhc.Orthostochastic(num_streams=4, expressivity=1)(logits).sum().item())
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(12)

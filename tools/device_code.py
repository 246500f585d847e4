"""Compile the CUDA kernels to PTX in csrc/memory/cuda/kernels.ptx.gz, which builds embed.

    make device-code      # after a change of the kernels; commit the file with the change

The compiler is NVRTC of a fixed version, so the same kernels give the same bytes on every machine. A driver for CUDA
12.4 or later compiles this PTX for its device, of compute capability 7.5 or later.
"""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from passed import contents

PACKAGE, VERSION = "nvidia-cuda-nvrtc-cu12", "12.4.127"
ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "csrc" / "memory" / "cuda" / "kernels.ptx.gz"
SOURCES = (
    "memory/cuda/kernels.cu",
    "memory/cuda/kernels.cuh",
    "memory/cuda/kernel_list.h",
    "memory/cuda/kernel_arguments.h",
    "memory/functors.inc",
)
"""The compiled file, and the files that it includes."""
STANDARD_HEADERS = {
    "cstddef": "#pragma once\n"
    "namespace std { using size_t = decltype(sizeof(0)); enum class byte : unsigned char {}; }",
    "cstdint": "#pragma once\n"
    "namespace std {\n"
    "using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long;\n"
    "using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;\n"
    "using uint64_t = unsigned long; using uintptr_t = unsigned long;\n"
    "}",
}
"""The parts of standard headers that the kernels need, since NVRTC has no standard headers."""
OPTIONS = (
    "--gpu-architecture=compute_75",
    "--std=c++17",
    "--fmad=false",  # the same bits as on the host
    "--device-as-default-execution-space",  # lambdas are device code, since NVRTC knows no host
)


def digest() -> str:
    """Return the first line of the PTX, which has a digest of the sources without comments."""
    everything = "\n".join([PACKAGE, VERSION, *OPTIONS, *STANDARD_HEADERS.values()]).encode()
    for name in SOURCES:
        everything += contents(ROOT / "csrc" / name)
    return f"// of sources {hashlib.sha256(everything).hexdigest()}\n"


def compiler() -> ctypes.CDLL | None:
    """Return the library of NVRTC `VERSION`; None if it is not installed."""
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    if package.version != VERSION:
        return None
    folder = Path(str(package.locate_file("nvidia/cuda_nvrtc/lib")))
    ctypes.CDLL(str(next(folder.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)  # NVRTC opens it by name
    return ctypes.CDLL(str(folder / "libnvrtc.so.12"))


def compile_kernels(nvrtc: ctypes.CDLL) -> str:
    """Return the PTX, with the digest of its sources in the first line."""

    def check(status: int) -> None:
        if status != 0:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status).decode()}")

    def text(size: str, get: str) -> str:
        length = ctypes.c_size_t()
        check(getattr(nvrtc, size)(program, ctypes.byref(length)))
        found = ctypes.create_string_buffer(length.value)
        check(getattr(nvrtc, get)(program, found))
        return found.value.decode()

    def strings(values: list[str]) -> ctypes.Array[ctypes.c_char_p]:
        return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))

    program = ctypes.c_void_p()
    main, *others = (ROOT / "csrc" / name for name in SOURCES)
    headers = dict(zip(SOURCES[1:], (file.read_text() for file in others), strict=True)) | STANDARD_HEADERS
    names, texts = strings(list(headers)), strings(list(headers.values()))
    source = ctypes.c_char_p(main.read_bytes())
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", len(headers), texts, names))
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), strings(list(OPTIONS))) != 0:
        raise RuntimeError(text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog"))
    return digest() + text("nvrtcGetPTXSize", "nvrtcGetPTX")


def main() -> int:
    """Write the file; return the exit status.

    With --compiler, print the required package. With --unpack FILE, write the PTX itself, as builds do.
    """
    if sys.argv[1:] == ["--compiler"]:
        print(f"{PACKAGE}=={VERSION}")
        return 0
    if sys.argv[1:2] == ["--unpack"]:
        Path(sys.argv[2]).write_bytes(gzip.decompress(FILE.read_bytes()))
        return 0
    nvrtc = compiler()
    if nvrtc is None:
        print(f"device code: expected {PACKAGE} {VERSION}; install it: make device-code", file=sys.stderr)
        return 1
    FILE.write_bytes(gzip.compress(compile_kernels(nvrtc).encode(), mtime=0))
    print(f"wrote {FILE.relative_to(ROOT)}, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
